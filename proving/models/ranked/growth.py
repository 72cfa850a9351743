"""Populations, epidemics and concentrations, without a reference: see `proving/ranks.py`."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class SEIRCounts(epf.StateSpaceModel):
    """An epidemic: the infection rate wanders, cases are counted."""

    def prior(self):
        return {"gamma": dist.LogNormal(-1.2, 0.2), "wander": dist.LogNormal(-2.0, 0.4), "report": dist.Beta(8.0, 4.0)}

    def initial(self, p):
        return dist.Normal(
            jnp.array([jnp.log(0.5), jnp.log(30.0), jnp.log(30.0)]), jnp.array([0.2, 0.3, 0.3])
        ).to_event(1)

    def transition(self, p, x, u):
        b, e, i = jnp.exp(x[0]), jnp.exp(x[1]), jnp.exp(x[2])
        en = e + b * i - 0.3 * e
        iN = i + 0.3 * e - p.gamma * i
        return dist.Normal(
            jnp.stack([x[0], jnp.log(jnp.maximum(en, 1e-3)), jnp.log(jnp.maximum(iN, 1e-3))]),
            jnp.stack([p.wander, 0.05, 0.05]),
        ).to_event(1)

    def observation(self, p, x, u):
        return dist.Poisson(p.report * 0.3 * jnp.exp(x[1]))


class LotkaSDE(epf.StateSpaceModel):
    """Predators and prey, by logarithms of their numbers."""

    def prior(self):
        return {
            "a": dist.LogNormal(-2.3, 0.3),
            "b": dist.LogNormal(-2.3, 0.3),
            "sd": dist.LogNormal(-2.5, 0.3),
            "noise": dist.LogNormal(-1.6, 0.3),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([0.0, 0.0]), 0.3).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(
            jnp.stack([x[0] + p.a * (1 - jnp.exp(x[1])), x[1] + p.b * (jnp.exp(x[0]) - 1)]), p.sd
        ).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise).to_event(1)


class ThetaLogistic(epf.StateSpaceModel):
    """A population with a carrying capacity, counted with too much variance."""

    def prior(self):
        return {
            "r": dist.LogNormal(-1.5, 0.4),
            "K": dist.Normal(4.0, 0.3),
            "sd": dist.LogNormal(-2.0, 0.4),
            "k": dist.LogNormal(1.5, 0.5),
        }

    def initial(self, p):
        return dist.Normal(2.0, 0.3)

    def transition(self, p, x, u):
        return dist.Normal(x + p.r * (1 - jnp.exp(0.8 * (x - p.K))), p.sd)

    def observation(self, p, x, u):
        return dist.NegativeBinomial2(jnp.exp(x), p.k)


class Predator(epf.StateSpaceModel):
    """Predators and prey with six unknown parameters, both counted."""

    def prior(self):
        return {
            "r": dist.LogNormal(-1.8, 0.2),
            "K": dist.LogNormal(4.5, 0.2),
            "a": dist.LogNormal(-3.2, 0.2),
            "e": dist.LogNormal(-2.0, 0.2),
            "m": dist.LogNormal(-1.8, 0.2),
            "sd": dist.LogNormal(-2.3, 0.3),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([3.8, 2.0]), 0.2).to_event(1)

    def transition(self, p, x, u):
        n, c = jnp.exp(x[0]), jnp.exp(x[1])
        eaten = p.a / (1 + 0.02 * n)
        return dist.Normal(
            jnp.stack([x[0] + p.r * (1 - n / p.K) - eaten * c, x[1] + p.e * eaten * n - p.m]), p.sd
        ).to_event(1)

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x)).to_event(1)


class NMixture(epf.StateSpaceModel):
    """Animals, of which each is seen or not."""

    def prior(self):
        return {"born": dist.LogNormal(1.0, 0.3), "survive": dist.Beta(16.0, 4.0), "detect": dist.Beta(10.0, 10.0)}

    def initial(self, p):
        return dist.Poisson(15.0)

    def transition(self, p, x, u):
        return dist.Poisson(p.born + p.survive * x)

    def observation(self, p, x, u):
        return dist.Binomial(x.astype(int), p.detect)


class Occupancy(epf.StateSpaceModel):
    """Whether a species is there, by four visits that may miss it."""

    def prior(self):
        return {"colonise": dist.Beta(2.0, 8.0), "leave": dist.Beta(2.0, 8.0), "detect": dist.Beta(5.0, 3.0)}

    def initial(self, p):
        return dist.Bernoulli(0.5)

    def transition(self, p, x, u):
        return dist.Bernoulli(jnp.where(x > 0.5, 1 - p.leave, p.colonise))

    def observation(self, p, x, u):
        return dist.Binomial(4, x * p.detect * 0.98 + 0.01)


class Dose(epf.StateSpaceModel):
    """A drug that is absorbed and leaves, by assays of the blood."""

    def prior(self):
        return {
            "ka": dist.LogNormal(-0.5, 0.3),
            "ke": dist.LogNormal(-1.8, 0.3),
            "sd": dist.LogNormal(-2.5, 0.4),
            "assay": dist.LogNormal(-1.8, 0.3),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([0.0, -1.0]), 0.3).to_event(1)

    def transition(self, p, x, u):
        gut = jnp.exp(x[0]) * jnp.exp(-p.ka) + u[0]
        blood = jnp.exp(x[1]) * jnp.exp(-p.ke) + jnp.exp(x[0]) * (1 - jnp.exp(-p.ka))
        return dist.Normal(jnp.log(jnp.stack([gut + 1e-3, blood + 1e-3])), p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[1], p.assay)


class Reactor(epf.StateSpaceModel):
    """A substance that decays as Michaelis and Menten say, and is fed in."""

    def prior(self):
        return {
            "vmax": dist.LogNormal(-0.7, 0.3),
            "km": dist.LogNormal(0.0, 0.3),
            "sd": dist.LogNormal(-2.5, 0.4),
            "noise": dist.LogNormal(-2.0, 0.3),
        }

    def initial(self, p):
        return dist.Normal(1.0, 0.2)

    def transition(self, p, x, u):
        c = jnp.exp(x)
        return dist.Normal(jnp.log(jnp.maximum(c - p.vmax * c / (p.km + c) + u[0], 1e-2)), p.sd)

    def observation(self, p, x, u):
        return dist.LogNormal(x, p.noise)


class Sharp(epf.StateSpaceModel):
    """Curved growth seen almost without noise."""

    def prior(self):
        return {"r": dist.LogNormal(0.8, 0.2), "sd": dist.LogNormal(-1.5, 0.4), "noise": dist.LogNormal(-4.5, 0.3)}

    def initial(self, p):
        return dist.Normal(0.0, 0.3)

    def transition(self, p, x, u):
        return dist.Normal(x + p.r * (1 - jnp.exp(x)), p.sd)

    def observation(self, p, x, u):
        return dist.Normal(jnp.exp(0.5 * x), p.noise)


class Spikes(epf.StateSpaceModel):
    """Spikes of a nerve cell under a stimulus, with a rate that wanders."""

    def prior(self):
        return {
            "rate": dist.Normal(0.0, 0.5),
            "gain": dist.Normal(0.0, 0.5),
            "phi": dist.Beta(10.0, 2.0),
            "sd": dist.LogNormal(-1.5, 0.4),
        }

    def initial(self, p):
        return dist.Normal(0.0, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(p.phi * x, p.sd)

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(p.rate + p.gain * u[0] + x))


class Bursts(epf.StateSpaceModel):
    """Counts with more zeros than a Poisson law has."""

    def prior(self):
        return {
            "mu": dist.Normal(1.0, 0.5),
            "phi": dist.Beta(8.0, 2.0),
            "sd": dist.LogNormal(-1.0, 0.3),
            "zero": dist.Beta(2.0, 8.0),
        }

    def initial(self, p):
        return dist.Normal(p.mu, 0.7)

    def transition(self, p, x, u):
        return dist.Normal(p.mu + p.phi * (x - p.mu), p.sd)

    def observation(self, p, x, u):
        return dist.ZeroInflatedPoisson(p.zero, jnp.exp(x))
