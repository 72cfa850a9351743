"""Cells and patients: a nerve cell, a drug in two compartments, a virus below the limit of detection, spikes."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Neuron(epf.StateSpaceModel):
    """FitzHugh and Nagumo's cell: a fast voltage and a slow recovery. The input is the current that drives it."""

    step: float = 0.3

    def prior(self):
        return {
            "offset": dist.Normal(0.7, 0.2),
            "recovery": dist.Gamma(4.0, 50.0),
            "sd": dist.HalfNormal(0.3),
            "noise_sd": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([-1.0, -0.5]), 0.3).to_event(1)

    def transition(self, p, x, u):
        v, w = x[0], x[1]
        fast = v + self.step * (v - v**3 / 3.0 - w + u[0])
        slow = w + self.step * p.recovery * (v + p.offset - 0.8 * w)
        return dist.Normal(jnp.stack([fast, slow]), jnp.stack([p.sd * self.step**0.5, 0.005])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], p.noise_sd)


class TwoCompartments(epf.StateSpaceModel):
    """Logarithms of a drug's amounts in blood and tissue. Inputs: the dose in mg, and the hours since the last row."""

    def prior(self):
        return {
            "elimination": dist.LogNormal(-1.5, 0.5),
            "exchange": dist.LogNormal(-1.5, 0.5),
            "volume": dist.LogNormal(3.0, 0.4),
            "shape": dist.LogNormal(3.0, 0.7),
        }

    def initial(self, p):
        return dist.Normal(jnp.log(jnp.array([50.0, 20.0])), 0.3).to_event(1)

    def transition(self, p, x, u):
        blood, tissue, dose, hours = jnp.exp(x[0]), jnp.exp(x[1]), u[0], u[1]
        rate = p.elimination + p.exchange
        leaves = blood * (1.0 - jnp.exp(-rate * hours))
        returns = tissue * (1.0 - jnp.exp(-p.exchange * hours))
        amounts = jnp.stack([blood - leaves + returns + dose, tissue - returns + leaves * p.exchange / rate])
        return dist.Normal(jnp.log(amounts), 0.1 * jnp.sqrt(hours)).to_event(1)

    def observation(self, p, x, u):
        return dist.Gamma(p.shape, p.shape * p.volume / jnp.exp(x[0]))


class ViralLoad(epf.StateSpaceModel):
    """A virus under treatment, made by short-lived and long-lived cells (logarithms); y is the log10 of its copies.

    Inputs: one where the assay said "below 50", and the days since the last visit.
    """

    def prior(self):
        return {
            "fast": dist.LogNormal(-0.7, 0.4),
            "slow": dist.LogNormal(-3.5, 0.6),
            "noise_sd": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([11.5, 7.0]), 1.0).to_event(1)

    def transition(self, p, x, u):
        days = u[1]
        return dist.Normal(x - days * jnp.stack([p.fast, p.slow]), 0.05 * jnp.sqrt(days)).to_event(1)

    def observation(self, p, x, u):
        log10 = jnp.logaddexp(x[0], x[1]) / jnp.log(10.0)
        return dist.LeftCensoredDistribution(dist.Normal(log10, p.noise_sd), u[0] > 0.5)


class Spikes(epf.StateSpaceModel):
    """In how many of 20 trials a cell fired, at each of 3000 moments; the input is the stimulus."""

    def prior(self):
        return {
            "effects": dist.MultivariateNormal(jnp.array([-1.0, 0.0]), jnp.array([[1.0, 0.3], [0.3, 1.0]])),
            "coefficient": dist.Uniform(0.0, 1.0),
            "sd": dist.LogNormal(-2.5, 0.5),
        }

    def initial(self, p):
        return dist.Normal(0.0, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Binomial(20, logits=p.effects[0] + p.effects[1] * u[0] + x)
