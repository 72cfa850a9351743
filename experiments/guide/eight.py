"""Calibration of MarginalEPF with eight unknown parameters: ranks of true values that were drawn from the prior.

    python experiments/guide/eight.py --jobs 2   # one hour of one core in total; finished data sets are not run again

The model is two independent AR(1) processes plus noise, each with unknown mean, coefficient and both scales, T = 100.
Parameters from the prior give posteriors with long tails, and some series that explode. The exact posterior is a product of
two posteriors of four parameters, from the Kalman likelihood and adaptive importance sampling. Its ranks are printed beside
those of the filter: a few dozen data sets can tell the two apart, even if neither can be told from uniform.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import stats
from side_by_side import finished

import epf

SCORES = Path(__file__).parent / "eight.json"
STEPS, GROUPS, SETS, COPIES, PARTICLES = 100, 16, 2, 2, 200
LARGEST = 1e5  # float32 cannot resolve larger series; the rule uses the data alone, so ranks stay uniform
CENTRE, SPREAD = (
    np.array([0.0, 0.5, 0.0, -0.5]),
    np.array([2.0, 0.3, 0.5, 0.5]),
)  # of the prior; logarithms of the scales
DRAWS, ROUNDS, KERNELS, LEAST = 20_000, 4, 60, 1000
WIDE, WIDER = 0.3, 3.5  # share of draws from kernels that are wider by this factor, for long tails


class MeanAndScales(epf.StateSpaceModel):
    """Independent copies of an AR(1) plus noise, each with four unknown parameters."""

    def prior(self) -> dict[str, Any]:
        laws = (dist.Normal, dist.Normal, dist.LogNormal, dist.LogNormal)
        names = ("mu", "phi", "sigma", "tau")
        return {
            name: law(jnp.full(COPIES, centre), spread).to_event(1)
            for name, law, centre, spread in zip(names, laws, CENTRE, SPREAD, strict=True)
        }

    def initial(self, p: Any) -> Any:
        return dist.Normal(p.mu, 1.0).to_event(1)

    def transition(self, p: Any, x: Any, u: Any) -> Any:
        return dist.Normal(p.mu + p.phi * (x - p.mu), p.sigma).to_event(1)

    def observation(self, p: Any, x: Any, u: Any) -> Any:
        return dist.Normal(x, p.tau).to_event(1)


def log_posterior(at: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log-posterior of rows (mu, phi, log sigma, log tau), by a Kalman filter."""
    mu, phi, process, sensor = at[:, 0], at[:, 1], np.exp(2 * at[:, 2]), np.exp(2 * at[:, 3])
    mean, variance, total = mu.copy(), np.ones_like(mu), np.zeros_like(mu)
    for value in y:
        mean, variance = mu + phi * (mean - mu), phi**2 * variance + process
        scale, gap = variance + sensor, value - mean
        total -= 0.5 * np.log(2 * np.pi * scale) + 0.5 * gap**2 / scale
        mean, variance = mean + variance / scale * gap, variance * sensor / scale
    total += np.sum(stats.norm.logpdf(at, CENTRE, SPREAD), axis=1)
    return np.where(np.isnan(total), -np.inf, total)  # a variance overflowed


def exact(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted draws of (mu, phi, sigma, tau) of one copy, by adaptive mixtures of Student t distributions."""
    rng = np.random.default_rng(0)
    at = CENTRE + SPREAD * rng.standard_normal((DRAWS, 4))
    log_proposal = np.sum(stats.norm.logpdf(at, CENTRE, SPREAD), axis=1)
    student = stats.multivariate_t(np.zeros(4), np.eye(4), 5)
    rounds = 0  # counted only for the posterior itself, not for a tempered one
    while rounds < ROUNDS:
        power, weights = flattened(log_posterior(at, y) - log_proposal)
        rounds = rounds + 1 if power == 1.0 else 0
        gap = at - weights @ at
        root = np.linalg.cholesky(0.45 * gap.T @ (weights[:, None] * gap) + 1e-20 * np.eye(4))
        centres = at[rng.choice(DRAWS, KERNELS, p=weights)]
        wide = np.where(rng.uniform(size=DRAWS) < WIDE, WIDER, 1.0)
        noise = student.rvs(DRAWS, random_state=rng) * wide[:, None]
        at = centres[rng.integers(0, KERNELS, DRAWS)] + noise @ root.T
        white = np.linalg.solve(root, (at[:, None] - centres).reshape(-1, 4).T).T
        log_kernels = np.logaddexp(
            np.log(1.0 - WIDE) + student.logpdf(white), np.log(WIDE / WIDER**4) + student.logpdf(white / WIDER)
        )
        log_kernels = log_kernels.reshape(DRAWS, KERNELS) - np.log(np.diagonal(root)).sum()
        log_proposal = np.logaddexp.reduce(log_kernels, axis=1) - np.log(KERNELS)
    log_weights = log_posterior(at, y) - log_proposal
    weights = np.exp(log_weights - log_weights.max())
    return np.concatenate([at[:, :2], np.exp(at[:, 2:])], axis=1), weights / weights.sum()


def flattened(log_weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest power up to 1 with enough effective weights, and the weights raised to it."""

    def powered(power: float) -> np.ndarray:
        weights = np.exp(power * (log_weights - log_weights.max()))
        return weights / weights.sum()

    low, high = 0.0, 1.0
    if 1.0 / np.sum(powered(1.0) ** 2) >= LEAST:
        return 1.0, powered(1.0)
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if 1.0 / np.sum(powered(middle) ** 2) >= LEAST else (low, middle)
    return low, powered(low)


def run(number: int) -> tuple[int, dict[str, Any]]:
    """One data set: ranks of the true values in both posteriors, z and r."""
    model = MeanAndScales()
    prior = model.prior()
    keys = jax.random.split(jax.random.key(1000 + number), len(prior))
    truth = {name: np.asarray(law.sample(key)).tolist() for (name, law), key in zip(prior.items(), keys, strict=True)}
    _, y = epf.simulate(model, truth, steps=STEPS, seed=number)
    if np.abs(y).max() > LARGEST:
        return number, {"set aside": float(np.abs(y).max())}
    posterior = epf.fit(model, y, epf.MarginalEPF(PARTICLES, exact=False), seed=number, progress=False).posterior
    found = np.asarray(posterior.draws(jax.random.key(number), 2000))
    at = np.concatenate([np.ravel(value) for value in truth.values()])
    mean, sd, rank = (np.zeros(4 * COPIES) for _ in range(3))
    for copy in range(COPIES):
        theta, weights = exact(np.asarray(y[:, copy], float))
        mean[copy::COPIES] = weights @ theta
        sd[copy::COPIES] = np.sqrt(weights @ (theta - weights @ theta) ** 2)
        rank[copy::COPIES] = weights @ (theta < at[copy::COPIES])
    moments = [np.asarray(part, float) for part in posterior.moments()]
    told = {
        "z": (moments[0] - mean) / sd,
        "r": moments[1] / sd,
        "rank": np.mean(found < at, axis=0),
        "exact rank": rank,
    }
    return number, {name: values.round(4).tolist() for name, values in told.items()}


def report(found: dict[str, Any]) -> None:
    """Print the coverage of both posteriors and the distance between them."""
    aside = [number for number, row in found.items() if "set aside" in row]
    found = {number: row for number, row in found.items() if number not in aside}
    z, r, ours, theirs = (np.array([row[key] for row in found.values()]) for key in ("z", "r", "rank", "exact rank"))
    print(f"{len(found)} data sets, eight parameters each; set aside: {', '.join(aside) or 'none'}")
    print(f"rms z {np.sqrt(np.mean(z**2)):.3f}, largest {np.abs(z).max():.2f}; mean r {r.mean():.3f}, sd {r.std():.3f}")
    for level in (0.5, 0.9, 0.98):
        tail = 0.5 * (1.0 - level)
        inside = [np.mean((ranks > tail) & (ranks < 1.0 - tail)) for ranks in (ours, theirs)]
        print(f"within the {level:.0%} intervals: MarginalEPF {inside[0]:.3f}, exact posterior {inside[1]:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="parallel processes, one core each")
    parser.add_argument("--out", type=Path, default=SCORES)
    arguments = parser.parse_args()
    numbers = [100 * group + i for i in range(SETS) for group in range(GROUPS)]
    report(finished(run, numbers, arguments.out, arguments.jobs))
