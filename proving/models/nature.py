"""Animals and a disease: predators and prey, measles with school holidays, deer by age, plankton, plant cover."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class PredatorPrey(epf.StateSpaceModel):
    """Logarithms of prey and predators, in quarters of a year; both are caught with a lognormal error."""

    capacity: float = 5.0
    conversion: float = 0.5

    def prior(self):
        return {
            "growth": dist.LogNormal(-0.7, 0.5),
            "attack": dist.LogNormal(-1.0, 0.5),
            "death": dist.LogNormal(-1.5, 0.5),
            "sd": dist.HalfNormal(0.3),
            "noise_sd": dist.HalfNormal(0.5),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 0.5).to_event(1)

    def transition(self, p, x, u):
        prey, predators = jnp.exp(x[0]), jnp.exp(x[1])
        gain = jnp.stack(
            [
                p.growth * (1.0 - prey / self.capacity) - p.attack * predators,
                self.conversion * p.attack * prey - p.death,
            ]
        )
        return dist.Normal(x + gain, p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.LogNormal(x, p.noise_sd).to_event(1)


class Measles(epf.StateSpaceModel):
    """Susceptible, exposed, infectious and newly ill, as shares of a town, by weeks; the input is one in holidays."""

    population: float = 50_000.0

    def prior(self):
        return {
            "contact": dist.LogNormal(2.2, 0.3),
            "holiday": dist.Beta(2.0, 4.0),
            "sd": dist.HalfNormal(0.3),
            "reported": dist.Beta(4.0, 6.0),
            "concentration": dist.Gamma(3.0, 0.1),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([0.08, 5e-4, 5e-4, 5e-4]), jnp.array([0.005, 5e-5, 5e-5, 5e-5])).to_event(1)

    def transition(self, p, x, u):  # the logarithm of the force of infection
        return dist.Normal(jnp.log(p.contact * (1.0 - p.holiday * u[0]) * x[2]), p.sd)

    def advance(self, x, new):
        infected = x[0] * (1.0 - jnp.exp(-jnp.exp(new)))
        ill = 0.7 * x[1]
        return jnp.stack([x[0] - infected + 4e-4, x[1] - ill + infected, 0.4 * x[2] + ill, ill])

    def observation(self, p, x, u):
        return dist.NegativeBinomial2(p.reported * self.population * x[3], p.concentration)


class Deer(epf.StateSpaceModel):
    """Logarithms of fawns, yearlings and adults, in hundreds; fawns and adults are counted from the air each year."""

    def prior(self):
        return {
            "fecundity": dist.LogNormal(0.2, 0.5),
            "survival": dist.Beta(jnp.array([4.0, 8.0]), jnp.array([6.0, 2.0])).to_event(1),
            "sd": dist.Exponential(5.0),
        }

    def initial(self, p):
        return dist.Normal(jnp.array([-0.5, -1.0, 0.0]), 0.3).to_event(1)

    def transition(self, p, x, u):
        fawns = x[2] + jnp.log(p.fecundity) - 0.3 * jnp.exp(x[2])
        yearlings = x[0] + jnp.log(p.survival[0])
        adults = jnp.logaddexp(x[1], x[2]) + jnp.log(p.survival[1])
        return dist.Normal(jnp.stack([fawns, yearlings, adults]), p.sd).to_event(1)

    def observation(self, p, x, u):
        return dist.Poisson(100.0 * jnp.exp(jnp.stack([x[0], x[2]]))).to_event(1)


class Plankton(epf.StateSpaceModel):
    """Counts of four species that follow one hidden factor; some samples miss a species. The factor's sign is free."""

    def prior(self):
        return {
            "loadings": dist.Normal(0.0, 1.0).expand([4]).to_event(1),
            "coefficient": dist.Beta(8.0, 2.0),
            "missed": dist.Beta(1.0, 9.0),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.coefficient * x, jnp.sqrt(1.0 - p.coefficient**2))

    def observation(self, p, x, u):
        return dist.ZeroInflatedPoisson(p.missed, jnp.exp(1.0 + p.loadings * x)).to_event(1)


class Cover(epf.StateSpaceModel):
    """The share of ground under plants, twenty yearly surveys: log-odds with a drift that may not vary at all."""

    def prior(self):
        return {
            "drift": dist.Normal(0.0, 0.1),
            "sd": dist.HalfCauchy(0.1),
            "concentration": dist.Gamma(3.0, 0.1),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x + p.drift, p.sd)

    def observation(self, p, x, u):
        share = jax.nn.sigmoid(x)
        return dist.Beta(share * p.concentration, (1.0 - share) * p.concentration)
