"""The bootstrap filter of `particles` 0.4 on SIN with theta known, for comparison with `python -m benchmarks bootstrap`.

It needs numpy < 2, so an environment of its own:

    python3 -m venv peer && peer/bin/pip install "numpy<2" particles==0.4
    taskset -c 0 peer/bin/python benchmarks/peers/particles_sin.py
"""

import time

import numpy as np
import particles
from particles import distributions
from particles import state_space_models as ssm


class Sin(ssm.StateSpaceModel):
    def PX0(self):
        return distributions.Normal(0.0, 1.0)

    def PX(self, t, xp):
        return distributions.Normal(np.sin(0.7 * xp), 1.0)

    def PY(self, t, xp, x):
        return distributions.Normal(x, 0.1)


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    y, x = [], 0.0
    for _ in range(1000):
        x = np.sin(0.7 * x) + rng.normal()
        y.append(x + 0.1 * rng.normal())
    for count in (1_000, 10_000, 100_000):
        steps = y if count < 100_000 else y[:200]
        for rule, threshold in (("always", 1.0), ("ESS < N/2", 0.5)):
            best = np.inf
            for _ in range(3):
                model = ssm.Bootstrap(ssm=Sin(), data=steps)
                filter_ = particles.SMC(fk=model, N=count, resampling="systematic", ESSrmin=threshold, collect="off")
                began = time.perf_counter()
                filter_.run()
                best = min(best, time.perf_counter() - began)
            print(f"{count:>8} {rule:>10} {1e9 * best / len(steps) / count:8.1f} ns per particle-step (float64)")
