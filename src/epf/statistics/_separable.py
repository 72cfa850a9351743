"""The separable statistic: sums along a path that are sufficient for theta, whatever the prior (theorem 1 of the paper).

    p(theta | path) = prior(theta) exp(S . h(theta)),   S = sum over steps of s(x_prev, new, y, u)

h and s are found by reading the model (`model/structure`). There is no box and no order: the density is known everywhere,
and theta moves by slices along lines (Neal 2003) in unbounded coordinates. Half of the lines have the shape of the cloud of
all particles' thetas, so that moves are as long as the posterior is wide, whatever its correlations; the others have the
shape of the prior, so that a cloud that has shrunk to a point is left again.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.model.structure._structure import Structure
from epf.model.structure._verify import structure_of
from epf.model.structure._words import words_of
from epf.numerics._compile import compiled_once, evaluated
from epf.numerics._keys import particle_keys, root_key, threefry_key
from epf.numerics._linear_algebra import semidefinite_root
from epf.numerics._sums import Compensated
from epf.statistics._base import Gibbs, Marginals

_PRIOR_DRAWS = 256
_LINES = 1  # of each kind
_TRIES = 9  # points of a line, until one is high enough; then theta stays
_CLOUD_WIDTH, _PRIOR_WIDTH = 6.0, 12.0  # length of a line in sds


class Separable(Gibbs):
    """p(theta | path) of a separable model, in K sums per particle."""

    model: StateSpaceModel
    parameters: Parameters
    structure: Structure = eqx.field(static=True)
    prior_sd: Float[Array, " q"]
    """Of the unbounded coordinates."""

    @classmethod
    def of(cls, model: StateSpaceModel, structure: Structure) -> "Separable":
        params = parameters(model)
        params.require_unbounded()
        with evaluated():
            return cls(model, params, structure, _prior_sd(params))

    def init(self, x_0: Float[Array, "*state"]) -> Compensated:
        return Compensated.zero((self.structure.size,)).add(self.structure.s("initial", self._any, x_0=x_0))

    def update(
        self,
        statistic: Compensated,
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> Compensated:
        moved = self.structure.s("transition", self._any, x=x_prev, new=new, u=u)
        return statistic.add(moved + self.structure.s("observation", self._any, x=x, y=y, u=u))

    @property
    def _any(self) -> Float[Array, " p"]:
        """A theta where none is needed: s depends on awkward parameters only, and there are none."""
        return jnp.zeros(self.parameters.size)

    def log_density(self, statistic: Compensated, theta: Float[Array, " p"]) -> Float[Array, ""]:
        return self.parameters.log_prior(theta) + self._dot(statistic, theta)

    def _dot(self, statistic: Compensated, theta: Float[Array, " p"]) -> Float[Array, ""]:
        # Both parts of a compensated sum: large sums cancel against each other in the dot product.
        h = self.structure.h(theta)
        return jnp.sum(statistic.total * h) + jnp.sum(statistic.error * h)

    def draw(self, key: PRNGKeyArray, statistic: Compensated, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        """Moves along lines of the prior's shape."""
        return self._moved(key, statistic, theta, jnp.diag(self.prior_sd))

    def draw_all(
        self, key: PRNGKeyArray, statistic: Compensated, theta: Float[Array, "p particles"]
    ) -> Float[Array, "p particles"]:
        """`draw` for all particles, along lines of the cloud's shape too."""
        free = jax.vmap(self.parameters.unconstrain, -1, -1)(theta)
        known = jnp.all(jnp.isfinite(free), axis=0)
        count = jnp.maximum(jnp.sum(known), 1)
        from_mean = jnp.where(known, free - jnp.sum(jnp.where(known, free, 0.0), axis=1, keepdims=True) / count, 0.0)
        root = semidefinite_root(from_mean @ from_mean.T / count)
        move = jax.vmap(lambda k, s, t: self._moved(k, s, t, root), -1, -1)
        return move(particle_keys(key, theta.shape[1]), statistic, theta)

    def _moved(
        self, key: PRNGKeyArray, statistic: Compensated, theta: Float[Array, " p"], root: Float[Array, "q q"]
    ) -> Float[Array, " p"]:
        params = self.parameters
        shapes = jnp.stack([_CLOUD_WIDTH * root, _PRIOR_WIDTH * jnp.diag(self.prior_sd)] * _LINES)

        def log_density(free: Float[Array, " q"]) -> Float[Array, ""]:
            return params.log_prior_free(free) + self._dot(statistic, params.constrain(free))

        def line(free: Float[Array, " q"], at: tuple[PRNGKeyArray, Array]) -> tuple[Float[Array, " q"], None]:
            k_direction, k_line = jax.random.split(at[0])
            direction = jax.random.normal(k_direction, free.shape)
            direction = at[1] @ (direction / jnp.sqrt(jnp.sum(direction**2)))
            return _slice(k_line, log_density, free, direction), None

        free, _ = jax.lax.scan(line, params.unconstrain(theta), (jax.random.split(key, 2 * _LINES), shapes))
        # Without finite sums nothing is known of theta: NaN makes the particle invalid, and the filter says so.
        finite = jnp.all(jnp.isfinite(statistic.total))
        return jnp.where(finite, params.constrain(free), jnp.nan)

    def marginals(self, statistic: Compensated, theta: Float[Array, " p"]) -> Marginals:
        raise NotImplementedError("the posterior of a separable statistic is made of weighted draws")


def _slice(
    key: PRNGKeyArray,
    log_density: Callable[[Array], Float[Array, ""]],
    start: Float[Array, " q"],
    direction: Float[Array, " q"],
) -> Float[Array, " q"]:
    """A point of the line through `start`, from an interval of the direction's length that shrinks towards `start`.

    The interval lies about `start` at random, and is not stepped out. To stay where it is when no point was high enough
    leaves the density invariant, too (`posterior/samplers/_mcmc.py` says why).
    """
    k_level, k_place, k_tries = jax.random.split(key, 3)
    level = log_density(start) + jnp.log(jax.random.uniform(k_level))
    low = -jax.random.uniform(k_place)

    def attempt(
        state: tuple[Array, Array, Array, Array], uniform: Array
    ) -> tuple[tuple[Array, Array, Array, Array], None]:
        low, high, place, found = state
        tried = low + uniform * (high - low)
        fits = log_density(start + tried * direction) >= level
        place = jnp.where(fits & ~found, tried, place)
        low = jnp.where((tried < 0.0) & ~fits, tried, low)
        high = jnp.where((tried >= 0.0) & ~fits, tried, high)
        return (low, high, place, found | fits), None

    first = low, low + 1.0, jnp.zeros_like(low), jnp.asarray(False)
    (_, _, place, _), _ = jax.lax.scan(attempt, first, jax.random.uniform(k_tries, (_TRIES,)))
    return start + place * direction


def require_separable(model: StateSpaceModel, u: Array | None) -> Structure:
    """The structure of a model; an error that says which law is not separable, in which parameters and why."""
    params, structure = parameters(model), structure_of(model, u)
    for name, law in structure.laws.items():
        if law.awkward:
            labels = ", ".join(params.labels[i] for i in sorted(law.awkward))
            why = law.problem or f"it has {words_of(model, params.labels, u).atom(structure.reasons(name)[0])}"
            raise UnsupportedModelError(
                f"Storvik keeps exact sums along paths, and {name}() is not separable in {labels} ({why}): use "
                "epf.MarginalEPF or epf.EPF, or epf.fix to make them known."
            )
    return structure


@compiled_once
def _prior_sd(params: Parameters) -> Float[Array, " q"]:
    """The sds of the unbounded coordinates, from draws."""
    keys = jax.random.split(threefry_key(root_key(0)), _PRIOR_DRAWS)
    free = jax.vmap(lambda key: params.unconstrain(params.sample(key)))(keys)
    return jnp.nanstd(jnp.where(jnp.isfinite(free), free, jnp.nan), axis=0)
