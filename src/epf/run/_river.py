"""A stream behind the interface of river: `learn_one`, `predict_one`, and an interval."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from epf.filters._base import Filter
from epf.model._model import StateSpaceModel
from epf.run._stream import Stream


def to_river(
    model: StateSpaceModel,
    method: Filter | None = None,
    *,
    inputs: Sequence[str] = (),
    num_samples: int = 1000,
    seed: int = 0,
) -> Any:
    """A regressor for river that learns the model's parameters as rows come; it needs river.

    `inputs` names the features that are the model's inputs, in its order; other features are ignored. Besides
    `learn_one(x, y)` and `predict_one(x)`, the mean of the next observation, it has `predict_interval(x, mass)`. Its
    `stream` is an `epf.Stream`, with posterior, certificate and verdict. The observation must be one number.

        regressor = epf.to_river(Room(), inputs=("outside", "heater"))
        river.evaluate.progressive_val_score(rows, regressor, river.metrics.MAE())

    Examples:
        >>> regressor = epf.to_river(model, epf.SIR(400))
        >>> regressor.learn_one({}, 0.5)
        >>> isinstance(regressor.predict_one({}), float)
        True
    """
    try:
        base: Any = import_module("river.base")
    except ImportError:
        raise ModuleNotFoundError("to_river() needs river: pip install river.") from None

    class StateSpaceRegressor(base.Regressor):
        """A state-space model that learns its parameters online."""

        def __init__(
            self,
            model: StateSpaceModel,
            method: Filter | None = None,
            inputs: Sequence[str] = (),
            num_samples: int = 1000,
            seed: int = 0,
        ) -> None:
            self.model, self.method, self.inputs = model, method, inputs
            self.num_samples, self.seed = num_samples, seed
            self.stream = Stream(model, method, seed=seed)

        def learn_one(self, x: dict[Any, Any], y: Any) -> None:
            self.stream.update(y, self._row(x))

        def predict_one(self, x: dict[Any, Any]) -> float:
            return float(self._ahead(x).mean.ravel()[0])

        def predict_interval(self, x: dict[Any, Any], mass: float = 0.9) -> tuple[float, float]:
            """The central interval of the next observation."""
            low, high = self._ahead(x).interval(mass)
            return float(low.ravel()[0]), float(high.ravel()[0])

        def _ahead(self, x: dict[Any, Any]) -> Any:
            row = self._row(x)
            return self.stream.forecast(
                1, inputs=None if row is None else [row], num_samples=self.num_samples, seed=self.seed
            )

        def _row(self, x: dict[Any, Any]) -> list[float] | None:
            return [float(x[name]) for name in self.inputs] or None

    return StateSpaceRegressor(model, method, list(inputs), num_samples, seed)  # clone() of river trips over ()
