"""The extended parameter filter's statistic: log p(theta | path) as a polynomial of fixed size (theorem 3 of the paper).

Every step adds the polynomial of its log-density; the prior is kept exact and is not part of the sum. The constant term
says nothing of theta and is dropped. Polynomials live on a box (Chebyshev) or about a centre (Taylor), in the
coordinates of the `Chart`; each particle carries its own box, which may be the same for all, and `following` moves it.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.model._laws import log_prob_observed
from epf.model._model import StateSpaceModel, initial_law, observation_law, parameters, transition_law
from epf.model._parameters import Parameters
from epf.model._tracing import depends_on
from epf.numerics._chunks import in_chunks
from epf.numerics._keys import packed, particle_keys, unpacked
from epf.numerics._sums import Compensated, Plain
from epf.polynomial._basis import Basis, Chebyshev, Monomial, design_on_cube
from epf.polynomial._indices import Indices
from epf.polynomial._nodes import along
from epf.posterior._chart import Chart
from epf.posterior._quadrature import grid
from epf.posterior.samplers._base import Sampler
from epf.posterior.samplers._inverse_cdf import InverseCDF, inverse_side_by_side, resolved
from epf.statistics import _approximation as settings
from epf.statistics._base import Gibbs
from epf.statistics._expansion import Expansion, plan_expansions
from epf.statistics._law import Laws
from epf.statistics._marginals import (
    POINTS,
    PolynomialMarginals,
    joint_marginals,
    marginals_on_grids,
    normalised,
)
from epf.statistics._start import first_box, first_centre


class PathPolynomial(eqx.Module):
    """What one particle remembers: coefficients, the box where its density is, and the centre if that moves."""

    coefficients: Compensated | Plain
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    centre: Float[Array, " p"] | None


class LogPolynomial(Gibbs):
    """p(theta | path) as prior x exp(polynomial), for any law of a model."""

    model: StateSpaceModel
    parameters: Parameters
    chart: Chart
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    centre: Float[Array, " p"] | None
    sampler: Sampler
    discount: float
    approximation: settings.Approximation = eqx.field(static=True)
    plans: tuple[tuple[str, Expansion | None], ...] = eqx.field(static=True)
    indices: Indices = eqx.field(static=True)
    follow_mode: str = eqx.field(static=True)

    @classmethod
    def of(
        cls,
        model: StateSpaceModel,
        approximation: settings.Approximation,
        sampler: Sampler,
        discount: float,
        u: Array | None,
    ) -> "LogPolynomial":
        """The Gibbs density of a model; `u` is a row of its inputs, if it has any."""
        taylor = isinstance(approximation, settings.Taylor)
        chart = Chart(parameters(model), plain=taylor)
        p = chart.parameters.size
        expansions = plan_expansions(model, approximation, u)
        found = [expansion for expansion in expansions.values() if expansion is not None]
        powers = {k for expansion in found for k in expansion.result.exponents} | {(0,) * p}
        forms = {expansion.form for expansion in found}
        low, high = first_box(chart, approximation)
        return cls(
            model,
            chart.parameters,
            chart,
            low,
            high,
            first_centre(chart, approximation) if taylor else None,
            sampler,
            discount,
            approximation,
            tuple(expansions.items()),
            Indices(tuple(powers)),
            _follow(approximation, forms, discount, p),
        )

    @property
    def expansions(self) -> dict[str, Expansion | None]:
        """How each law of the model is written as a polynomial; None where it does not depend on the parameters."""
        return dict(self.plans)

    @property
    def moves(self) -> bool:
        """Whether polynomials are carried to another box as the posterior shrinks."""
        return isinstance(self.approximation, settings.Chebyshev) and self.follow_mode != "no"

    @property
    def _sum(self) -> type[Compensated] | type[Plain]:
        """On a box that follows the posterior no value is ever more than some hundred nats, and float32 adds those to
        1e-5; on one that stays they grow with time."""
        return Plain if self.moves else Compensated

    @property
    def recentres(self) -> bool:
        return isinstance(self.approximation, settings.Taylor) and self.approximation.follow

    def basis(self, statistic: PathPolynomial) -> Basis:
        """What the particle's coefficients multiply."""
        return self._place(statistic)(self.indices)

    def init(self, x_0: Float[Array, "*state"]) -> PathPolynomial:
        centre = self.centre if self.recentres else None
        empty = PathPolynomial(self._sum.zero((self.indices.size,)), self.low, self.high, centre)
        coefficients = self._expanded(empty, "initial", lambda p, _: initial_law(self.model, p), x_0, x_0)
        return self.add(empty, coefficients)

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
        """On one box nodes and middle are the same for all particles."""
        if not self.moves or self.follow_mode == "each":
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
        moved = old.move(statistic.coefficients.value, new).at[0].set(0.0)
        return PathPolynomial(self._sum.zero(moved.shape).add(moved), low, high, statistic.centre)

    def recentre(self, statistic: PathPolynomial, centre: Float[Array, " p"]) -> PathPolynomial:
        """The same polynomial about another centre."""
        assert statistic.centre is not None
        old, new = Monomial(self.indices, statistic.centre), Monomial(self.indices, centre)
        moved = old.move(statistic.coefficients.value, new).at[0].set(0.0)
        return PathPolynomial(self._sum.zero(moved.shape).add(moved), statistic.low, statistic.high, centre)

    def add(self, statistic: PathPolynomial, increment: Float[Array, " terms"]) -> PathPolynomial:
        """One step's polynomial, added to what is left of the past."""
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
        """The polynomial of one step's log-density on the particle's box; or of `many` particles', who share that box."""
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
        """What `increment` stands for, at one point, up to a constant: laws that do not see the parameters are left out."""
        chart = self.chart

        def law(where: Callable[[Any], Distribution], value: Array) -> Float[Array, ""]:
            def of(z: Float[Array, " p"]) -> Distribution:
                return where(chart.parameters.named(chart.theta(z)))

            return log_prob_observed(of(z), value) if depends_on(of, z) else jnp.zeros(())

        moved = law(lambda p: transition_law(self.model, p, x_prev, u), new)
        return moved + law(lambda p: observation_law(self.model, p, x, u), y)

    def on_cube(
        self, statistic: PathPolynomial
    ) -> Callable[[Float[np.ndarray | Array, "points p"]], Float[Array, " points"]]:
        """The log-density in the coordinates of the particle's box, -1 to 1 along each parameter.

        The basis on the cube is the same for all particles, so at fixed points this is one matrix product for all.
        """
        origin, scale = 0.5 * (statistic.low + statistic.high), 0.5 * (statistic.high - statistic.low)
        chart, coefficients = self.chart, statistic.coefficients.value
        p = chart.parameters.size

        def log_density(points: Float[np.ndarray | Array, "points p"]) -> Float[Array, " points"]:
            z = origin + scale * points
            if self.moves and isinstance(points, np.ndarray):
                design = design_on_cube(self.indices, points)
            else:
                here = jnp.asarray(points)
                design = self.on_the_cube(p).design(here) if self.moves else self.basis(statistic).design(z)
            return jnp.matmul(design, coefficients, precision="highest") + jax.vmap(chart.log_prior)(z)

        return log_density

    def on_grid(
        self, statistic: PathPolynomial, line: Float[np.ndarray, " points"]
    ) -> Float[Array, "*points particles"]:
        """The log-densities of all particles on the grid `line` x .. x `line` of the one box that they share."""
        low, high = statistic.low[:, 0], statistic.high[:, 0]
        origin, scale, p = 0.5 * (low + high), 0.5 * (high - low), low.shape[0]
        axes = np.meshgrid(*([line] * p), indexing="ij")
        z = origin + scale * jnp.asarray(np.stack([axis.ravel() for axis in axes], axis=1), low.dtype)
        log_prior = jax.vmap(self.chart.log_prior)(z).reshape([len(line)] * p)
        first = jax.tree.map(lambda leaf: leaf[..., 0], statistic)
        values = self.indices.dense(statistic.coefficients.value)
        for i, order in enumerate(self.indices.orders):
            design = self._design_along(i, order, self.basis(first), line, origin[i] + scale[i] * jnp.asarray(line))
            values = along(design, values, i)
        return values + log_prior[..., None]

    def log_density(self, statistic: PathPolynomial, theta: Float[Array, " p"]) -> Float[Array, ""]:
        z = self.chart.point(theta)
        polynomial = self.basis(statistic).evaluate(statistic.coefficients.value, z)
        inside = jnp.all((z >= statistic.low) & (z <= statistic.high))
        return jnp.where(inside, self.parameters.log_prior(theta) + polynomial, -jnp.inf)

    def draw(self, key: PRNGKeyArray, statistic: PathPolynomial, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        origin, scale = 0.5 * (statistic.low + statistic.high), 0.5 * (statistic.high - statistic.low)
        chart = self.chart
        here = jnp.clip((chart.point(theta) - origin) / scale, -1.0, 1.0)
        moved = self.sampler.draw(key, self.on_cube(statistic), here)
        return chart.theta(origin + scale * moved)

    def draw_all(
        self, key: PRNGKeyArray, statistic: PathPolynomial, theta: Float[Array, "p particles"]
    ) -> Float[Array, "p particles"]:
        """For one or two parameters on one box, written out for many particles at once: the quickest by far."""
        if self.follow_mode == "each":
            return super().draw_all(key, statistic, theta)
        if isinstance(self.sampler, InverseCDF) and theta.shape[0] <= 2:
            return self._draw_on_grid(key, statistic, theta, self.sampler.points)
        # On one box densities are much alike: a sampler may learn from their mean what it would from each.
        mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=-1), statistic)
        sampler = self.sampler.near(self.on_cube(mean), jnp.zeros_like(theta[:, 0]))
        return Gibbs.draw_all(eqx.tree_at(lambda g: g.sampler, self, sampler), key, statistic, theta)

    def _draw_on_grid(
        self,
        key: PRNGKeyArray,
        statistic: PathPolynomial,
        theta: Float[Array, "p particles"],
        points: int,
    ) -> Float[Array, "p particles"]:
        """`InverseCDF.draw` with one grid for all; particle by particle in a part where that does not resolve them all."""
        chart, p = self.chart, theta.shape[0]

        def draw(theta: Float[Array, "p some"], given: tuple[Array, PathPolynomial]) -> Float[Array, "p some"]:
            words, statistic = given
            keys = jax.vmap(unpacked, -1)(words)
            values = self.on_grid(statistic, grid(points))

            def second(first: Float[Array, " some"]) -> Float[Array, "points some"]:
                along = jax.vmap(lambda s, first: self._second_given_first(s, first, points), -1, -1)
                return along(statistic, first)

            def at_once() -> Float[Array, "p some"]:
                fractions = jax.vmap(lambda key: jax.random.uniform(key, (p,), theta.dtype), out_axes=-1)(keys)
                u = inverse_side_by_side(values, fractions, second)
                z = statistic.low + (statistic.high - statistic.low) * u
                inside = jnp.isfinite(jax.vmap(chart.log_prior, -1, -1)(z))
                return jnp.where(inside, jax.vmap(chart.theta, -1, -1)(z), theta)

            def one_by_one() -> Float[Array, "p some"]:
                return jax.vmap(lambda key, s, theta: self.draw(key, s, theta), (0, -1, -1), -1)(keys, statistic, theta)

            return jax.lax.cond(jnp.all(resolved(values)), at_once, one_by_one)

        words = jax.vmap(packed, out_axes=-1)(particle_keys(key, theta.shape[1]))
        return in_chunks(draw, theta, (words, statistic), rows=points**p)

    def _second_given_first(
        self, statistic: PathPolynomial, first: Float[Array, ""], points: int
    ) -> Float[Array, " points"]:
        """The log-density of the second of two parameters on the grid, where the first is at a fraction of its box."""
        line = grid(points)
        u = jnp.stack([jnp.broadcast_to(2.0 * first - 1.0, points), jnp.asarray(line, first.dtype)], axis=1)
        z = 0.5 * (statistic.low + statistic.high) + 0.5 * (statistic.high - statistic.low) * u
        at, basis = (u, self.on_the_cube(2)) if self.moves else (z, self.basis(statistic))
        section = basis.sections(statistic.coefficients.value, at[0])[1]
        design = self._design_along(1, section.shape[0] - 1, basis, line, z[:, 1])
        return jnp.matmul(design, section, precision="highest") + jax.vmap(self.chart.log_prior)(z)

    def marginals(self, statistic: PathPolynomial, theta: Float[Array, " p"]) -> PolynomialMarginals:
        density = self.marginal_densities(statistic, theta)
        return marginals_on_grids(self.chart, density, statistic.low, statistic.high)

    def marginal_densities(self, statistic: PathPolynomial, theta: Float[Array, " p"]) -> Float[Array, "p points"]:
        """The density of each parameter on the cube; for three and more, given the particle's draw of the others."""
        p = theta.shape[0]
        if p <= 2:
            return joint_marginals(self.on_cube(statistic), p)
        chart, line = self.chart, grid(POINTS)
        origin, scale = 0.5 * (statistic.low + statistic.high), 0.5 * (statistic.high - statistic.low)
        here = chart.point(theta)
        # On the cube the basis is the same for all particles, and so are its functions on the grid.
        basis = self.on_the_cube(p) if self.moves else self.basis(statistic)
        sections = basis.sections(statistic.coefficients.value, (here - origin) / scale if self.moves else here)
        values = []
        for i, section in enumerate(sections):
            at = origin[i] + scale[i] * jnp.asarray(line, theta.dtype)
            design = self._design_along(i, section.shape[0] - 1, basis, line, at)
            prior = jax.vmap(chart.log_prior)(jnp.broadcast_to(here, (POINTS, p)).at[:, i].set(at))
            values.append(jnp.matmul(design, section, precision="highest") + prior)
        return normalised(jnp.stack(values))

    def _design_along(
        self, i: int, order: int, basis: Basis, line: Float[np.ndarray, " points"], at: Float[Array, " points"]
    ) -> Float[Array, "points degrees"]:
        """The functions of parameter i alone, at points given as those of the cube and as they are on the box."""
        powers = Indices(tuple((k,) for k in range(order + 1)))
        if self.moves:
            return design_on_cube(powers, line[:, None])
        return _along_axis(basis, powers, i).design(at[:, None])

    def on_the_cube(self, p: int) -> Chebyshev:
        """The basis of every box, in the coordinates of the box."""
        return Chebyshev(self.indices, -np.ones(p), np.ones(p))

    def _place(self, statistic: PathPolynomial) -> Callable[[Indices], Basis]:
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
        state: Float[Array, "*state"],
        value: Float[Array, "*event"],
        many: bool = False,
    ) -> Float[Array, " terms *particles"]:
        chart = self.chart
        params = chart.parameters
        expansion = self.expansions[where]
        if expansion is None:
            return jnp.zeros((self.indices.size, *value.shape[-1:]) if many else self.indices.size)
        laws = Laws(lambda z, state: law_of(params.named(chart.theta(z)), state), state, value, many)
        return expansion.result.embed(expansion.log_density(laws, self._place(statistic)), self.indices)


def _along_axis(basis: Basis, indices: Indices, i: int) -> Basis:
    """The basis of one parameter alone."""
    if isinstance(basis, Monomial):
        return Monomial(indices, basis.centre[i : i + 1])
    assert isinstance(basis, Chebyshev)
    return Chebyshev(indices, basis.low[i : i + 1], basis.high[i : i + 1])


def _follow(approximation: settings.Approximation, forms: set[str], discount: float, p: int) -> str:
    """One box for all where the square keeps every particle in bounds; a box for each where densities may be sharp."""
    if isinstance(approximation, settings.Taylor):
        return "shared"
    assert isinstance(approximation, settings.Chebyshev)
    asked = approximation.follow
    if discount < 1.0 or asked != "automatic":
        return "no" if discount < 1.0 else asked
    return "each" if "density" in forms and p <= 2 else "shared"
