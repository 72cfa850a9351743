"""The structure of a model: which parameters are separable, and the sums that stand for a path (theorem 1 of the paper).

    log p(value | data, theta) = sum_k s_k(data, theta_A) h_k(theta) + c(data)

for each of the model's laws, with the same h_1 .. h_K for all of them. theta_A are the awkward parameters, in which some
law is not separable. If there are none, the sums of s_k along a path are a sufficient statistic of fixed size, for any
prior. If there are some, these sums are sufficient for all other parameters, given theta_A.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.model._laws import observed
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.model.structure._algebra import Atom, Product, Sum, part, signature
from epf.model.structure._evaluate import Evaluation
from epf.model.structure._functions import Functions
from epf.model.structure._rank import independent_rows
from epf.model.structure._reading import LAWS, LawReading, read_law
from epf.model.structure._units import MixedLaw, is_smooth, mixed_law

Terms = tuple[list[Sum], dict[str, list[Sum]]]  # h_1 .. h_K, and s_1 .. s_K for each law


@dataclass(frozen=True, eq=False)
class Structure:
    """What the programs of a model's laws say about its parameters."""

    parameters: Parameters
    laws: dict[str, LawReading]
    algebra: Functions

    @cached_property
    def _key(self) -> Any:
        return tuple((name, signature(law.total)) for name, law in self.laws.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        """Equal readings of equal programs; a compiled step that has one can be used with the other."""
        return isinstance(other, Structure) and self._key == other._key

    @property
    def awkward(self) -> tuple[int, ...]:
        """The parameters in which some law is not separable, by their places in theta."""
        return tuple(sorted(frozenset().union(*(law.awkward for law in self.laws.values()))))

    @property
    def separable(self) -> bool:
        """Whether definition 1 of the paper holds, so that nothing need be expanded."""
        return not self.awkward

    @property
    def size(self) -> int:
        """K, the number of sums."""
        return len(self.terms[0])

    def terms_of(self, law: str) -> int:
        """The number of terms that one law needs for itself."""
        rows = _rows({law: self.laws[law]})
        return len(independent_rows(list(rows.values()))[0])

    def reasons(self, law: str) -> tuple[Atom, ...]:
        """The atoms of a law in which theta and the data cannot be separated."""
        return tuple(atom for atom in self.laws[law].total.atoms if atom.mixed)

    @cached_property
    def terms(self) -> Terms:
        """h_1 .. h_K, and s_1 .. s_K for each law."""
        return self._terms_of(_rows(self.laws))

    @cached_property
    def plain(self) -> Terms:
        """The terms whose s_k have nothing of theta: all of them, if the model is separable."""
        return self._apart(mixed=False)

    @cached_property
    def mixed(self) -> Terms:
        """The terms whose s_k depend on awkward parameters."""
        return self._apart(mixed=True)

    @cached_property
    def mixed_laws(self) -> dict[str, MixedLaw]:
        """The s_k of these terms by their units, which are what must be expanded."""
        return {name: mixed_law(statistics) for name, statistics in self.mixed[1].items()}

    @property
    def partly_separable(self) -> bool:
        """Whether some parameters are awkward and others are not, and all that must be expanded is known to be smooth."""
        others = frozenset().union(*(law.thetas for law in self.laws.values())) - set(self.awkward)
        if not self.awkward or not others or any(law.problem for law in self.laws.values() if law.awkward):
            return False
        atoms = {atom for law in self.mixed_laws.values() for unit in law.units for atom, _ in unit}
        return all(map(is_smooth, atoms)) and all(self.parameters.elementwise[i] for i in self.awkward)

    def _apart(self, mixed: bool) -> Terms:
        def wanted(column: Hashable) -> bool:
            return any(atom.mixed for atom, _ in column[1]) == mixed  # type: ignore[index]  a pair that `_rows` made

        rows = {h: {at: c for at, c in row.items() if wanted(at)} for h, row in _rows(self.laws).items()}
        return self._terms_of({h: row for h, row in rows.items() if row})

    def _terms_of(self, rows: dict[Product, dict[Hashable, Fraction]]) -> Terms:
        products = sorted(rows, key=lambda h: (len(rows[h]), sum(abs(e) for _, e in h), [atom.number for atom, _ in h]))
        kept, made_of = independent_rows([rows[h] for h in products])
        h: list[dict[Product, Fraction]] = [{} for _ in kept]
        for product, combination in zip(products, made_of, strict=True):
            for k, c in combination.items():
                h[k][product] = c
        s = {name: [_of_law(rows[products[i]], name) for i in kept] for name in self.laws}
        return [Sum(terms) for terms in h], s

    def h(self, theta: Float[Array, " p"], functions: list[Sum]) -> Float[Array, " functions"]:
        """The values of functions of theta alone, such as h_k."""
        return Evaluation({"theta": theta}, self.algebra.held).vector(functions)

    def of_data(
        self, law: str, theta: Any, data: Mapping[str, Array | None], values: Callable[[Evaluation], Array]
    ) -> Array:
        """`values` of the evaluation of one step, such as s_k. Of theta only the awkward parameters matter for these.

        `data` is what the law has: "initial" x_0, "transition" x, new and u, "observation" x, y and u. Missing components of
        y (NaN) add nothing. Where a law cannot do without one of several components, as that of a multivariate normal, the
        result is NaN.
        """
        given = {name: jnp.ravel(value) for name, value in data.items() if value is not None}
        if law != "observation":
            return values(self._at(theta, given, jnp))
        there = observed(given["y"])
        given["y"] = jnp.where(there, given["y"], 1.0)
        partly = jnp.asarray(False)
        if self.components < there.shape[0]:
            there, partly = jnp.all(there)[None], jnp.any(there) & ~jnp.all(there)
        return jnp.where(partly, jnp.nan, values(self._at(theta, {**given, "there": there}, jnp)))

    def _constant(self, law: str) -> Sum:
        terms = self.laws[law].total.terms
        return Sum({p: c for p, c in terms.items() if not any(atom.thetas for atom, _ in p)})

    @property
    def components(self) -> int:
        """The number of parts of an observation that may be missing without the others."""
        return sum(atom.name == "there" for atom in self.algebra.made.values())

    def terms_at(
        self, law: str, theta: np.ndarray, data: dict[str, np.ndarray]
    ) -> tuple[Float[np.ndarray, "terms ..."], Float[np.ndarray, "..."]]:
        """s_k h_k and c, in double precision by numpy, for many values at once; entries of theta and data come first."""
        found = self._at(theta, {**data, "there": np.ones(self.components, bool)}, np)
        batch = np.broadcast_shapes(theta.shape[1:], *(value.shape[1:] for value in data.values()))
        terms = np.zeros((self.size, *batch))
        functions, statistics = self.terms
        for k, (s, h) in enumerate(zip(statistics[law], functions, strict=True)):
            terms[k] = found.sum(s) * found.sum(h) if s.terms else 0.0
        return terms, np.broadcast_to(found.sum(self._constant(law)), batch)

    def _at(self, theta: Any, data: dict[str, Any], library: Any) -> Evaluation:
        return Evaluation({"theta": theta, **data}, self.algebra.held, library)


def read_model(model: StateSpaceModel, u: Array | None = None, whole: frozenset[str] = frozenset()) -> Structure:
    """Read the laws of a model, with a row of its inputs if it has any; those named in `whole` are not taken apart."""
    algebra = Functions()
    laws = {name: read_law(algebra, model, name, u, whole=name in whole) for name in LAWS}
    return Structure(parameters(model), laws, algebra)


def _rows(laws: dict[str, LawReading]) -> dict[Product, dict[Hashable, Fraction]]:
    """The coefficients as a matrix: a row for each product of theta, a column for each law and product of its data."""
    rows: dict[Product, dict[Hashable, Fraction]] = {}
    for name, law in laws.items():
        for product, c in law.total.terms.items():
            if any(atom.thetas for atom, _ in product):
                rows.setdefault(part(product, False), {})[name, part(product, True)] = c
    return rows


def _of_law(row: dict[Hashable, Fraction], name: str) -> Sum:
    terms: dict[Product, Fraction] = {}
    for column, c in row.items():
        law, product = column  # type: ignore[misc]  columns are the pairs that `_rows` made
        if law == name:
            terms[product] = c
    return Sum(terms)
