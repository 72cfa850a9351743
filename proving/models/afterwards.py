"""Polls, gauges, clocks, tablets and matches: bounded errors, jumps in a parameter, aliases, swapped rates, counts."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import epf


class PollShare(epf.StateSpaceModel):
    """Eight polls of a small party, as shares. Its log-odds wander; polls of one firm, where the input is 1, may lean."""

    def prior(self):
        return {
            "wander": dist.HalfCauchy(0.2),
            "polled": dist.LogNormal(np.log(300.0), 1.0),
            "lean": dist.Normal(0.0, 0.3),
        }

    def initial(self, p):
        return dist.Normal(-2.5, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.wander)

    def observation(self, p, x, u):
        share = jax.nn.sigmoid(x + p.lean * u[0])
        return dist.Beta(share * p.polled, (1.0 - share) * p.polled)


class Tolerance(epf.StateSpaceModel):
    """An oven's deviation from its set point, read by a gauge whose error is at most w, which is unknown."""

    hold: float = 0.97
    drift: float = 0.15

    def prior(self):
        return {"w": dist.HalfCauchy(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 0.6)

    def transition(self, p, x, u):
        return dist.Normal(self.hold * x, self.drift)

    def observation(self, p, x, u):
        return dist.Uniform(x - p.w, x + p.w)


class Cohort(epf.StateSpaceModel):
    """About 30 tagged mussels: each week some die, and a diver finds some of the living. The state is how many live."""

    def prior(self):
        return {"survival": dist.Beta(20.0, 4.0), "found": dist.Beta(1.0, 1.0)}

    def initial(self, p):
        return dist.Poisson(30.0)

    def transition(self, p, x, u):
        return dist.Binomial(total_count=x.astype(int), probs=p.survival)

    def observation(self, p, x, u):
        return dist.Binomial(total_count=x.astype(int), probs=p.found)


class FlipFlop(epf.StateSpaceModel):
    """Tablets, gut and blood without noise in the state. Absorption and elimination may be swapped if V changes too.

    The inputs are the dose at the start of an interval, its hours, and whether the concentration was below the limit.
    """

    def prior(self):
        return {
            "ka": dist.LogNormal(-0.5, 0.8),
            "ke": dist.LogNormal(-1.2, 0.8),
            "V": dist.LogNormal(3.2, 0.6),
            "sd": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.Delta(jnp.zeros(2), event_dim=1)

    def transition(self, p, x, u):
        gut, hours = x[0] + u[0], u[1]
        z = jnp.abs(p.ka - p.ke) * hours
        g = jnp.where(z < 1e-3, 1.0 - 0.5 * z, -jnp.expm1(-z) / jnp.maximum(z, 1e-3))
        blood = x[1] * jnp.exp(-p.ke * hours) + gut * p.ka * hours * g * jnp.exp(-jnp.minimum(p.ka, p.ke) * hours)
        return dist.Delta(jnp.stack([gut * jnp.exp(-p.ka * hours), blood]), event_dim=1)

    def observation(self, p, x, u):
        concentration = jnp.maximum(x[1] / p.V, 1e-20)
        return dist.LeftCensoredDistribution(dist.LogNormal(jnp.log(concentration), p.sd), censored=u[2])


class ClockServo(epf.StateSpaceModel):
    """The offset of a clock in seconds. A servo slews it back once it is beyond a threshold; one probe in seven is late."""

    wander: float = 3e-5
    probe: float = 4e-5

    def prior(self):
        return {
            "threshold": dist.Uniform(0.0, 1e-3),
            "slew": dist.Beta(2.0, 2.0),
            "skew": dist.Normal(0.0, 5e-5),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1e-4)

    def transition(self, p, x, u):
        correction = jnp.where(jnp.abs(x) > p.threshold, p.slew * x, 0.0)
        return dist.Normal(x + p.skew - correction, self.wander)

    def observation(self, p, x, u):
        return dist.MixtureSameFamily(
            dist.Categorical(jnp.array([0.86, 0.14])),
            dist.Normal(jnp.stack([x, x + 3e-4]), jnp.array([self.probe, 2e-4])),
        )


class GammaWear(epf.StateSpaceModel):
    """A lining wears by a gamma process, and its depth is gauged in metres. The input is the hours since the last time."""

    def prior(self):
        return {
            "shape_per_hour": dist.Gamma(2.0, 0.4),
            "jump": dist.LogNormal(jnp.log(1e-4), 0.7),
            "gauge_sd": dist.HalfNormal(1e-4),
        }

    def initial(self, p):
        return dist.Delta(0.0)

    def transition(self, p, x, u):
        return dist.Gamma(p.shape_per_hour * u[0], 1.0 / p.jump)

    def observation(self, p, x, u):
        return dist.Normal(x, p.gauge_sd)

    def advance(self, x, new):
        return x + new


class Doppler(epf.StateSpaceModel):
    """The phase of a radar echo, seen modulo 2 pi. The input is the number of pulses since the last: omega has aliases."""

    def prior(self):
        return {"omega": dist.Normal(0.0, 2.5), "q": dist.HalfCauchy(0.3), "kappa": dist.Gamma(2.0, 0.3)}

    def initial(self, p):
        return dist.Uniform(-jnp.pi, jnp.pi)

    def transition(self, p, x, u):
        return dist.Normal(x + p.omega * u[0], p.q * jnp.sqrt(u[0]))

    def observation(self, p, x, u):
        return dist.VonMises(x, p.kappa)
