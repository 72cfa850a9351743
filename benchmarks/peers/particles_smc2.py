"""SMC^2 of `particles` 0.4 on SIN, guided, for comparison with `python -m benchmarks accuracy`: seconds, z and r.

It needs numpy < 2, so an environment of its own. `python -m benchmarks accuracy` writes the data and the exact posterior:

    python3 -m venv peer && peer/bin/pip install "numpy<2" particles==0.4
    taskset -c 0 peer/bin/python benchmarks/peers/particles_smc2.py benchmarks/out/sin.json 1000

It writes particles_smc2.json beside that file.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import particles
from particles import distributions as dists
from particles import smc_samplers as ssp
from particles import state_space_models as ssm

SEEDS = 5
SIZES = ((50, 20), (100, 50), (400, 50))  # thetas, particles of each


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


def measure(
    y: np.ndarray, mean: float, sd: float, seeds: Sequence[int]
) -> Iterator[tuple[str, list[float], list[float], list[float]]]:
    """For every size: its name, and z, r and seconds of every seed."""
    prior = dists.StructDist({"theta": dists.Normal(0.0, 0.2)})
    for outer, inner in SIZES:
        z, r, seconds = [], [], []
        for seed in seeds:
            np.random.seed(seed)  # noqa: NPY002  (the library draws from it)
            fk = ssp.SMC2(ssm_cls=Sin, data=y, prior=prior, init_Nx=inner, fk_cls=ssm.GuidedPF)
            sampler = particles.SMC(fk=fk, N=outer)
            began = time.perf_counter()
            sampler.run()
            seconds.append(time.perf_counter() - began)
            theta, weight = sampler.X.theta["theta"], sampler.W
            m = np.sum(weight * theta)
            z.append(float((m - mean) / sd))
            r.append(float(np.sqrt(np.sum(weight * (theta - m) ** 2)) / sd))
            print(f"  seed {seed}: z {z[-1]:.3f}, r {r[-1]:.3f}, {seconds[-1]:.1f} s", flush=True)
        yield f"particles SMC2 {outer} x {inner}", z, r, seconds


if __name__ == "__main__":
    path = Path(sys.argv[1])
    content = json.loads(path.read_text())
    y = np.array(content["y"])
    entries = {entry["t"]: entry for entry in content["entries"]}
    rows = []
    for steps in map(int, sys.argv[2:]):
        mean, sd = entries[steps]["mean"]["theta"], entries[steps]["sd"]["theta"]
        for name, z, r, seconds in measure(y[:steps], mean, sd, range(SEEDS)):
            rows.append({"method": name, "T": steps, "z": z, "r": r, "seconds": seconds})
            print(
                f"T = {steps}, {name}: mean |z| {np.mean(np.abs(z)):.3f}, "
                f"mean |r - 1| {np.mean(np.abs(np.array(r) - 1)):.3f}, {min(seconds):.1f} s",
                flush=True,
            )
            path.with_name("particles_smc2.json").write_text(json.dumps(rows, indent=1))
