"""A hidden autoregression behind observations that are not Gaussian: returns, counts, yes or no, heavy tails, positive."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class _Stationary(epf.StateSpaceModel):
    """x - mean is a stationary AR(1)."""

    def initial(self, p):
        return dist.Normal(p.mean, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.mean + p.coefficient * (x - p.mean), p.sd)


class Volatility(_Stationary):
    """Stochastic volatility: y ~ N(0, exp(x))."""

    def prior(self):
        return {"mean": dist.Normal(0.0, 2.0), "coefficient": dist.Beta(20.0, 1.5), "sd": dist.HalfNormal(0.5)}

    def observation(self, p, x, u):
        return dist.Normal(0.0, jnp.exp(0.5 * x))


class Counts(_Stationary):
    """Poisson counts with a log-Gaussian rate."""

    def prior(self):
        return {"mean": dist.Normal(0.0, 2.0), "coefficient": dist.Uniform(0.0, 1.0), "sd": dist.HalfNormal(1.0)}

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x))


class Binary(_Stationary):
    """Yes or no, with odds that wander."""

    def prior(self):
        return {"mean": dist.Normal(0.0, 1.5), "coefficient": dist.Beta(8.0, 2.0), "sd": dist.HalfNormal(1.0)}

    def observation(self, p, x, u):
        return dist.Bernoulli(logits=x)


class HeavyTails(epf.StateSpaceModel):
    """An AR(1) seen with Student noise of unknown scale and degrees of freedom."""

    def prior(self):
        return {
            "coefficient": dist.Beta(8.0, 2.0),
            "sd": dist.LogNormal(-0.5, 0.5),
            "noise_scale": dist.LogNormal(-0.5, 0.5),
            "freedom": dist.Gamma(2.0, 0.3),
        }

    def initial(self, p):
        return dist.Normal(0.0, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.StudentT(p.freedom, x, p.noise_scale)


class Positive(epf.StateSpaceModel):
    """Gamma observations whose mean is exp(x)."""

    def prior(self):
        return {"coefficient": dist.Uniform(-1.0, 1.0), "sd": dist.HalfNormal(1.0), "shape": dist.LogNormal(1.0, 0.7)}

    def initial(self, p):
        return dist.Normal(0.0, p.sd / jnp.sqrt(1.0 - p.coefficient**2))

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Gamma(p.shape, p.shape * jnp.exp(-x))


class Regimes(epf.StateSpaceModel):
    """Two regimes, 0 and 1, each with a mean and a chance to stay."""

    def prior(self):
        return {
            "mean": dist.Normal(jnp.array([-1.0, 1.0]), 0.7).to_event(1),
            "stay": dist.Beta(8.0, 2.0).expand([2]).to_event(1),
            "sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Bernoulli(0.5)

    def transition(self, p, x, u):
        return dist.Bernoulli(jnp.where(x > 0.5, p.stay[1], 1.0 - p.stay[0]))

    def observation(self, p, x, u):
        return dist.Normal(jnp.where(x > 0.5, p.mean[1], p.mean[0]), p.sd)
