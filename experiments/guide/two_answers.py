"""Two answers from the same nodes, and both together: by the function through them, and by their own weights.

    PYTHONPATH=. python experiments/guide/two_answers.py [CASE ...]      # of the proving ground; about a minute each

For each fit of the default whose nodes have both: errors of posterior means (in posterior sds) and of logarithms of sds,
against the references of the proving ground. The last line has the errors of the nodes' own weights over those that random
draws with such weights would have.
"""

import sys
import warnings

import numpy as np
from proving._case import DATA_SETS, Case, chosen
from proving._reference import read
from proving._run import SEED

import epf
from epf.errors import EPFWarning
from epf.filters.marginal._posterior import NodePosterior
from epf.posterior._posterior import sensitivities, standard_error


def errors(case: Case, k: int) -> dict[str, np.ndarray] | None:
    """Of means and sds, (2, p), by each answer; None if there is but one."""
    y, u = case.data(k)
    posterior = epf.fit(case.build(), y, inputs=u, seed=SEED, progress=False).posterior
    if not isinstance(posterior, NodePosterior) or not bool(posterior.trusted):
        return None
    if posterior.images.count > 1 or posterior.coefficients is not None:
        return None
    reference = read(case, k)
    nodes, surface = posterior.nodes, posterior.surface
    points = np.asarray(posterior.theta.T, float)[: -len(nodes.theta)]
    weighted = {
        "function": (points, surface.weights),
        "nodes": (np.asarray(nodes.theta, float), nodes.weights),
        "both": (np.asarray(posterior.theta.T, float), posterior.weights),
    }
    found = {}
    for name, (theta, weights) in weighted.items():
        share = np.asarray(weights, float) / np.sum(weights, dtype=float)
        mean = share @ theta
        sd = np.sqrt(share @ (theta - mean) ** 2)
        found[name] = np.stack([(mean - reference["mean"]) / reference["sd"], np.log(sd / reference["sd"])])
        if name == "nodes":
            found["random draws"] = np.asarray(standard_error(sensitivities((nodes.theta - mean) / sd), nodes.weights))
    return found


def main() -> None:
    warnings.simplefilter("ignore", EPFWarning)
    found = []
    for case in chosen(sys.argv[1:] or None):
        for k in range(DATA_SETS):
            one = errors(case, k) if case.reference(k).exists() else None
            if one is not None:
                found.append(one)
                print(
                    case.name,
                    k,
                    {name: np.abs(error).max(axis=1).round(3).tolist() for name, error in one.items()},
                    flush=True,
                )
    rms = {
        name: np.sqrt(np.mean(np.concatenate([one[name] for one in found], axis=1) ** 2, axis=1)) for name in found[0]
    }
    print(f"{len(found)} fits: rms error of means in sds, and of logarithms of sds")
    for name, error in rms.items():
        print(f"  {name:<14}{error[0]:8.4f}{error[1]:8.4f}")
    print("  nodes over random draws", (rms["nodes"] / rms["random draws"]).round(2).tolist())


if __name__ == "__main__":
    main()
