"""Markets: betas that wander, a spread that reverts, yields with a common factor, noise that clusters, heavy tails."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class WanderingBeta(epf.StateSpaceModel):
    """A share whose alpha and beta are random walks: state (alpha, beta), input the market's return."""

    def prior(self):
        return {
            "alpha_sd": dist.HalfCauchy(0.05),
            "beta_sd": dist.HalfCauchy(0.1),
            "noise_variance": dist.InverseGamma(3.0, 1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([0.0, 1.0]), 0.5).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(x, jnp.stack([p.alpha_sd, p.beta_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[1] * u[0], jnp.sqrt(p.noise_variance))


class Pairs(epf.StateSpaceModel):
    """The spread of two shares returns to a level; the half-life of its way back is in days."""

    def prior(self):
        return {
            "half_life": dist.LogNormal(2.0, 0.7),
            "level": dist.StudentT(4.0, 0.0, 1.0),
            "sd": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.Normal(p.level, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.level + 0.5 ** (1.0 / p.half_life) * (x - p.level), p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.1)


class Factor(epf.StateSpaceModel):
    """Four yields driven by one factor; the first has loading one."""

    def prior(self):
        return {
            "loadings": dist.MultivariateNormal(jnp.ones(3), 0.1 * jnp.eye(3) + 0.1),
            "coefficient": dist.Beta(6.0, 1.5),
            "noise_sd": dist.Gamma(2.0, 4.0).expand([4]).to_event(1),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, 0.5)

    def observation(self, p, x, u):
        return dist.Normal(jnp.concatenate([jnp.ones(1), p.loadings]) * x, p.noise_sd).to_event(1)


class ClusteredNoise(epf.StateSpaceModel):
    """A level under noise whose variance follows the last squared change of the data, which is the input (ARCH)."""

    def prior(self):
        return {
            "level_sd": dist.HalfNormal(0.3),
            "base": dist.InverseGamma(3.0, 1.0),
            "feedback": dist.Beta(2.0, 4.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.level_sd)

    def observation(self, p, x, u):
        return dist.Normal(x, jnp.sqrt(p.base + p.feedback * u[0]))


class StudentVolatility(epf.StateSpaceModel):
    """Stochastic volatility with returns of five degrees of freedom."""

    def prior(self):
        return {
            "log_scale": dist.StudentT(3.0, 0.0, 1.0),
            "persistence": dist.TruncatedNormal(0.95, 0.05, low=0.0, high=0.995),
            "sd": dist.Gamma(3.0, 10.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, p.sd / jnp.sqrt(1.0 - p.persistence**2))

    def transition(self, p, x, u):
        return dist.Normal(p.persistence * x, p.sd)

    def observation(self, p, x, u):
        return dist.StudentT(5.0, 0.0, jnp.exp(p.log_scale + 0.5 * x))


class CorrelatedRates(epf.StateSpaceModel):
    """Two interest rates whose shocks are correlated, quoted with an error."""

    def prior(self):
        return {
            "sd": dist.LogNormal(-1.0, 0.7).expand([2]).to_event(1),
            "correlation": dist.Uniform(-1.0, 1.0),
            "noise_sd": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.MultivariateNormal(jnp.array([3.0, 4.0]), jnp.eye(2))

    def transition(self, p, x, u):
        between = p.correlation * p.sd[0] * p.sd[1]
        covariance = jnp.array([[p.sd[0] ** 2, between], [between, p.sd[1] ** 2]])
        return dist.MultivariateNormal(x, covariance)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd).to_event(1)
