"""Levels, trends and seasons with unknown scales."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class _Level(epf.StateSpaceModel):
    """A random walk observed with noise, both standard deviations unknown."""

    start_mean: float = 0.0
    start_sd: float = 1.0

    def initial(self, p):
        return dist.Normal(self.start_mean, self.start_sd)

    def transition(self, p, x, u):
        return dist.Normal(x, p.level_sd)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


class LevelHalfNormal(_Level):
    scale: float = 1.0

    def prior(self):
        return {"level_sd": dist.HalfNormal(self.scale), "noise_sd": dist.HalfNormal(self.scale)}


class LevelLogNormal(_Level):
    def prior(self):
        return {"level_sd": dist.LogNormal(-1.0, 1.0), "noise_sd": dist.LogNormal(0.0, 1.0)}


class LevelInverseGamma(epf.StateSpaceModel):
    """The same with variances."""

    def prior(self):
        return {"level_variance": dist.InverseGamma(3.0, 1.0), "noise_variance": dist.InverseGamma(3.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, jnp.sqrt(p.level_variance))

    def observation(self, p, x, u):
        return dist.Normal(x, jnp.sqrt(p.noise_variance))


class LocalLinearTrend(epf.StateSpaceModel):
    """A level with a slope that wanders too: state (level, slope)."""

    def prior(self):
        return {
            "level_sd": dist.HalfNormal(1.0),
            "slope_sd": dist.HalfNormal(0.3),
            "noise_sd": dist.HalfNormal(2.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), jnp.array([2.0, 0.5])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0] + x[1], x[1]]), jnp.stack([p.level_sd, p.slope_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], p.noise_sd)


class Quarters(epf.StateSpaceModel):
    """A level and quarterly effects that sum to noise: state (level, this quarter's effect, the two before it).

    The new part is (level, effect); `advance` keeps the earlier effects.
    """

    def prior(self):
        return {
            "level_sd": dist.Gamma(2.0, 4.0),
            "season_sd": dist.Gamma(2.0, 10.0),
            "noise_sd": dist.Gamma(2.0, 2.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(4), jnp.array([5.0, 2.0, 2.0, 2.0])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0], -x[1] - x[2] - x[3]]), jnp.stack([p.level_sd, p.season_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[1], p.noise_sd)

    def advance(self, x, new):
        return jnp.concatenate([new, x[1:3]])


class TrendWithSeason(epf.StateSpaceModel):
    """Level, slope and effects of five periods: six states, four scales."""

    def prior(self):
        return {
            "level_sd": dist.HalfNormal(0.5),
            "slope_sd": dist.HalfNormal(0.1),
            "season_sd": dist.HalfNormal(0.5),
            "noise_sd": dist.HalfNormal(1.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(6), jnp.array([2.0, 0.2, 1.0, 1.0, 1.0, 1.0])).to_event(1)

    def transition(self, p, x, u):
        mean = jnp.stack([x[0] + x[1], x[1], -jnp.sum(x[2:6])])
        return dist.Normal(mean, jnp.stack([p.level_sd, p.slope_sd, p.season_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[2], p.noise_sd)

    def advance(self, x, new):
        return jnp.concatenate([new, x[2:5]])
