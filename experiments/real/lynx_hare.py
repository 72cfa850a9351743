"""Lynx and hare: the equations of Lotka and Volterra with eight unknowns, beside posteriordb's reference draws.

The model and the priors are those of posteriordb's `hudson_lynx_hare-lotka_volterra` (Carpenter's case study for Stan,
2018): pelts are lognormal about populations that move without noise.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class LotkaVolterra(epf.StateSpaceModel):
    """Hares and lynxes, in thousands of pelts; the first row is the initial state itself, measured."""

    steps_per_year: int = 20

    def prior(self):
        return {
            "growth": dist.TruncatedNormal(1.0, 0.5, low=0.0),
            "predation": dist.TruncatedNormal(0.05, 0.05, low=0.0),
            "death": dist.TruncatedNormal(1.0, 0.5, low=0.0),
            "feeding": dist.TruncatedNormal(0.05, 0.05, low=0.0),
            "start": dist.LogNormal(jnp.log(10.0), 1.0).expand([2]).to_event(1),
            "scatter": dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1),
        }

    def initial(self, p):
        return dist.Delta(p.start, event_dim=1)

    def transition(self, p, x, u, t):
        h = 1.0 / self.steps_per_year

        def rate(x):
            return jnp.stack([(p.growth - p.predation * x[1]) * x[0], (p.feeding * x[0] - p.death) * x[1]])

        def step(x, _):  # Runge and Kutta's fourth order
            a = rate(x)
            b = rate(x + h / 2 * a)
            c = rate(x + h / 2 * b)
            d = rate(x + h * c)
            return jnp.maximum(x + h / 6 * (a + 2 * b + 2 * c + d), 1e-6), None

        moved = jax.lax.scan(step, x, None, self.steps_per_year)[0]
        return dist.Delta(jnp.where(t == 1, x, moved), event_dim=1)

    def observation(self, p, x, u):
        return dist.LogNormal(jnp.log(x), p.scatter).to_event(1)


def data():
    return epf.datasets.lynx_hare()


def model():
    return LotkaVolterra()


def filtered(result):
    """Both populations, after each year."""
    mean, sd = result.history["state_mean"].to_numpy(), result.history["state_sd"].to_numpy()
    return [("hare", mean[:, 0], sd[:, 0]), ("lynx", mean[:, 1], sd[:, 1])]


def answer():
    """Means and sds of posteriordb's reference draws."""
    return {
        "growth": (0.547, 0.063),
        "predation": (0.0277, 0.0042),
        "death": (0.800, 0.089),
        "feeding": (0.0241, 0.0035),
    }
