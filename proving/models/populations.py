"""Populations, an epidemic, a threshold and the growth model: states that move nonlinearly."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Ricker(epf.StateSpaceModel):
    """Log-density of a population under Ricker's map, counted by Poisson sampling."""

    def prior(self):
        return {"log_r": dist.Normal(2.0, 0.7), "sd": dist.LogNormal(-1.2, 0.4), "effort": dist.LogNormal(2.0, 0.5)}

    def initial(self, p):
        return dist.Normal(0.0, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(p.log_r + x - jnp.exp(x), p.sd)

    def observation(self, p, x, u):
        return dist.Poisson(p.effort * jnp.exp(x))


class Logistic(epf.StateSpaceModel):
    """Logistic growth of a log-population towards a capacity."""

    def prior(self):
        return {
            "rate": dist.LogNormal(-1.0, 0.7),
            "capacity": dist.LogNormal(2.0, 0.5),
            "sd": dist.LogNormal(-2.0, 0.5),
        }

    def initial(self, p):
        return dist.Normal(0.0, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(x + p.rate * (1.0 - jnp.exp(x) / p.capacity), p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.15)


class Epidemic(epf.StateSpaceModel):
    """Susceptible, infected and the last incidence, as shares of the population; the log-incidence is the random part."""

    recovery: float = 0.25
    population: float = 10_000.0

    def prior(self):
        return {"beta": dist.LogNormal(-0.7, 0.5), "sd": dist.HalfNormal(0.5), "reported": dist.Beta(4.0, 6.0)}

    def initial(self, p):
        return dist.Normal(jnp.array([0.99, 0.005, 0.001]), jnp.array([0.003, 0.0008, 0.0001])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.log(x[0]) + jnp.log1p(-jnp.exp(-p.beta * x[1])), p.sd)

    def observation(self, p, x, u):
        return dist.Poisson(p.reported * self.population * x[2])

    def advance(self, x, new):
        incidence = jnp.minimum(jnp.exp(new), 0.99 * x[0])
        return jnp.stack([x[0] - incidence, x[1] * (1.0 - self.recovery) + incidence, incidence])


class Threshold(epf.StateSpaceModel):
    """Another coefficient above an unknown threshold than below: the likelihood has steps in it."""

    def prior(self):
        return {
            "below": dist.Uniform(-1.0, 1.0),
            "above": dist.Uniform(-1.0, 1.0),
            "threshold": dist.Normal(0.0, 0.7),
            "sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(jnp.where(x > p.threshold, p.above, p.below) * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.3)


class Growth(epf.StateSpaceModel):
    """The growth model of the particle filter literature, with both scales unknown; its laws know the time."""

    def prior(self):
        return {"sd": dist.LogNormal(1.0, 0.5), "noise_sd": dist.LogNormal(0.0, 0.5)}

    def initial(self, p):
        return dist.Normal(0.0, 2.0)

    def transition(self, p, x, u, t):
        return dist.Normal(0.5 * x + 25.0 * x / (1.0 + x**2) + 8.0 * jnp.cos(1.2 * t), p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x**2 / 20.0, p.noise_sd)
