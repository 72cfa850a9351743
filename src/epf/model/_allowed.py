"""Values that the law of the observations cannot give, whatever the parameters: they are found before a run."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float
from numpyro.distributions import Distribution, constraints

from epf.model._laws import constraint_of, support
from epf.model._sensors import Sensors


class Allowed(NamedTuple):
    """A constraint that does not depend on parameters, state or inputs, and the part of y that it holds for."""

    part: tuple[Any, ...]
    constraint: Any


def allowed_by(law: Distribution) -> tuple[Allowed, ...]:
    """What is known of the values of an observation law."""
    laws = [((...,), law)] if not isinstance(law, Sensors) else [((..., i), one) for i, one in enumerate(law.laws)]
    found = [Allowed(part, constraint_of(one)) for part, one in laws if support(one) is not None]
    return tuple(one for one in found if _says_something(one.constraint))


def _says_something(constraint: Any) -> bool:
    is_known = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(constraint))
    return is_known and not isinstance(constraint, type(constraints.real))


def outside(one: Allowed, series: Float[np.ndarray, "time *y"]) -> Bool[np.ndarray, "time *y"]:
    """Which values break the constraint; missing ones do not."""
    found, values = np.zeros(series.shape, bool), series[one.part]
    with np.errstate(invalid="ignore"):
        inside = np.asarray(one.constraint(values))
    if one.constraint.event_dim:  # whole rows are judged
        inside, missing = inside[..., None], np.any(np.isnan(values), axis=-1, keepdims=True)
    else:
        missing = np.isnan(values)
    found[one.part] = ~(inside | missing)
    return found


def words(constraint: Any) -> str:
    """A constraint, as what a value is."""
    constraint = getattr(constraint, "base_constraint", constraint)
    name = type(constraint).__name__.strip("_")
    ends = [end for end in jax.tree.leaves(constraint) if not isinstance(end, Tracer) and np.size(end) == 1]
    if name in ("IntegerInterval", "Interval") and len(ends) == 2:
        return f"{'a whole number ' * (name == 'IntegerInterval')}from {float(ends[0]):g} to {float(ends[1]):g}"
    return {
        "Real": "a finite number",
        "Positive": "positive",
        "Nonnegative": "zero or more",
        "UnitInterval": "between 0 and 1",
        "Boolean": "0 or 1",
        "Circular": "an angle from -pi to pi",
        "IntegerNonnegative": "a whole number, zero or more",
        "IntegerPositive": "a whole number, one or more",
        "Simplex": "a vector of probabilities",
        "LowerCholesky": "the factor of a positive definite matrix",
        "PositiveDefinite": "a positive definite matrix",
    }.get(name, f"within {constraint}")
