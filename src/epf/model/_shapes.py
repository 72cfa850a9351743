"""The shapes of a model's values, and which observations it can give, found by tracing its laws."""

import equinox as eqx
from jaxtyping import Array
from numpyro.distributions import Distribution

from epf.errors import ModelError, reason
from epf.model._constraints import Allowed, allowed_by
from epf.model._laws import draw, weighs_single_components
from epf.model._model import (
    StateSpaceModel,
    advance,
    initial_law,
    observation_law,
    parameters,
    traced_at,
    transition_law,
)
from epf.numerics._keys import root_key
from epf.numerics._remembered import remembered


class Shapes(eqx.Module):
    """The shapes of a model's state, of the new part of it, and of one observation."""

    state: tuple[int, ...]
    new: tuple[int, ...]
    observation: tuple[int, ...]
    weighs_single_components: bool
    observation_law: str
    allowed: tuple[Allowed, ...]


@remembered
def shapes_of(model: StateSpaceModel, u: Array | None) -> Shapes:
    """The shapes of a model's values, found by tracing; inputs are traced too, since those of later rows may differ."""
    params = parameters(model)

    def of_laws(numbers: Array) -> tuple[tuple[int, ...], tuple[int, ...], Distribution]:
        p = params.named(numbers[: params.size])
        row = None if u is None else numbers[params.size :]
        x = _value_of(initial_law(model, p), "initial")
        new = _value_of(transition_law(model, p, x, row), "transition")
        advanced = advance(model, x, new)
        if x.shape != advanced.shape:
            raise ModelError(
                f"initial() gives a state of shape {x.shape}, but after transition() and advance() it has shape "
                f"{advanced.shape}: give both the same shape, or write advance() to keep the lags."
            )
        for shape in (x.shape, new.shape):
            if len(shape) > 1:
                raise ModelError(f"The state has shape {shape}: it must be a number or a vector, so flatten it.")
        return x.shape, new.shape, observation_law(model, p, advanced, row)

    x, new, law = traced_at(params.size + (0 if u is None else len(u)), of_laws)
    if len(law.event_shape) > 1:
        raise ModelError(
            f"observation() has shape {tuple(law.event_shape)}: it must be a number or a vector, so flatten it."
        )
    return Shapes(x, new, tuple(law.event_shape), weighs_single_components(law), type(law).__name__, allowed_by(law))


def _value_of(law: Distribution, where: str) -> Array:
    """A draw of a law, for tracing shapes."""
    if law.support is None:
        raise ModelError(f"{where}() returned {type(law).__name__}, which has no support: define its support.")
    try:
        return draw(law, root_key(0))
    except Exception as error:
        raise ModelError(
            f"{where}() returned {type(law).__name__}, which cannot be drawn from ({reason(error)}): use a law that can."
        ) from error
