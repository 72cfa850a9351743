"""How parameters enter a function: not at all, linearly, as a polynomial, by themselves or together.

The function is a sum of terms. A term has a degree in every parameter, infinite if it is not a polynomial in it. x theta_0 + theta_1^2 sin(theta_2) has the terms (1, 0, 0) and (0, 2, inf). They are
read from the trace: sums collect terms, products add their degrees, and any other operation puts all the parameters that
reach it into one term of infinite degree; so do loops. This tells which parameters
need an expansion at all, and which must be expanded together: the locality mentioned in section 3 of the paper.

The result is an upper bound: cancellation is not detected, so the function may be simpler than reported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product as all_of
from math import inf, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.errors import SettingError
from epf.polynomial._indices import LIMIT, Exponent, Indices, total_degree
from epf.polynomial._terms import Term, evaluate, every


@dataclass(frozen=True)
class Structure:
    """The terms of which a function is a sum, each with its degree in every parameter."""

    terms: tuple[Term, ...]

    @property
    def together(self) -> int:
        """The largest number of parameters that must be expanded together, because one term is not a polynomial in them."""
        return max(sum(degree == inf for degree in term) for term in self.terms)

    def indices(self, order: int, limit: int = LIMIT) -> Indices:
        """The powers that are needed to expand the function.

        Per term: all powers of the parameters in which it is a polynomial, which is exact, and total degree `order` in
        the others.
        """
        found: set[Exponent] = set()
        for term in self.terms:
            expanded = [i for i, degree in enumerate(term) if degree == inf]
            room = limit // prod(int(degree) + 1 for degree in term if degree < inf)
            mixed = total_degree(len(expanded), order, room).exponents if expanded else ((),)
            for powers in mixed:
                of = dict(zip(expanded, powers, strict=True))
                found |= set(all_of(*([of[i]] if i in of else range(int(d) + 1) for i, d in enumerate(term))))
        if len(found) > limit:
            raise SettingError(
                f"order {order} needs {len(found)} terms, more than the limit of {limit}: lower the order."
            )
        return Indices(tuple(found))


def structure(function: Callable[[Float[Array, " parameters"]], Any], parameters: int) -> Structure:
    """How each of the entries of theta enters `function(theta)`, which may return an array or a tree of arrays."""
    program = jax.make_jaxpr(function)(jnp.zeros(parameters))
    theta = np.empty(parameters, object)
    theta[:] = [frozenset({tuple(float(i == j) for j in range(parameters))}) for i in range(parameters)]
    outputs = evaluate(program.jaxpr, program.consts, [theta], parameters)
    return Structure(tuple(sorted(every(outputs, parameters))))
