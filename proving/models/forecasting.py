"""Series that a forecaster meets: damped trends, interventions, wandering baselines, collinear inputs, hidden phases."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class DampedTrend(epf.StateSpaceModel):
    """A level with a slope that dies away and is pushed again: state (level, slope)."""

    def prior(self):
        return {
            "damping": dist.Beta(8.0, 2.0),
            "level_sd": dist.Exponential(2.0),
            "slope_sd": dist.Exponential(5.0),
            "noise_sd": dist.Exponential(1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([10.0, 0.5]), jnp.array([2.0, 0.5])).to_event(1)

    def transition(self, p, x, u):
        mean = jnp.stack([x[0] + p.damping * x[1], p.damping * x[1]])
        return dist.Normal(mean, jnp.stack([p.level_sd, p.slope_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], p.noise_sd)


class Intervention(epf.StateSpaceModel):
    """Did the seat-belt law help? A level that wanders, and a step at a known time, which is the input."""

    def prior(self):
        return {
            "effect": dist.StudentT(3.0, 0.0, 1.0),
            "level_sd": dist.HalfCauchy(0.2),
            "noise_sd": dist.HalfCauchy(1.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 2.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.level_sd)

    def observation(self, p, x, u):
        return dist.Normal(x + p.effect * u[0], p.noise_sd)


class Baseline(epf.StateSpaceModel):
    """A baseline that is a random walk, plus noise that is itself an AR(1): state (baseline, noise)."""

    def prior(self):
        return {
            "baseline_sd": dist.LogNormal(-3.0, 1.0),
            "coefficient": dist.Uniform(-1.0, 1.0),
            "noise_variance": dist.InverseGamma(2.0, 1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        mean = jnp.stack([x[0], p.coefficient * x[1]])
        return dist.Normal(mean, jnp.stack([p.baseline_sd, jnp.sqrt(p.noise_variance)])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[1], 0.1)


class Collinear(epf.StateSpaceModel):
    """Two advertising channels whose spending rises and falls together, on sales with an AR(1) error."""

    def prior(self):
        return {
            "slopes": dist.MultivariateNormal(jnp.zeros(2), jnp.array([[2.0, 0.5], [0.5, 2.0]])),
            "coefficient": dist.Beta(2.0, 2.0),
            "sd": dist.Gamma(2.0, 2.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(jnp.dot(p.slopes, u) + x, 0.3)


class ForgottenStart(epf.StateSpaceModel):
    """An AR(1) whose starting point is unknown as well: only the first observations say anything about it."""

    def prior(self):
        return {"start": dist.Normal(0.0, 5.0), "coefficient": dist.Uniform(-1.0, 1.0), "sd": dist.Gamma(3.0, 3.0)}

    def initial(self, p):
        return dist.Normal(p.start, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.7)


class HeavyLevel(epf.StateSpaceModel):
    """A random walk with noise under priors without a mean."""

    def prior(self):
        return {"level_sd": dist.HalfCauchy(5.0), "noise_sd": dist.HalfCauchy(5.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.level_sd)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


class ThreePhases(epf.StateSpaceModel):
    """A machine that idles, works or overheats: three hidden phases with a mean each, left with equal chances."""

    def prior(self):
        return {
            "mean": dist.Normal(jnp.array([0.0, 3.0, 6.0]), 1.0).to_event(1),
            "stay": dist.Beta(9.0, 1.0),
            "sd": dist.InverseGamma(3.0, 2.0),
        }

    def initial(self, p):
        return dist.Categorical(jnp.ones(3) / 3.0)

    def transition(self, p, x, u):
        return dist.Categorical(jnp.where(jnp.arange(3) == x, p.stay, 0.5 * (1.0 - p.stay)))

    def observation(self, p, x, u):
        return dist.Normal(p.mean[x.astype(int)], p.sd)
