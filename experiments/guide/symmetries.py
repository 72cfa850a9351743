"""Models with several modes that are alike: what the default finds, and how long it takes (docs/decisions/0043).

python experiments/guide/symmetries.py   # two minutes of one core
"""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf


class Regimes(epf.StateSpaceModel):
    """Two regimes whose labels are free."""

    def prior(self):
        means, stay = dist.Normal(0.0, 3.0).expand([2]).to_event(1), dist.Beta(5.0, 2.0).expand([2]).to_event(1)
        return {"means": means, "stay": stay, "sd": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Categorical(jnp.array([0.5, 0.5]))

    def transition(self, p, x, u):
        stay = p.stay[x.astype(int)]
        return dist.Categorical(jnp.where(jnp.arange(2) == x, stay, 1.0 - stay))

    def observation(self, p, x, u):
        return dist.Normal(p.means[x.astype(int)], p.sd)


class Factor(epf.StateSpaceModel):
    """Three series that follow one factor, whose sign is free."""

    def prior(self):
        loadings = dist.Normal(0.0, 1.0).expand([3]).to_event(1)
        return {"loadings": loadings, "phi": dist.Uniform(-1.0, 1.0), "sd": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.phi * x, jnp.sqrt(1.0 - p.phi**2))

    def observation(self, p, x, u):
        return dist.Normal(p.loadings * x, p.sd).to_event(1)


class Components(epf.StateSpaceModel):
    """The sum of two autoregressions, which may be exchanged."""

    def prior(self):
        phi, sd = dist.Uniform(-1.0, 1.0), dist.HalfNormal(1.0)
        return {"phi_a": phi, "phi_b": phi, "sd_a": sd, "sd_b": sd}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([p.phi_a, p.phi_b]) * x, jnp.stack([p.sd_a, p.sd_b])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[1], 0.5)


class Squared(epf.StateSpaceModel):
    """Only the square of a coefficient matters."""

    def prior(self):
        return {"theta": dist.Normal(0.0, 1.0), "sd": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.theta**2 * jnp.tanh(x), p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.3)


TRUTHS = {
    Regimes: {"means": [-1.5, 1.5], "stay": [0.9, 0.8], "sd": 0.7},
    Factor: {"loadings": [0.8, -0.6, 0.4], "phi": 0.8, "sd": 0.5},
    Components: {"phi_a": 0.9, "phi_b": -0.3, "sd_a": 0.5, "sd_b": 0.8},
    Squared: {"theta": 0.9, "sd": 0.4},
}

if __name__ == "__main__":
    for kind, truth in TRUTHS.items():
        _, y = epf.simulate(kind(), truth, steps=200, seed=1)
        result = epf.fit(kind(), y, seed=1, progress=False)
        print(f"{kind.__name__}: {result.verdict.word}, {result.settings['chosen']}, {result.seconds:.0f} s")
        print(f"  mean {result.mean}, sd {result.sd}, log-evidence {result.log_evidence:.2f}")
