"""Base class of the zoo models: each field is either a known value or the prior of an unknown one."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from epf.errors import ModelError, kind
from epf.model._model import StateSpaceModel
from epf.model._parameters import Values, as_floats
from epf.model._settings import Settings

Field = Any  # a number, an array, or a numpyro distribution


class FieldModel(StateSpaceModel, Settings):
    """A model with fields known or learned: `Sin(sigma=1.0)` fixes sigma, `Sin(sigma=dist.Gamma(2.0, 2.0))` learns it."""

    def check_together(self) -> None:
        for name, value in self._fields().items():
            if isinstance(value, Distribution):
                continue
            try:
                as_floats(value)
            except (TypeError, ValueError):
                raise ModelError(
                    f"{type(self).__name__}({name}=...) is {kind(value)}: give a number or an array if it is known, a "
                    "numpyro distribution if it is to be learned."
                ) from None

    def prior(self) -> dict[str, Distribution]:
        return {name: value for name, value in self._fields().items() if isinstance(value, Distribution)}

    def values(self, p: Any) -> Values:
        """The values of all fields by name, known or learned."""
        return Values({name: p[name] if name in p else jnp.asarray(value) for name, value in self._fields().items()})

    def _fields(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not f.metadata.get("static", False)}


def field_shape(value: Field) -> tuple[int, ...]:
    """The shape of the value of a field, known or learned."""
    return tuple(value.event_shape) if isinstance(value, Distribution) else np.shape(value)
