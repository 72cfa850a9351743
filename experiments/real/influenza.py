"""Influenza in a boarding school: a deterministic SIR model with counts that scatter more than Poisson's.

The model and the priors are those of Grinsztajn, Semenova, Margossian and Riou (Bayesian workflow for disease transmission
modeling in Stan, Statistics in Medicine 40, 2021).
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Influenza(epf.StateSpaceModel):
    """Susceptible and infected boys; the state moves by the differential equations, without noise."""

    boys: float = 763.0
    steps_per_day: int = 10

    def prior(self):
        return {
            "beta": dist.TruncatedNormal(2.0, 1.0, low=0.0),
            "gamma": dist.TruncatedNormal(0.4, 0.5, low=0.0),
            "scatter": dist.Exponential(5.0),
        }

    def initial(self, p):
        return dist.Delta(jnp.array([self.boys - 1.0, 1.0]), event_dim=1)

    def transition(self, p, x, u):
        h = 1.0 / self.steps_per_day

        def rate(x):
            infections = p.beta * x[0] * x[1] / self.boys
            return jnp.stack([-infections, infections - p.gamma * x[1]])

        def step(x, _):  # Runge and Kutta's fourth order
            a = rate(x)
            b = rate(x + h / 2 * a)
            c = rate(x + h / 2 * b)
            d = rate(x + h * c)
            return x + h / 6 * (a + 2 * b + 2 * c + d), None

        return dist.Delta(jax.lax.scan(step, x, None, self.steps_per_day)[0], event_dim=1)

    def observation(self, p, x, u):
        return dist.NegativeBinomial2(jnp.maximum(x[1], 1e-6), 1.0 / p.scatter)


def data():
    return epf.datasets.influenza()


def model():
    return Influenza()


def filtered(result):
    """The infected, after each day."""
    return [("in_bed", result.history["state_mean"].to_numpy()[:, 1], result.history["state_sd"].to_numpy()[:, 1])]


def answer():
    """A sum over a grid under the same priors."""
    return {"beta": (1.735, 0.053), "gamma": (0.542, 0.045)}
