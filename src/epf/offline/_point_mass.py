"""The exact posterior of a one-dimensional state and one or two parameters, by quadrature on grids.

Each theta_j of a grid has its own point-mass filter (`_state_filter`), whose p(y_t | y_1:t-1, theta_j) multiplies the
posterior mass of theta_j. The only error is that of the quadrature, which falls faster than any power of the spacing once
the nodes resolve the densities: double `nodes` and the points of `grid` to check that nothing changes.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._base import BoundFilter, Filter, Info
from epf.model._laws import is_gaussian
from epf.model._model import (
    StateSpaceModel,
    initial_law,
    may_lack_inputs,
    parameters,
    state_shape,
    traced,
    transition_law,
)
from epf.model._parameters import Parameters
from epf.model._series import check_series
from epf.model._settings import Rule, count, is_whole, number, require_count, setting
from epf.model._trial import refuse_atoms
from epf.numerics._compile import compiled
from epf.numerics._keys import root_key
from epf.numerics._sums import Compensated
from epf.offline._grid_posterior import GridPosterior
from epf.offline._state_filter import StateFilter, in_batches
from epf.offline._theta_grid import Axis, Span, as_grid, make_axes, product
from epf.posterior._chart import Chart
from epf.smc._weights import weigh

_NODES, _NODES_OF_HEAVY_TAILS = 129, 201
_POINTS = {0: 1, 1: 201, 2: 61}
_DROP = 30.0  # nats below the peak at which a refined grid ends
_NEVER = -1e6  # a log-likelihood that no later observation can compensate, and that still adds up
_GRID_WORDS = 'the number of points, 3 or more, or ranges or arrays by name, such as {"theta": (0.0, 1.0)}'


class PointMasses(eqx.Module):
    """Log-masses of theta on the grid (normalised after the first observation), and of x given each theta.

    `errors` has the largest estimated relative error of a step's likelihood so far, given each theta.
    """

    axes: tuple[Axis, ...]
    log_mass: Compensated
    x: Float[Array, "thetas nodes"]
    log_mass_x: Float[Array, "thetas nodes"]
    errors: Float[Array, " thetas"]


def _is_grid(value: Any) -> bool:
    return isinstance(value, dict) or (is_whole(value) and value >= 3)


class PointMass(Filter):
    """The exact posterior on grids, for a one-dimensional state and at most two parameters.

    `nodes` is the number of nodes of the state per theta, by default 129, or 201 where the transition is not Gaussian.
    `grid` is the number of points per parameter (201 for one, 61 for two), which then cover the prior; or by name a range
    (low, high), (low, high, points), or an array of values. The nodes cover `width` standard deviations of the state's
    density to each side. `refined` narrows the grid to the posterior.

    Two figures say whether the grids were fine enough. `result.posterior.step_error` estimates the largest relative error
    of a step's likelihood so far: raise `nodes` (and `width`, if there are outliers) if it is not small. `ess` in the
    history is the effective number of grid points: below 3.5 per parameter their spacing is more than one posterior standard
    deviation, and `refined` is needed. Use float64; in float32 a log-likelihood has an error of about 1e-5.

    Examples:
        >>> epf.PointMass(nodes=65, grid={"level_variance": (0.1, 2.0, 31)}).bind(model).describe()["grid"]
        '31 points of level_variance x 61 points of noise_variance'
    """

    nodes: int | None = count(None, least=3, optional=True)
    grid: Any = setting(None, Rule(_is_grid, _GRID_WORDS), optional=True, converter=as_grid)
    width: float = number(6.0, above=0.0, below=30.0)

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> "BoundPointMass":
        params, shape = parameters(model), state_shape(model)
        _check_parameters(params)
        Chart.of_real_line(params)  # refuses parameters that are discrete or bound to others
        _check_state(shape)
        refuse_atoms(model, u)
        count = self.nodes or (_NODES if _moves_gaussian(model, u) else _NODES_OF_HEAVY_TAILS)
        return BoundPointMass(model, params, self, StateFilter(count, self.width, shape))

    @property
    def remedies(self) -> dict[str, str]:
        return {
            "expansion": "make the grid finer or narrower (grid=..., or PointMass().refined(model, y)), or use more nodes",
            "truncation": "make the grid wider (grid=...)",
        }

    def refined(self, model: StateSpaceModel, y: Any, *, inputs: Any = None, rounds: int = 2) -> "PointMass":
        """The same method with its grid narrowed to where the log-posterior given `y` is within 30 nats of its peak.

        A theta whose likelihood the nodes cannot resolve, as its estimated error says, is left out. Each round runs over
        the whole series, so the grid fits the posterior at its end and later; earlier posteriors are wider and would be
        cut. Use it as `epf.fit(model, y, epf.PointMass().refined(model, y))`.
        """
        rounds = require_count("refined", "rounds", rounds)
        observations, us, _ = check_series(model, y, inputs)
        ys = jnp.asarray(observations)
        method = self
        for _ in range(rounds):
            posterior, _ = run(method, model, ys, us)
            known = posterior.errors < 1.0
            log_mass = jnp.where(known | ~jnp.any(known), posterior.log_mass, _NEVER)
            posterior = eqx.tree_at(lambda p: p.log_mass, posterior, log_mass)
            log_density = np.asarray(compiled(GridPosterior.log_density)(posterior), float)
            grid = {}
            for i, (label, axis) in enumerate(zip(posterior.parameters.labels, posterior.axes, strict=True)):
                profile = log_density.max(axis=tuple(j for j in range(log_density.ndim) if j != i))
                inside = np.flatnonzero(profile > profile.max() - _DROP)
                nodes = np.asarray(axis.nodes, float)
                low, high = nodes[max(inside[0] - 1, 0)], nodes[min(inside[-1] + 1, len(nodes) - 1)]
                grid[label] = Span(np.asarray(low), np.asarray(high), len(nodes))
            method = PointMass(self.nodes, grid, self.width)
        return method


class BoundPointMass(BoundFilter):
    """The exact posterior of one model on grids."""

    model: StateSpaceModel
    parameters: Parameters
    settings: PointMass
    of_state: StateFilter

    def init(self, key: PRNGKeyArray) -> PointMasses:
        model, params, of_state = self.model, self.parameters, self.of_state
        axes = self._axes()
        theta, log_weight = product(axes)

        def start(theta: Float[Array, " p"]) -> tuple[Array, Array, Array]:
            return params.log_prior(theta), *of_state.start(initial_law(model, params.named(theta)))

        log_prior, x, log_mass_x = in_batches(start, (theta,), _batch(of_state.count))
        log_mass = jnp.nan_to_num(log_prior + log_weight, nan=_NEVER, neginf=_NEVER)
        return PointMasses(
            axes, Compensated.zero(log_mass.shape).add(log_mass), x, log_mass_x, jnp.zeros(log_mass.shape)
        )

    def step(
        self, key: PRNGKeyArray, state: PointMasses, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[PointMasses, Info]:
        model, params, of_state = self.model, self.parameters, self.of_state
        theta, _ = product(state.axes)
        before = state.log_mass.value
        # A theta that the data excluded long ago may become NaN without a warning.
        matters = before > jnp.max(before) - 2.0 * _DROP

        def take_in(y: Float[Array, "*y"]) -> tuple[Any, Array]:
            def one(theta: Array, x: Array, log_mass: Array) -> tuple[Array, Array, Array, Array]:
                return of_state.step(model, params.named(theta), x, log_mass, y, u)

            rows = (theta, state.x, state.log_mass_x)
            x, log_mass_x, increments, error = in_batches(one, rows, _batch(of_state.count))
            return (x, log_mass_x, error), jnp.where(matters | jnp.isfinite(increments), increments, -jnp.inf)

        def again(carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
            tried, _, increments = carry
            after, found = take_in(jnp.where(tried == 0, y, jnp.nan))
            return tried + 1, after, jnp.where(tried == 0, found, increments)

        def unfinished(carry: tuple[Array, Any, Array]) -> Array:
            tried, _, increments = carry
            return (tried == 0) | ((tried == 1) & ~jnp.any(jnp.isfinite(increments)))

        # An observation that no theta can explain is set aside: the step is repeated as if it were missing.
        start = (jnp.asarray(0), (state.x, state.log_mass_x, jnp.zeros_like(before)), jnp.zeros_like(before))
        _, (x, log_mass_x, errors), increments = jax.lax.while_loop(unfinished, again, start)
        weighed = weigh(before, increments)
        relative = jnp.nan_to_num(increments - weighed.log_evidence, nan=_NEVER, posinf=_NEVER, neginf=_NEVER)
        log_mass = state.log_mass.add(jnp.where(weighed.collapsed, 0.0, relative))
        lost = jnp.isnan(increments) | (increments == jnp.inf) | ~matters
        info = Info(
            weighed.log_evidence, weighed.ess, jnp.asarray(False), weighed.collapsed, weighed.invalid, jnp.all(lost)
        )
        return PointMasses(state.axes, log_mass, x, log_mass_x, jnp.maximum(state.errors, errors)), info

    def posterior(self, state: PointMasses) -> GridPosterior:
        log_mass, shape = state.log_mass.value, self.of_state.shape
        return GridPosterior(self.parameters, state.axes, log_mass, state.x, state.log_mass_x, state.errors, shape)

    def describe(self) -> dict[str, str]:
        settings, axes = self.settings, jax.eval_shape(self._axes)
        labels = self.parameters.labels
        grid = [f"{axis.nodes.shape[0]} points of {name}" for axis, name in zip(axes, labels, strict=True)]
        nodes = f"{self.of_state.count} nodes, {settings.width:g} standard deviations to each side"
        return {"method": "PointMass", "state": nodes, "grid": " x ".join(grid) or "one point"}

    def _axes(self) -> tuple[Axis, ...]:
        points = self.settings.grid if isinstance(self.settings.grid, int) else _POINTS[self.parameters.size]
        return make_axes(self.parameters, self.settings.grid, points)


@compiled
def run(method: PointMass, model: StateSpaceModel, ys: Array, us: Array | None) -> tuple[GridPosterior, Info]:
    """The posterior after a whole series, and the Info of each step; compiles faster than a fit with its history."""
    bound, key = method.bind(model, None if us is None else us[0]), root_key(0)  # the key is unused: nothing is random

    def one(state: PointMasses, at: tuple[Array, Array | None]) -> tuple[PointMasses, Info]:
        return bound.step(key, state, *at)

    state, info = jax.lax.scan(one, bound.init(key), (ys, us))
    return bound.posterior(state), info


def _batch(nodes: int) -> int:
    """Number of thetas per batch, so that their nodes x nodes tables fit a CPU's cache or fill a GPU."""
    return max(1, (2**15 if jax.default_backend() == "cpu" else 2**26) // nodes**2)


def _moves_gaussian(model: StateSpaceModel, u: Array | None) -> bool:
    """Whether the transition is Gaussian; False where it cannot be known, as inputs are missing."""
    x = jnp.zeros(state_shape(model))
    with may_lack_inputs(model, u):
        return traced(model, lambda p: is_gaussian(transition_law(model, p, x, u)))
    return False


def _check_state(shape: tuple[int, ...]) -> None:
    if int(np.prod(shape)) != 1:
        raise UnsupportedModelError(
            f"PointMass needs a one-dimensional state, and this one has shape {shape}: use epf.SIR, or epf.Kalman for a "
            "linear Gaussian model."
        )


def _check_parameters(params: Parameters) -> None:
    if params.size > 2:
        raise UnsupportedModelError(
            f"PointMass needs at most two unknown parameters, and this model has {params.size}: use epf.LiuWest or "
            "epf.SIR, or epf.fix to make some known."
        )
