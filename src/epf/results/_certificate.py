"""The certificate of an answer: how far mean and sd of each parameter may be off, by cause, in plain numbers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from epf.model._parameters import Parameters
from epf.posterior._posterior import ErrorEstimate
from epf.results._record import Record, approximation_error

PARTS = ("monte_carlo", "bias", "expansion", "truncation", "numbers")
WORDS = {
    "monte_carlo": "Monte Carlo",
    "bias": "bias of the likelihood",
    "expansion": "expansion",
    "truncation": "truncation",
    "numbers": "numbers",
}


class Certificate(NamedTuple):
    """Errors of the posterior mean, in posterior sds, and of the sd, relative; NaN where they were not measured.

    The true error should be below twice the certificate in 19 of 20 runs.

    Examples:
        >>> error = result.error
        >>> list(error.mean), list(error.sd), error.total.shape  # errors of the means, then of the sds
        (['level_variance', 'noise_variance'], ['level_variance', 'noise_variance'], (2, 2))
        >>> bool(error.worst == error.total.max()), error.largest_part, error.without_variance
        (True, 'monte_carlo', ())
    """

    labels: tuple[str, ...]
    parts: dict[str, np.ndarray]
    """By cause: an array of shape (2, p), with the error of the mean and of the sd of each parameter."""
    parameters: Parameters | None = None
    """Those of the model, if they are known: a saved series has their labels alone."""

    @property
    def without_variance(self) -> tuple[str, ...]:
        """Parameters whose prior has no variance, and whose posterior may have none."""
        return () if self.parameters is None else self.parameters.without_variance

    @property
    def total(self) -> np.ndarray:
        """All causes together, shape (2, p)."""
        return total_of(self.parts)

    @property
    def mean(self) -> dict[str, float]:
        """The error of each parameter's posterior mean, in posterior sds."""
        return dict(zip(self.labels, self.total[0].tolist(), strict=True))

    @property
    def sd(self) -> dict[str, float]:
        """The relative error of each parameter's posterior sd."""
        return dict(zip(self.labels, self.total[1].tolist(), strict=True))

    @property
    def worst(self) -> float:
        """The largest error of any mean or sd; NaN if one was not measured."""
        return float(np.max(self.total, initial=0.0))

    @property
    def largest_part(self) -> str:
        """The cause that contributes most to the worst parameter."""
        return cause(self.parts)

    def __str__(self) -> str:
        rows = [f"{'error of the mean (sds) and of the sd':<40}" + "".join(f"{WORDS[name]:>24}" for name in PARTS)]
        for i, label in enumerate(self.labels):
            mean, sd = self.total[:, i]
            parts = "".join(f"{self.parts[n][0, i]:>15.2g} {self.parts[n][1, i]:>8.2g}" for n in PARTS)
            rows.append(f"{label:<20}{mean:>11.2g} {sd:>8.2g}{parts}")
        return "\n".join(rows)


def certificate(parameters: Parameters, record: Record, before: float = 0.0) -> Certificate:
    """The certificate after the last row of the record; `before` is the expansion's error before its first row."""
    if not len(record.mean):  # before the first observation nothing was measured
        parts = {name: np.full((2, parameters.size), np.nan) for name in PARTS}
    else:
        parts = {name: rows[-1] for name, rows in error_history(record, before).items()}
    return Certificate(tuple(parameters.labels), parts, parameters)


def error_history(record: Record, before: float = 0.0) -> dict[str, np.ndarray]:
    """Every part after each step, shape (time, 2, p).

    An error of the log-density of so many nats moves mean and sd by at most as many sds.
    """
    parts: dict[str, Any] = {name: np.asarray(getattr(record.error, name), float) for name in PARTS}
    nats = approximation_error(record, before)
    parts["expansion"] = parts["expansion"] + nats[:, None, None]
    return parts


def cause(parts: Mapping[str, Any]) -> str:
    """The largest part. An infinite one says that nothing is known of it: another of a whole sd or more explains why."""
    worst = {name: float(np.nan_to_num(np.max(parts[name], initial=0.0), nan=np.inf, posinf=np.inf)) for name in PARTS}
    known = {name: size for name, size in worst.items() if 1.0 < size < np.inf}
    return max(known or worst, key=lambda name: worst[name])


def total_of(parts: Mapping[str, Any]) -> np.ndarray:
    """All causes together."""
    return np.asarray(ErrorEstimate(**parts).total)


def worst_mean(record: Record) -> np.ndarray:
    """The largest error of any mean after each step, in posterior sds; NaN where it was not measured."""
    return np.max(total_of(error_history(record))[:, 0], axis=1, initial=0.0)
