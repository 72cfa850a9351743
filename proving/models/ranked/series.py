"""Markets, counts, factors and regimes, without a reference: see `proving/ranks.py`."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Jumps(epf.StateSpaceModel):
    """Returns with a volatility that wanders, and with jumps."""

    def prior(self):
        return {
            "mu": dist.Normal(0.0, 0.7),
            "phi": dist.Beta(30.0, 2.0),
            "tau": dist.LogNormal(-1.5, 0.3),
            "jump": dist.Beta(1.0, 20.0),
        }

    def initial(self, p):
        return dist.Normal(p.mu, p.tau / jnp.sqrt(1 - p.phi**2))

    def transition(self, p, x, u):
        return dist.Normal(p.mu + p.phi * (x - p.mu), p.tau)

    def observation(self, p, x, u):
        v = jnp.exp(x / 2)
        return dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.stack([1 - p.jump, p.jump])),
            dist.Normal(jnp.zeros(2), jnp.stack([v, jnp.sqrt(v**2 + 25.0)])),
        )


class CorrelatedVol(epf.StateSpaceModel):
    """One volatility in two returns."""

    def prior(self):
        return {
            "phi": dist.Beta(20.0, 2.0),
            "tau": dist.LogNormal(-1.5, 0.3),
            "scale": dist.LogNormal(jnp.zeros(2), 0.3).to_event(1),
        }

    def initial(self, p):
        return dist.Normal(0.0, 0.7)

    def transition(self, p, x, u):
        return dist.Normal(p.phi * x, p.tau)

    def observation(self, p, x, u):
        return dist.Normal(jnp.zeros(2), p.scale * jnp.exp(x / 2)).to_event(1)


class CIR(epf.StateSpaceModel):
    """A variance that stays positive by itself: Cox, Ingersoll and Ross."""

    def prior(self):
        return {
            "k": dist.LogNormal(-2.5, 0.4),
            "m": dist.LogNormal(0.0, 0.3),
            "s": dist.LogNormal(-1.8, 0.3),
            "drift": dist.Normal(0.0, 0.2),
        }

    def initial(self, p):
        return dist.LogNormal(jnp.log(p.m), 0.3)

    def transition(self, p, x, u):
        return dist.TruncatedNormal(x + p.k * (p.m - x), p.s * jnp.sqrt(x), low=1e-4)

    def observation(self, p, x, u):
        return dist.Normal(p.drift, jnp.sqrt(x))


class Volatility(epf.StateSpaceModel):
    """Three thousand returns."""

    def prior(self):
        return {"mu": dist.Normal(0.0, 1.0), "phi": dist.Beta(30.0, 2.0), "tau": dist.LogNormal(-1.5, 0.3)}

    def initial(self, p):
        return dist.Normal(p.mu, p.tau / jnp.sqrt(1 - p.phi**2))

    def transition(self, p, x, u):
        return dist.Normal(p.mu + p.phi * (x - p.mu), p.tau)

    def observation(self, p, x, u):
        return dist.Normal(0.0, jnp.exp(x / 2))


class LongCounts(epf.StateSpaceModel):
    """Three thousand counts."""

    def prior(self):
        return {"mu": dist.Normal(0.5, 0.5), "phi": dist.Beta(20.0, 2.0), "sd": dist.LogNormal(-1.5, 0.4)}

    def initial(self, p):
        return dist.Normal(p.mu, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(p.mu + p.phi * (x - p.mu), p.sd)

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x))


class Weekly(epf.StateSpaceModel):
    """Counts per day with a level and a week of seven days."""

    def prior(self):
        return {"level_sd": dist.LogNormal(-2.5, 0.5), "season_sd": dist.LogNormal(-3.5, 0.5)}

    def initial(self, p):
        return dist.Normal(
            jnp.concatenate([jnp.array([2.5]), jnp.zeros(6)]), jnp.concatenate([jnp.array([0.5]), jnp.full(6, 0.3)])
        ).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0], -jnp.sum(x[1:])]), jnp.stack([p.level_sd, p.season_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x[0] + x[1]))

    def advance(self, x, new):
        return jnp.concatenate([new, x[1:6]])


class TVP(epf.StateSpaceModel):
    """A regression whose three coefficients wander, with heavy tails."""

    def prior(self):
        return {"w": dist.LogNormal(-3.0, 0.5).expand([3]).to_event(1), "noise": dist.LogNormal(-0.7, 0.4)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(3), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(x, p.w).to_event(1)

    def observation(self, p, x, u):
        return dist.StudentT(4.0, x[0] + x[1] * u[0] + x[2] * u[1], p.noise)


class HeavyShocks(epf.StateSpaceModel):
    """A state with shocks of heavy tails."""

    def prior(self):
        return {
            "phi": dist.Beta(10.0, 2.0),
            "sd": dist.LogNormal(-0.7, 0.4),
            "noise": dist.LogNormal(-0.7, 0.4),
            "df": dist.LogNormal(1.2, 0.3),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.StudentT(p.df, p.phi * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise)


class Factor(epf.StateSpaceModel):
    """A factor in six series, with five unknown loadings."""

    def prior(self):
        return {
            "load": dist.Normal(jnp.full(5, 0.8), 0.3).to_event(1),
            "phi": dist.Beta(8.0, 2.0),
            "noise": dist.LogNormal(-0.5, 0.4),
            "sd": dist.LogNormal(-0.5, 0.3),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.phi * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(jnp.concatenate([jnp.ones(1), p.load]) * x, p.noise).to_event(1)


class VAR(epf.StateSpaceModel):
    """Two series that drive each other."""

    def prior(self):
        return {
            "A": dist.Normal(jnp.array([0.6, 0.0, 0.0, 0.6]), 0.2).to_event(1),
            "sd": dist.LogNormal(jnp.zeros(2) - 0.5, 0.3).to_event(1),
            "noise": dist.LogNormal(-1.0, 0.3),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([p.A[0] * x[0] + p.A[1] * x[1], p.A[2] * x[0] + p.A[3] * x[1]]), p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise).to_event(1)


class Switching(epf.StateSpaceModel):
    """A regime, and a level whose drift it decides."""

    def prior(self):
        return {
            "up": dist.LogNormal(-0.7, 0.3),
            "down": dist.LogNormal(-0.7, 0.3),
            "stay": dist.Beta(18.0, 2.0),
            "sd": dist.LogNormal(-1.5, 0.3),
            "noise": dist.LogNormal(-1.0, 0.3),
        }

    def initial(self, p):
        return epf.Sensors(dist.Bernoulli(0.5), dist.Normal(0.0, 1.0))

    def transition(self, p, x, u):
        drift = jnp.where(x[0] > 0.5, p.up, -p.down)
        return epf.Sensors(
            dist.Bernoulli(jnp.where(x[0] > 0.5, p.stay, 1 - p.stay)), dist.Normal(0.9 * x[1] + drift, p.sd)
        )

    def observation(self, p, x, u):
        return dist.Normal(x[1], p.noise)


class Regimes(epf.StateSpaceModel):
    """Two regimes of noise about a regression."""

    def prior(self):
        return {
            "a": dist.Uniform(0.0, 1.0),
            "low": dist.LogNormal(-1.5, 0.3),
            "high": dist.LogNormal(0.3, 0.3),
            "stay": dist.Beta(18.0, 2.0),
        }

    def initial(self, p):
        return dist.Categorical(jnp.array([0.5, 0.5]))

    def transition(self, p, x, u):
        k = x.astype(int)
        return dist.Categorical(jnp.array([[1.0, 0.0], [0.0, 1.0]])[k] * (2 * p.stay - 1) + (1 - p.stay))

    def observation(self, p, x, u):
        return dist.Normal(p.a * u[0], jnp.where(x > 0.5, p.high, p.low))


class Ordinal(epf.StateSpaceModel):
    """A level and a slope, by an answer of yes or no and by a number."""

    def prior(self):
        return {
            "slope_sd": dist.LogNormal(-3.0, 0.5),
            "level_sd": dist.LogNormal(-1.5, 0.4),
            "noise": dist.LogNormal(0.0, 0.4),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), jnp.array([1.0, 0.1])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([0.97 * x[0] + x[1], 0.9 * x[1]]), jnp.stack([p.level_sd, p.slope_sd])).to_event(1)

    def observation(self, p, x, u):
        return epf.Sensors(dist.Bernoulli(logits=x[0]), dist.Normal(x[0], p.noise))


class Proportion(epf.StateSpaceModel):
    """A share that wanders, seen by a beta law."""

    def prior(self):
        return {
            "mu": dist.Normal(-1.0, 0.7),
            "phi": dist.Beta(8.0, 2.0),
            "sd": dist.LogNormal(-1.2, 0.4),
            "conc": dist.LogNormal(3.0, 0.5),
        }

    def initial(self, p):
        return dist.Normal(p.mu, 0.7)

    def transition(self, p, x, u):
        return dist.Normal(p.mu + p.phi * (x - p.mu), p.sd)

    def observation(self, p, x, u):
        m = jax.nn.sigmoid(x)
        return dist.Beta(m * p.conc, (1 - m) * p.conc)


class ThresholdAR(epf.StateSpaceModel):
    """An autoregression with two regimes, by a threshold that is not known."""

    def prior(self):
        return {
            "low": dist.Normal(1.5, 0.5),
            "high": dist.Normal(-1.5, 0.5),
            "cut": dist.Normal(0.0, 0.7),
            "sd": dist.LogNormal(-0.7, 0.3),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(jnp.where(x < p.cut, p.low + 0.5 * x, p.high + 0.5 * x), p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.4)
