"""The statistic of the extended parameter filter: draws and marginals of prior x exp(polynomial).

For one or two parameters both are read off grids of the particles' boxes, for all particles side by side.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.numerics._chunks import in_chunks
from epf.numerics._keys import packed, particle_keys, unpacked
from epf.posterior._quadrature import grid
from epf.posterior.samplers._inverse_cdf import InverseCDF, inverse_side_by_side, resolved
from epf.statistics._base import Gibbs
from epf.statistics._log_density import PathPolynomial as PathPolynomial
from epf.statistics._log_density import PolynomialLogDensity
from epf.statistics._marginals import PolynomialMarginals, joint_marginals, normalised

_POINTS = 41


class LogPolynomial(PolynomialLogDensity):
    """p(theta | path) as prior x exp(polynomial), drawn from and integrated on grids."""

    def draw(self, key: PRNGKeyArray, statistic: PathPolynomial, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        origin, scale = 0.5 * (statistic.low + statistic.high), 0.5 * (statistic.high - statistic.low)
        here = jnp.clip((self.chart.point(theta) - origin) / scale, -1.0, 1.0)
        moved = self.sampler.draw(key, self.on_cube(statistic), here)
        return self.chart.theta(origin + scale * moved)

    def draw_all(
        self, key: PRNGKeyArray, statistic: PathPolynomial, theta: Float[Array, "p particles"]
    ) -> Float[Array, "p particles"]:
        """`draw` for all particles: on one grid of the cube for one or two parameters, which is by far the fastest."""
        if isinstance(self.sampler, InverseCDF) and theta.shape[0] <= 2:
            return self._draw_on_grid(key, statistic, theta, self.sampler.points)
        if not self.shared:
            return super().draw_all(key, statistic, theta)
        # On a shared box all densities are similar: the sampler adapts to their mean once instead of to each of them.
        mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=-1), statistic)
        sampler = self.sampler.near(self.on_cube(mean), jnp.zeros_like(theta[:, 0]))
        return Gibbs.draw_all(eqx.tree_at(lambda g: g.sampler, self, sampler), key, statistic, theta)

    def _draw_on_grid(
        self, key: PRNGKeyArray, statistic: PathPolynomial, theta: Float[Array, "p particles"], points: int
    ) -> Float[Array, "p particles"]:
        """`InverseCDF.draw` side by side; one particle after the other in a chunk that the grid does not resolve."""
        p = theta.shape[0]

        def draw(theta: Float[Array, "p some"], given: tuple[Array, PathPolynomial]) -> Float[Array, "p some"]:
            words, statistic = given
            keys = jax.vmap(unpacked, -1)(words)
            values = self.on_grid(statistic, grid(points))

            def second(first: Float[Array, " some"]) -> Float[Array, "points some"]:
                section = jax.vmap(lambda s, first: self._second_given_first(s, first, points), -1, -1)
                return section(statistic, first)

            def side_by_side() -> Float[Array, "p some"]:
                fractions = jax.vmap(lambda key: jax.random.uniform(key, (p,), theta.dtype), out_axes=-1)(keys)
                u = inverse_side_by_side(values, fractions, second)
                z = statistic.low + (statistic.high - statistic.low) * u
                inside = jnp.isfinite(jax.vmap(self.chart.log_prior, -1, -1)(z))
                return jnp.where(inside, jax.vmap(self.chart.theta, -1, -1)(z), theta)

            def one_by_one() -> Float[Array, "p some"]:
                return jax.vmap(self.draw, (0, -1, -1), -1)(keys, statistic, theta)

            return jax.lax.cond(jnp.all(resolved(values)), side_by_side, one_by_one)

        words = jax.vmap(packed, out_axes=-1)(particle_keys(key, theta.shape[1]))
        return in_chunks(draw, theta, (words, statistic), rows=points**p)

    def _second_given_first(
        self, statistic: PathPolynomial, first: Float[Array, ""], points: int
    ) -> Float[Array, " points"]:
        """The log-density of the second of two parameters on the grid, where the first is at a fraction of its box."""
        line = grid(points)
        u = jnp.stack([jnp.broadcast_to(2.0 * first - 1.0, points), jnp.asarray(line, first.dtype)], axis=1)
        z = 0.5 * (statistic.low + statistic.high) + 0.5 * (statistic.high - statistic.low) * u
        at, basis = (u, self.unit_basis) if self.moves else (z, self.basis(statistic))
        section = basis.sections(statistic.coefficients.value, at[0])[1]
        design = self.design_along(1, section.shape[0] - 1, basis, line, z[:, 1])
        return jnp.matmul(design, section, precision="highest") + jax.vmap(self.chart.log_prior)(z)

    def marginals(self, statistic: PathPolynomial, theta: Float[Array, " p"]) -> PolynomialMarginals:
        one = jax.tree.map(lambda leaf: leaf[..., None], statistic)
        density = self.marginal_densities(one, theta[:, None], _POINTS)[..., 0]
        return PolynomialMarginals.on_grids(self.chart, density, statistic.low, statistic.high)

    def marginal_densities(
        self, statistic: PathPolynomial, theta: Float[Array, "p particles"], points: int
    ) -> Float[Array, "p points particles"]:
        """Exact for one and two parameters; for three and more, given the particle's draws of the other parameters."""
        if theta.shape[0] <= 2:
            return joint_marginals(self.on_grid(statistic, grid(points)))
        each = jax.vmap(lambda s, theta: self._conditionals(s, theta, points), -1, -1)
        return normalised(each(statistic, theta))

    def _conditionals(
        self, statistic: PathPolynomial, theta: Float[Array, " p"], points: int
    ) -> Float[Array, "p points"]:
        """The log-density of each parameter on the grid, the others being as they are in `theta`."""
        origin, scale = 0.5 * (statistic.low + statistic.high), 0.5 * (statistic.high - statistic.low)
        here, line = self.chart.point(theta), grid(points)
        basis = self.unit_basis if self.moves else self.basis(statistic)
        sections = basis.sections(statistic.coefficients.value, (here - origin) / scale if self.moves else here)
        values = []
        for i, section in enumerate(sections):
            at = origin[i] + scale[i] * jnp.asarray(line, theta.dtype)
            design = self.design_along(i, section.shape[0] - 1, basis, line, at)
            prior = jax.vmap(self.chart.log_prior)(jnp.broadcast_to(here, (points, len(here))).at[:, i].set(at))
            values.append(jnp.matmul(design, section, precision="highest") + prior)
        return jnp.stack(values)
