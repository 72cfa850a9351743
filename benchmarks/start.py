"""The first answer of a fresh process without a compilation cache, and later fits in it, in seconds of processor time."""

import json
import subprocess
import sys
from typing import Any

from benchmarks.timing import report

CASES = (
    ("Sin", "EPF(1000)", 100),
    ("LocalLevel", "MarginalEPF()", 100),
    ("StochasticVolatility", "MarginalEPF()", 100),
    ("LocalLevel", "Storvik(1000)", 1000),
)
PROGRAM = """
import json, time
import numpy as np, epf
y = np.random.default_rng(0).normal(size={steps}).astype("float32")
times = []
for seed in range(4):
    epf.fit(epf.zoo.{model}(), y, epf.{method}, seed=seed, progress=False)
    times.append(time.process_time())
print(json.dumps({{"first_s": times[0], "again_s": min(np.diff(times).tolist())}}))
"""


def measured(model: str, method: str, steps: int) -> dict[str, Any]:
    program = PROGRAM.format(model=model, method=method, steps=steps)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True, text=True)
    return {"model": model, "method": method, "steps": steps, **json.loads(done.stdout)}


if __name__ == "__main__":
    report("start", [measured(*case) for case in CASES])
