"""Whether to trust a run, in words: good, doubtful or do not trust, and why."""

from typing import Any, NamedTuple

import numpy as np

from epf.results._approximation_error import MAX_ERROR, approximation_error

LEVELS = ("good", "doubtful", "do not trust")
_MIXED, _APART = 1.01, 1.1  # R-hat
_ENOUGH = 400  # effective draws (Vehtari, Gelman, Simpson, Carpenter and Burkner 2021)
_STUCK = 0.05  # of the proposals accepted
_FEW = 0.05  # of the particles: an effective number below this at many steps is little to stand on


class Finding(NamedTuple):
    """One thing that a reader should know: its level (0 good, 1 doubtful, 2 do not trust) and a sentence."""

    level: int
    sentence: str


class Verdict(NamedTuple):
    """All findings, the worst first."""

    findings: list[Finding]

    @property
    def level(self) -> int:
        return max((finding.level for finding in self.findings), default=0)

    @property
    def word(self) -> str:
        return LEVELS[self.level]

    def __str__(self) -> str:
        return "\n".join([self.word, *(f"  {LEVELS[level]}: {sentence}" for level, sentence in self.findings)])


def judge(result: Any) -> Verdict:
    """Look at a result's steps, its approximation and its particles."""
    found = [*_steps(result), *_approximation(result), *_particles(result)]
    if not any(finding.level for finding in found):
        found.append(Finding(0, "Every step went as it should."))
    return Verdict(sorted(found, key=lambda finding: -finding.level))


def judge_chains(result: Any) -> Verdict:
    """Look at Markov chains: whether they are one, how many independent draws they are worth, and whether they move."""
    found: list[Finding] = []
    worst = max(float(np.max(value)) for value in result.rhat.values())
    level = 0 if worst <= _MIXED else 1 + (worst > _APART)
    remedy = "." if level == 0 else ", so they have not mixed: run them longer."
    found.append(Finding(level, f"The chains' R-hat is {worst:.3f} at most{remedy}"))
    least = min(float(np.min(value)) for value in result.ess.values())
    level = 0 if least >= _ENOUGH else 1 + (least < _ENOUGH / 4)
    remedy = "." if level == 0 else f", fewer than {_ENOUGH}: run them longer."
    found.append(Finding(level, f"The draws are worth {least:.0f} independent ones at least{remedy}"))
    slowest = float(np.min(result.acceptance))
    if slowest < _STUCK:
        found.append(
            Finding(1, f"A chain accepted only {slowest:.1%} of its proposals: give the filters more particles.")
        )
    if result.interrupted:
        found.append(Finding(1, "The run was interrupted: go on with fit(..., resume_from=result)."))
    return Verdict(sorted(found, key=lambda finding: -finding.level))


def _steps(result: Any) -> list[Finding]:
    info, first = result.record.info, result.num_observations - len(result.record.info.ess) + 1
    found = []
    for what, flags, remedy in (
        ("every particle had likelihood zero and the observation was set aside", info.collapsed,
         "look at these values, or give observation() heavier tails"),
        ("some particles were not finite numbers", info.invalid, "correct the model's laws, or narrow the prior"),
        ("the posterior was cut off at an edge of the region that the nodes cover", info.edge,
         "the data contradict the prior, so give it more weight there"),
    ):  # fmt: skip
        steps = np.flatnonzero(flags)
        if len(steps):
            share = len(steps) / max(len(flags), 1)
            found.append(
                Finding(1 + (share > 0.01), f"At {len(steps)} of {len(flags)} steps (first at t = {first + int(steps[0])}) {what}: {remedy}.")
            )  # fmt: skip
    return found


def _approximation(result: Any) -> list[Finding]:
    record = result.record
    if np.isnan(record.info.residual).all():
        return []
    adds_up = (
        result.settings.get("method") != "MarginalEPF" if result.method is None else result.method.residuals_add_up
    )
    nats = float(approximation_error(record, adds_up)[-1])
    sentence = f"The polynomials of the log-density are about {nats:.2g} nats off"
    if nats > MAX_ERROR:
        return [
            Finding(2, f"{sentence}, above {MAX_ERROR:g}: raise the order or the number of nodes, or narrow the prior.")
        ]
    if nats > 0.4 * MAX_ERROR:
        return [Finding(1, f"{sentence}, close to the {MAX_ERROR:g} above which they are not to be trusted.")]
    return [Finding(0, f"{sentence}, well below the {MAX_ERROR:g} above which they are not to be trusted.")]


def _particles(result: Any) -> list[Finding]:
    found, method, ess = [], result.settings.get("method", ""), np.asarray(result.record.info.ess, float)
    count = int(getattr(result.method, "thetas", getattr(result.method, "particles", 0)))  # those that the ESS counts
    if count and not np.isnan(ess).all():
        typical, few = float(np.nanmedian(ess)), float(np.mean(ess < _FEW * count))
        if few > 0.2:
            found.append(Finding(1, f"At {few:.0%} of the steps fewer than {_FEW:.0%} of the particles carried weight: use more."))  # fmt: skip
        else:
            found.append(Finding(0, f"Typically {typical:.0f} effective particles of {count}."))
    if method == "SIR" and result.parameters.size and result.state is not None:
        left = len(np.unique(np.asarray(result.state.theta), axis=1).T)
        if left < 0.5 * count:
            level = 2 if left < 0.1 * count else 1
            found.append(Finding(level, f"SIR has {left} of {count} drawn values of the parameters left: use epf.EPF, which draws afresh."))  # fmt: skip
    if method == "LiuWest":
        found.append(
            Finding(1, "Liu and West's artificial noise biases the spread of the parameters: compare with epf.EPF.")
        )
    if method == "OnlineEM":
        found.append(
            Finding(0, "OnlineEM gives a point: its sd of 0 says nothing of how well the parameters are known.")
        )
    if method == "Kalman" and result.settings.get("form") in ("extended", "unscented"):
        found.append(
            Finding(1, "The model was linearised, and how far that is right is not measured: compare with epf.EPF.")
        )
    return found
