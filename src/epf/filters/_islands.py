"""Islands: several copies of a filter that never exchange particles, and their pooled answer.

Path degeneracy, weights that collapse and too few particles all show in the same way: filters that share no random numbers
give different answers. The particles of a filter are therefore split into a few islands. The pooled posterior is the answer,
and the spread of the islands' posteriors is its Monte Carlo error. What all islands share (an expansion, a box) it does not
see; other parts of the certificate measure that.

Nor does it see paths that all islands chose while theta was thought to be elsewhere: a series whose parameters change, or
that starts unlike the rest. Under the model the posterior mean moves by a few of the sds it had at most. If it has moved by
more since an earlier time, the old parts of the paths are doubted.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._base import BoundFilter, Evidence, Info
from epf.filters._devices import Devices, gathered, mesh_of, over_islands, placed
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.posterior._posterior import ErrorEstimate, Posterior, Summary, student

_MOVED = 5.0  # sds of an earlier posterior, beyond which paths from that time are doubted
_SETTLED = 4  # the first of these times is 2 to this power: before it, a prior may be in conflict with the data
_TIMES = 32  # powers of two at which the posterior is remembered
_ROUNDING = 16.0  # units in the last place of a mean: an sd below so many is noise of rounding


def bind_islands(filter: Any, model: StateSpaceModel, u: Array | None) -> BoundFilter:
    """A filter with `particles`, `islands` and `bind_island`, bound: its particles are split between the islands."""
    params = parameters(model)
    if filter.islands == 1 or params.size == 0:
        return filter.bind_island(model, u)
    share = replace(filter, particles=-(-filter.particles // filter.islands), islands=1)
    return Islands(model, params, share.bind_island(model, u), filter.islands)


def spread(bound: BoundFilter, devices: Devices | None) -> BoundFilter:
    """The filter with its islands shared by devices."""
    if devices is None:
        return bound
    if not isinstance(bound, Islands):
        raise SettingError(
            f"devices=... shares the islands of a filter, and {bound.describe().get('method', type(bound).__name__)} has "
            "none here: give a particle filter such as epf.EPF(particles=..., islands=8)."
        )
    return replace(bound, mesh=mesh_of(devices, bound.count))


def is_spread(bound: BoundFilter | None) -> bool:
    """Whether several devices share the filter's islands."""
    return isinstance(bound, Islands) and bound.mesh is not None


def on_devices(bound: BoundFilter, state: Any) -> Any:
    """A state where the islands of this filter are."""
    if not isinstance(bound, Islands) or bound.mesh is None:
        return state
    return replace(state, states=placed(state.states, bound.mesh))


def together(bound: Any, state: Any) -> tuple[Any, Any]:
    """Filter and state as if they had been on one device."""
    return (replace(bound, mesh=None), gathered(state, bound.mesh)) if is_spread(bound) else (bound, state)


class IslandState(eqx.Module):
    """The states of all islands, and the log-evidence of each."""

    states: Any
    log_evidence: Float[Array, " islands"]
    t: Int[Array, ""]
    past: Float[Array, "2 times p"]
    """Mean and sd of the posterior when t was a power of two; NaN where that is to come."""


class Islands(BoundFilter):
    """`count` copies of the filter `one`, each with its share of the particles."""

    model: StateSpaceModel
    parameters: Parameters
    one: BoundFilter
    count: int = eqx.field(static=True)
    mesh: Mesh | None = eqx.field(static=True, default=None)
    """The devices that share the islands; None if they are on one."""

    def init(self, key: PRNGKeyArray) -> IslandState:
        keys = jax.random.split(key, self.count)
        states, _ = over_islands(lambda key: (self.one.init(key), None), keys, self.mesh)
        past = jnp.full((2, _TIMES, self.parameters.size), jnp.nan)
        return IslandState(states, jnp.zeros(self.count), jnp.asarray(0), past)

    def step(
        self, key: PRNGKeyArray, state: IslandState, y: Float[Array, "*y"], u: Array | None
    ) -> tuple[IslandState, Info]:
        def island(each: tuple[PRNGKeyArray, Any]) -> tuple[Any, Info]:
            return self.one.step(each[0], each[1], y, u)

        keys = jax.random.split(key, self.count)
        states, info = over_islands(island, (keys, state.states), self.mesh)
        log_evidence = state.log_evidence + info.log_evidence
        level = jax.nn.logsumexp(log_evidence) - jax.nn.logsumexp(state.log_evidence)
        pooled = Info(
            level,
            jnp.sum(info.ess),
            jnp.any(info.resampled),
            jnp.any(info.collapsed),
            jnp.sum(info.invalid),
            jnp.any(info.failed),
            jnp.max(info.residual),
            jnp.sum(info.ancestors),
        )
        # Levels relative to the highest: sums of a long series would lose digits. An observation that no island can explain
        # is set aside by all, and leaves the levels as they were.
        top = jnp.max(log_evidence)
        levels, t = jnp.where(top > -jnp.inf, log_evidence - top, state.log_evidence), state.t + 1
        after = IslandState(states, levels, t, state.past)

        def remembered() -> Float[Array, "2 times p"]:
            now = jnp.stack(self.posterior(after).moments())
            return state.past.at[:, jnp.round(jnp.log2(t)).astype(int)].set(now)

        past = jax.lax.cond((t & (t - 1)) == 0, remembered, lambda: state.past)
        return replace(after, past=past), pooled

    def posterior(self, state: IslandState) -> "IslandPosterior":
        # Settings inside of a posterior, such as a number of points, stay plain numbers.
        each = eqx.filter_vmap(self.one.posterior, out_axes=eqx.if_array(0))
        return IslandPosterior(self.parameters, each(state.states), state.past, self.mesh)

    def evidence(self, state: IslandState) -> Evidence:
        return Evidence.of(state.log_evidence - jax.nn.logsumexp(state.log_evidence, b=1.0 / self.count))

    def describe(self) -> dict[str, str]:
        return {**self.one.describe(), "islands": f"{self.count}, each with so many particles"}

    def check(self) -> None:
        self.one.check()


class IslandPosterior(Posterior):
    """The mean of the islands' posteriors; leaves of `islands` have a leading axis for the island."""

    parameters: Parameters
    islands: Posterior
    past: Float[Array, "2 times p"]
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def _each(self, function: Any, *rest: Any) -> Any:
        arrays, settings = eqx.partition(self.islands, eqx.is_array)

        def island(each: Any) -> tuple[None, Any]:
            return None, function(eqx.combine(each[0], settings), *each[1:])

        return over_islands(island, (arrays, *rest), self.mesh)[1]

    @property
    def count(self) -> int:
        return jax.tree.leaves(eqx.filter(self.islands, eqx.is_array))[0].shape[0]

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return _pooled(*self._each(lambda island: island.moments()))

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        """The mean of the islands' quantiles, stretched about their mean to the pooled sd."""
        return _stretched(*self._each(lambda island: (island.moments(), island.quantiles(levels))))

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        return jnp.mean(self._each(lambda island: island.marginal_density(index, grid)), axis=0)

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        return self._drawn(key, count, lambda island, key, share: island.draws(key, share))

    @property
    def in_pairs(self) -> bool:
        return self.islands.in_pairs

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        return self._drawn(key, count, lambda island, key, share: island.pairs(key, share))

    def _drawn(self, key: PRNGKeyArray, count: int, draw: Any) -> Any:
        """An equal share of the draws from each island, in random order."""
        k_draw, k_order = jax.random.split(key)
        share = -(-count // self.count)
        found = self._each(lambda island, key: draw(island, key, share), jax.random.split(k_draw, self.count))
        order = jax.random.permutation(k_order, share * self.count)[:count]
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[order], found)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return _pooled(*self._each(lambda island: island.state_moments()))

    def error(self) -> ErrorEstimate:
        return self._pooled_error(*self._each(lambda island: (island.moments(), island.error())))

    def summary(self, levels: Float[Array, " levels"]) -> Summary:
        """One pass over the islands, and so one loop in the program."""
        each = self._each(lambda island: island.summary(levels))
        return Summary(
            _pooled(*each.moments),
            _stretched(each.moments, each.quantiles),
            _pooled(*each.state_moments),
            self._pooled_error(each.moments, each.error),
        )

    def _pooled_error(self, moments: tuple[Array, Array], parts: ErrorEstimate) -> ErrorEstimate:
        means, sds = moments
        mean, sd = _pooled(means, sds)
        scale = student(self.count) / jnp.sqrt(1.0 * self.count)
        # The pooled sd has the spread of the islands in it: in units of it no spread is large. Theirs may be the right one.
        within = jnp.sqrt(jnp.mean(sds**2, axis=0))
        of_mean = scale * jnp.std(means, axis=0, ddof=1) / within
        of_sd = scale * jnp.std(jnp.log(sds), axis=0, ddof=1) + jnp.log(sd / within)
        # Without any spread left but that of rounding, or with an infinite one, nothing is known.
        rounding = _ROUNDING * jnp.finfo(means.dtype).eps * jnp.abs(means)
        known = (sd > 0.0) & jnp.isfinite(sd) & jnp.all(sds > rounding, axis=0)
        spread = jnp.where(known, jnp.stack([of_mean, of_sd]), jnp.inf)
        moved = jnp.nanmax(jnp.abs(mean - self.past[0, _SETTLED:]) / self.past[1, _SETTLED:], initial=0.0)
        spread = spread + jnp.where(moved > _MOVED, moved / _MOVED, 0.0)
        rest = jax.tree.map(lambda part: jnp.max(jnp.nan_to_num(part, posinf=jnp.inf), axis=0), parts)
        return eqx.tree_at(lambda error: error.monte_carlo, rest, spread)


def _stretched(
    moments: tuple[Float[Array, "islands p"], Float[Array, "islands p"]], found: Float[Array, "islands levels p"]
) -> Float[Array, "levels p"]:
    """The mean of the islands' quantiles, stretched about their mean to the pooled sd."""
    mean, sd = _pooled(*moments)
    within = jnp.sqrt(jnp.mean(moments[1] ** 2, axis=0))
    stretch = jnp.where((within > 0.0) & jnp.isfinite(sd), sd / within, 1.0)
    stretched = mean + stretch * (jnp.mean(found, axis=0) - mean)
    return jnp.clip(stretched, jnp.min(found, axis=0), jnp.max(found, axis=0))


def _pooled(means: Float[Array, "islands *shape"], sds: Float[Array, "islands *shape"]) -> tuple[Array, Array]:
    """Mean and sd of an equal mixture."""
    mean = jnp.mean(means, axis=0)
    variance = jnp.mean(sds**2 + (means - mean) ** 2, axis=0)
    return mean, jnp.where(jnp.isinf(mean), jnp.inf, jnp.sqrt(variance))
