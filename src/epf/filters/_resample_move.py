"""Resample-move (Gilks and Berzuini 2001): after resampling, theta moves by Metropolis steps given the particle's path.

        theta' = theta + c L N(0, I),    accepted with probability min(1, p(theta', path, y) / p(theta, path, y))

in unconstrained coordinates, L L' being the covariance of the cloud. A move leaves p(theta | path, y_1:t) invariant, for any
model. Its price is the path: memory that grows with time, and a likelihood of t terms. Moving at a rate proportional to 1/t,
as Gilks and Berzuini propose, keeps the work per step constant on average.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._particle import BoundParticleFilter, Chosen, ParticleFilter, Piece, over_particles
from epf.filters._window import start_term
from epf.model._laws import log_prob, log_weight_observed
from epf.model._model import StateSpaceModel, observation_law, transition_law
from epf.model._parameters import Parameters
from epf.model._settings import count, number
from epf.model._shapes import shapes_of
from epf.model._trial import require_noise
from epf.numerics._keys import root_key
from epf.numerics._linear_algebra import semidefinite_root

_BLOCK = 32  # steps of a path that are evaluated at once; fewer than this are wasted at its end


class Path(eqx.Module):
    """All states and new parts of every particle's path so far; rows that are not there yet are 0."""

    x: Float[Array, "states *state particles"]
    new: Float[Array, "rows *new particles"]


class Seen(eqx.Module):
    """The observations and inputs so far, and how many they are."""

    ys: Float[Array, "rows *y"]
    us: Float[Array, "rows inputs"] | None
    t: Int[Array, ""]


class ResampleMove(ParticleFilter):
    """A particle filter that keeps every particle's path, and moves theta given the path after resampling.

    At each resampling theta makes `moves` Metropolis steps: always while t is below `rate`, later with probability
    `rate` / t, so that a step evaluates at most about `moves` x `rate` likelihood terms on average. `rate=None` moves
    at every resampling. Paths have room for `capacity` steps.

    Examples:
        >>> epf.ResampleMove(1000, moves=2, rate=None).bind(model).describe()["moves"]
        '2 Metropolis steps after resampling, each'
    """

    capacity: int = count(1000)
    moves: int = count(3)
    rate: float | None = number(100.0, above=0.0, optional=True)

    @property
    def max_observations(self) -> int:
        return self.capacity

    def bind_island(self, model: StateSpaceModel, u: Array | None) -> "BoundResampleMove":
        bound = self.parts(model, u)
        bound[1].require_unbounded("ResampleMove")
        require_noise(model, u)
        return BoundResampleMove(*bound, u)


class BoundResampleMove(BoundParticleFilter):
    """Resample-move for one model; `u` is a row of inputs."""

    u: Array | None

    def begin(self, x_0: Float[Array, "*state particles"]) -> tuple[Path, Seen]:
        u = self.u
        shapes = shapes_of(self.model, u)
        rows = _rounded(self.settings.capacity)
        path = Path(jnp.zeros((rows + 1, *x_0.shape)).at[0].set(x_0), jnp.zeros((rows, *shapes.new, x_0.shape[-1])))
        us = None if u is None else jnp.zeros((rows, *u.shape))
        return path, Seen(jnp.zeros((rows, *shapes.observation)), us, jnp.asarray(0))

    def learn(
        self,
        key: PRNGKeyArray,
        common: Seen,
        theta: Float[Array, "p particles"],
        statistic: Path,
        log_weights: Float[Array, " particles"],
        resampled: Bool[Array, ""],
    ) -> Float[Array, "p particles"]:
        rate = self.settings.rate
        if self.parameters.size == 0:
            return theta
        k_coin, k_move = jax.random.split(key)
        due = resampled & (common.t > 0)
        if rate is not None:
            due &= jax.random.uniform(k_coin) * common.t < rate
        return jax.lax.cond(due, lambda: self._moved(k_move, common, theta, statistic, log_weights), lambda: theta)

    def _moved(
        self,
        key: PRNGKeyArray,
        common: Seen,
        theta: Float[Array, "p particles"],
        path: Path,
        log_weights: Float[Array, " particles"],
    ) -> Float[Array, "p particles"]:
        params = self.parameters
        free = over_particles(params.unconstrain)(theta)
        movable = jnp.all(jnp.isfinite(free), axis=0)  # false for a draw on the edge of its support
        free = jnp.where(movable, free, 0.0)
        weights = jnp.where(movable, jnp.exp(log_weights), 0.0)
        weights = weights / jnp.sum(weights)
        away = free - (free @ weights)[:, None]
        stride = 2.38 / free.shape[0] ** 0.5 * semidefinite_root((away * weights) @ away.T)

        def log_density(free: Float[Array, "q particles"]) -> Float[Array, " particles"]:
            constrained = over_particles(params.constrain)(free)
            return over_particles(params.log_prior_free)(free) + log_likelihood(
                self.model, params, constrained, path, common
            )

        def move(i: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
            free, value = at
            k_step, k_accept = jax.random.split(jax.random.fold_in(key, i))
            proposed = free + stride @ jax.random.normal(k_step, free.shape)
            there = log_density(proposed)
            accepted = jnp.log(jax.random.uniform(k_accept, value.shape)) < there - value
            return jnp.where(accepted, proposed, free), jnp.where(accepted, there, value)

        moved = jax.lax.fori_loop(0, self.settings.moves, move, (free, log_density(free)))[0]
        return jnp.where(movable, over_particles(params.constrain)(moved), theta)

    def absorb(
        self,
        key: PRNGKeyArray,
        common: Seen,
        chosen: Chosen,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[Path, Seen, Float[Array, ""]]:
        t = common.t
        path = Path(chosen.statistic.x.at[t + 1].set(piece.x), chosen.statistic.new.at[t].set(piece.new))
        us = None if common.us is None else common.us.at[t].set(piece.u)
        return path, Seen(common.ys.at[t].set(piece.y), us, t + 1), jnp.asarray(jnp.nan)

    def describe(self) -> dict[str, str]:
        settings, path = self.settings, jax.eval_shape(self.init, root_key(0)).statistic
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(path))
        later = (
            f"each before t = {settings.rate:g}, then with probability {settings.rate:g} / t"
            if settings.rate
            else "each"
        )
        return {
            **super().describe(),
            "moves": f"{settings.moves} Metropolis steps after resampling, {later}",
            "paths": f"room for {settings.capacity} steps, {size / 2**20:.3g} MiB",
        }


def log_likelihood(
    model: StateSpaceModel, params: Parameters, theta: Float[Array, "p particles"], path: Path, seen: Seen
) -> Float[Array, " particles"]:
    """log p(path, y_1:t | theta) of every particle: its path so far, a block of steps at a time."""

    def one(theta: Array, x_prev: Array, new: Array, x: Array, y: Array, u: Array | None) -> Array:
        p = params.named(theta)
        moved = log_prob(transition_law(model, p, x_prev, u), new)
        return moved + log_weight_observed(observation_law(model, p, x, u), y)

    steps = jax.vmap(jax.vmap(one, (-1, -1, -1, -1, None, None), -1), (None, 0, 0, 0, 0, 0))

    def add(i: Array, total: Float[Array, " particles"]) -> Float[Array, " particles"]:
        def rows(of: Array, first: int = 0) -> Array:
            return jax.lax.dynamic_slice_in_dim(of, i * _BLOCK + first, _BLOCK)

        us = None if seen.us is None else rows(seen.us)
        values = steps(theta, rows(path.x), rows(path.new), rows(path.x, 1), rows(seen.ys), us)
        there = i * _BLOCK + jnp.arange(_BLOCK) < seen.t
        return total + jnp.sum(jnp.where(there[:, None], values, 0.0), axis=0)

    start = start_term(model, params, theta, path.x[0])
    return jax.lax.fori_loop(0, (seen.t + _BLOCK - 1) // _BLOCK, add, start)


def _rounded(capacity: int) -> int:
    """Room in whole blocks."""
    return -(-capacity // _BLOCK) * _BLOCK
