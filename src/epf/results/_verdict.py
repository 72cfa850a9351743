"""Whether to trust a run: good, doubtful or do not trust, with the reasons.

The verdict on a filter's run is made from its certificate: it is good only if the errors of all means and sds are small.
Flags of single steps and caveats of the method come on top. Markov chains are judged by their convergence.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from epf.filters._base import Caveat, Method
from epf.results._certificate import WORDS, Certificate, cause
from epf.results._tables import flat

if TYPE_CHECKING:
    from epf.results._chains import Chains
    from epf.results._result import Result

LEVELS = ("good", "doubtful", "do not trust")
_GOOD_RHAT, _BAD_RHAT = 1.01, 1.1
_ENOUGH_DRAWS = 400  # effective (Vehtari, Gelman, Simpson, Carpenter and Burkner 2021)
_LOW_ACCEPTANCE = 0.05
_FEW_PARTICLES = 16  # four islands of four
_FEW_EFFECTIVE = 8  # particles at a step, where the state is all that is not known
MEAN_LIMIT, SD_LIMIT = 0.2, 0.12  # errors of a mean in posterior sds, and of an sd, up to which an answer is good
_LEAVE_IT = "or name no method and give a larger budget in seconds (budget=600, or --budget 600)"
_WITHOUT_VARIANCE = (
    "The prior of {} has no variance, so where the data say little of it its posterior has no mean or sd that a run could "
    "find: trust its quantiles alone, or give it a prior with lighter tails, such as HalfNormal or Normal."
)
# Read in Python and on the command line alike.
REMEDIES = {
    "monte_carlo": f"use more particles, {_LEAVE_IT}",
    "bias": f"use more particles, {_LEAVE_IT}",
    "expansion": f"use more nodes or a higher order, {_LEAVE_IT}",
    "truncation": "widen the prior, or name no method: the nodes of the default follow the posterior; if the model stays "
    "the same when some parameters change their signs, give one of them a positive prior",
    "numbers": "look for observations that the model excludes, rescale the data, or run in double precision",
}


class MethodFacts(NamedTuple):
    """What the verdict needs to know of a filter; saved with a result, so that it can be read without the model."""

    weighted_particles: int | None = None
    caveats: tuple[Caveat, ...] = ()
    remedies: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, method: Method, state: Any) -> "MethodFacts":
        return cls(method.weighted_particles, method.caveats(state), method.remedies)

    def also(self, caveats: Iterable[Caveat]) -> "MethodFacts":
        """With further caveats."""
        return self._replace(caveats=(*self.caveats, *caveats))


class Verdict(NamedTuple):
    """All findings, the worst first.

    Examples:
        >>> verdict = result.verdict
        >>> verdict.word, verdict.level, len(verdict.findings) > 0
        ('do not trust', 2, True)
    """

    findings: list[Caveat]

    @property
    def level(self) -> int:
        """0 good, 1 doubtful, 2 do not trust: that of the worst finding."""
        return max((finding.level for finding in self.findings), default=0)

    @property
    def word(self) -> str:
        """The level as "good", "doubtful" or "do not trust"."""
        return LEVELS[self.level]

    def __str__(self) -> str:
        return "\n".join([self.word, *(f"  {LEVELS[level]}: {sentence}" for level, sentence in self.findings)])


class Flagged(NamedTuple):
    """How many steps had a flag, and the first of them."""

    times: int = 0
    first: int = 0

    def after(self, flags: Any, t: int) -> "Flagged":
        """With the flags of further steps, of which the first is `t`."""
        steps = np.flatnonzero(flags)
        if not len(steps):
            return self
        return Flagged(self.times + len(steps), self.first or t + int(steps[0]))


def judge(result: "Result") -> Verdict:
    """The verdict on a filter's run: its certificate, its steps, its particles and the method itself."""
    info, total = result.record.info, len(result.record.info.ess)
    first = result.num_observations - total + 1
    collapsed, invalid = (Flagged().after(flags, first) for flags in (info.collapsed, info.invalid))
    return judge_run(result.error, total, collapsed, invalid, info.ess, result.method_facts)


def judge_run(
    error: Certificate, total: int, collapsed: Flagged, invalid: Flagged, ess: Any, facts: MethodFacts
) -> Verdict:
    """The verdict on `total` steps of a filter."""
    flags, ess = _flags(total, collapsed, invalid), np.asarray(ess, float)
    particles = _particles(facts.weighted_particles, ess)
    if not error.labels and particles and np.nanmin(ess) < _FEW_EFFECTIVE:  # no certificate tells of it
        sentence = (
            f"At one step at least, {np.nanmin(ess):.1f} effective particles stood for the state: use more particles."
        )
        particles.append(Caveat(1, f"{sentence} States and evidence may be wrong."))
    return _worst_first([judge_error(error, facts.remedies), *flags, *particles, *facts.caveats])


def judge_chains(chains: "Chains") -> Verdict:
    """The verdict on Markov chains: convergence, effective number of draws, acceptance."""
    # Neither is known of a parameter that never moved, which is then no good sign.
    rhat, ess = (float(reduced(flat(values))) for reduced, values in ((np.max, chains.rhat), (np.min, chains.ess)))
    if rhat <= _GOOD_RHAT:
        found = [Caveat(0, f"The chains have converged (R-hat {rhat:.3f} at most).")]
    else:
        sentence = f"The chains have not converged (R-hat {rhat:.3f} at most): run them longer."
        found = [Caveat(1 + (rhat > _BAD_RHAT), sentence)]
    if ess >= _ENOUGH_DRAWS:
        found.append(Caveat(0, f"The effective number of draws is {ess:.0f} at least."))
    else:
        sentence = f"The effective number of draws is only {ess:.0f}, below {_ENOUGH_DRAWS}: run the chains longer."
        found.append(Caveat(1 + (ess < _ENOUGH_DRAWS / 4), sentence))
    acceptance = float(np.min(chains.acceptance))
    if acceptance < _LOW_ACCEPTANCE:
        found.append(Caveat(1, f"A chain accepted only {acceptance:.1%} of its proposals: use more particles."))
    if chains.interrupted:
        found.append(Caveat(1, "The run was interrupted: continue with fit(..., resume_from=result)."))
    return _worst_first(found)


def _worst_first(found: list[Caveat]) -> Verdict:
    return Verdict(sorted(found, key=lambda finding: -finding.level))


def _flags(total: int, collapsed: Flagged, invalid: Flagged) -> list[Caveat]:
    found = []
    for flagged, sentence in (
        (collapsed, "every particle had likelihood zero and the observation was set aside: check these values, or "
         "give observation() heavier tails (some noise, if it is a point, dist.Delta)."),
        (invalid, "some particles or points were not finite: correct the model's laws, or narrow the prior."),
    ):  # fmt: skip
        if flagged.times:
            where = f"At {flagged.times} of {total} steps (first at t = {flagged.first})"
            found.append(Caveat(1 + (flagged.times > 0.01 * total), f"{where} {sentence}"))
    return found


def judge_error(error: Certificate, remedies: Mapping[str, str] = MappingProxyType({})) -> Caveat:
    """Whether the errors of all means and sds are within their limits, and what helps if not: `remedies`, or the usual."""
    if not error.labels:
        return Caveat(0, "The model has no unknown parameter.")
    mean, sd = error.total
    if np.isnan(mean).any() or np.isnan(sd).any():
        return Caveat(1, "The error of this answer was not measured: compare it with a run that names no method.")
    share = np.maximum(mean / MEAN_LIMIT, sd / SD_LIMIT)
    worst = int(np.argmax(share))
    if share[worst] <= 1.0:
        first, second = int(np.argmax(mean)), int(np.argmax(sd))
        whose = "its sd" if first == second else f"the sd of {error.labels[second]}"
        known = f"the mean of {error.labels[first]} may be off by {mean[first]:.2g} posterior sds"
        return Caveat(0, f"At most, {known}, {whose} by {sd[second]:.0%}.")
    off = _off(error.labels[worst], mean[worst], sd[worst])
    part = cause({name: values[:, worst] for name, values in error.parts.items()})
    why = "mostly from" if np.isfinite(share[worst]) else "because of"
    level = 1 if share[worst] <= 2.0 else 2
    sentence = f"{off[0].upper()}{off[1:]}, {why} {WORDS[part]}: {remedies.get(part, REMEDIES[part])}."
    if error.labels[worst] in error.without_variance:
        sentence = f"{sentence} {_WITHOUT_VARIANCE.format(error.labels[worst])}"
    return Caveat(level, sentence)


def _off(label: str, mean: float, sd: float) -> str:
    """How far mean and sd of a parameter may be off, in words; of an infinite error nothing is known."""
    if not np.isfinite(mean):
        return f"how far the mean and sd of {label} are off is not known"
    known = f"the mean of {label} may be off by {mean:.2g} posterior sds"
    return f"{known}, its sd by {sd:.0%}" if np.isfinite(sd) else f"{known}, and how far its sd is off is not known"


def _particles(total: int | None, ess: np.ndarray) -> list[Caveat]:
    if not total or np.isnan(ess).all():
        return []
    if total < _FEW_PARTICLES:
        return [Caveat(1, f"With so few particles ({total}) no error can be measured: use hundreds.")]
    return [Caveat(0, f"The median effective sample size is {np.nanmedian(ess):.0f} of {total} particles.")]
