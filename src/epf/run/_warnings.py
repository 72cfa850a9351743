"""What a run tells its user: the error of a step that left nothing usable, and warnings of a run that went on."""

import jax
import numpy as np
from jaxtyping import Array

from epf.errors import AccuracyWarning, NumericalError, warn
from epf.filters._base import Info
from epf.filters._modes import Elsewhere
from epf.model._model import StateSpaceModel, parameters
from epf.model._trial import BothLaws, faults
from epf.numerics._keys import root_key
from epf.results._observed import NOTHING, ROUNDED
from epf.results._result import Result
from epf.results._verdict import judge_error

_TRIED = 64  # draws from the prior
_OPENINGS = ("", "This posterior is doubtful.", "Do not trust this posterior.")
NOT_FINITE = (
    "no particle or moment was a finite number: the model gives NaN or infinity there. Look at its laws for that "
    "observation (a logarithm or root of a negative number, an overflow), or give the parameters a prior that excludes such "
    "values"
)


def failure(t: int, place: str, what_is_left: str, why: str = NOT_FINITE) -> NumericalError:
    """The error for a step at which nothing usable was left."""
    return NumericalError(f"At t = {t} ({place}) {why}; {what_is_left}.", t)


def warn_of_steps(info: Info, last: int, result: object = None) -> None:
    """Warn once of observations set aside and of particles lost; `last` is the last step."""
    if _is_a_look(result):
        return
    first = last - len(info.collapsed) + 1
    most = int(np.max(info.invalid, initial=0))
    for flags, what in (
        (
            info.collapsed,
            "every particle had likelihood zero, and the observation was set aside: an outlier, or a model that excludes "
            "it. Check that value, or give observation() heavier tails (some noise, if it is a point, dist.Delta).",
        ),
        (
            info.invalid,
            f"some particles or points (at most {most}) were not finite and got weight zero: the model gives NaN or "
            "infinity for some states or parameters. Correct its laws, or give it a prior that excludes those.",
        ),
    ):
        steps = np.flatnonzero(flags)
        if len(steps):
            others = "" if len(steps) == 1 else f" and {len(steps) - 1} other time{'s' if len(steps) > 2 else ''}"
            warn(f"At t = {first + int(steps[0])}{others} {what}", result=result)


def warn_of_error(result: Result) -> None:
    """Warn of a certificate that is too large and of data that say too little; of steps `warn_of_steps` has warned."""
    of_data = [caveat for caveat in (NOTHING, ROUNDED) if caveat in result.method_facts.caveats]
    for level, sentence in (judge_error(result.error, result.method_facts.remedies), *of_data):
        if level:
            warn(f"{_OPENINGS[level]} {sentence}", AccuracyWarning, result)


def warn_of_interrupt(done: int, total: int, what: str, what_is_left: str, result: object) -> None:
    """Warn that a run was interrupted, and say how to continue it."""
    if _is_a_look(result):
        return
    warn(
        f"Interrupted after {done} of {total} {what}: {what_is_left}; fit(..., resume_from=result) continues from there.",
        result=result,
    )


def _is_a_look(result: object) -> bool:
    """Whether the run is not an answer: nodes elsewhere may be where the model breaks, and nobody waits for the end."""
    return isinstance(getattr(result, "method", None), Elsewhere)


def why_impossible(model: StateSpaceModel, u: Array | None, otherwise: str) -> str:
    """Why no theta can explain the data, as far as a trial of the laws at draws from the prior can tell."""
    thetas = jax.vmap(parameters(model).sample)(jax.random.split(root_key(0), _TRIED))
    for fault in faults(model, u, np.asarray(thetas), BothLaws(model), "draws from the prior"):
        if fault.moves:
            return (
                f": {fault.what}, so an observation outside of it has likelihood zero ({fault.at}). Look for an outlier, or "
                "widen the prior"
            )
        return f": {fault.what} {fault.at}. Correct that law, or narrow the prior to where it works"
    return f": {otherwise}"
