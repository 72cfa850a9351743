"""Whether to trust a run: good, doubtful or do not trust, with the reasons.

The verdict combines what the run recorded (flags, residuals, effective sample sizes, R-hat) with the caveats of the method.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from epf.filters._base import Caveat, Filter
from epf.offline._base import Sequential
from epf.results._record import MAX_ERROR, approximation_error

if TYPE_CHECKING:
    from epf.results._chains import Chains
    from epf.results._result import Result

LEVELS = ("good", "doubtful", "do not trust")
_GOOD_RHAT, _BAD_RHAT = 1.01, 1.1
_ENOUGH_DRAWS = 400  # effective (Vehtari, Gelman, Simpson, Carpenter and Burkner 2021)
_LOW_ACCEPTANCE = 0.05
_LOW_ESS = 0.05  # as a share of the particles


class MethodFacts(NamedTuple):
    """What the verdict needs to know of a filter; saved with a result, so that it can be read without the model."""

    residuals_add_up: bool = True
    weighted_particles: int | None = None
    caveats: tuple[Caveat, ...] = ()

    @classmethod
    def of(cls, method: Filter | Sequential, state: Any) -> "MethodFacts":
        return cls(method.residuals_add_up, method.weighted_particles, method.caveats(state))


class Verdict(NamedTuple):
    """All findings, the worst first."""

    findings: list[Caveat]

    @property
    def level(self) -> int:
        return max((finding.level for finding in self.findings), default=0)

    @property
    def word(self) -> str:
        return LEVELS[self.level]

    def __str__(self) -> str:
        return "\n".join([self.word, *(f"  {LEVELS[level]}: {sentence}" for level, sentence in self.findings)])


def judge(result: "Result") -> Verdict:
    """The verdict on a filter's run: its steps, its approximation, its particles and the method itself."""
    found = [*_flags(result), *_approximation(result), *_particles(result), *result.method_facts.caveats]
    if not any(finding.level for finding in found):
        found.append(Caveat(0, "No step raised a flag."))
    return _worst_first(found)


def judge_chains(chains: "Chains") -> Verdict:
    """The verdict on Markov chains: convergence, effective number of draws, acceptance."""
    rhat = max(float(np.max(value)) for value in chains.rhat.values())
    if rhat <= _GOOD_RHAT:
        found = [Caveat(0, f"The chains have converged (R-hat {rhat:.3f} at most).")]
    else:
        sentence = f"The chains have not converged (R-hat {rhat:.3f} at most): run them longer."
        found = [Caveat(1 + (rhat > _BAD_RHAT), sentence)]
    ess = min(float(np.min(value)) for value in chains.ess.values())
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


def _flags(result: "Result") -> list[Caveat]:
    info = result.record.info
    total, first = len(info.ess), result.num_observations - len(info.ess) + 1
    found = []
    for flags, sentence in (
        (info.collapsed, "every particle had likelihood zero and the observation was set aside: check these values, or "
         "give observation() heavier tails."),
        (info.invalid, "some particles were not finite: correct the model's laws, or narrow the prior."),
        (info.edge, "the posterior was cut off at the edge of the region that the nodes cover: widen the prior."),
    ):  # fmt: skip
        steps = np.flatnonzero(flags)
        if len(steps):
            where = f"At {len(steps)} of {total} steps (first at t = {first + int(steps[0])})"
            found.append(Caveat(1 + (len(steps) > 0.01 * total), f"{where} {sentence}"))
    return found


def _approximation(result: "Result") -> list[Caveat]:
    if np.isnan(result.record.info.residual).all():
        return []
    nats = float(approximation_error(result.record, result.method_facts.residuals_add_up)[-1])
    sentence = f"The polynomial log-density is off by about {nats:.2g} nats"
    if nats > MAX_ERROR:
        remedy = "raise the order or the number of nodes, or narrow the prior"
        return [Caveat(2, f"{sentence}, above the limit of {MAX_ERROR:g}: {remedy}.")]
    if nats > 0.4 * MAX_ERROR:
        return [Caveat(1, f"{sentence}, close to the limit of {MAX_ERROR:g}.")]
    return [Caveat(0, f"{sentence}, well below the limit of {MAX_ERROR:g}.")]


def _particles(result: "Result") -> list[Caveat]:
    total, ess = result.method_facts.weighted_particles, np.asarray(result.record.info.ess, float)
    if not total or np.isnan(ess).all():
        return []
    low = float(np.mean(ess < _LOW_ESS * total))
    if low > 0.2:
        sentence = f"At {low:.0%} of the steps the effective sample size was below {_LOW_ESS:.0%} of the particles"
        return [Caveat(1, f"{sentence}: use more particles.")]
    return [Caveat(0, f"The median effective sample size is {np.nanmedian(ess):.0f} of {total} particles.")]
