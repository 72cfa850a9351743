"""Time to accuracy on SIN with theta unknown: seconds per run without compilation, with z and r over seeds.

The headline is the shortest time at which |z| <= 0.1 and |r - 1| <= 0.1 hold on average over the seeds. For the SMC^2 of
`particles`, run `benchmarks/peers/particles_smc2.py` within the same minutes.
"""

import json
import time

import jax
import numpy as np
from experiments.paper.references import FOLDER as REFERENCES

import epf
from benchmarks.timing import report

SEEDS = range(10)

if __name__ == "__main__":
    model, rows = epf.zoo.Sin(), []
    entries = {entry["t"]: entry for entry in json.loads((REFERENCES / "sin-1.json").read_text())["entries"]}
    for steps in (300, 1000, 20000):
        _, y = epf.simulate(model, {"theta": 0.7}, steps=steps, seed=1)
        mean, sd = (entries[steps][key]["theta"] for key in ("mean", "sd"))
        for name, method in (
            ("MarginalEPF 9 x 20", epf.MarginalEPF(20, 9)),
            ("MarginalEPF 11 x 50", epf.MarginalEPF(50)),
            ("EPF 100", epf.EPF(100)),
        ):
            found, seconds = [], []
            for seed in (0, *SEEDS):  # the first run compiles
                began = time.perf_counter()
                result = epf.fit(model, y, method, seed=seed, progress=False)
                jax.block_until_ready(result.state)
                seconds.append(time.perf_counter() - began)
                found.append(((result.mean["theta"] - mean) / sd, result.sd["theta"] / sd))
            z, r = np.array(found[1:]).T
            rows.append(
                {
                    "method": name,
                    "T": steps,
                    "mean |z|": float(np.mean(np.abs(z))),
                    "mean |r - 1|": float(np.mean(np.abs(r - 1.0))),
                    "seconds": min(seconds[1:]),
                    "compile_s": seconds[0] - seconds[1],
                }
            )
    report("accuracy", rows)
