"""log p(theta | path) as a polynomial of fixed size: how it is accumulated and evaluated (theorem 3 of the paper).

Each step adds the polynomial of its own log-density. The prior is kept exact and is not part of the sum; the constant
term carries no information on theta and is dropped. Polynomials live on a box (Chebyshev) or about a centre (Taylor), in
the coordinates z of the `Chart`.

Every particle stores a box, [p, particles] in all. `boxes` gives them as [p, B], where B is 1 if all particles share one.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.model._laws import log_prob_observed
from epf.model._model import StateSpaceModel, first_law, newest, observation_law, transition_law
from epf.model._parameters import Parameters
from epf.model._tracing import depends_on
from epf.numerics._chunks import in_chunks
from epf.numerics._sums import Compensated, Plain
from epf.polynomial._basis import Basis, Chebyshev, Monomial, design_on_cube
from epf.polynomial._indices import Indices, along
from epf.posterior._chart import Chart
from epf.posterior.samplers._base import Sampler
from epf.statistics import _approximation as settings
from epf.statistics._base import Gibbs
from epf.statistics._expansion import Expansion, Laws


class PathPolynomial(eqx.Module):
    """The statistic of one particle: coefficients, its box, and its centre if the centre moves."""

    coefficients: Compensated | Plain
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    centre: Float[Array, " p"] | None


class PolynomialLogDensity(Gibbs):
    """p(theta | path) = prior x exp(polynomial), for any law of a model."""

    model: StateSpaceModel
    parameters: Parameters
    chart: Chart
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    """The box before the first observation."""
    centre: Float[Array, " p"] | None
    sampler: Sampler
    discount: float
    approximation: settings.Approximation = eqx.field(static=True)
    plans: tuple[tuple[str, Expansion | None], ...] = eqx.field(static=True)
    indices: Indices = eqx.field(static=True)
    follow_mode: str = eqx.field(static=True)

    @property
    def expansions(self) -> dict[str, Expansion | None]:
        """How each law of the model is written as a polynomial; None if it does not depend on the parameters."""
        return dict(self.plans)

    @property
    def moves(self) -> bool:
        """Whether polynomials are carried to another box as the posterior shrinks."""
        return isinstance(self.approximation, settings.Chebyshev) and self.follow_mode != "no"

    @property
    def shared(self) -> bool:
        """Whether all particles have the same box."""
        return self.follow_mode != "each"

    @property
    def recentres(self) -> bool:
        return isinstance(self.approximation, settings.Taylor) and self.approximation.follow

    @property
    def _sum(self) -> type[Compensated] | type[Plain]:
        """On a box that follows the posterior values stay within some hundred nats, which float32 adds to 1e-5; on a
        fixed box they grow with time."""
        return Plain if self.moves else Compensated

    def boxes(self, statistic: PathPolynomial) -> tuple[Float[Array, "p boxes"], Float[Array, "p boxes"]]:
        """The bounds of the boxes of all particles: one column if the box is shared, otherwise one per particle."""
        columns = slice(0, 1) if self.shared else slice(None)
        return statistic.low[:, columns], statistic.high[:, columns]

    def basis(self, statistic: PathPolynomial) -> Basis:
        """The basis of one particle's coefficients."""
        return self._basis_with(statistic)(self.indices)

    def init(self, x_0: Float[Array, "*state"]) -> PathPolynomial:
        centre = self.centre if self.recentres else None
        empty = PathPolynomial(self._sum.zero((self.indices.size,)), self.low, self.high, centre)
        first = newest(self.model, x_0)
        return self.add(empty, self._expanded(empty, "initial", lambda p, _: first_law(self.model, p), first, first))

    def update(
        self,
        statistic: PathPolynomial,
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> PathPolynomial:
        return self.add(statistic, self.increment(statistic, x_prev, new, x, y, u))

    def update_all(self, statistic: PathPolynomial, piece: Any) -> PathPolynomial:
        """`update` for all particles. On a shared box the nodes are the same for all of them."""
        if not (self.moves and self.shared):
            return super().update_all(statistic, piece)
        x_prev, new, x, y, u = piece
        box = jax.tree.map(lambda leaf: leaf[..., 0], statistic)

        def step(past: Any, path: tuple[Array, Array, Array]) -> Any:
            return self._sum_with(past, self.increment(box, *path, y, u, many=True))

        rows = min(prod(order + 1 for order in self.indices.orders), 8 * self.indices.size)
        sums = in_chunks(step, statistic.coefficients, (x_prev, new, x), max(rows, 64))
        return eqx.tree_at(lambda s: s.coefficients, statistic, sums)

    def move(self, statistic: PathPolynomial, low: Float[Array, " p"], high: Float[Array, " p"]) -> PathPolynomial:
        """The same polynomial on another box."""
        old, new = (Chebyshev(self.indices, *box) for box in ((statistic.low, statistic.high), (low, high)))
        moved = new.move_here(statistic.coefficients.value, old).at[0].set(0.0)
        return PathPolynomial(self._sum.zero(moved.shape).add(moved), low, high, statistic.centre)

    def recentre(self, statistic: PathPolynomial, centre: Float[Array, " p"]) -> PathPolynomial:
        """The same polynomial about another centre."""
        assert statistic.centre is not None
        old, new = Monomial(self.indices, statistic.centre), Monomial(self.indices, centre)
        moved = new.move_here(statistic.coefficients.value, old).at[0].set(0.0)
        return PathPolynomial(self._sum.zero(moved.shape).add(moved), statistic.low, statistic.high, centre)

    def add(self, statistic: PathPolynomial, increment: Float[Array, " terms"]) -> PathPolynomial:
        """Discount the past, then add one step's polynomial."""
        return eqx.tree_at(lambda s: s.coefficients, statistic, self._sum_with(statistic.coefficients, increment))

    def _sum_with(self, past: Any, increment: Float[Array, " terms *particles"]) -> Any:
        if self.discount < 1.0:
            past = jax.tree.map(lambda part: self.discount * part, past)
        return past.add(increment.at[0].set(0.0))

    def increment(
        self,
        statistic: PathPolynomial,
        x_prev: Float[Array, "..."],
        new: Float[Array, "..."],
        x: Float[Array, "..."],
        y: Float[Array, "*y"],
        u: Array | None,
        many: bool = False,
    ) -> Float[Array, " terms *particles"]:
        """The polynomial of one step's log-density on the statistic's box; with `many`, for particles that share it."""
        if many:
            y = jnp.broadcast_to(jnp.asarray(y)[..., None], (*jnp.shape(y), x.shape[-1]))

        def transition(p: Any, x_prev: Array) -> Distribution:
            return transition_law(self.model, p, x_prev, u)

        def observation(p: Any, x: Array) -> Distribution:
            return observation_law(self.model, p, x, u)

        moved = self._expanded(statistic, "transition", transition, x_prev, new, many)
        return moved + self._expanded(statistic, "observation", observation, x, y, many)

    def exact_increment(
        self,
        z: Float[Array, " p"],
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> Float[Array, ""]:
        """The log-density that `increment` approximates, at one point; laws that do not depend on theta are left out."""
        laws = self.laws_at(z, x_prev, new, x, y, u).values()
        return sum((log_prob_observed(law, value) for law, value in laws), jnp.zeros(()))

    def laws_at(
        self,
        z: Float[Array, " p"],
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> dict[str, tuple[Distribution, Array]]:
        """The laws that depend on theta, by name, at one point, each with its value."""
        laws: dict[str, tuple[Callable[[Any], Distribution], Array]] = {
            "transition": (lambda p: transition_law(self.model, p, x_prev, u), new),
            "observation": (lambda p: observation_law(self.model, p, x, u), y),
        }

        def at(where: Callable[[Any], Distribution], z: Float[Array, " p"]) -> Distribution:
            return where(self.parameters.named(self.chart.theta(z)))

        return {
            name: (at(where, z), value)
            for name, (where, value) in laws.items()
            if depends_on(lambda z, where=where: at(where, z), z)
        }

    def log_density(self, statistic: PathPolynomial, theta: Float[Array, " p"]) -> Float[Array, ""]:
        z = self.chart.point(theta)
        polynomial = self.basis(statistic).evaluate(statistic.coefficients.value, z)
        inside = jnp.all((z >= statistic.low) & (z <= statistic.high))
        return jnp.where(inside, self.parameters.log_prior(theta) + polynomial, -jnp.inf)

    def on_cube(
        self, statistic: PathPolynomial
    ) -> Callable[[Float[np.ndarray | Array, "points p"]], Float[Array, " points"]]:
        """One particle's log-density as a function of points of the cube [-1, 1]^p, which is mapped onto its box.

        On the cube the basis is the same for all particles: at fixed points this is one matrix product for all.
        """
        origin, scale = 0.5 * (statistic.low + statistic.high), 0.5 * (statistic.high - statistic.low)

        def log_density(points: Float[np.ndarray | Array, "points p"]) -> Float[Array, " points"]:
            z = origin + scale * points
            if self.moves and isinstance(points, np.ndarray):
                design = design_on_cube(self.indices, points)
            elif self.moves:
                design = self.unit_basis.design(jnp.asarray(points))
            else:
                design = self.basis(statistic).design(z)
            values = jnp.matmul(design, statistic.coefficients.value, precision="highest")
            return values + jax.vmap(self.chart.log_prior)(z)

        return log_density

    def on_grid(
        self, statistic: PathPolynomial, line: Float[np.ndarray, " points"]
    ) -> Float[Array, "*points particles"]:
        """The log-densities of all particles on the grid `line` x .. x `line` of the cube that stands for their boxes."""
        low, high = self.boxes(statistic)
        origin, scale, p = 0.5 * (low + high), 0.5 * (high - low), low.shape[0]
        axes = np.meshgrid(*([line] * p), indexing="ij")
        cube = jnp.asarray(np.stack([axis.ravel() for axis in axes], axis=1), low.dtype)
        log_prior = jax.vmap(jax.vmap(self.chart.log_prior), -1, -1)(origin + scale * cube[:, :, None])
        first = jax.tree.map(lambda leaf: leaf[..., 0], statistic)
        values = self.indices.dense(statistic.coefficients.value)
        for i, order in enumerate(self.indices.orders):
            at = origin[i, 0] + scale[i, 0] * jnp.asarray(line)
            values = along(self.design_along(i, order, self.basis(first), line, at), values, i)
        return values + log_prior.reshape(*([len(line)] * p), -1)

    def design_along(
        self, i: int, order: int, basis: Basis, line: Float[np.ndarray, " points"], z: Float[Array, " points"]
    ) -> Float[Array, "points degrees"]:
        """The basis functions of parameter i alone, at points given on the cube (`line`) and in its coordinates (`z`)."""
        powers = Indices(tuple((k,) for k in range(order + 1)))
        if self.moves:
            return design_on_cube(powers, line[:, None])
        return basis.of_one(i, powers).design(z[:, None])

    @property
    def unit_basis(self) -> Chebyshev:
        """The basis of every box, in the coordinates of the cube."""
        p = self.parameters.size
        return Chebyshev(self.indices, -np.ones(p), np.ones(p))

    def _basis_with(self, statistic: PathPolynomial) -> Callable[[Indices], Basis]:
        """The basis with given powers on the statistic's box or about its centre."""
        if isinstance(self.approximation, settings.Taylor):
            centre = self.centre if statistic.centre is None else statistic.centre
            assert centre is not None
            return lambda indices: Monomial(indices, centre)
        low, high = (statistic.low, statistic.high) if self.moves else (self.low, self.high)
        return lambda indices: Chebyshev(indices, low, high)

    def _expanded(
        self,
        statistic: PathPolynomial,
        where: str,
        law_of: Callable[[Any, Array], Distribution],
        state: Float[Array, "..."],
        value: Float[Array, "..."],
        many: bool = False,
    ) -> Float[Array, " terms *particles"]:
        """The polynomial of one law's log-density."""
        expansion = self.expansions[where]
        if expansion is None:
            return jnp.zeros((self.indices.size, *value.shape[-1:]) if many else self.indices.size)
        laws = Laws(lambda z, state: law_of(self.parameters.named(self.chart.theta(z)), state), state, value, many)
        return expansion.result.embed(expansion.log_density(laws, self._basis_with(statistic)), self.indices)
