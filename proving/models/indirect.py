"""Trends, seasons and volatilities: linear Gaussian states of two to four numbers, seen through other laws."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Admissions(epf.StateSpaceModel):
    """Admissions per day: the logarithm of their mean has a level and a slope."""

    def prior(self):
        return {
            "level_sd": dist.HalfNormal(0.2),
            "slope_sd": dist.HalfNormal(0.03),
            "concentration": dist.LogNormal(2.0, 1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([3.0, 0.0]), jnp.array([1.0, 0.05])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0] + x[1], x[1]]), jnp.stack([p.level_sd, p.slope_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.NegativeBinomial2(jnp.exp(x[0]), p.concentration)


class Spreads(epf.StateSpaceModel):
    """Returns of two assets, whose log-volatilities move together."""

    def prior(self):
        return {
            "level": dist.Normal(0.0, 1.0),
            "persistence": dist.Beta(20.0, 2.0),
            "sd": dist.HalfNormal(0.5),
            "correlation": dist.Uniform(-1.0, 1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.full(2, p.level), 1.0).to_event(1)

    def transition(self, p, x, u):
        noise = p.sd**2 * jnp.array([[1.0, 0.0], [0.0, 1.0]])
        noise = noise + p.sd**2 * p.correlation * jnp.array([[0.0, 1.0], [1.0, 0.0]])
        return dist.MultivariateNormal(p.level + p.persistence * (x - p.level), noise)

    def observation(self, p, x, u):
        return dist.Normal(0.0, jnp.exp(0.5 * x)).to_event(1)


class Gauge(epf.StateSpaceModel):
    """A level with a slope, by an instrument that is now and then far off."""

    def prior(self):
        return {"level_sd": dist.HalfNormal(1.0), "slope_sd": dist.HalfNormal(0.2), "noise": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), jnp.array([3.0, 0.5])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0] + x[1], x[1]]), jnp.stack([p.level_sd, p.slope_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.StudentT(3.0, x[0], p.noise)


class Clinic(epf.StateSpaceModel):
    """Calls per quarter of a day, with a level and a season that sums to about zero."""

    def prior(self):
        return {"level_sd": dist.HalfNormal(0.3), "season_sd": dist.HalfNormal(0.3)}

    def initial(self, p):
        return dist.Normal(jnp.array([1.5, 0.0, 0.0, 0.0]), jnp.array([1.0, 0.5, 0.5, 0.5])).to_event(1)

    def transition(self, p, x, u):
        """Of the level and the newest season."""
        sds = jnp.stack([p.level_sd, p.season_sd])
        return dist.Normal(jnp.stack([x[0], -x[1] - x[2] - x[3]]), sds).to_event(1)

    def advance(self, x, new):
        return jnp.concatenate([new, x[1:3]])

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x[0] + x[1]))
