"""Interpolated proposals against draws of the transition: the figures of docs/decisions/0048.

python experiments/guide/interpolated.py
"""

import time
import warnings

import numpy as np
from proving._case import all_cases
from proving._reference import read

import epf

SEEDS, PARTICLES, MANY = 16, 200, 20_000
PROPOSALS = [epf.proposals.Bootstrap(), epf.proposals.Interpolated(points=16), epf.proposals.Interpolated()]


def main() -> None:
    """The variance of the log-likelihood at the posterior mean, and the processor time of a particle's step."""
    warnings.simplefilter("ignore")
    case = all_cases()["five-days"]
    for data_set in (0, 2):
        y, _ = case.data(data_set)
        model = epf.fix(case.build(), dict(zip(case.labels, read(case, data_set)["mean"], strict=True)))

        def run(particles: int, proposal: epf.proposals.Proposal, seed: int, model=model, y=y) -> float:
            return epf.fit(model, y, epf.SIR(particles, proposal=proposal), seed=seed, progress=False).log_evidence

        for proposal in PROPOSALS:
            found = [run(PARTICLES, proposal, seed) for seed in range(SEEDS)]
            run(MANY, proposal, 0)  # compiles
            began = time.process_time()
            run(MANY, proposal, 0)
            ns = 1e9 * (time.process_time() - began) / MANY / len(y)
            print(f"{data_set} {proposal.describe()}: variance {np.var(found, ddof=1):.3f}, {ns:.0f} ns", flush=True)


if __name__ == "__main__":
    main()
