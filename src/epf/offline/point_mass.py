"""The point-mass filter: the exact posterior of a one-dimensional state and one or two parameters, by quadrature.

Bucy and Senne (1971) carry the density of the state at the nodes of a grid; here every theta_j of a second grid has such
a filter. With m_i the mass at node x_i, and new nodes z_k of quadrature weight w_k,

        p(z_k | y_1:t-1) = sum_i m_i p(z_k | x_i),    m_k' = w_k p(z_k | y_1:t-1) p(y_t | z_k) / p(y_t | y_1:t-1),

where p(y_t | y_1:t-1), the sum of the numerators, multiplies the posterior mass of theta_j. The only error is that of the
quadrature, which falls faster than any power of the spacing once the nodes resolve the densities; double `nodes` and
the points of `grid` to see that nothing changes.
"""

from contextlib import suppress
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.check import check_inputs, check_model, check_observations, is_number, is_whole, plain
from epf.compensated import Compensated
from epf.dependence import is_affine
from epf.errors import ModelError, SettingError, UnsupportedModelError
from epf.filters.base import Filter, Info
from epf.keys import root_key
from epf.laws import is_gaussian, log_prob, log_prob_observed, observed, support
from epf.model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.offline.grid_posterior import GridPosterior
from epf.offline.state_grid import Nodes, Spread, between, linear_observation, place, spread
from epf.offline.theta_grid import Axis, Span, as_grid, make_axes, product
from epf.parameters import Parameters, Values
from epf.smc.weights import weigh

_NODES, _NODES_OF_HEAVY_TAILS = 65, 281
_POINTS = {0: 1, 1: 201, 2: 41}
_DROP = 30.0  # nats below the peak at which a refined grid ends
_NEVER = -1e6  # a log-likelihood that no later observation makes up for, and that can still be added to


class PointMasses(eqx.Module):
    """The log-masses of theta on the grid (1 in all only after the first observation), and of x given each theta."""

    axes: tuple[Axis, ...]
    log_mass: Compensated
    x: Float[Array, "thetas nodes"]
    log_mass_x: Float[Array, "thetas nodes"]


class PointMass(Filter):
    """The exact posterior on grids, for a one-dimensional state and at most two parameters.

    `nodes` of the state for each theta, by default 65, or 281 where a transition is not Gaussian. `grid` is the number
    of points of each parameter (201 for one, 41 for two), which then cover the prior; or by name a range (low, high),
    (low, high, points), or an array of values. `width` is how many standard deviations of the state's density the nodes
    cover, `states` a fixed range (low, high) for models in which neither the transition nor the observation bounds the
    state. `refined` narrows the grid to the posterior.

    In `Info`, `ess` is the effective number of points of the grid: below about 3 for each parameter the posterior has
    become too narrow for it. Float64 is advised; in float32 a log-likelihood is right to about 1e-5.
    """

    nodes: int | None = eqx.field(default=None, converter=plain)
    grid: Any = eqx.field(default=None, converter=as_grid)
    width: float = eqx.field(default=7.0, converter=plain)
    states: tuple[float, float] | None = None

    def __check_init__(self) -> None:
        if self.nodes is not None and not (is_whole(self.nodes) and self.nodes >= 3):
            raise SettingError(f"PointMass(nodes={self.nodes!r}): it must be a whole number, 3 or more.")
        if not (self.grid is None or isinstance(self.grid, dict) or (is_whole(self.grid) and self.grid >= 3)):
            raise SettingError(
                f"PointMass(grid={self.grid!r}): give the number of points, 3 or more, or a dictionary of ranges or arrays "
                'by name, such as {"theta": (0.0, 1.0)}.'
            )
        if not is_number(self.width) or not 0.0 < self.width < 30.0:
            raise SettingError(
                f"PointMass(width={self.width!r}): give standard deviations, such as 7, above 0 and below 30."
            )
        if self.states is not None:
            ends = self.states if isinstance(self.states, tuple) and len(self.states) == 2 else (0.0, 0.0)
            if not all(is_number(end) and np.isfinite(end) for end in ends) or ends[0] >= ends[1]:
                raise SettingError(f"PointMass(states={self.states!r}): give the range of the state as (low, high).")

    def init(self, key: PRNGKeyArray, model: StateSpaceModel) -> PointMasses:
        params = parameters(model)
        _check_parameters(params)
        _check_state(_state_shape(model))
        axes = make_axes(params, self.grid, self._points(params))
        theta, log_weight = product(axes)
        count = self.nodes or (_NODES if _moves_gaussian(model) else _NODES_OF_HEAVY_TAILS)

        def start(theta: Float[Array, " p"]) -> tuple[Array, Array, Array]:
            law = initial_law(model, params.named(theta))
            if isinstance(law, dist.Delta):
                x = jnp.broadcast_to(jnp.ravel(jnp.asarray(law.v, float)), (count,))
                return params.log_prior(theta), x, jnp.where(jnp.arange(count) == 0, 0.0, -jnp.inf)
            at = jax.tree.map(lambda part: part[None], spread(law))
            unseen = jnp.zeros(())
            nodes = self._place(at, is_gaussian(law), jnp.zeros(1), unseen, unseen, count)
            log_density = jax.vmap(lambda x: log_prob(law, x.reshape(law.event_shape)))(nodes.x)
            return params.log_prior(theta), nodes.x, _normalised(log_density + nodes.log_weight)

        log_prior, x, log_mass_x = jax.lax.map(start, theta, batch_size=_batch(count))
        log_mass = jnp.nan_to_num(log_prior + log_weight, nan=_NEVER, neginf=_NEVER)
        return PointMasses(axes, Compensated.zero(log_mass.shape).add(log_mass), x, log_mass_x)

    def step(
        self, key: PRNGKeyArray, model: StateSpaceModel, state: PointMasses, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[PointMasses, Info]:
        params = parameters(model)
        theta, _ = product(state.axes)

        def over_thetas(y: Float[Array, "*y"]) -> tuple[Array, Array, Array]:
            def one(at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                theta, x, log_mass = at
                return self._filter(model, params.named(theta), x, log_mass, y, u)

            return jax.lax.map(one, (theta, state.x, state.log_mass_x), batch_size=_batch(state.x.shape[1]))

        x, log_mass_x, increments = over_thetas(y)
        before = state.log_mass.value
        # A theta that the data excluded long ago may lead anywhere, even to NaN, without a word.
        matters = before > jnp.max(before) - 2.0 * _DROP
        weighed = weigh(before, jnp.where(matters | jnp.isfinite(increments), increments, -jnp.inf))
        # An observation that no theta can explain is set aside, as if it were missing.
        x, log_mass_x = jax.lax.cond(
            weighed.collapsed, lambda: over_thetas(jnp.full_like(y, jnp.nan))[:2], lambda: (x, log_mass_x)
        )
        relative = jnp.nan_to_num(increments - weighed.log_evidence, nan=_NEVER, neginf=_NEVER, posinf=_NEVER)
        added = state.log_mass.add(jnp.where(weighed.collapsed, 0.0, relative))
        lost = jnp.isnan(increments) | (increments == jnp.inf)
        info = Info(
            weighed.log_evidence,
            weighed.ess,
            jnp.asarray(False),
            weighed.collapsed,
            weighed.invalid,
            jnp.all(lost | ~matters),
        )
        return PointMasses(state.axes, added, x, log_mass_x), info

    def posterior(self, model: StateSpaceModel, state: PointMasses) -> GridPosterior:
        return GridPosterior(
            parameters(model), state.axes, state.log_mass.value, state.x, state.log_mass_x, _state_shape(model)
        )

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        params = parameters(model)
        axes = jax.eval_shape(lambda: make_axes(params, self.grid, self._points(params)))
        count = self.nodes or (_NODES if _moves_gaussian(model) else _NODES_OF_HEAVY_TAILS)
        return {
            "method": "PointMass",
            "state": f"{count} nodes, {self.width:g} standard deviations to each side"
            if self.states is None
            else f"{count} nodes from {self.states[0]:g} to {self.states[1]:g}",
            "grid": " x ".join(f"{axis.nodes.shape[0]} points of {label}" for axis, label in zip(axes, params.labels))
            or "nothing unknown",
        }

    def refined(self, model: StateSpaceModel, y: Any, *, inputs: Any = None, rounds: int = 2) -> "PointMass":
        """The same method with its grid narrowed to where the log-posterior given `y` is within 30 nats of its peak.

        Every round runs over the whole series, so the grid is right for the posterior at its end and later; earlier
        ones are wider and would be cut. Use it as `epf.fit(model, y, epf.PointMass().refined(model, y))`.
        """
        us = check_inputs(inputs, len(y))
        ys = jnp.asarray(check_observations(y, check_model(model, None if us is None else us[0])))
        method = self
        for _ in range(rounds):
            posterior = _run(method, model, ys, us)
            values = np.asarray(posterior.log_density(), float)
            grid: dict[str, Any] = {}
            for i, (label, axis) in enumerate(zip(posterior.parameters.labels, posterior.axes, strict=True)):
                profile = values.max(axis=tuple(j for j in range(values.ndim) if j != i))
                inside = np.flatnonzero(profile > profile.max() - _DROP)
                nodes = np.asarray(axis.nodes, float)
                low, high = max(inside[0] - 1, 0), min(inside[-1] + 1, len(nodes) - 1)
                grid[label] = Span(nodes[low].reshape(()), nodes[high].reshape(()), len(nodes))
            method = PointMass(self.nodes, grid, self.width, self.states)
        return method

    def _points(self, params: Parameters) -> int:
        return self.grid if isinstance(self.grid, int) else _POINTS[params.size]

    def _place(
        self,
        law: Spread,
        gaussian: bool,
        log_mass: Float[Array, " old"],
        precision: Float[Array, ""],
        information: Float[Array, ""],
        count: int,
    ) -> Nodes:
        if self.states is not None:
            return between(*self.states, count)
        return place(law, gaussian, log_mass, precision, information, count, self.width)

    def _filter(
        self, model: StateSpaceModel, p: Values, x: Array, log_mass: Array, y: Array, u: Array | None
    ) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"], Float[Array, ""]]:
        """One theta takes in one observation: new nodes, their log-masses, and log p(y_t | y_1:t-1, theta)."""
        shape = _state_shape(model)

        def transition(x: Float[Array, ""]) -> _Move:
            return _Move.of(model, p, x.reshape(shape), u)

        def observation(x: Float[Array, ""]) -> Distribution:
            return observation_law(model, p, x.reshape(shape), u)

        gaussian = is_gaussian(transition(jnp.zeros(())).law)
        says = linear_observation(observation, y)
        there = log_mass > -jnp.inf  # outside the support of the state a law may be NaN
        at = jax.vmap(lambda x: transition(x).spread())(x)
        at = jax.tree.map(lambda part: jnp.where(there, part, part[jnp.argmax(log_mass)]), at)
        nodes = self._place(at, gaussian, log_mass, *says, x.shape[0])

        def from_node(x: Float[Array, ""], log_mass: Float[Array, ""]) -> Float[Array, " nodes"]:
            moved = jax.vmap(transition(x).log_density)(nodes.x)
            return jnp.where(log_mass > -jnp.inf, log_mass + moved, -jnp.inf)

        log_predicted = logsumexp(jax.vmap(from_node)(x, log_mass), axis=0) + nodes.log_weight
        log_likelihood = jax.vmap(lambda x: log_prob_observed(observation(x), y))(nodes.x)
        log_joint = jnp.where(log_predicted > -jnp.inf, log_predicted + log_likelihood, -jnp.inf)
        missing = ~jnp.any(observed(y))
        increment = jnp.where(missing, 0.0, logsumexp(log_joint))
        impossible = missing | ~jnp.isfinite(increment)
        return nodes.x, _normalised(jnp.where(impossible, log_predicted, log_joint)), increment


class _Move(eqx.Module):
    """The step from one state to the next, x' = shift + slope * new: the law of `new` and how x' follows from it."""

    law: Distribution
    shift: Float[Array, ""]
    slope: Float[Array, ""]

    @classmethod
    def of(cls, model: StateSpaceModel, p: Values, x: Float[Array, "*state"], u: Array | None) -> "_Move":
        law = transition_law(model, p, x, u)
        if int(np.prod(law.event_shape)) != 1 or support(law).is_discrete or isinstance(law, dist.Delta):
            raise UnsupportedModelError(
                f"PointMass needs a transition() with a density over one number, and this one is {type(law).__name__} of "
                f"shape {tuple(law.event_shape)}: use epf.SIR."
            )

        def advanced(new: Float[Array, ""]) -> Float[Array, ""]:
            return advance(model, x, new.reshape(law.event_shape)).reshape(())

        if not is_affine(advanced, jnp.zeros(())):
            raise UnsupportedModelError(
                "PointMass needs an advance() that is linear in the new part of the state, and this one is not: use "
                "epf.SIR."
            )
        return cls(law, *jax.jvp(advanced, (jnp.zeros(()),), (jnp.ones(()),)))

    def log_density(self, x: Float[Array, ""]) -> Float[Array, ""]:
        new = (x - self.shift) / self.slope
        return log_prob(self.law, new.reshape(self.law.event_shape)) - jnp.log(jnp.abs(self.slope))

    def spread(self) -> Spread:
        """Of x', from that of its new part."""
        new = spread(self.law)
        return Spread(
            self.shift + self.slope * new.centre, new.precision / self.slope**2, new.scale * jnp.abs(self.slope)
        )


@eqx.filter_jit
def _run(method: PointMass, model: StateSpaceModel, ys: Array, us: Array | None) -> GridPosterior:
    """The posterior after a whole series."""
    key = root_key(0)  # nothing is drawn

    def one(state: PointMasses, at: tuple[Array, Array | None]) -> tuple[PointMasses, None]:
        return method.step(key, model, state, *at)[0], None

    return method.posterior(model, jax.lax.scan(one, method.init(key, model), (ys, us))[0])


def _batch(nodes: int) -> int:
    """How many thetas go through at once: tables of nodes x nodes that stay in a CPU's cache, or that fill a GPU."""
    return max(1, (2**15 if jax.default_backend() == "cpu" else 2**26) // nodes**2)


def _normalised(log_mass: Float[Array, " nodes"]) -> Float[Array, " nodes"]:
    return log_mass - logsumexp(log_mass)


def _state_shape(model: StateSpaceModel) -> tuple[int, ...]:
    params = parameters(model)
    shapes: list[tuple[int, ...]] = []

    def trace(theta: Array) -> None:
        shapes.append(tuple(initial_law(model, params.named(theta)).event_shape))

    jax.eval_shape(trace, jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype))
    return shapes[0]


def _moves_gaussian(model: StateSpaceModel) -> bool:
    """Whether the transition is Gaussian; not known before the first step for a model with inputs."""
    params, shape = parameters(model), _state_shape(model)
    found: list[bool] = []

    def trace(theta: Array) -> None:
        found.append(is_gaussian(transition_law(model, params.named(theta), jnp.zeros(shape), None)))

    with suppress(ModelError):
        jax.eval_shape(trace, jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype))
    return found == [True]


def _check_state(shape: tuple[int, ...]) -> None:
    if int(np.prod(shape)) != 1:
        raise UnsupportedModelError(
            f"PointMass needs a state of one dimension, and this one has shape {shape}: use epf.SIR, or epf.Kalman for a "
            "linear Gaussian model."
        )


def _check_parameters(params: Parameters) -> None:
    if params.size > 2:
        raise UnsupportedModelError(
            f"PointMass needs at most two unknown parameters, and this model has {params.size}: use epf.LiuWest or "
            "epf.SIR, or epf.fix to make some known."
        )
    if params.discrete:
        raise UnsupportedModelError(
            f"PointMass needs continuous parameters, and {params.discrete[0]!r} is discrete: use epf.SIR, or epf.fix to "
            "make it known."
        )
    if not all(params.elementwise):
        label = params.labels[params.elementwise.index(False)]
        raise UnsupportedModelError(
            f"PointMass needs parameters that vary one by one, and {label!r} is bound to others: use epf.SIR, or epf.fix to "
            "make it known."
        )
