"""The bias of log-likelihood estimates, with and without the correction: the figure docs/bias.png.

    python -m experiments.guide.bias            # finished numbers are not made again
    python -m experiments.guide.bias --again    # minutes on a GPU, hours on a CPU

An AR(1) with an unknown coefficient is seen with noise. At 64 nodes about the exact posterior run bootstrap filters, in four
streams of N particles each. The log of an unbiased estimate is low by half its variance, which varies with theta: without a
correction the posterior mean moves by a number of standard deviations that grows with the root of T.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import numpyro.distributions as dist

import epf
from epf.filters.marginal._distribution import SkewStudent
from epf.filters.marginal._posterior import NodePosterior
from epf.filters.marginal._surface import Surface
from epf.numerics._keys import packed, root_key, step_key

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
NUMBERS, PICTURE = HERE / "bias.json", HERE.parents[1] / "docs" / "bias.png"
PARTICLES, LENGTHS, SEEDS = (10, 30, 100), (1_000, 10_000, 100_000), 50
TRUTH, NODES, STREAMS = 0.7, 64, 4


class NoisyAR(epf.StateSpaceModel):
    def prior(self) -> Any:
        return {"coefficient": dist.Normal(0.0, 1.0)}

    def initial(self, p: Any) -> Any:
        return dist.Normal(0.0, 1.0)

    def transition(self, p: Any, x: Any, u: Any) -> Any:
        return dist.Normal(p.coefficient * x, 1.0)

    def observation(self, p: Any, x: Any, u: Any) -> Any:
        return dist.Normal(x, 1.0)


def series(steps: int) -> np.ndarray:
    """One series per seed: (seeds, steps)."""
    rng = np.random.default_rng(steps)
    x, ys = rng.normal(size=SEEDS), np.empty((SEEDS, steps))
    for t in range(steps):
        x = TRUTH * x + rng.normal(size=SEEDS)
        ys[:, t] = x + rng.normal(size=SEEDS)
    return ys


def exact(ys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and sd of each series: Kalman's likelihood on a grid that closes in on the posterior."""
    low, high = np.full(len(ys), -1.5), np.full(len(ys), 1.5)
    for _ in range(3):
        grid = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, 101)
        log_density = -0.5 * grid**2 + _log_likelihood(grid, ys)
        weight = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        mean = np.sum(weight * grid, axis=1)
        sd = np.sqrt(np.sum(weight * (grid - mean[:, None]) ** 2, axis=1))
        reach = np.maximum(7.0 * sd, 2.0 * (high - low) / 100.0)
        low, high = mean - reach, mean + reach
    return mean, sd


def _log_likelihood(grid: np.ndarray, ys: np.ndarray) -> np.ndarray:
    mean, variance, total = np.zeros_like(grid), np.ones_like(grid), np.zeros_like(grid)
    for y in ys.T:
        mean, variance = grid * mean, grid**2 * variance + 1.0
        spread, gap = variance + 1.0, y[:, None] - mean
        total -= 0.5 * (np.log(spread) + gap**2 / spread)
        mean, variance = mean + variance / spread * gap, variance / spread
    return total


def scores(particles: int, ys: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, list[float]]:
    """z of each series, with the correction and without."""
    method = epf.MarginalEPF(
        particles=STREAMS * particles, nodes=NODES, exact=False, regrid=False, proposal=epf.proposals.Bootstrap()
    )
    bound = method.bind(NoisyAR())

    @eqx.filter_jit
    def all_of(bound: Any, seeds: Any, ys: Any, mean: Any, sd: Any) -> Any:
        def one(seed: Any, y: Any, mean: Any, sd: Any) -> Any:
            root = root_key(seed)
            unit = jnp.ones(1)
            proposal = SkewStudent(mean[None], unit, jnp.zeros(1), unit, 2.0 * sd[None, None])
            nodes = bound._fresh(proposal, jnp.asarray(0), packed(step_key(root, 0)))

            def step(nodes: Any, at: Any) -> Any:
                return bound._take_in(step_key(root, at[0]), nodes, at[1], None)[0], None

            nodes = jax.lax.scan(step, nodes, (jnp.arange(1, y.shape[0] + 1), y))[0].weighed()
            plain = eqx.tree_at(lambda n: n.log_weights, nodes, nodes.log_weights - nodes.correction)

            def z(nodes: Any) -> Any:
                points = bound.points.surface
                surface = Surface.through(bound.images, nodes, points)
                posterior = NodePosterior.of(bound.parameters, bound.layout, bound.images, nodes, surface, points)
                return (posterior.moments()[0][0] - mean) / sd

            return z(nodes), z(plain)

        return jax.vmap(one)(seeds, ys, mean, sd)

    parts = [np.asarray(part, float) for part in (ys, mean, sd)]
    found = all_of(bound, jnp.arange(len(ys)), *(jnp.asarray(part, jnp.float32) for part in parts))
    return {name: np.asarray(z, float).round(4).tolist() for name, z in zip(("corrected", "plain"), found, strict=True)}


def draw(numbers: dict[str, Any]) -> None:
    """Mean and two standard errors of z, against T."""
    figure, panels = plt.subplots(1, 2, figsize=(8.0, 3.2), sharex=True, constrained_layout=True)
    colours = dict(zip(PARTICLES, ("#D55E00", "#E69F00", "#0072B2"), strict=True))
    for panel, name, title in zip(panels, ("plain", "corrected"), ("without the correction", "with it"), strict=True):
        for particles in PARTICLES:
            found = np.array([numbers[f"{particles} x {steps}"][name] for steps in LENGTHS])
            error = 2.0 * found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])
            style = {"marker": "o", "capsize": 3, "color": colours[particles]}
            panel.errorbar(LENGTHS, found.mean(axis=1), error, label=f"N = {particles}", **style)
        panel.axhline(0.0, color="0.6", linewidth=0.8)
        panel.set(xscale="log", xlabel="observations", title=title)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("mean error of the posterior mean\n(posterior standard deviations)")
    panels[1].legend(frameon=False, title="particles per stream")
    figure.savefig(PICTURE, dpi=160)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--again", action="store_true")
    options.add_argument("--numbers", type=Path, default=NUMBERS)
    chosen = options.parse_args()
    numbers = json.loads(chosen.numbers.read_text()) if chosen.numbers.exists() and not chosen.again else {}
    for steps in LENGTHS:
        missing = [particles for particles in PARTICLES if f"{particles} x {steps}" not in numbers]
        if not missing:
            continue
        ys = series(steps)
        mean, sd = exact(ys)
        for particles in missing:
            numbers[f"{particles} x {steps}"] = scores(particles, ys, mean, sd)
            chosen.numbers.write_text(json.dumps(numbers))
            means = {name: round(float(np.mean(z)), 3) for name, z in numbers[f"{particles} x {steps}"].items()}
            print(f"N = {particles}, T = {steps}: mean z {means}", flush=True)
    draw(numbers)


if __name__ == "__main__":
    main()
