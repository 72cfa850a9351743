"""Filters that learn, compared with the bootstrap filter: ns per particle and step at N = 1e3."""

import jax.numpy as jnp
import numpyro.distributions as dist

import epf
from benchmarks.timing import per_particle_step, report


class AR(epf.StateSpaceModel):
    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "v": dist.InverseGamma(3.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, jnp.sqrt(p.v))

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


if __name__ == "__main__":
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=1000, seed=1)
    known = epf.fix(AR(), {"v": 0.5})
    rows = []
    for name, model, method in (
        ("SIR", AR(), epf.SIR(1000)),
        ("Liu-West", AR(), epf.LiuWest(1000)),
        ("Storvik, a", known, epf.Storvik(1000)),
        ("Storvik, a, v", AR(), epf.Storvik(1000)),
    ):
        rows.append({"method": name, **per_particle_step(method, model, y, 1000)})
    report("storvik", rows)
