"""States of which a part follows from the parameters and the inputs alone, beside a part with noise."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Advertising(epf.StateSpaceModel):
    """Sales: advertisements are forgotten slowly and saturate, the level wanders. The input is what was spent."""

    def prior(self):
        return {
            "keeps": dist.Beta(4.0, 2.0),
            "half": dist.LogNormal(0.5, 0.7),
            "gain": dist.HalfNormal(3.0),
            "level_sd": dist.HalfNormal(0.3),
            "noise_sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return epf.Sensors(dist.Delta(0.0), dist.Normal(5.0, 2.0))

    def transition(self, p, x, u):
        return epf.Sensors(dist.Delta(p.keeps * x[0] + u[0]), dist.Normal(x[1], p.level_sd))

    def observation(self, p, x, u):
        return dist.Normal(x[1] + p.gain * x[0] / (x[0] + p.half), p.noise_sd)


class Absorption(epf.StateSpaceModel):
    """A drug goes from the gut into the blood, where its concentration has noise and is measured. Input: doses."""

    def prior(self):
        return {
            "absorbed": dist.LogNormal(-0.5, 0.5),
            "eliminated": dist.LogNormal(-1.5, 0.5),
            "sd": dist.LogNormal(-2.0, 0.4),
            "assay_sd": dist.LogNormal(-2.0, 0.4),
        }

    def initial(self, p):
        return epf.Sensors(dist.Delta(0.0), dist.Delta(0.01))

    def transition(self, p, x, u):
        stays = jnp.exp(-p.absorbed)
        mean = x[1] * jnp.exp(-p.eliminated) + x[0] * (1.0 - stays) + 1e-3
        return epf.Sensors(dist.Delta(x[0] * stays + u[0]), dist.LogNormal(jnp.log(mean), p.sd))

    def observation(self, p, x, u):
        return dist.LogNormal(jnp.log(x[1]), p.assay_sd)


class Colony(epf.StateSpaceModel):
    """Insects in a wall that follows the temperature outside (the input) slowly, and growth by the wall's; counted."""

    def prior(self):
        return {
            "lag": dist.Beta(2.0, 2.0),
            "best": dist.Normal(20.0, 3.0),
            "rate": dist.HalfNormal(0.5),
            "capacity": dist.LogNormal(5.0, 0.5),
            "sd": dist.HalfNormal(0.3),
        }

    def initial(self, p):
        return epf.Sensors(dist.Delta(15.0), dist.Normal(3.0, 0.5))

    def transition(self, p, x, u):
        growth = p.rate * jnp.exp(-0.5 * ((x[0] - p.best) / 5.0) ** 2) * (1.0 - jnp.exp(x[1]) / p.capacity)
        return epf.Sensors(dist.Delta(p.lag * x[0] + (1.0 - p.lag) * u[0]), dist.Normal(x[1] + growth, p.sd))

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x[1]))
