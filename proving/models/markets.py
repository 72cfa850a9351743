"""Markets: a volatility with a memory of five days, and one that rises when prices fall."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class FiveDays(epf.StateSpaceModel):
    """The log of a volatility follows its last value and the mean of its last five; Student shocks, Laplace noise."""

    def prior(self):
        return {
            "level": dist.Normal(0.0, 0.2),
            "day": dist.Normal(0.4, 0.3),
            "week": dist.Normal(0.4, 0.3),
            "scale": dist.HalfNormal(0.5),
            "noise": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(5), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.StudentT(4.0, p.level + p.day * x[0] + p.week * jnp.mean(x), p.scale)

    def advance(self, x, new):
        return jnp.concatenate([new[None], x[:4]])

    def observation(self, p, x, u):
        return dist.Laplace(x[0], p.noise)


class Leverage(epf.StateSpaceModel):
    """Stochastic volatility that answers to the last return, which is the input; heavy tails of unknown weight."""

    def prior(self):
        return {
            "mean": dist.Normal(0.0, 1.0),
            "persistence": dist.Beta(20.0, 1.5),
            "leverage": dist.Normal(0.0, 0.3),
            "sd": dist.HalfNormal(0.3),
            "freedom": dist.Gamma(2.0, 0.1),
        }

    def initial(self, p):
        return dist.Normal(p.mean, 1.0)

    def transition(self, p, x, u):
        shock = u[0] * jnp.exp(-0.5 * x)
        return dist.Normal(p.mean + p.persistence * (x - p.mean) + p.leverage * shock, p.sd)

    def observation(self, p, x, u):
        return dist.StudentT(p.freedom, 0.0, jnp.exp(0.5 * x))
