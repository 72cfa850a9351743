"""SMC^2 of `particles` 0.4 on SIN, guided, for comparison with `python -m benchmarks accuracy`: seconds, z and r.

It needs numpy < 2, so an environment of its own; the data and the exact posterior come from a file that this project writes:

    python -c "import epf, json; y = epf.simulate(epf.zoo.Sin(), {'theta': 0.7}, steps=1000, seed=1)[1];
    json.dump(y.tolist(), open('y.json', 'w'))" python3 -m venv peer && peer/bin/pip install "numpy<2" particles==0.4
    taskset -c 0 peer/bin/python benchmarks/peers/particles_smc2.py y.json tests/references/sin-1.json 300 1000
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import particles
from particles import distributions as dists
from particles import smc_samplers as ssp
from particles import state_space_models as ssm


class Sin(ssm.StateSpaceModel):
    """With the optimal proposal: the observation is linear and Gaussian."""

    default_params = {"theta": 0.7}  # noqa: RUF012

    def PX0(self):
        return dists.Normal(0.0, 1.0)

    def PX(self, t, xp):
        return dists.Normal(np.sin(self.theta * xp), 1.0)

    def PY(self, t, xp, x):
        return dists.Normal(x, 0.1)

    def _given(self, mean, y):
        gain = 1.0 / 1.01
        return dists.Normal(mean + gain * (y - mean), np.sqrt(0.01 * gain))

    def proposal0(self, data):
        return self._given(0.0, data[0])

    def proposal(self, t, xp, data):
        return self._given(np.sin(self.theta * xp), data[t])


if __name__ == "__main__":
    y = np.array(json.loads(Path(sys.argv[1]).read_text()))
    entries = {entry["t"]: entry for entry in json.loads(Path(sys.argv[2]).read_text())["entries"]}
    prior = dists.StructDist({"theta": dists.Normal(0.0, 0.2)})
    for steps in map(int, sys.argv[3:]):
        mean, sd = entries[steps]["mean"]["theta"], entries[steps]["sd"]["theta"]
        for outer, inner in ((50, 20), (100, 50)):
            found, seconds = [], []
            for seed in range(3):
                np.random.seed(seed)  # noqa: NPY002  (the library draws from it)
                fk = ssp.SMC2(ssm_cls=Sin, data=y[:steps], prior=prior, init_Nx=inner, fk_cls=ssm.GuidedPF)
                sampler = particles.SMC(fk=fk, N=outer)
                began = time.perf_counter()
                sampler.run()
                seconds.append(time.perf_counter() - began)
                theta, weight = sampler.X.theta["theta"], sampler.W
                m = np.sum(weight * theta)
                found.append(((m - mean) / sd, np.sqrt(np.sum(weight * (theta - m) ** 2)) / sd))
                print(f"  seed {seed}: z {found[-1][0]:.3f}, r {found[-1][1]:.3f}, {seconds[-1]:.1f} s", flush=True)
            z, r = np.array(found).T
            print(
                f"T = {steps}, {outer} thetas x {inner}: mean |z| {np.mean(np.abs(z)):.3f}, "
                f"mean |r - 1| {np.mean(np.abs(r - 1)):.3f}, {min(seconds):.1f} s",
                flush=True,
            )
