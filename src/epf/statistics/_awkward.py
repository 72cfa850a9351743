"""Polynomials in the awkward parameters alone (theorem 3 of the paper, for that part of a model that theorem 1 leaves over).

    log p(theta | path) = log prior(theta) + S . h(theta) + sum_k g_k(theta) P_k(theta_A)

The sums S are those of terms with nothing of theta in their data part; P_k is a polynomial on a box that follows the draws
of theta_A. A particle keeps the values of P_k at the Gauss nodes of the box, so that a step only adds to them. Its units
(`model/structure/_units.py`) are interpolated from fewer nodes first: products of these polynomials need all of the nodes.

What P_k has at the middle of the box is counted among the sums S. Differences from it are small on a narrow box, and plain
sums of them lose nothing.
"""

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.model._parameters import Parameters
from epf.model.structure._structure import Structure
from epf.model.structure._units import MixedLaw, Powers
from epf.polynomial._indices import along, at_more_nodes, gauss, grid
from epf.posterior._chart import Chart, ends_at_support, prior_box

# Of units, by the number of awkward parameters. With order 7 for two, means of STAR were off by up to 2.5 sds (500 steps).
_ORDERS = {1: 12, 2: 10, 3: 4}
MOST = max(_ORDERS)
_EDGE = 0.03  # of its width, where draws are close to the end of a box


class Polynomials(eqx.Module):
    """Of one particle: values at the nodes, less those in the middle, and the box."""

    values: Float[Array, "terms nodes"]
    low: Float[Array, " awkward"]
    high: Float[Array, " awkward"]

    @property
    def box(self) -> tuple[Float[Array, " awkward"], Float[Array, " awkward"]]:
        """Of all particles: the smallest, as boxes only shrink, and a particle that was lost keeps what it had."""
        return jnp.max(self.low, axis=-1), jnp.min(self.high, axis=-1)


class Awkward(eqx.Module):
    """The terms of a model that depend on its awkward parameters; functions are of all particles, which come last."""

    structure: Structure = eqx.field(static=True)
    chart: Chart
    """Of the parameters with an awkward element."""
    low: Float[Array, " awkward"]
    high: Float[Array, " awkward"]
    """The box before the first observation."""

    @classmethod
    def of(cls, structure: Structure) -> "Awkward":
        params = structure.parameters
        names = [name for name, part in params.slices.items() if set(range(params.size)[part]) & set(structure.awkward)]
        chart = Chart(Parameters({name: params.priors[name] for name in names}))
        made = cls(structure, chart, jnp.zeros(0), jnp.zeros(0))
        low, high = (end[made._in_chart] for end in prior_box(chart))
        return cls(structure, chart, low, high)

    @property
    def size(self) -> int:
        """The number of terms."""
        return len(self.structure.mixed[0])

    @property
    def laws(self) -> dict[str, MixedLaw]:
        return self.structure.mixed_laws

    @property
    def axes(self) -> int:
        return len(self.structure.awkward)

    @property
    def order(self) -> int:
        """Of the polynomials of units."""
        return _ORDERS[self.axes] * (2 if self._degree == 1 else 1)

    @property
    def nodes(self) -> int:
        """Along each parameter: enough for products of units, and odd, so that one is in the middle."""
        return 2 * -(-self._degree * self.order // 2) + 1

    @property
    def _degree(self) -> int:
        return max(law.degree for law in self.laws.values())

    @property
    def count(self) -> int:
        return self.nodes**self.axes

    @property
    def _named(self) -> np.ndarray:
        """The places in theta of the parameters of the chart."""
        params = self.structure.parameters
        return np.concatenate([np.arange(params.size)[params.slices[name]] for name in self.chart.parameters.names])

    @property
    def _in_chart(self) -> np.ndarray:
        return np.flatnonzero(np.isin(self._named, self.structure.awkward))

    def point(self, theta: Float[Array, " p"]) -> Float[Array, " awkward"]:
        """The coordinates of theta_A, of one particle."""
        return self.chart.point(theta[self._named])[self._in_chart]

    def theta(self, z: Float[Array, " awkward"]) -> Float[Array, " p"]:
        """The parameters at the coordinates z of the awkward ones; of the others nothing is wanted."""
        everything = jnp.zeros(len(self._named)).at[self._in_chart].set(z)
        found = self.chart.theta(everything)[self._in_chart]
        return jnp.zeros(self.structure.parameters.size).at[self._named[self._in_chart]].set(found)

    def empty(self) -> Polynomials:
        """Of one particle."""
        return Polynomials(jnp.zeros((self.size, self.count)), self.low, self.high)

    def add(
        self, law: str, polynomials: Polynomials, data: Mapping[str, Array], common: Mapping[str, Array | None]
    ) -> tuple[Polynomials, Float[Array, "terms particles"]]:
        """The polynomials with one step's s_k on the box that all particles share; and what the middle has gained."""
        found = self.laws[law]
        points = _on(*polynomials.box, grid((self.order,) * self.axes))
        units, weights = self._guarded(law, self._units(law, points, data, common), self._weights(law, data, common))
        units = units.reshape(*[self.order + 1] * self.axes, *units.shape[1:])
        table = jnp.asarray(at_more_nodes(self.nodes, self.order), units.dtype)
        for _ in range(self.axes):  # the last axis becomes the first: in the end all are where they were
            units = jnp.tensordot(table, units, axes=(1, self.axes - 1), precision="highest")
        units = units.reshape(self.count, *units.shape[self.axes :])
        monomials = [_monomial(powers, units) for powers in found.monomials]
        middle = [monomial[self.count // 2] for monomial in monomials]
        beyond = [monomial - centre for monomial, centre in zip(monomials, middle, strict=True)]

        def add(_: None, term: tuple[Array, Array]) -> tuple[None, Float[Array, "nodes particles"]]:
            return None, sum((r * monomial for r, monomial in zip(term[1], beyond, strict=True)), term[0])

        # A loop, so that XLA computes the monomials once and not anew for every term: a third of the time.
        values = jax.lax.scan(add, None, (polynomials.values, weights))[1]
        return eqx.tree_at(lambda p: p.values, polynomials, values), _weighed(weights, middle)

    def _guarded(
        self,
        law: str,
        units: Float[Array, "points units particles"],
        weights: Float[Array, "terms monomials particles"],
    ) -> tuple[Float[Array, "points units particles"], Float[Array, "terms monomials particles"]]:
        """A weight of zero counts for nothing, whatever it multiplies; another makes NaN of what is not finite."""
        bad = ~jnp.all(jnp.isfinite(units), axis=0)
        spoiled = jnp.stack(
            [jnp.any(bad[np.array([i for i, _ in powers])], axis=0) for powers in self.laws[law].monomials]
        )
        return jnp.where(bad, 0.0, units), jnp.where(spoiled & (weights != 0.0), jnp.nan, weights)

    def _units(
        self, law: str, z: Float[Array, "points awkward"], data: Mapping[str, Array], common: Mapping[str, Array | None]
    ) -> Float[Array, "points units particles"]:
        """The units of a law, at points that are the same for all particles."""
        products = self.laws[law].units

        def one(theta: Float[Array, " p"], data: Mapping[str, Array]) -> Float[Array, " units"]:
            def values(found: Any) -> Float[Array, " units"]:
                return jnp.stack([found.product(product) for product in products])

            return self.structure.of_data(law, theta, {**data, **common}, values)

        thetas = jax.vmap(self.theta)(z)
        return jax.vmap(jax.vmap(one, (None, -1), -1), (0, None))(thetas, data)

    def _weights(
        self, law: str, data: Mapping[str, Array], common: Mapping[str, Array | None]
    ) -> Float[Array, "terms monomials particles"]:
        """r_km of a law."""
        found = self.laws[law]
        places = np.array([k * len(found.monomials) + m for k, m, _ in found.weights])
        nowhere = jnp.zeros(self.structure.parameters.size)

        def one(data: Mapping[str, Array]) -> Float[Array, " weights"]:
            def values(evaluation: Any) -> Float[Array, " weights"]:
                return evaluation.vector([r for _, _, r in found.weights])

            return self.structure.of_data(law, nowhere, {**data, **common}, values)

        weights = jax.vmap(one, -1, -1)(data)
        dense = jnp.zeros((self.size * len(found.monomials), weights.shape[-1])).at[places].set(weights)
        return dense.reshape(self.size, len(found.monomials), -1)

    def value(
        self,
        polynomials: Polynomials,
        functions: Float[Array, "terms particles"],
        theta: Float[Array, "p particles"],
    ) -> Float[Array, " particles"]:
        """sum_k g_k P_k(theta_A), less what is counted in the middle; minus infinity outside of the box."""
        z = jax.vmap(self.point, -1, -1)(theta)
        low, high = polynomials.low, polynomials.high
        inside = jnp.all((z >= low) & (z <= high), axis=0)
        where = _cardinal(self.nodes, (2.0 * z - low - high) / (high - low))
        along_nodes = sum(f * rows for f, rows in zip(functions, polynomials.values, strict=True)) * where
        total = jnp.ones(self.count) @ along_nodes  # a product of matrices, which is quicker than to sum along columns
        return jnp.where(inside, total, -jnp.inf)

    def values(self, polynomials: Polynomials, theta: Float[Array, "p particles"]) -> Float[Array, "terms particles"]:
        """P_k(theta_A), less what is counted in the middle, inside of the box."""
        z = jax.vmap(self.point, -1, -1)(theta)
        low, high = polynomials.low, polynomials.high
        where = _cardinal(self.nodes, (2.0 * z - low - high) / (high - low))
        return jnp.sum(polynomials.values * where, axis=1)

    def moved(
        self, polynomials: Polynomials, low: Float[Array, " awkward"], high: Float[Array, " awkward"]
    ) -> tuple[Polynomials, Float[Array, "terms particles"]]:
        """The same polynomials on another box; and what the middle has gained."""
        count = polynomials.values.shape[-1]
        values = polynomials.values.reshape(self.size, *[self.nodes] * len(low), count)
        old_low, old_high = polynomials.box
        line = jnp.asarray(gauss(self.nodes), low.dtype)
        for i in range(len(low)):
            # The difference first: two boxes far from 0 and close to each other lose no digits to their common part.
            shift, scale = (low + high - old_low - old_high)[i], (high - low)[i]
            at = (shift + scale * line) / (old_high - old_low)[i]
            values = along(_cardinal(self.nodes, at[None]).T, values, 1 + i)
        values = values.reshape(self.size, self.count, count)
        middle = values[:, self.count // 2]
        box = (jnp.broadcast_to(end[:, None], (len(low), count)) for end in (low, high))
        return Polynomials(values - middle[:, None], *box), middle

    def gaps(
        self,
        law: str,
        low: Float[Array, " awkward"],
        high: Float[Array, " awkward"],
        theta: Float[Array, "p draws"],
        functions: Float[Array, "terms draws"],
        data: Mapping[str, Array],
        common: Mapping[str, Array | None],
    ) -> Float[Array, "draws particles"]:
        """The error of one step's polynomial at some draws of theta, in nats."""
        found = self.laws[law]
        z = jax.vmap(self.point, -1, 0)(theta)
        coarse = self._units(law, _on(low, high, grid((self.order,) * self.axes)), data, common)
        where = _cardinal(self.order + 1, ((2.0 * z - low - high) / (high - low)).T)
        near = jnp.einsum("nd,nup->dup", where, coarse, precision="highest")
        exact = self._units(law, z, data, common)
        error = [_monomial(powers, exact) - _monomial(powers, near) for powers in found.monomials]
        terms = _weighed(self._weights(law, data, common)[:, :, None], error)
        return jnp.einsum("kd,kdp->dp", functions, terms, precision="highest")

    def share_at_ends(
        self, polynomials: Polynomials, theta: Float[Array, "p particles"], weights: Float[Array, " particles"]
    ) -> Float[Array, " p"]:
        """The share of the draws near an end of the box that is not an end of the support."""
        low, high = polynomials.box
        z = (jax.vmap(self.point, -1, -1)(theta) - low[:, None]) / (high - low)[:, None]
        whole = (jnp.zeros(len(self._named)).at[self._in_chart].set(end) for end in (low, high))
        at_support = ends_at_support(self.chart, *whole)[:, self._in_chart]
        near = ((z < _EDGE) & ~at_support[0][:, None]) | ((z > 1.0 - _EDGE) & ~at_support[1][:, None])
        share = jnp.where(near, weights, 0.0).sum(axis=1)
        return jnp.zeros(self.structure.parameters.size).at[self._named[self._in_chart]].set(share)


def _on(
    low: Float[Array, " awkward"], high: Float[Array, " awkward"], points: Float[np.ndarray, "points awkward"]
) -> Float[Array, "points awkward"]:
    """Points of the cube on a box."""
    return 0.5 * (low + high) + 0.5 * (high - low) * jnp.asarray(points, low.dtype)


def _cardinal(nodes: int, u: Float[Array, "awkward points"]) -> Float[Array, "nodes points"]:
    """The polynomials that are 1 at one node and 0 at the others, by the barycentric formula (Berrut and Trefethen 2004)."""
    line = jnp.asarray(gauss(nodes), u.dtype)
    signs = np.sin(np.pi * (2 * np.arange(nodes) + 1) / (2 * nodes)) * (-1.0) ** np.arange(nodes)
    gap = u[:, None] - line[:, None]
    shares = jnp.asarray(signs, u.dtype)[:, None] / jnp.where(gap == 0.0, 1e-20, gap)
    shares = shares / jnp.sum(shares, axis=1, keepdims=True)
    found = shares[0]
    for other in shares[1:]:
        found = (found[:, None] * other).reshape(-1, u.shape[1])
    return found


def _monomial(powers: Powers, units: Float[Array, "points units particles"]) -> Float[Array, "points particles"]:
    return reduce(operator.mul, [units[:, i] ** power for i, power in powers])


def _weighed(weights: Float[Array, "terms monomials ..."], monomials: list[Array]) -> Float[Array, "terms ..."]:
    """sum_m r_km U_m."""
    return sum((weights[:, m] * monomial for m, monomial in enumerate(monomials)), jnp.zeros(()))
