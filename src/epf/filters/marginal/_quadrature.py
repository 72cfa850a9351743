"""Filters at the nodes for a state that is one number: quadrature in place of particles.

Given theta, the density of the state after y_t is proportional to

    f(x) = sum_i w_i p(x | x_i) p(y_t | x)

with the points x_i and weights w_i of the step before. It is evaluated at points that are evenly spaced in a coordinate c,
x = middle + scale sinh(c), over the range in which it matters. Their sum is p(y_t | y_1:t-1, theta), and its error falls
faster than any power of the spacing once the points resolve f (the trapezoidal rule of a smooth function that vanishes at
both ends). The hyperbolic sine leaves the middle even and reaches the heaviest tails.

The points are shifted at random, by a part of the spacing that is the same at all nodes. The estimate is unbiased, as that
of a particle filter is, and streams with shifts of their own show its error in the same way. So a density that the points do
not resolve (noise of the state far below its uncertainty, or a jump) is seen as noise, and not taken for exact.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpyro.distributions import Delta, biject_to
from numpyro.distributions.transforms import ExpTransform, IdentityTransform, SigmoidTransform

from epf.filters._bank import Seen
from epf.model._laws import draw, log_prob, log_weight_observed, support
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._parameters import Parameters

STREAMS = 2  # enough to see whether there is noise, which there hardly is
_LOOKS = 24  # points of a look for the range that matters
_MOST_LOOKS = 10
_DROP = 13.0  # nats below the peak: what is lower does not matter
_CUT = 9.0  # nats below the peak: a range that ends higher must grow
_CORE = 3.0  # nats below the peak: where points are even
_SETTLED = 1.4  # a range that shrinks by less is final
_RESOLVED = 3  # looks in the core: with fewer, heavy tails are all that a wide range shows
_MARGIN = 0.15  # of a range on each side, for an outlier to come: a normal density then reaches to 8 sds
_FURTHER = 1.0  # times its width, by which a range grows on a side where it matters at its end
_DIGITS = 1e-5  # of the state: a narrower range has too few
_FLOOR = 1e-30
_COORDINATES = {"real": IdentityTransform(), "positive": ExpTransform(), "share": SigmoidTransform()}


class QuadratureBank(eqx.Module):
    """Points of the state and their log-masses in all filters, stream after stream."""

    x: Float[Array, "filters points"]
    log_mass: Float[Array, "filters points"]
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def ess(self) -> Float[Array, " filters"]:
        return jnp.full(self.x.shape[0], jnp.nan)

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, "chosen *state"]:
        """A state from each of these filters: a point, and a part of the way to the next one on either side."""
        k_point, k_between = jax.random.split(key)
        point = jax.random.categorical(k_point, self.log_mass[nodes])
        between = jax.random.uniform(k_between, point.shape, minval=-0.5, maxval=0.5)
        x, last = self.x[nodes], self.x.shape[1] - 1
        here = jnp.take_along_axis(x, point[:, None], 1)[:, 0]
        beside = jnp.clip(jnp.where(between < 0.0, point - 1, point + 1), 0, last)
        found = here + jnp.abs(between) * (jnp.take_along_axis(x, beside[:, None], 1)[:, 0] - here)
        return found.reshape(-1, *self.shape)

    def state_moments(self) -> tuple[Float[Array, "filters *state"], Float[Array, "filters *state"]]:
        """Mean and standard deviation of the state in every filter."""
        mass = jnp.exp(self.log_mass)
        mean = jnp.sum(mass * self.x, axis=1)
        sd = jnp.sqrt(jnp.sum(mass * jnp.square(self.x - mean[:, None]), axis=1))
        return mean.reshape(-1, *self.shape), sd.reshape(-1, *self.shape)


class Range(eqx.Module):
    """Where a density matters: x = middle + scale sinh(c) for c from `low` to `high`."""

    middle: Float[Array, ""]
    scale: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]

    @classmethod
    def over(cls, low: Float[Array, ""], high: Float[Array, ""]) -> "Range":
        """Nearly even points from `low` to `high`, with as much again on either side."""
        half = jnp.maximum(high - low, 1e-6 * jnp.maximum(jnp.abs(low), jnp.abs(high)) + _FLOOR)
        end = jnp.arcsinh(jnp.ones_like(half))
        return cls(0.5 * (low + high), half, -end, end)

    def at(self, share: Float[Array, " points"]) -> tuple[Float[Array, " points"], Float[Array, " points"]]:
        """Points, and the logarithms of dx/dc."""
        c = self.low + share * (self.high - self.low)
        return self.middle + self.scale * jnp.sinh(c), jnp.log(self.scale) + jnp.log(jnp.cosh(c))

    def narrowed(self, log_mass: Float[Array, " looks"]) -> tuple["Range", Bool[Array, ""]]:
        """The range that matters, by the masses at evenly spaced points of this one, and whether it is final."""
        many = log_mass.shape[0]
        share = (jnp.arange(many) + 0.5) / many
        x, _ = self.at(share)
        top = jnp.max(log_mass)
        matters, core = log_mass > top - _DROP, log_mass > top - _CORE
        first, last = _first(matters), _last(matters)
        ends = self.at(jnp.stack([(first - 1.0) / many, (last + 2.0) / many]))[0]
        width = self.at(jnp.array([0.0, 1.0]))[0]
        width = width[1] - width[0]
        cut_low, cut_high = log_mass[0] > top - _CUT, log_mass[-1] > top - _CUT
        low = jnp.where(cut_low, ends[0] - _FURTHER * width, ends[0])
        high = jnp.where(cut_high, ends[1] + _FURTHER * width, ends[1])
        left, right = x[_first(core)], x[_last(core)]
        middle = 0.5 * (left + right)
        beside = 0.5 * (x[jnp.minimum(_last(core) + 1, many - 1)] - x[jnp.maximum(_first(core) - 1, 0)])
        scale = jnp.maximum(jnp.maximum(0.5 * (right - left), 0.5 * beside), 1e-7 * jnp.abs(middle) + _FLOOR)
        found = Range(middle, scale, jnp.arcsinh((low - middle) / scale), jnp.arcsinh((high - middle) / scale))
        shrunk = width / (high - low)
        resolved = (shrunk < _SETTLED) & (jnp.sum(core) >= _RESOLVED)
        final = (~cut_low & ~cut_high & resolved) | (width < _DIGITS * jnp.abs(middle))
        # Where nothing has any mass there is nothing to go by: twice as far.
        blind = ~jnp.isfinite(top)
        wider = Range(self.middle, 4.0 * self.scale, self.low, self.high)
        found = jax.tree.map(lambda a, b: jnp.where(blind, a, b), wider, found)
        return found, final & ~blind


def where_it_matters(log_density: Callable[[Float[Array, " points"]], Float[Array, " points"]], start: Range) -> Range:
    """The range in which a density matters, look by look from a first guess."""
    share = (jnp.arange(_LOOKS) + 0.5) / _LOOKS

    def look(carry: tuple[Range, Array, Array]) -> tuple[Range, Array, Array]:
        found, _, count = carry
        x, slope = found.at(share)
        found, final = found.narrowed(log_density(x) + slope)
        return found, final, count + 1

    first = start, jnp.asarray(False), jnp.asarray(0)
    found = jax.lax.while_loop(lambda c: ~c[1] & (c[2] < _MOST_LOOKS), look, first)[0]
    more = _MARGIN * (found.high - found.low)
    return Range(found.middle, found.scale, found.low - more, found.high + more)


class QuadratureFilters(eqx.Module):
    """How the filters of a bank work."""

    parameters: Parameters
    points: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    """What the state is: any number, a positive one, or a share of 1. The points are even in an unbounded coordinate."""
    streams: int = eqx.field(static=True, default=STREAMS)

    @classmethod
    def of(cls, model: StateSpaceModel, u: Array | None, points: int) -> "QuadratureFilters | None":
        """The filters for this model, or None if its state is not one number with a density."""
        params = parameters(model)
        found: list[tuple[tuple[int, ...], str]] = []

        def trace(theta: Array) -> None:
            p = params.named(theta)
            first = initial_law(model, p)
            shape, known = tuple(first.event_shape), isinstance(first, Delta)
            law = transition_law(model, p, jnp.ones(shape), u)
            if law.event_shape == shape and shape in ((), (1,)) and not _has_atoms(law):
                alike = known or _kind(first) == _kind(law)
                found.extend([(shape, _kind(law) if alike else "real")] if known or not _has_atoms(first) else [])

        jax.eval_shape(trace, jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype))
        if not found or not _is_new(model, found[0][0]):
            return None
        return cls(params, points, *found[0])

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "filters p"]) -> QuadratureBank:
        """Filters before the first observation."""
        keys = jax.random.split(key, self.points)
        shift = jax.random.uniform(jax.random.fold_in(key, 1), (self.streams,))

        def one(theta: Array) -> tuple[Array, Array]:
            law = initial_law(model, self.parameters.named(theta))
            if isinstance(law, Delta):
                at = jnp.broadcast_to(jnp.ravel(law.v), (self.streams, self.points))
                return at, jnp.full(at.shape, -jnp.log(self.points))
            draws = self._flat(jax.vmap(lambda k: draw(law, k))(keys))

            def log_density(c: Float[Array, " points"]) -> Float[Array, " points"]:
                return self._slope(c) + jax.vmap(lambda v: log_prob(law, self._state(v)))(c)

            place = where_it_matters(log_density, Range.over(jnp.min(draws), jnp.max(draws)))
            return jax.vmap(lambda s: self._placed(log_density, jnp.zeros_like, place, s)[:2])(shift)

        each = thetas.reshape(self.streams, -1, thetas.shape[-1])[0]
        x, log_mass = jax.vmap(one)(each)
        return QuadratureBank(_streams_first(x), _streams_first(log_mass), self.shape)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "filters p"],
        bank: QuadratureBank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[QuadratureBank, Seen]:
        """All filters take in one observation."""
        keys = jax.random.split(key, self.points)
        shift = jax.random.uniform(jax.random.fold_in(key, 1), (self.streams,))

        def one(theta: Array, old: Array, old_mass: Array) -> tuple[Array, Array, Array]:
            p = self.parameters.named(theta)

            def predicted(of: int | Array) -> Callable[[Float[Array, " points"]], Float[Array, " points"]]:
                def at(c: Float[Array, ""]) -> Float[Array, ""]:
                    x = self._state(c)
                    onward = jax.vmap(lambda before: log_prob(transition_law(model, p, self._shaped(before), u), x))
                    return jax.nn.logsumexp(old_mass[of] + _known(onward(old[of])))

                return lambda c: self._slope(c) + jax.vmap(at)(c)

            def log_likelihood(c: Float[Array, " points"]) -> Float[Array, " points"]:
                return _known(
                    jax.vmap(lambda c: log_weight_observed(observation_law(model, p, self._state(c), u), y))(c)
                )

            # All streams have the range of the first: they are estimates of one density.
            moved = jax.vmap(lambda k, x: draw(transition_law(model, p, self._shaped(x), u), k))(keys, old[0])
            moved = self._flat(moved)
            counts = jnp.isfinite(moved) & (old_mass[0] > jnp.max(old_mass[0]) - _DROP)
            low, high = (
                jnp.min(jnp.where(counts, moved, jnp.inf)),
                jnp.max(jnp.where(counts, moved, -jnp.inf)),
            )
            place = where_it_matters(lambda c: predicted(0)(c) + log_likelihood(c), Range.over(low, high))

            def stream(of: Int[Array, ""], shift: Float[Array, ""]) -> tuple[Array, Array, Array]:
                return self._placed(predicted(of), log_likelihood, place, shift)

            return jax.vmap(stream)(jnp.arange(self.streams), shift)

        each = thetas.reshape(self.streams, -1, thetas.shape[-1])[0]
        x, log_mass, found = jax.vmap(one)(each, *map(self._nodes_first, (bank.x, bank.log_mass)))
        x, log_mass, found = map(_streams_first, (x, log_mass, found))
        lost = ~jnp.isfinite(found) | ~jnp.all(jnp.isfinite(x), axis=1)
        after = QuadratureBank(
            jnp.where(lost[:, None], bank.x, x), jnp.where(lost[:, None], bank.log_mass, log_mass), self.shape
        )
        none = jnp.zeros(lost.shape, int)
        return after, Seen(jnp.where(lost, -jnp.inf, found), lost, none, lost, jnp.asarray(False))

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words."""
        return {"filters": "quadrature over the state", "points": f"{self.points} per filter, {self.streams} per node"}

    def _placed(
        self,
        log_prior: Callable[[Array], Array],
        log_likelihood: Callable[[Array], Array],
        place: Range,
        shift: Float[Array, ""],
    ) -> tuple[Array, Array, Array]:
        """Points with this shift, their log-masses, and the logarithm of the likelihood."""
        c, slope = place.at((jnp.arange(self.points) + shift) / self.points)
        prior = log_prior(c) + slope + jnp.log((place.high - place.low) / self.points)
        # Spikes between which the points fall, or finer than the digits of x, must not have more mass than there is.
        mass = prior - jnp.maximum(jax.nn.logsumexp(prior), 0.0) + log_likelihood(c)
        whole = jax.nn.logsumexp(mass)
        return self._transform(c), mass - whole, whole

    @property
    def _transform(self) -> Any:
        return _COORDINATES[self.kind]

    def _shaped(self, x: Float[Array, ""]) -> Float[Array, "*state"]:
        return x.reshape(self.shape)

    def _state(self, c: Float[Array, ""]) -> Float[Array, "*state"]:
        return self._shaped(self._transform(c))

    def _slope(self, c: Float[Array, " points"]) -> Float[Array, " points"]:
        return self._transform.log_abs_det_jacobian(c, self._transform(c))

    def _flat(self, states: Float[Array, "many *state"]) -> Float[Array, " many"]:
        return self._transform.inv(jnp.ravel(states))

    def _nodes_first(self, leaf: Float[Array, "filters points"]) -> Float[Array, "nodes streams points"]:
        return jnp.swapaxes(leaf.reshape(self.streams, -1, *leaf.shape[1:]), 0, 1)


def _streams_first(leaf: Float[Array, "nodes streams *rest"]) -> Float[Array, "filters *rest"]:
    return jnp.swapaxes(leaf, 0, 1).reshape(-1, *leaf.shape[2:])


def _first(flags: Bool[Array, " many"]) -> Int[Array, ""]:
    return jnp.argmax(flags)


def _last(flags: Bool[Array, " many"]) -> Int[Array, ""]:
    return flags.shape[0] - 1 - jnp.argmax(flags[::-1])


def _has_atoms(law: Any) -> bool:
    base = law
    while hasattr(base, "base_dist"):
        base = base.base_dist
    return bool(support(law).is_discrete) or isinstance(base, Delta)


def _kind(law: Any) -> str:
    """What the values of a law are; a range with bounds of its own counts as any number."""
    allowed = support(law)
    to = biject_to(getattr(allowed, "base_constraint", allowed))
    return next((kind for kind, transform in _COORDINATES.items() if type(to) is type(transform)), "real")


def _known(log_density: Array) -> Array:
    """What has no number has no mass."""
    return jnp.where(jnp.isnan(log_density), -jnp.inf, log_density)


def _is_new(model: StateSpaceModel, shape: tuple[int, ...]) -> bool:
    """Whether the state is what the transition draws, and nothing else."""
    x, new = jnp.full(shape, 0.37), jnp.array([-1.9, 0.0, 0.41, 7.3])
    after = jax.vmap(lambda value: advance(model, x, value.reshape(shape)))(new)
    return after.shape == (4, *shape) and bool(jnp.all(jnp.ravel(after) == new))
