"""Soils, pastures, electrodes, prices, rotors, links and doses: states on a curved scale, aliases, swapped labels."""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import logit

import epf

_SIGMOID = dist.transforms.SigmoidTransform()


class SoilLayers(epf.StateSpaceModel):
    """Saturation of two layers of soil, from 0 to 1. The input is the rain of a day in mm; the deep sensor fails often."""

    def prior(self):
        return {
            "infiltration": dist.Gamma(2.0, 30.0),
            "percolation": dist.Beta(1.5, 10.0),
            "wander_sd": dist.HalfNormal(0.3),
        }

    def initial(self, p):
        return dist.TransformedDistribution(dist.Normal(jnp.full(2, -0.5), 0.6).to_event(1), _SIGMOID)

    def transition(self, p, x, u):
        top, deep = logit(x[0]), logit(x[1])
        wetter = -1.0 + 0.85 * (top + 1.0) + p.infiltration * jnp.minimum(u[0], 25.0)
        mean = jnp.stack([wetter, deep + p.percolation * (top - deep)])
        return dist.TransformedDistribution(dist.Normal(mean, jnp.stack([p.wander_sd, 0.06])).to_event(1), _SIGMOID)

    def observation(self, p, x, u):
        return epf.Sensors(
            dist.TransformedDistribution(dist.Normal(logit(x[0]), 0.15), _SIGMOID),
            dist.TransformedDistribution(dist.Normal(logit(x[1]), 0.1), _SIGMOID),
        )


class GrassClover(epf.StateSpaceModel):
    """Grass and clover of a pasture in kg/ha: each regulates itself, and they compete. Surveys have a lognormal error."""

    grass: float = 2400.0
    clover: float = 600.0

    def prior(self):
        return {
            "regulation": dist.Beta(2.0, 5.0),
            "competition": dist.Normal(0.0, 0.3),
            "process_sd": dist.LogNormal(-1.6, 0.7),
            "survey_sd": dist.HalfNormal(0.4),
        }

    def initial(self, p):
        return dist.LogNormal(jnp.log(jnp.array([self.grass, self.clover])), 0.7).to_event(1)

    def transition(self, p, x, u):
        g, c = x[0] / self.grass, x[1] / self.clover
        growth = jnp.stack(
            [
                g ** (-p.regulation) * c ** (-0.3 * p.competition),
                c ** (-p.regulation) * g ** (-p.competition),
            ]
        )
        return dist.LogNormal(jnp.log(x * growth), p.process_sd).to_event(1)

    def observation(self, p, x, u):
        return dist.LogNormal(jnp.log(x), p.survey_sd).to_event(1)


class HeatOfCurrent(dist.transforms.Transform):
    """Current and heat of an electrode from its two modes z: 2 sinh z1 and z2 + z1^2 / 2."""

    domain = dist.constraints.real_vector
    codomain = dist.constraints.real_vector

    def __call__(self, z):
        return jnp.stack([2 * jnp.sinh(z[..., 0]), z[..., 1] + z[..., 0] ** 2 / 2], -1)

    def _inverse(self, x):
        z = jnp.arcsinh(x[..., 0] / 2)
        return jnp.stack([z, x[..., 1] - z**2 / 2], -1)

    def log_abs_det_jacobian(self, z, x, intermediates=None):
        return jnp.log(2.0) + jnp.log(jnp.cosh(z[..., 0]))

    def tree_flatten(self):
        return (), ((), {})


class Electrode(epf.StateSpaceModel):
    """Overpotential and a thermal mode turn into each other; the state is the current and the heat that follow from them."""

    def prior(self):
        return {
            "keep": dist.Uniform(0.3, 1.0),
            "turn": dist.Normal(0.0, 0.5),
            "push": dist.HalfNormal(0.5),
            "meter_sd": dist.Exponential(4.0),
        }

    def initial(self, p):
        return dist.TransformedDistribution(dist.Normal(jnp.zeros(2), 1.0).to_event(1), HeatOfCurrent())

    def transition(self, p, x, u):
        z = HeatOfCurrent()._inverse(x)
        c, s = p.keep * jnp.cos(p.turn), p.keep * jnp.sin(p.turn)
        return dist.Normal(jnp.stack([c * z[0] - s * z[1], s * z[0] + c * z[1]]), p.push).to_event(1)

    def advance(self, x, new):
        return HeatOfCurrent()(new)

    def observation(self, p, x, u):
        z = HeatOfCurrent()._inverse(x)
        return dist.LogNormal(z, jnp.stack([p.meter_sd, 2 * p.meter_sd])).to_event(1)


def _prices(short, long, short_var, long_var):
    """The law of the spot and the long-run price, from mean and variance of log(spot / long) and of log(long)."""
    cov = jnp.stack([jnp.stack([short_var + long_var, long_var]), jnp.stack([long_var, long_var])])
    law = dist.MultivariateNormal(jnp.stack([short + long, long]), cov)
    return dist.TransformedDistribution(law, dist.transforms.ExpTransform())


class CommodityCurve(epf.StateSpaceModel):
    """Spot and long-run price of a commodity in dollars, weekly, from futures of 1, 6 and 18 months (Schwartz and Smith)."""

    dt: float = 1 / 52

    def prior(self):
        return {
            "kappa": dist.LogNormal(0.0, 0.6),
            "short_sd": dist.HalfNormal(0.5),
            "long_sd": dist.HalfNormal(0.3),
            "drift": dist.Normal(0.0, 0.1),
            "quote_sd": dist.InverseGamma(3.0, 0.08),
        }

    def initial(self, p):
        return _prices(jnp.array(0.0), jnp.log(60.0), jnp.array(0.04), jnp.array(0.09))

    def transition(self, p, x, u):
        keep = jnp.exp(-p.kappa * self.dt)
        short_var = p.short_sd**2 * (1 - keep**2) / (2 * p.kappa)
        long = jnp.log(x[1]) + p.drift * self.dt
        return _prices(keep * jnp.log(x[0] / x[1]), long, short_var, p.long_sd**2 * self.dt)

    def observation(self, p, x, u):
        maturity = jnp.array([1 / 12, 0.5, 1.5])
        premium = jnp.exp(-p.kappa * maturity) * jnp.log(x[0] / x[1])
        return dist.LogNormal(premium + jnp.log(x[1]) + p.drift * maturity, p.quote_sd).to_event(1)


class Rotor(epf.StateSpaceModel):
    """A damped rotor and its turn per sample. One sensor sees it at every second sample, where w is much like pi - w."""

    def prior(self):
        return {"turn": dist.Uniform(0.2, 3.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 2.0).to_event(1)

    def transition(self, p, x, u):
        c, s = jnp.cos(p.turn), jnp.sin(p.turn)
        return dist.Normal(0.985 * jnp.stack([c * x[0] - s * x[1], s * x[0] + c * x[1]]), 0.25).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], 1.2)


class PacketLoss(epf.StateSpaceModel):
    """Probes lost of 20, on a path in one of two conditions that nobody sees. Their labels may be swapped: the priors
    differ a little."""

    probes: int = 20

    def prior(self):
        return {
            "to_b": dist.Beta(1.0, 4.0),
            "to_a": dist.Beta(1.5, 4.0),
            "loss_a": dist.Beta(1.0, 6.0),
            "loss_b": dist.Beta(1.5, 5.0),
        }

    def initial(self, p):
        return dist.Categorical(jnp.array([0.5, 0.5]))

    def transition(self, p, x, u):
        b = jnp.where(x == 0, p.to_b, 1.0 - p.to_a)
        return dist.Categorical(jnp.stack([1.0 - b, b]))

    def observation(self, p, x, u):
        return dist.Binomial(self.probes, jnp.where(x == 0, p.loss_a, p.loss_b))


class Phenytoin(epf.StateSpaceModel):
    """A drug whose elimination saturates, in mg/L, by halves of a day; Student noise. The input is the dose in mg a day."""

    volume: float = 45.0

    def prior(self):
        return {"vmax": dist.LogNormal(2.0, 0.6), "km": dist.HalfCauchy(6.0), "assay_sd": dist.Exponential(1.0)}

    def initial(self, p):
        return dist.Delta(0.0)

    def transition(self, p, x, u):
        def slope(c):
            c = jnp.maximum(c, 0.0)
            return u[0] / self.volume - p.vmax * c / (p.km + c)

        h, c = 0.125, x
        for _ in range(4):
            k1 = slope(c)
            k2 = slope(c + h / 2 * k1)
            k3 = slope(c + h / 2 * k2)
            k4 = slope(c + h * k3)
            c = c + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return dist.Delta(c)

    def observation(self, p, x, u):
        return dist.StudentT(4.0, x, p.assay_sd)


class LinkDelay(epf.StateSpaceModel):
    """The delay of probes in ms, exponential with mean service / (1 - utilisation). The state is the utilisation's log-odds,
    so 1 / (1 - utilisation) = 1 + exp(x)."""

    def prior(self):
        return {
            "level": dist.Normal(0.0, 1.0),
            "persistence": dist.Beta(8.0, 2.0),
            "wander": dist.HalfNormal(0.7),
            "service": dist.InverseGamma(3.0, 1.0),
        }

    def initial(self, p):
        return dist.Normal(p.level, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.level + p.persistence * (x - p.level), p.wander)

    def observation(self, p, x, u):
        return dist.Exponential(1.0 / (p.service * (1.0 + jnp.exp(x))))
