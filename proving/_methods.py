"""The methods that are put to the proof, by name."""

from collections.abc import Callable
from typing import Any

import epf


def _with(method: Callable[[], Any]) -> Callable[..., Any]:
    return lambda model, y, **arguments: epf.fit(model, y, method(), **arguments)


METHODS: dict[str, Callable[..., Any]] = {
    "default": lambda model, y, **arguments: epf.fit(model, y, **arguments),
    "marginal": _with(lambda: epf.MarginalEPF()),
    "epf": _with(lambda: epf.EPF(1000)),
    "storvik": _with(lambda: epf.Storvik(1000)),
    "particle-learning": _with(lambda: epf.ParticleLearning(1000)),
    "liu-west": _with(lambda: epf.LiuWest(1000)),
    "nested": _with(lambda: epf.NestedFilter(1000)),
    "assumed-parameter": _with(lambda: epf.AssumedParameterFilter(1000)),
    "kalman": _with(lambda: epf.Kalman()),
}
