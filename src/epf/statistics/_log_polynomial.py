"""The statistic of the extended parameter filter: draws and marginals of prior x exp(polynomial).

For one or two parameters both are read off grids of the particles' boxes, for all particles side by side.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import SettingError, UnsupportedModelError
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import as_parameter
from epf.model._trial import faults
from epf.numerics._chunks import in_chunks
from epf.numerics._compile import compiled_once
from epf.numerics._keys import packed, particle_keys, unpacked
from epf.polynomial._indices import Indices
from epf.posterior._chart import Chart, prior_box
from epf.posterior._posterior import ParticlePosterior
from epf.posterior._quadrature import GridDensity, cumulative, grid, hermite, weights
from epf.posterior.samplers._base import Sampler
from epf.posterior.samplers._inverse_cdf import InverseCDF, inverse_side_by_side, resolved
from epf.statistics import _approximation as settings
from epf.statistics import _follow as following
from epf.statistics._base import Gibbs, Guide, Marginals, how_often
from epf.statistics._expansion import plan_expansions, points_of
from epf.statistics._log_density import PathPolynomial as PathPolynomial
from epf.statistics._log_density import PolynomialLogDensity
from epf.statistics._mixture import PolynomialMixture

_POINTS = 41
_NO_MASS = 80.0  # nats below the prior's peak: less than the smallest float


class PolynomialMarginals(Marginals):
    """Densities and distribution functions of the elements of theta on uniform grids of their boxes."""

    mean: Float[Array, " p"]
    variance: Float[Array, " p"]
    density: Float[Array, "p points"]
    """Of the coordinate z on the cube, so that its integral from -1 to 1 is 1."""
    below: Float[Array, "p points"]
    low: Float[Array, " p"]
    high: Float[Array, " p"]
    chart: Chart

    @classmethod
    def on_grids(
        cls, chart: Chart, density: Float[Array, "p points"], low: Float[Array, " p"], high: Float[Array, " p"]
    ) -> "PolynomialMarginals":
        """The marginals of one particle from their densities on the cube."""
        mean, sd = GridDensity(chart, low, high, density).moments()
        below = jnp.matmul(density, jnp.asarray(cumulative(density.shape[1]), density.dtype).T, precision="highest")
        return cls(mean, sd**2, density, below, low, high, chart)

    def cdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        at = self._cube(points)
        left, t, gap = self._cell(at)
        f0, f1 = self._pick(self.density, left), self._pick(self.density, left + 1)
        F0, F1 = self._pick(self.below, left), self._pick(self.below, left + 1)
        inside = hermite(t, F0, gap * f0, F1, gap * f1)
        return jnp.where(at <= -1.0, 0.0, jnp.where(at >= 1.0, 1.0, jnp.clip(inside, 0.0, 1.0)))

    def pdf(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        at = self._cube(points)
        left, t, _ = self._cell(at)
        before, f0, f1, after = (self._pick(self.density, left + i) for i in (-1, 0, 1, 2))
        inside = jnp.maximum(hermite(t, f0, 0.5 * (f1 - before), f1, 0.5 * (after - f0)), 0.0)
        z = jnp.clip(self._point(points), self.low, self.high)
        slope = jnp.abs(self.chart.slopes(z)) * 0.5 * (self.high - self.low)
        return jnp.where(jnp.abs(at) <= 1.0, inside / slope, 0.0)

    def _point(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        """Chart of values that may lie outside their support, where a logarithm would be NaN."""
        z = self.chart.point(points)
        return jnp.where(jnp.isnan(z), -jnp.inf, z)

    def _cube(self, points: Float[Array, " p"]) -> Float[Array, " p"]:
        return (2.0 * self._point(points) - self.low - self.high) / (self.high - self.low)

    def _cell(self, at: Float[Array, " p"]) -> tuple[Array, Array, float]:
        cells = self.density.shape[1] - 1
        place = 0.5 * (jnp.clip(at, -1.0, 1.0) + 1.0) * cells
        left = jnp.clip(jnp.floor(place).astype(int), 0, cells - 1)
        return left, place - left, 2.0 / cells

    @staticmethod
    def _pick(rows: Float[Array, "p points"], at: Array) -> Float[Array, " p"]:
        at = jnp.clip(at, 0, rows.shape[1] - 1)
        return jnp.take_along_axis(rows, at[:, None], axis=1)[:, 0]


class LogPolynomial(PolynomialLogDensity):
    """p(theta | path) as prior x exp(polynomial), drawn from and integrated on grids."""

    @classmethod
    def of(
        cls,
        model: StateSpaceModel,
        approximation: settings.Approximation,
        sampler: Sampler,
        discount: float,
        u: Array | None,
    ) -> "LogPolynomial":
        """Decide once what to expand, in which powers and where; `u` is a row of the model's inputs, if it has any."""
        taylor = isinstance(approximation, settings.Taylor)
        chart = Chart(parameters(model), plain=taylor)
        expansions = plan_expansions(model, chart, approximation, u)
        found = [expansion for expansion in expansions.values() if expansion is not None]
        powers = {k for expansion in found for k in expansion.result.exponents} | {(0,) * chart.parameters.size}
        low, high = settings.first_box(chart, approximation)
        return cls(
            model,
            chart.parameters,
            chart,
            low,
            high,
            settings.first_centre(chart, approximation) if taylor else None,
            sampler,
            discount,
            approximation,
            tuple(expansions.items()),
            Indices(tuple(powers)),
            _follow_mode(approximation, {expansion.form for expansion in found}, discount, chart.parameters.size),
        )

    def posterior(
        self,
        theta: Float[Array, "p particles"],
        weights: Float[Array, " particles"],
        x: Float[Array, "*state particles"],
        statistic: PathPolynomial,
    ) -> ParticlePosterior:
        return PolynomialMixture(self.parameters, theta, weights, x, self, statistic)

    def check(self, u: Array | None) -> None:
        _try_out(self, u)

    def describe(self, refresh: int) -> dict[str, str]:
        laws = {where: law for where, law in self.expansions.items() if law is not None}
        forms = "; ".join(f"{where}: {law.form}, order {law.order}" for where, law in laws.items())
        kind = "Taylor" if isinstance(self.approximation, settings.Taylor) else "Chebyshev"
        box = {"shared": "one for all particles, following", "each": "one per particle, following", "no": "fixed"}
        return {
            "approximation": f"{kind}; {forms}; {self.indices.size} coefficients per particle",
            "box": box[self.follow_mode],
            "draws of theta": f"{self.sampler.describe()}{how_often(refresh)}",
        }

    def guide(self) -> Guide:
        return Guide.start()

    def follow(
        self,
        guide: Guide | None,
        theta: Float[Array, "p particles"],
        statistic: PathPolynomial,
        weights: Float[Array, " particles"],
        piece: Any,
    ) -> tuple[PathPolynomial, Guide | None, Float[Array, ""]]:
        assert guide is not None
        return following.follow(self, guide, theta, statistic, weights, piece)

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
            return _joint_marginals(self.on_grid(statistic, grid(points)))
        each = jax.vmap(lambda s, theta: self._conditionals(s, theta, points), -1, -1)
        return _normalised(each(statistic, theta))

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


def _normalised(log_densities: Float[Array, "p points *particles"]) -> Float[Array, "p points *particles"]:
    """Densities on a uniform grid of [-1, 1], each with integral 1."""
    rows = _relative(log_densities, (1,))
    return rows / jnp.tensordot(rows, jnp.asarray(weights(rows.shape[1]), rows.dtype), axes=(1, 0))[:, None]


def _joint_marginals(values: Float[Array, "*points particles"]) -> Float[Array, "p points particles"]:
    """The marginal densities of one or two parameters from joint log-densities on the grid, each with integral 1."""
    p = values.ndim - 1
    joint, weight = _relative(values, tuple(range(p))), jnp.asarray(weights(values.shape[0]), values.dtype)
    over_first = jnp.tensordot(weight, joint, axes=1)
    mass = over_first if p == 1 else jnp.tensordot(weight, over_first, axes=1)
    rows = joint[None] if p == 1 else jnp.stack([jnp.tensordot(weight, joint, axes=(0, 1)), over_first])
    return rows / mass


def _relative(values: Float[Array, "..."], axes: tuple[int, ...]) -> Float[Array, "..."]:
    """Densities relative to their largest value along the axes; zero where the log-density is not a number."""
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    top = jnp.max(values, axis=axes, keepdims=True)
    return jnp.exp(values - jnp.where(jnp.isfinite(top), top, 0.0))


def _follow_mode(approximation: settings.Approximation, forms: set[str], discount: float, p: int) -> str:
    """Whether particles share a box. A squared drift is bounded above on any box; other log-densities may be sharp."""
    if isinstance(approximation, settings.Taylor):
        return "shared"
    assert isinstance(approximation, settings.Chebyshev)
    if discount < 1.0:
        return "no"
    asked = approximation.follow
    if asked == "automatic":
        asked = "each" if "density" in forms else "shared"
    return "shared" if asked == "each" and p > 2 else asked  # for three and more the box is found from all draws


def _try_out(gibbs: LogPolynomial, u: Array | None) -> None:
    """Refuse a centre outside the support, a box without prior mass, and a log-density that is NaN there."""
    chart, params = gibbs.chart, gibbs.parameters
    if isinstance(gibbs.approximation, settings.Taylor):
        centre = np.asarray(gibbs.centre)
        for name, value in params.as_dict(centre).items():
            as_parameter(name, value, params.priors[name])
        _check_defined(gibbs, u, centre[None], "about the centre", "choose another centre")
        return
    low, high = np.asarray(gibbs.low), np.asarray(gibbs.high)
    points = np.concatenate([points_of(gibbs.indices), np.zeros((1, params.size))])
    if not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        raise SettingError(
            f"Invalid box from {low} to {high}: bounds must be finite, with low < high; change epf.Chebyshev(box=...)."
        )
    theta, most, peak = _prior_at(chart, gibbs.low, gibbs.high, jnp.asarray(points, float))
    if not float(most) > float(peak) - _NO_MASS:
        box = ", ".join(f"{label} in [{a:g}, {b:g}]" for label, a, b in zip(
            params.labels, chart.theta(gibbs.low), chart.theta(gibbs.high), strict=True))  # fmt: skip
        raise SettingError(f"The prior has no mass on the box ({box}): choose a box inside the support of the prior.")
    remedy = "give epf.Chebyshev(box=...) inside its domain, or another prior"
    _check_defined(gibbs, u, np.asarray(theta), "on the box", remedy)


@compiled_once
def _prior_at(
    chart: Chart, low: Float[Array, " p"], high: Float[Array, " p"], points: Float[Array, "points p"]
) -> tuple[Float[Array, "points p"], Float[Array, ""], Float[Array, ""]]:
    """Points of a box as theta, the greatest log prior density among them, and the greatest of all."""
    z = 0.5 * (low + high) + 0.5 * (high - low) * points
    prior_low, prior_high = prior_box(chart)
    everywhere = prior_low + (prior_high - prior_low) * jnp.linspace(0.0, 1.0, 201)[:, None]
    most, peak = (jnp.nanmax(jax.vmap(chart.log_prior)(at)) for at in (z, everywhere))
    return jax.vmap(chart.theta)(z), most, peak


def _check_defined(gibbs: LogPolynomial, u: Array | None, theta: np.ndarray, where: str, remedy: str) -> None:
    """Refuse a law whose support moves with the parameters, and one that is NaN at points where it would be expanded."""
    for fault in faults(gibbs.model, u, theta, _Expanded(gibbs), f"points {where}"):
        what, helps = fault.what, remedy
        if fault.moves:
            what += ". Values that it allows are outside of it"
            helps = "no polynomial follows a density that ends, so use epf.SIR or epf.LiuWest"
        raise UnsupportedModelError(f"This model cannot be expanded: {what} {fault.at}: {helps}.")


class _Expanded(eqx.Module):
    """The laws that are expanded."""

    gibbs: LogPolynomial

    def __call__(self, theta: Array, *values: Any) -> dict[str, Any]:
        return self.gibbs.laws_at(self.gibbs.chart.point(theta), *values)
