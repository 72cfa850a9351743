"""Machines and buildings: tracking, a room, drifting sensors, irregular samples, a range, a network, an electric load."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Tracking(epf.StateSpaceModel):
    """A vehicle in the plane: state (position, velocity); the velocity takes random steps, the position is seen.

    The position moves by the mean of the old and the new velocity.
    """

    def prior(self):
        return {"step_sd": dist.HalfNormal(0.5), "noise_sd": dist.Exponential(0.5).expand([2]).to_event(1)}

    def initial(self, p):
        return dist.Normal(jnp.array([0.0, 0.0, 1.0, 0.0]), jnp.array([3.0, 3.0, 1.0, 1.0])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(x[2:], p.step_sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[:2], p.noise_sd).to_event(1)

    def advance(self, x, new):
        return jnp.concatenate([x[:2] + 0.5 * (x[2:] + new), new])


class Room(epf.StateSpaceModel):
    """Air and wall exchange heat; the air also loses heat to the outside and is heated. Inputs: outside, heater's power."""

    def prior(self):
        return {
            "air_to_wall": dist.Beta(2.0, 8.0),
            "leak": dist.Beta(2.0, 20.0),
            "wall_to_air": dist.LogNormal(-3.0, 0.7),
            "heater": dist.Gamma(4.0, 4.0),
            "sd": dist.HalfCauchy(0.1),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([19.0, 17.0]), 1.0).to_event(1)

    def transition(self, p, x, u):
        air = x[0] + p.air_to_wall * (x[1] - x[0]) + p.leak * (u[0] - x[0]) + p.heater * u[1]
        wall = x[1] + p.wall_to_air * (x[0] - x[1])
        return dist.Normal(jnp.stack([air, wall]), jnp.stack([p.sd, jnp.array(0.02)])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], 0.1)


class Drift(epf.StateSpaceModel):
    """A cheap sensor whose bias wanders, and a reference instrument that is read now and then: state (signal, bias)."""

    def prior(self):
        return {
            "coefficient": dist.Beta(8.0, 2.0),
            "bias_sd": dist.HalfCauchy(0.05),
            "noise_variance": dist.InverseGamma(3.0, 0.2),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), jnp.array([1.0, 0.2])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([p.coefficient * x[0], x[1]]), jnp.stack([jnp.array(0.5), p.bias_sd])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(
            jnp.stack([x[0] + x[1], x[0]]), jnp.stack([jnp.sqrt(p.noise_variance), jnp.array(0.05)])
        ).to_event(1)


class OffsetAndGain(epf.StateSpaceModel):
    """Two sensors of one signal: the second has an offset and a gain."""

    def prior(self):
        return {
            "coefficient": dist.Uniform(0.0, 1.0),
            "offset": dist.Normal(0.0, 5.0),
            "gain": dist.TruncatedNormal(1.0, 0.5, low=0.0),
            "noise_sd": dist.Gamma(2.0, 4.0).expand([2]).to_event(1),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, 0.5)

    def observation(self, p, x, u):
        return dist.Normal(jnp.stack([x, p.offset + p.gain * x]), p.noise_sd).to_event(1)


class IrregularTimes(epf.StateSpaceModel):
    """An Ornstein-Uhlenbeck process, sampled when the network allowed: the input is the time since the last sample."""

    def prior(self):
        return {
            "rate": dist.Gamma(2.0, 4.0),
            "level": dist.Normal(5.0, 5.0),
            "diffusion": dist.HalfCauchy(1.0),
            "noise_sd": dist.Exponential(4.0),
        }

    def initial(self, p):
        return dist.Normal(p.level, 2.0)

    def transition(self, p, x, u):
        stay = jnp.exp(-p.rate * u[0])
        return dist.Normal(p.level + stay * (x - p.level), p.diffusion * jnp.sqrt((1.0 - stay**2) / (2.0 * p.rate)))

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_sd)


class Range(epf.StateSpaceModel):
    """A drone passes a beacon on a straight line; the beacon measures its distance, not the side it is on."""

    def prior(self):
        return {
            "speed": dist.Normal(0.4, 0.2),
            "height": dist.LogNormal(1.0, 0.5),
            "sd": dist.LogNormal(-1.0, 0.3),
        }

    def initial(self, p):
        return dist.Normal(-6.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x + p.speed, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(jnp.sqrt(x**2 + p.height**2), 0.4)


class Ring(epf.StateSpaceModel):
    """The load of five routers in a ring: each keeps a part of its own and takes over a part of its neighbours'."""

    def prior(self):
        return {"own": dist.Uniform(0.0, 1.0), "neighbours": dist.Normal(0.0, 0.3), "sd": dist.Exponential(1.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(5), 1.0).to_event(1)

    def transition(self, p, x, u):
        around = 0.5 * (jnp.roll(x, 1) + jnp.roll(x, -1))
        return dist.Normal(p.own * x + p.neighbours * around, p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5).to_event(1)


class ElectricLoad(epf.StateSpaceModel):
    """Hourly load: a base, heat above 18 degrees, the hour of the day, weekends, and an AR(1) for the rest."""

    def prior(self):
        return {
            "base": dist.Normal(10.0, 3.0),
            "effects": dist.Normal(0.0, 1.0).expand([4]).to_event(1),
            "coefficient": dist.Beta(5.0, 2.0),
            "sd": dist.HalfNormal(0.5),
            "noise_sd": dist.Exponential(3.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(p.base + jnp.dot(p.effects, u) + x, p.noise_sd)


class AgingSensor(epf.StateSpaceModel):
    """A sensor that grows noisier with time, and whose zero creeps: its laws know the time."""

    def prior(self):
        return {
            "coefficient": dist.Beta(4.0, 2.0),
            "creep": dist.Normal(0.0, 1.0),
            "noise_sd": dist.InverseGamma(4.0, 1.0),
            "aging": dist.Exponential(1.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, 0.4)

    def observation(self, p, x, u, t):
        return dist.Normal(x + p.creep * t / 100.0, p.noise_sd * jnp.exp(p.aging * t / 200.0))
