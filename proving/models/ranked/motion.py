"""Trackers and oscillators, without a reference: see `proving/ranks.py`."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class RangeBearing(epf.StateSpaceModel):
    """A target with a constant speed, by its distance and its bearing."""

    def prior(self):
        return {"q": dist.LogNormal(-1.5, 0.5), "sr": dist.LogNormal(0.0, 0.5)}

    def initial(self, p):
        return dist.Normal(jnp.array([60.0, 40.0, -0.5, 0.3]), jnp.array([3.0, 3.0, 0.5, 0.5])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(
            jnp.stack([x[0] + x[2], x[1] + x[3], x[2], x[3]]), jnp.stack([0.3 * p.q, 0.3 * p.q, p.q, p.q])
        ).to_event(1)

    def observation(self, p, x, u):
        r = jnp.sqrt(x[0] ** 2 + x[1] ** 2)
        return dist.Normal(jnp.stack([r, jnp.arctan2(x[1], x[0])]), jnp.stack([p.sr, 0.02])).to_event(1)


class BearingsOnly(epf.StateSpaceModel):
    """A target by bearings alone, from a ship that turns."""

    def prior(self):
        return {"q": dist.LogNormal(-3.0, 0.5), "sb": dist.LogNormal(-3.5, 0.3)}

    def initial(self, p):
        return dist.Normal(jnp.array([20.0, 10.0, -0.3, 0.2]), jnp.array([3.0, 3.0, 0.2, 0.2])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(
            jnp.stack([x[0] + x[2], x[1] + x[3], x[2], x[3]]), jnp.stack([0.05, 0.05, p.q, p.q])
        ).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(jnp.arctan2(x[1] - u[1], x[0] - u[0]), p.sb)


class Turning(epf.StateSpaceModel):
    """A turning target: place, heading and speed, of which the place is seen."""

    def prior(self):
        return {
            "turn_sd": dist.LogNormal(-2.0, 0.5),
            "speed_sd": dist.LogNormal(-2.0, 0.5),
            "noise": dist.LogNormal(0.0, 0.4),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([0.0, 0.0, 0.5, 2.0]), jnp.array([1.0, 1.0, 0.3, 0.5])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(
            jnp.stack([x[0] + x[3] * jnp.cos(x[2]), x[1] + x[3] * jnp.sin(x[2]), x[2], x[3]]),
            jnp.stack([0.1, 0.1, p.turn_sd, p.speed_sd]),
        ).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[:2], p.noise).to_event(1)


class Detectors(epf.StateSpaceModel):
    """A walker in the plane, counted by four detectors."""

    def prior(self):
        return {"step": dist.LogNormal(-1.5, 0.4), "power": dist.LogNormal(2.0, 0.3)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 0.5).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(0.98 * x, p.step).to_event(1)

    def observation(self, p, x, u):
        c = jnp.array([[1.5, 1.5], [-1.5, 1.5], [1.5, -1.5], [-1.5, -1.5]])
        return dist.Poisson(p.power * jnp.exp(-0.3 * jnp.sum((x - c) ** 2, axis=1)) + 0.1).to_event(1)


class Pendulum(epf.StateSpaceModel):
    """A pendulum whose sine is seen."""

    def prior(self):
        return {"g": dist.LogNormal(-1.5, 0.3), "q": dist.LogNormal(-3.0, 0.4), "noise": dist.LogNormal(-1.2, 0.3)}

    def initial(self, p):
        return dist.Normal(jnp.array([1.2, 0.0]), 0.2).to_event(1)

    def transition(self, p, x, u):
        v = 0.995 * x[1] - p.g * jnp.sin(x[0])
        return dist.Normal(jnp.stack([x[0] + v, v]), jnp.stack([0.02, p.q])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(jnp.sin(x[0]), p.noise)


class FitzHugh(epf.StateSpaceModel):
    """A nerve cell that fires: FitzHugh's and Nagumo's equations with noise."""

    def prior(self):
        return {"a": dist.Normal(0.7, 0.1), "eps": dist.LogNormal(-2.5, 0.2), "noise": dist.LogNormal(-1.2, 0.3)}

    def initial(self, p):
        return dist.Normal(jnp.array([-1.0, 0.0]), 0.3).to_event(1)

    def transition(self, p, x, u):
        v, w = x[0], x[1]
        return dist.Normal(
            jnp.stack([v + 0.2 * (v - v**3 / 3 - w + 0.5), w + 0.2 * p.eps * 4 * (v + p.a - 0.8 * w)]),
            jnp.array([0.08, 0.03]),
        ).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], p.noise)


class Lorenz(epf.StateSpaceModel):
    """Lorenz's equations with noise, of which one number is seen."""

    def prior(self):
        return {"rho": dist.Normal(28.0, 2.0), "noise": dist.LogNormal(0.3, 0.3)}

    def initial(self, p):
        return dist.Normal(jnp.array([1.0, 1.0, 25.0]), 1.0).to_event(1)

    def transition(self, p, x, u):
        h = 0.02
        for _ in range(2):
            x = x + h * jnp.stack([10 * (x[1] - x[0]), x[0] * (p.rho - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])
        return dist.Normal(x, 0.5).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], p.noise)


class Phase(epf.StateSpaceModel):
    """A phase that wanders with an unknown frequency; its cosine is seen."""

    def prior(self):
        return {"freq": dist.Uniform(0.2, 0.8), "jitter": dist.LogNormal(-3.0, 0.5), "noise": dist.LogNormal(-1.0, 0.4)}

    def initial(self, p):
        return dist.Normal(0.0, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(x + p.freq, p.jitter)

    def observation(self, p, x, u):
        return dist.Normal(jnp.cos(x), p.noise)
