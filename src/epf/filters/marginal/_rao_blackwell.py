"""Filters at the nodes for a state that is partly linear: particles of the rest, with a Kalman filter each.

Given theta and the path of the rest a, the linear part b is Gaussian (`model/structure/_linear_part.py`). A particle is a
draw of a with the mean m and the covariance P of b. With the next state's mean linear in b,

    a' = f + A b + noise,    b' = g + B b + noise,    y = h + H b + noise    (coefficients depend on a, and h, H on a'),

a' is Gaussian with b integrated out, a draw of it is an observation of b, and p(y | a') is the density of the Kalman
filter's innovation. So a is a state-space model of its own, `Rest`, and has the proposals of any other. What it proposes is
the noise of a', in units of its standard deviations. The estimates of the likelihood are unbiased, as those of any particle
filter, and vary less: b has no particles (Rao and Blackwell; Chen and Liu 2000, Doucet et al. 2000).
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray
from numpyro.distributions import Delta, Distribution

from epf.filters._bank import Bank, Filters
from epf.filters._particle import move_unseen, propose
from epf.model._laws import gaussian_moments, gaussian_of, to_gaussian
from epf.model._model import StateSpaceModel, Wrapper, initial_law, observation_law, traced
from epf.model._parameters import Parameters, Values
from epf.model.structure._linear_part import LinearPart, moved
from epf.numerics._keys import even_keys
from epf.numerics._linear_algebra import cholesky, semidefinite_root, solve
from epf.numerics._sums import mean_and_sd
from epf.smc.proposals._automatic import fitting
from epf.smc.proposals._gaussian import condition
from epf.smc.resampling import Resampling


class Particle(NamedTuple):
    """The rest of the state, and what is known of the linear part given its path."""

    rest: Float[Array, " a"]
    mean: Float[Array, " b"]
    covariance: Float[Array, "b b"]

    def flat(self) -> Float[Array, " z"]:
        return jnp.concatenate([self.rest, self.mean, jnp.ravel(self.covariance)])


class Line(NamedTuple):
    """The law of the next state as a function of b: linear, and Gaussian."""

    mean: Float[Array, " n"]
    slope: Float[Array, "n b"]
    noise: Float[Array, "n n"]


class Rest(Wrapper):
    """The rest of the state as a model of its own, for one theta and one row of inputs; its state is a flat `Particle`."""

    model: StateSpaceModel
    part: LinearPart
    p: Values
    u: Array | None

    @staticmethod
    def first(law: Distribution, part: LinearPart, key: PRNGKeyArray) -> Particle:
        """A particle before the first observation."""
        mean, covariance = gaussian_moments(law)
        b, a = part.apart(mean)
        (of_b, cross), (_, of_a) = (part.apart(rows.T) for rows in part.apart(covariance))
        if isinstance(law, Delta):
            return Particle(a, b, of_b)
        lower = cholesky(of_a)
        away, gain = lower @ jax.random.normal(key, a.shape), solve(lower, cross).T
        return Particle(a + away, b + gain @ away, of_b - gain @ cross)

    def prior(self) -> dict[str, Distribution]:
        return self.model.prior()

    def initial(self, p: Any) -> Distribution:
        raise NotImplementedError  # `first` draws a particle

    def transition(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        """The noise of the rest, in standard deviations."""
        return dist.Normal(jnp.zeros(len(self.part.others)), 1.0).to_event(1)

    def advance(self, x: Any, new: Any) -> Any:
        """The particle with this noise, before an observation."""
        before, line = self._particle(x), self._line(x)
        slope_b, slope_a = self.part.apart(line.slope)
        (noise_b, cross), (_, noise_a) = (self.part.apart(rows.T) for rows in self.part.apart(line.noise))
        middle_b, middle_a = self.part.apart(line.mean)
        P, away = before.covariance, jnp.zeros_like(before.mean)
        if self.part.steers:  # then the rest is an observation of the linear part
            lower = cholesky(slope_a @ P @ slope_a.T + noise_a)
            change, gain = lower @ new, solve(lower, slope_a @ P).T
            left = jnp.eye(len(away)) - gain @ slope_a
            P, away = left @ P @ left.T + gain @ noise_a @ gain.T, gain @ change
        else:
            change = cholesky(noise_a) @ new
        if self.part.correlated:
            gain = solve(cholesky(noise_a), cross).T
            slope_b, noise_b = slope_b - gain @ slope_a, noise_b - gain @ cross
            middle_b = middle_b + gain @ change
        P = slope_b @ P @ slope_b.T + noise_b
        return Particle(middle_a + change, middle_b + slope_b @ away, 0.5 * (P + P.T)).flat()

    def observation(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        """The law of y with the linear part integrated out; of the Gaussian behind y, where y is a function of one."""
        if not self.part.seen:
            particle = self._particle(x)
            return observation_law(self.model, self.p, self.part.joined(particle.mean, particle.rest), self.u)
        (mean, slope, noise), shape = self._seen(x)
        total = slope @ self._particle(x).covariance @ slope.T + noise
        if mean.shape == (1,):
            return dist.Normal(mean.reshape(shape), jnp.sqrt(total[0, 0])).to_event(len(shape))
        return dist.MultivariateNormal(mean, total)

    def gaussian(self, y: Float[Array, "*y"], x: Float[Array, " z"]) -> tuple[Array, Array]:
        """The value of the Gaussian behind y, and what its log-density lacks; `x` is any particle."""
        if not self.part.seen:
            return y, jnp.zeros(())
        particle = self._particle(x)
        law = observation_law(self.model, self.p, self.part.joined(particle.mean, particle.rest), self.u)
        return to_gaussian(gaussian_of(law)[1], y)

    def updated(self, x: Float[Array, " z"], y: Float[Array, "*y"]) -> Float[Array, " z"]:
        """The particle after an observation."""
        if not self.part.seen:
            return x
        particle, (mean, slope, noise) = self._particle(x), self._seen(x)[0]
        found = condition(particle.mean, particle.covariance, jnp.ravel(y) - mean, slope, noise)
        return Particle(particle.rest, *found).flat()

    def _particle(self, x: Float[Array, " z"]) -> Particle:
        a, b = len(self.part.others), len(self.part.entries)
        return Particle(x[:a], x[a : a + b], x[a + b :].reshape(b, b))

    def _line(self, x: Float[Array, " z"]) -> Line:
        rest, mean, _ = self._particle(x)

        def after(b: Array, noise: Array) -> tuple[Array, tuple[Array, Array]]:
            found, covariance = moved(self.model, self.p, self.part.joined(b, rest), noise, self.u)
            return found, (found, covariance)

        quiet = jnp.zeros(self.part.noises)
        if self.part.direct:
            slope, (middle, noise) = jax.jacfwd(after, has_aux=True)(mean, quiet)
            return Line(middle, slope, noise)
        (slope, reach), (middle, noise) = jax.jacfwd(after, (0, 1), has_aux=True)(mean, quiet)
        return Line(middle, slope, reach @ noise @ reach.T)

    def _seen(self, x: Float[Array, " z"]) -> tuple[Line, tuple[int, ...]]:
        rest, mean, _ = self._particle(x)

        def law(b: Array) -> Distribution:
            return gaussian_of(observation_law(self.model, self.p, self.part.joined(b, rest), self.u))[0]

        middle, noise = gaussian_moments(law(mean))
        slope = jax.jacfwd(lambda b: gaussian_moments(law(b))[0])(mean)
        return Line(middle, slope, noise), tuple(law(mean).event_shape)


class RaoBlackwellBank(Bank):
    """The clouds of all filters; a particle is flat."""

    part: LinearPart

    def _parts(self, x: Float[Array, " z *rest"]) -> tuple[Array, Array]:
        """The mean of the state, and the covariance of its linear part, flat."""
        a, b = len(self.part.others), len(self.part.entries)
        return jax.vmap(self.part.joined, -1, -1)(x[a : a + b], x[:a]), x[a + b :]

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, "chosen *state"]:
        """A state of each of these filters: a particle by its weight, and a draw of the linear part given it."""
        b = len(self.part.entries)

        def one(key: PRNGKeyArray, node: Int[Array, ""]) -> Float[Array, " state"]:
            k_which, k_linear = jax.random.split(key)
            chosen = jax.random.choice(k_which, self.weights.shape[1], p=self.weights[node])
            x, covariance = self._parts(self.x[node][:, chosen, None])
            linear = semidefinite_root(covariance.reshape(b, b)) @ jax.random.normal(k_linear, (b,))
            return x[:, 0] + self.part.joined(linear, jnp.zeros(len(self.part.others)))

        return jax.vmap(one)(jax.random.split(key, nodes.shape[0]), nodes)

    def state_moments(self) -> tuple[Float[Array, "nodes *state"], Float[Array, "nodes *state"]]:
        """Mean and standard deviation of the state in every filter."""
        b = len(self.part.entries)

        def one(x: Array, weights: Array) -> tuple[Array, Array]:
            states, covariances = self._parts(x)
            mean, sd = mean_and_sd(states, weights)
            # A particle without weight may be anywhere, and zero times infinity is no number.
            within = jnp.diagonal((jnp.where(weights > 0.0, covariances, 0.0) @ weights).reshape(b, b))
            within = self.part.joined(jnp.maximum(within, 0.0), jnp.zeros(len(self.part.others)))
            return mean, jnp.sqrt(jnp.square(sd) + within)

        return jax.vmap(one)(self.x, self.weights)


class RaoBlackwellised(Filters):
    """How the filters of a bank work."""

    part: LinearPart = eqx.field(kw_only=True)
    rest: ClassVar[type[Rest]] = Rest
    """What others make of the rest."""

    @classmethod
    def of(
        cls, model: StateSpaceModel, u: Array | None, particles: int, resampling: Resampling, streams: int
    ) -> "RaoBlackwellised | None":
        """The filters for this model, or None if no part of its state is linear given the rest."""
        part = cls.part_of(model, u)
        return None if part is None else cls.given(model, part, u, particles, resampling, streams)

    @staticmethod
    def part_of(model: StateSpaceModel, u: Array | None) -> LinearPart | None:
        """The part of the state that has Kalman filters."""
        return LinearPart.of(model, u)

    @classmethod
    def given(
        cls,
        model: StateSpaceModel,
        part: LinearPart,
        u: Array | None,
        particles: int,
        resampling: Resampling,
        streams: int,
    ) -> "RaoBlackwellised":
        """The filters, with this part of the state as the linear one."""
        size = len(part.others) + len(part.entries) + len(part.entries) ** 2
        proposal = traced(model, lambda p: fitting(cls.rest(model, part, p, u), p, jnp.zeros(size), u, even=True))
        return cls(particles, proposal, resampling, streams=streams, part=part)

    def _first(self, keys: Key[Array, " particles"], model: StateSpaceModel, params: Parameters, theta: Array) -> Array:
        law = initial_law(model, params.named(theta))
        return jax.vmap(lambda key: self.rest.first(law, self.part, key).flat(), out_axes=-1)(keys)

    def _bank(self, *parts: Array) -> RaoBlackwellBank:
        return RaoBlackwellBank(*parts, part=self.part)

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words, for this many filters."""
        linear, rest = (", ".join(f"x[{i}]" for i in part) for part in (self.part.entries, self.part.others))
        said = f"particles of {rest}, each with a Kalman filter of {linear} (Rao-Blackwellised)"
        return {"filters": said, **super().describe(nodes)}

    def _moved(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, y: Array, u: Any
    ) -> tuple[Array, Array, Float[Array, " particles"]]:
        rest = self.rest(model, self.part, params.named(theta), u)
        y, slope = rest.gaussian(y, x[:, 0])
        # Infinite where nothing gives y. The particles then move as if it were missing, without weight.
        slope = jnp.where(jnp.any(jnp.isinf(y)), -jnp.inf, slope)
        y = jnp.where(jnp.isinf(y), jnp.nan, y)
        new, x, increments = propose(even_keys(key, x.shape[-1]), rest, params, self.proposal, theta, x, y, u)
        return new, jax.vmap(lambda one: rest.updated(one, y), -1, -1)(x), increments + slope

    def _moved_unseen(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, u: Any
    ) -> Array:
        rest = self.rest(model, self.part, params.named(theta), u)
        return move_unseen(even_keys(key, x.shape[-1]), rest, params, theta, x, u)[1]

    def _alike(self, model: StateSpaceModel, x: Array) -> Array:
        return x[: len(self.part.others) + len(self.part.entries)]
