"""What a run tells its user: the error of a step that left nothing usable, and warnings of a run that went on."""

import warnings

import numpy as np

from epf.errors import EPFWarning, NumericalError
from epf.filters._base import Filter
from epf.results._record import MAX_ERROR, Record


def failure(t: int, place: str, what_is_left: str) -> NumericalError:
    """The error for a step at which nothing usable was left."""
    return NumericalError(
        f"At t = {t} ({place}) no particle or moment was a finite number: the model gives NaN or infinity there. "
        "Look at its laws for that observation (a logarithm or root of a negative number, an overflow), or give the "
        f"parameters a prior that excludes such values; {what_is_left}.",
        t,
    )


def warn_of_steps(record: Record, last: int, stacklevel: int = 3) -> None:
    """Warn once of observations set aside, particles lost, and a posterior that was cut off; `last` is the last step."""
    first = last - len(record.info.collapsed) + 1
    most = int(np.max(record.info.invalid, initial=0))
    for flags, what in (
        (
            record.info.collapsed,
            "every particle had likelihood zero, and the observation was set aside: an outlier, or a model that excludes "
            "it. Check that value, or give observation() heavier tails.",
        ),
        (
            record.info.invalid,
            f"some particles (at most {most}) were not finite and got weight zero: the model gives NaN or infinity for "
            "some states or parameters. Correct its laws, or give it a prior that excludes those.",
        ),
        (
            record.info.edge,
            "the posterior reached the edge of the region that its nodes cover, and what lies beyond is cut off: "
            "the data contradict the prior, so widen it.",
        ),
    ):
        steps = np.flatnonzero(flags)
        if len(steps):
            others = "" if len(steps) == 1 else f" and {len(steps) - 1} other time{'s' if len(steps) > 2 else ''}"
            message = f"At t = {first + int(steps[0])}{others} {what}"
            warnings.warn(message, EPFWarning, stacklevel=stacklevel)


def warn_of_error(errors: np.ndarray, method: Filter, last: int, stacklevel: int = 3) -> None:
    """Warn of polynomials that are too far from the log-density they stand for; `errors` has one entry per step."""
    if len(errors) == 0 or not errors.max() > MAX_ERROR:
        return
    worst = int(np.argmax(errors))
    if not method.residuals_add_up:
        if errors[-1] <= MAX_ERROR:
            return  # it was rough once, and is no more
        remedy = f"give epf.{type(method).__name__} more nodes or more particles, or narrow the prior"
    elif type(getattr(method, "approximation", None)).__name__ == "Taylor":
        remedy = "Taylor's series holds only near its centre, so use epf.Chebyshev() in its place"
    else:
        name = type(method).__name__
        remedy = f"raise the order, as in epf.{name}(approximation=epf.Chebyshev(order=...)), or narrow the prior"
    warnings.warn(
        f"At t = {last - len(errors) + 1 + worst} the polynomials of the parameters' log-density were about "
        f"{errors[worst]:.2g} nats off (at t = {last}: {errors[-1]:.2g}); the posterior is not to be trusted where this is "
        f"above {MAX_ERROR:g}: {remedy}.",
        EPFWarning,
        stacklevel=stacklevel,
    )


def warn_of_interrupt(done: int, total: int, what: str, what_is_left: str, stacklevel: int = 4) -> None:
    """Warn that a run was interrupted, and say how to continue it."""
    warnings.warn(
        f"Interrupted after {done} of {total} {what}: {what_is_left}; fit(..., resume_from=result) continues from there.",
        EPFWarning,
        stacklevel=stacklevel,
    )
