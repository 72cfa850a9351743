"""Patients and surveys: yes or no, scores, counts with too many zeros or too much spread, durations, doses."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class LearningCurve(epf.StateSpaceModel):
    """Right or wrong answers of an animal that learns: the log-odds are a random walk with a drift."""

    def prior(self):
        return {
            "drift": dist.Normal(0.05, 0.05),
            "variance": dist.InverseGamma(3.0, 0.1),
            "start": dist.Normal(-1.0, 1.0),
        }

    def initial(self, p):
        return dist.Normal(p.start, 0.3)

    def transition(self, p, x, u):
        return dist.Normal(x + p.drift, jnp.sqrt(p.variance))

    def observation(self, p, x, u):
        return dist.Bernoulli(logits=x)


class Prevalence(epf.StateSpaceModel):
    """Weekly surveys of different size: how many had the infection. The input is the size."""

    def prior(self):
        return {"sd": dist.LogNormal(-1.7, 0.4)}

    def initial(self, p):
        return dist.Normal(-2.0, 0.7)

    def transition(self, p, x, u):
        return dist.Normal(x, p.sd)

    def observation(self, p, x, u):
        return dist.Binomial(total_count=u[0], logits=x)


class Influenza(epf.StateSpaceModel):
    """Weekly cases with more spread than Poisson's, a season (inputs: cosine and sine) and an AR(1)."""

    def prior(self):
        return {
            "mean": dist.Normal(2.0, 1.0),
            "season": dist.Normal(0.0, 0.7).expand([2]).to_event(1),
            "coefficient": dist.Beta(6.0, 2.0),
            "sd": dist.Gamma(3.0, 10.0),
            "concentration": dist.Gamma(2.0, 0.2),
        }

    def initial(self, p):
        return dist.Normal(0.0, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.NegativeBinomial2(jnp.exp(p.mean + jnp.dot(p.season, u) + x), p.concentration)


class Seizures(epf.StateSpaceModel):
    """Daily seizures; on some days the patient forgot the diary, and it shows zero."""

    def prior(self):
        return {
            "forgotten": dist.Beta(2.0, 6.0),
            "mean": dist.Normal(0.5, 1.0),
            "coefficient": dist.Uniform(0.0, 1.0),
            "sd": dist.Exponential(2.0),
        }

    def initial(self, p):
        return dist.Normal(p.mean, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.mean + p.coefficient * (x - p.mean), p.sd)

    def observation(self, p, x, u):
        return dist.ZeroInflatedPoisson(p.forgotten, jnp.exp(x))


class Waiting(epf.StateSpaceModel):
    """Waiting times in a surgery, Weibull with a scale that wanders about a mean."""

    def prior(self):
        return {
            "mean": dist.StudentT(5.0, 2.0, 1.0),
            "coefficient": dist.Beta(3.0, 1.5),
            "sd": dist.Exponential(3.0),
            "shape": dist.Gamma(4.0, 3.0),
        }

    def initial(self, p):
        return dist.Normal(p.mean, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.mean + p.coefficient * (x - p.mean), p.sd)

    def observation(self, p, x, u):
        return dist.Weibull(jnp.exp(x), p.shape)


class Doses(epf.StateSpaceModel):
    """One compartment: the log of the amount in the body, each hour's dose as input, a few samples of the concentration."""

    def prior(self):
        return {
            "elimination": dist.LogNormal(-1.8, 0.5),
            "volume": dist.LogNormal(3.0, 0.5),
            "noise_sd": dist.LogNormal(-1.8, 0.3),
        }

    def initial(self, p):
        return dist.Normal(2.0, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(jnp.log(jnp.exp(x - p.elimination) + u[0]), 0.12)

    def observation(self, p, x, u):
        return dist.LogNormal(x - jnp.log(p.volume), p.noise_sd)


class PainScore(epf.StateSpaceModel):
    """Pain on a scale from 0 to 4, by cut points at unknown but equal distances."""

    def prior(self):
        return {
            "coefficient": dist.Beta(5.0, 2.0),
            "sd": dist.LogNormal(-0.3, 0.4),
            "distance": dist.Gamma(6.0, 4.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.OrderedLogistic(x, p.distance * jnp.array([-1.5, -0.5, 0.5, 1.5]))
