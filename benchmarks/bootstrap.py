"""The bootstrap filter on SIN with theta known: ns per particle and step at N = 1e3, 1e4, 1e5."""

import epf
from benchmarks.timing import per_particle_step, report

if __name__ == "__main__":
    model = epf.zoo.Sin(theta=0.7)
    _, y = epf.simulate(model, {}, steps=1000, seed=1)
    rows = []
    for particles in (1_000, 10_000, 100_000):
        steps = y if particles < 100_000 else y[:200]
        for threshold in (1.0, 0.5):
            method = epf.SIR(particles, epf.proposals.Bootstrap(), epf.resampling.Systematic(threshold))
            found = per_particle_step(method, model, steps, particles)
            rows.append({"particles": particles, "resampling": "always" if threshold == 1.0 else "ESS < N/2", **found})
    report("bootstrap", rows)
