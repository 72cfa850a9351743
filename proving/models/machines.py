"""Machines and sensors: a ship by its bearings, a battery, a wind vane, an ion channel, a well log."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Bearings(epf.StateSpaceModel):
    """A ship of which only the bearing is seen, from a boat that manoeuvres; the inputs are the boat's place.

    The state is position and velocity in the plane; the bearing is an angle.
    """

    def prior(self):
        return {"push": dist.HalfNormal(0.1), "concentration": dist.LogNormal(5.0, 0.7)}

    def initial(self, p):
        return dist.Normal(jnp.array([10.0, 5.0, -0.4, 0.0]), jnp.array([3.0, 2.0, 0.2, 0.2])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(x[2:], p.push).to_event(1)

    def advance(self, x, new):
        return jnp.concatenate([x[:2] + 0.5 * (x[2:] + new), new])

    def observation(self, p, x, u):
        return dist.VonMises(jnp.arctan2(x[1] - u[1], x[0] - u[0]), p.concentration)


class Battery(epf.StateSpaceModel):
    """Charge and polarisation of a cell. Inputs: the current in A, and the hours since the last reading, which vary."""

    def prior(self):
        return {
            "capacity": dist.TruncatedNormal(2.5, 0.5, low=1.0),
            "resistance": dist.LogNormal(-3.0, 0.5),
            "polarisation": dist.LogNormal(-3.5, 0.5),
            "noise_sd": dist.HalfCauchy(0.01),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([0.9, 0.0]), jnp.array([0.03, 0.01])).to_event(1)

    def transition(self, p, x, u):
        current, hours = u[0], u[1]
        stay = jnp.exp(-hours / 0.1)
        charge = x[0] - current * hours / p.capacity
        polarised = stay * x[1] + (1.0 - stay) * p.polarisation * current
        return dist.Normal(jnp.stack([charge, polarised]), jnp.array([5e-4, 2e-3])).to_event(1)

    def observation(self, p, x, u):
        open_circuit = 3.4 + 0.6 * x[0] - 0.3 * jnp.exp(-12.0 * x[0])
        return dist.Normal(open_circuit - x[1] - p.resistance * u[0], p.noise_sd)


class WindVane(epf.StateSpaceModel):
    """The direction of the wind turns slowly; a vane shows it with an error whose concentration the maker states."""

    concentration: float = 15.0

    def prior(self):
        return {"turn_sd": dist.HalfCauchy(0.3)}

    def initial(self, p):
        return dist.Uniform(-jnp.pi, jnp.pi)

    def transition(self, p, x, u):
        return dist.Normal(x, p.turn_sd)

    def observation(self, p, x, u):
        return dist.VonMises(x, self.concentration)


class IonChannel(epf.StateSpaceModel):
    """A channel is closed, half open or open; its current is measured in amperes, some 1e-12 of them."""

    def prior(self):
        return {
            "moves": dist.Dirichlet(jnp.array([[8.0, 1.0, 1.0], [1.0, 8.0, 1.0], [1.0, 1.0, 8.0]])).to_event(1),
            "current": dist.LogNormal(jnp.log(3e-12), 0.5),
            "noise_sd": dist.HalfNormal(2e-12),
        }

    def initial(self, p):
        return dist.Categorical(jnp.array([0.8, 0.1, 0.1]))

    def transition(self, p, x, u):
        return dist.Categorical(p.moves[x.astype(int)])

    def observation(self, p, x, u):
        return dist.Normal(0.5 * p.current * x, p.noise_sd)


class WellLog(epf.StateSpaceModel):
    """Nuclear response along a borehole, about 100,000 counts: a level that jumps between layers, and some bad readings."""

    def prior(self):
        return {
            "jump": dist.Beta(1.0, 30.0),
            "noise_sd": dist.HalfNormal(5_000.0),
            "bad": dist.Beta(1.0, 20.0),
        }

    def initial(self, p):
        return dist.Normal(115_000.0, 10_000.0)

    def transition(self, p, x, u):
        within, between = dist.Normal(x, 400.0), dist.Normal(x, 10_000.0)
        return dist.MixtureGeneral(dist.Categorical(jnp.stack([1.0 - p.jump, p.jump])), [within, between])

    def observation(self, p, x, u):
        good, bad = dist.Normal(x, p.noise_sd), dist.Normal(x, 20_000.0)
        return dist.MixtureGeneral(dist.Categorical(jnp.stack([1.0 - p.bad, p.bad])), [good, bad])
