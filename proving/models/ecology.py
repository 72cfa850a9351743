"""Populations: two kinds of density dependence, and a walk that jumps."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class ThetaLogistic(epf.StateSpaceModel):
    """Growth that slows down early or late, depending on the shape; counted in a sample."""

    def prior(self):
        return {
            "rate": dist.Gamma(3.0, 6.0),
            "capacity": dist.LogNormal(0.0, 0.5),
            "shape": dist.LogNormal(0.0, 0.5),
            "sd": dist.LogNormal(-1.6, 0.3),
        }

    def initial(self, p):
        return dist.Normal(-1.5, 0.3)

    def transition(self, p, x, u):
        return dist.Normal(x + p.rate * (1.0 - (jnp.exp(x) / p.capacity) ** p.shape), p.sd)

    def observation(self, p, x, u):
        return dist.Poisson(20.0 * jnp.exp(x))


class BevertonHolt(epf.StateSpaceModel):
    """Recruits per spawner fall with the number of spawners: log-numbers, surveyed with a log-normal error."""

    def prior(self):
        return {
            "growth": dist.TruncatedNormal(2.0, 1.0, low=1.0),
            "half": dist.LogNormal(1.0, 0.6),
            "sd": dist.LogNormal(-1.4, 0.3),
            "noise_sd": dist.LogNormal(-1.4, 0.3),
        }

    def initial(self, p):
        return dist.Normal(0.0, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(x + jnp.log(p.growth) - jnp.log1p(jnp.exp(x) / p.half), p.sd)

    def observation(self, p, x, u):
        return dist.LogNormal(x, p.noise_sd)


class Jumps(epf.StateSpaceModel):
    """An animal that mostly stays and sometimes goes far: a random walk with Student steps."""

    def prior(self):
        return {"scale": dist.InverseGamma(3.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.StudentT(3.0, x, p.scale)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)
