"""Constraints that values of a law satisfy, and in words: what observations cannot be is found before a run."""

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

    def broken(self, rows: Float[np.ndarray, "time *y"]) -> Bool[np.ndarray, "..."]:
        """Which values of that part break the constraint, or which vectors of it; missing ones do not."""
        values = rows[self.part]
        missing = np.isnan(values)
        if self.constraint.event_dim:
            missing = missing.any(axis=-1)
        return ~(np.asarray(self.constraint(values)) | missing)


def allowed_by(law: Distribution) -> tuple[Allowed, ...]:
    """What is known of the values of an observation law."""
    laws = [((...,), law)] if not isinstance(law, Sensors) else [((..., i), one) for i, one in enumerate(law.laws)]
    found = [Allowed(part, constraint_of(one)) for part, one in laws if support(one) is not None]
    return tuple(one for one in found if _says_something(one.constraint))


def _says_something(constraint: Any) -> bool:
    is_known = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(constraint))
    return is_known and not isinstance(constraint, type(constraints.real))


def are_possible(rows: Float[np.ndarray, "time *y"], allowed: tuple[Allowed, ...]) -> bool:
    """Whether no value breaks a constraint. A stream asks this of every row, so it must be cheap."""
    return all(one.constraint(rows[one.part]).all() or not one.broken(rows).any() for one in allowed)


_WITH_ENDS = {
    "Interval": "from {} to {}",
    "OpenInterval": "between {} and {}",
    "IntegerInterval": "a whole number from {} to {}",
    "IntegerGreaterThan": "a whole number of at least {}",
    "GreaterThan": "above {}",
    "GreaterThanEq": "at least {}",
    "LessThan": "below {}",
    "LessThanEq": "at most {}",
    "Multinomial": "a vector of whole numbers that add up to {}",
}


def words(constraint: Any) -> str:
    """A constraint, as what a value is."""
    constraint = getattr(constraint, "base_constraint", constraint)
    name = type(constraint).__name__.strip("_")
    ends = [end for end in jax.tree.leaves(constraint) if not isinstance(end, Tracer) and np.size(end) == 1]
    if name in _WITH_ENDS and len(ends) == name.count("Interval") + 1:
        return _WITH_ENDS[name].format(*(f"{float(end):g}" for end in ends))
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
