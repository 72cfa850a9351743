"""How parameters enter a function: not at all, linearly, as a polynomial, by themselves or together.

The function is a sum of terms. A term has one degree per parameter, infinite if it is not a polynomial in it:
x theta_0 + theta_1^2 sin(theta_2) has the terms (1, 0, 0) and (0, 2, inf). They are counted in what the reader of models
(`model/structure`) makes of the traced program: powers of theta itself have a degree, and any other function has infinite
degree in all parameters that reach it. A program that is too large to be read may be any function. A term covers all terms
with lower degrees, so only the highest are kept. This tells which parameters need an expansion at all, and which must be
expanded together: the locality mentioned in section 3 of the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product as all_of
from math import inf, prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.errors import SettingError
from epf.model.structure._algebra import Sum
from epf.model.structure._functions import Functions
from epf.model.structure._program import UnreadableError, read
from epf.polynomial._indices import LIMIT, Exponent, Indices, total_degree

Term = tuple[float, ...]
Terms = frozenset[Term]  # none lies below another
_MANY = 64  # terms, above which one term is made to cover them all


@dataclass(frozen=True)
class Structure:
    """The terms of which a function is a sum, each with its degree in every parameter."""

    terms: tuple[Term, ...]

    @property
    def together(self) -> int:
        """The largest number of parameters that must be expanded together, because one term is not a polynomial in them."""
        return max(sum(degree == inf for degree in term) for term in self.terms)

    def indices(self, order: int) -> Indices:
        """The powers that are needed to expand the function.

        Per term: all powers of the parameters in which it is a polynomial, which is exact, and total degree `order` in
        the others.
        """
        found: set[Exponent] = set()
        for term in self.terms:
            expanded = [i for i, degree in enumerate(term) if degree == inf]
            room = LIMIT // prod(int(degree) + 1 for degree in term if degree < inf)
            mixed = total_degree(len(expanded), order, room).exponents if expanded else ((),)
            for powers in mixed:
                of = dict(zip(expanded, powers, strict=True))
                found |= set(all_of(*([of[i]] if i in of else range(int(d) + 1) for i, d in enumerate(term))))
        if len(found) > LIMIT:
            raise SettingError(
                f"order {order} needs {len(found)} terms, more than the limit of {LIMIT}: lower the order."
            )
        return Indices(tuple(found))


def structure(function: Callable[[Float[Array, " parameters"]], Any], parameters: int) -> Structure:
    """How each of the entries of theta enters `function(theta)`, which may return an array or a tree of arrays."""
    program, algebra = jax.make_jaxpr(function)(jnp.zeros(parameters)), Functions()
    theta = algebra.unknowns("theta", (parameters,), theta=True)
    try:
        outputs = read(algebra, program.jaxpr, program.consts, [theta])
    except UnreadableError:
        return Structure(((inf,) * parameters,))
    sums = {one for value in outputs for one in np.ravel(value) if isinstance(one, Sum)}
    return Structure(tuple(sorted(reduce(_joined, (_terms(one, parameters) for one in sums), _constant(parameters)))))


def _constant(parameters: int) -> Terms:
    return frozenset({(0.0,) * parameters})


def _terms(one: Sum, parameters: int) -> Terms:
    """The terms of a sum of products of atoms."""
    products = (_of_product(product, parameters) for product in one.terms)
    return reduce(_joined, products, _constant(parameters))


def _of_product(product: Any, parameters: int) -> Terms:
    found = _constant(parameters)
    for atom, exponent in product:
        power = int(exponent) if exponent.denominator == 1 and 0 < exponent <= _MANY else None
        if power and atom.name == "theta":
            factor = frozenset({tuple(float(power * (i in atom.thetas)) for i in range(parameters))})
        elif power and atom.name == "sum":  # one that the reader did not multiply out
            factor = reduce(_multiplied, [_terms(atom.arguments[0], parameters)] * power)
        else:
            factor = frozenset({tuple(inf if i in atom.thetas else 0.0 for i in range(parameters))})
        found = _multiplied(found, factor)
    return found


def _joined(a: Terms, b: Terms) -> Terms:
    """The terms of a sum."""
    return _highest(a | b)


def _multiplied(a: Terms, b: Terms) -> Terms:
    """The terms of a product."""
    return _highest(frozenset(tuple(i + j for i, j in zip(s, t, strict=True)) for s in a for t in b))


def _highest(terms: Terms) -> Terms:
    if len(terms) > _MANY:
        return frozenset({tuple(map(max, zip(*terms, strict=True)))})

    def is_below(s: Term, t: Term) -> bool:
        return s != t and all(i <= j for i, j in zip(s, t, strict=True))

    return frozenset(s for s in terms if not any(is_below(s, t) for t in terms))
