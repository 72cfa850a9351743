"""Filters at the nodes for a state that is one number: quadrature in place of particles.

Given theta, the density of the state after y_t is proportional to

    f(x) = sum_i w_i p(x | x_i) p(y_t | x)

with the points x_i and weights w_i of the step before. It is evaluated at points that are evenly spaced in a coordinate c,
x = middle + scale sinh(c), over the range in which it matters. Their sum is p(y_t | y_1:t-1, theta), and its error falls
faster than any power of the spacing once the points resolve f (the trapezoidal rule of a smooth function that vanishes at
both ends). The hyperbolic sine leaves the middle even and reaches the heaviest tails.

The points are shifted at random, by a part of the spacing, in each filter and step anew. The estimate is unbiased, as that
of a particle filter is, and the streams of a node show its error in the same way. So a density that the points do
not resolve (noise of the state far below its uncertainty, or a jump) is seen as noise, and not taken for exact.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpyro.distributions import (
    Delta,
    Distribution,
    IntervalCensoredDistribution,
    LeftCensoredDistribution,
    RightCensoredDistribution,
    biject_to,
)
from numpyro.distributions.transforms import ExpTransform, IdentityTransform, SigmoidTransform

from epf.filters._bank import LOST, Seen
from epf.model._laws import constraint_of, draw, log_prob, log_weight_observed, support
from epf.model._model import StateSpaceModel, initial_law, is_new, observation_law, parameters, traced, transition_law
from epf.model._parameters import Parameters, Values
from epf.numerics._range import DROP, Range, where_it_matters

_CREDIT = 1.0  # nats, at the start and at most
STREAMS = 2  # enough to see whether there is noise, which there hardly is
_WITH_ATOMS = Delta, LeftCensoredDistribution, RightCensoredDistribution, IntervalCensoredDistribution
_COORDINATES = {"real": IdentityTransform(), "positive": ExpTransform(), "share": SigmoidTransform()}


class QuadratureBank(eqx.Module):
    """Points of the state and their log-masses in all filters, stream after stream."""

    x: Float[Array, "filters points"]
    log_mass: Float[Array, "filters points"]
    credit: Float[Array, " filters"]
    """What the predicted masses have so far left below 1 in all, in nats: see `_placed`."""
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

        def shape_and_kind(p: Values) -> tuple[tuple[int, ...], str] | None:
            first = initial_law(model, p)
            shape, known = tuple(first.event_shape), isinstance(first, Delta)
            law = transition_law(model, p, jnp.ones(shape), u)
            if law.event_shape == shape and shape in ((), (1,)) and not _has_atoms(law):
                alike = known or _kind(first) == _kind(law)
                return (shape, _kind(law) if alike else "real") if known or not _has_atoms(first) else None
            return None

        found = traced(model, shape_and_kind)
        if found is None or not is_new(model, found[0]):
            return None
        return cls(parameters(model), points, *found)

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "filters p"]) -> QuadratureBank:
        """Filters before the first observation."""
        keys = jax.random.split(key, self.points)

        def one(theta: Array, shift: Float[Array, " streams"]) -> tuple[Array, Array]:
            law = initial_law(model, self.parameters.named(theta))
            if isinstance(law, Delta):
                at = jnp.broadcast_to(jnp.ravel(law.v), (self.streams, self.points))
                return at, jnp.full(at.shape, -jnp.log(self.points))
            draws = self._flat(jax.vmap(lambda k: draw(law, k))(keys))

            def log_density(c: Float[Array, " points"]) -> Float[Array, " points"]:
                return self._slope(c) + jax.vmap(lambda v: log_prob(law, self._state(v)))(c)

            place = where_it_matters(log_density, Range.over(jnp.min(draws), jnp.max(draws)))
            return jax.vmap(lambda s: self._placed(log_density, jnp.zeros_like, place, s, jnp.asarray(0.0))[:2])(shift)

        each = thetas[: len(thetas) // self.streams]
        x, log_mass = jax.vmap(one)(each, self._shifts(key, each))
        return QuadratureBank(_streams_first(x), _streams_first(log_mass), jnp.full(len(thetas), _CREDIT), self.shape)

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

        def one(theta: Array, shift: Array, y: Array, old: Array, old_mass: Array, credit: Array) -> tuple[Array, ...]:
            p = self.parameters.named(theta)

            def predicted(of: int | Array) -> Callable[[Float[Array, " points"]], Float[Array, " points"]]:
                def at(c: Float[Array, ""]) -> Float[Array, ""]:
                    x = self._state(c)
                    onward = jax.vmap(lambda before: log_prob(transition_law(model, p, self._shaped(before), u), x))
                    return jax.nn.logsumexp(old_mass[of] + _known(onward(old[of])))

                return lambda c: self._slope(c) + jax.vmap(at)(c)

            def log_likelihood(c: Float[Array, " points"]) -> Float[Array, " points"]:
                return _known(jax.vmap(lambda c: seen(self._state(c)))(c))

            def seen(x: Float[Array, "*state"]) -> Float[Array, ""]:
                return log_weight_observed(observation_law(model, p, x, u), y)

            # All streams have the range of the first: they are estimates of one density.
            moved = jax.vmap(lambda k, x: draw(transition_law(model, p, self._shaped(x), u), k))(keys, old[0])
            wrong = ~jnp.isfinite(jnp.ravel(moved)) | jnp.isnan(jax.vmap(seen)(moved))
            invalid = jnp.sum(jnp.where(wrong, jnp.exp(old_mass[0]), 0.0))
            moved = self._flat(moved)
            counts = jnp.isfinite(moved) & (old_mass[0] > jnp.max(old_mass[0]) - DROP)
            low, high = (
                jnp.min(jnp.where(counts, moved, jnp.inf)),
                jnp.max(jnp.where(counts, moved, -jnp.inf)),
            )
            place = where_it_matters(lambda c: predicted(0)(c) + log_likelihood(c), Range.over(low, high))

            def stream(of: Int[Array, ""], shift: Float[Array, ""]) -> tuple[Array, Array, Array, Array]:
                x, log_mass, found, left = self._placed(predicted(of), log_likelihood, place, shift, credit[of])
                # Where hardly any state has a number, y may be as likely as any.
                return x, log_mass, jnp.where((found == -jnp.inf) & (invalid > 1.0 - LOST), jnp.nan, found), left

            return *jax.vmap(stream)(jnp.arange(self.streams), shift), place.rounding, invalid

        each = thetas[: len(thetas) // self.streams]
        shifts, *old = self._shifts(key, each), *map(self._nodes_first, (bank.x, bank.log_mass, bank.credit))

        def take_in(carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
            turn = carry[0]
            row = jnp.where(turn > 0, jnp.nan, y)
            *parts, rounding, invalid = jax.vmap(one, (0, 0, None, 0, 0, 0))(each, shifts, row, *old)
            return turn + 1, (*map(_streams_first, parts), rounding, invalid)

        # An observation that no filter can explain is set aside: all go on as if it were missing.
        none = bank.x, bank.log_mass, bank.credit, bank.credit, bank.credit[: len(each)], bank.credit[: len(each)]
        turns, (x, log_mass, found, credit, rounding, invalid) = jax.lax.while_loop(
            lambda carry: (carry[0] == 0) | ((carry[0] == 1) & jnp.all(carry[1][2] == -jnp.inf)),
            take_in,
            (jnp.asarray(0), none),
        )
        failed = ~(found < jnp.inf) | ~jnp.all(jnp.isfinite(x), axis=1)
        stays = failed | (found == -jnp.inf)
        after = QuadratureBank(
            jnp.where(stays[:, None], bank.x, x),
            jnp.where(stays[:, None], bank.log_mass, log_mass),
            jnp.where(stays, bank.credit, credit),
            self.shape,
        )
        dead = stays | (turns > 1)
        # The draws that a particle filter would have: so much of their mass has no number, of so many points.
        invalid = jnp.tile(jnp.ceil(self.points * jnp.where(invalid > LOST, invalid, 0.0)).astype(int), self.streams)
        return after, Seen(jnp.where(dead, -jnp.inf, found), dead, invalid, failed, jnp.asarray(False), rounding)

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words."""
        return {"filters": "quadrature over the state", "points": f"{self.points} per filter, {self.streams} per node"}

    def _shifts(self, key: PRNGKeyArray, thetas: Float[Array, "nodes p"]) -> Float[Array, "nodes streams"]:
        """Of the points in each filter, as parts of their spacing."""
        return jax.random.uniform(jax.random.fold_in(key, 1), (thetas.shape[0], self.streams))

    def _placed(
        self,
        log_prior: Callable[[Array], Array],
        log_likelihood: Callable[[Array], Array],
        place: Range,
        shift: Float[Array, ""],
        credit: Float[Array, ""],
    ) -> tuple[Array, Array, Array, Array]:
        """Points with this shift, their log-masses, the logarithm of the likelihood, and the credit that is left.

        Coarse points find somewhat more than the mass of 1 as often as less. Cutting every excess would make likelihoods
        low; cutting none would let spikes finer than the points, or than the digits of x, gain mass at each step. So an
        excess is taken up to what former steps have left below 1: noise cancels, and a steady gain is cut.
        """
        c, slope = place.at((jnp.arange(self.points) + shift) / self.points)
        prior = log_prior(c) + slope + jnp.log((place.high - place.low) / self.points)
        predicted = jax.nn.logsumexp(prior)
        excess = jnp.maximum(predicted - credit, 0.0)
        mass = prior - excess + log_likelihood(c)
        whole = jax.nn.logsumexp(mass)
        left = jnp.minimum(credit - (predicted - excess), _CREDIT)
        return self._transform(c), mass - whole, whole, left

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


def _has_atoms(law: Any) -> bool:
    """Whether single values have a probability: of a discrete law, a point mass, or a law that is made of such."""
    if isinstance(law, _WITH_ATOMS) or support(law).is_discrete:
        return True
    parts = [part for value in vars(law).values() for part in (value if isinstance(value, (list, tuple)) else (value,))]
    mixing = getattr(law, "_mixing_distribution", None)  # which component it is does not count
    return any(_has_atoms(part) for part in parts if isinstance(part, Distribution) and part is not mixing)


def _kind(law: Any) -> str:
    """What the values of a law are; a range with bounds of its own counts as any number."""
    to = biject_to(constraint_of(law))
    return next((kind for kind, transform in _COORDINATES.items() if type(to) is type(transform)), "real")


def _known(log_density: Array) -> Array:
    """What has no number has no mass."""
    return jnp.where(jnp.isnan(log_density), -jnp.inf, log_density)
