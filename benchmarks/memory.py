"""Peak memory of a run against its length: summaries are kept, particles are not."""

import resource
import subprocess
import sys

from benchmarks.timing import report

RUN = """
import sys, epf
model = epf.zoo.Sin(theta=0.7)
_, y = epf.simulate(model, {}, steps=int(sys.argv[1]), seed=1)
epf.fit(model, y, epf.SIR(1000, epf.proposals.Bootstrap()))
"""

if __name__ == "__main__":
    rows, before = [], 0.0
    for steps in (1_000, 10_000, 100_000):
        subprocess.run([sys.executable, "-c", RUN, str(steps)], check=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # the largest child so far
        rows.append({"steps": steps, "peak_MiB": float(peak)})
    report("memory", rows)
