"""A live panel of a thousand simulated sensors, which join, fall silent and fail; each beside its exact posterior.

python -m experiments.real.sensors            # numbers and picture of docs/real/sensors.md
python -m experiments.real.sensors --out DIR  # elsewhere
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
from experiments.real.outcome import Made, write
from scipy import stats

import epf

NAMES = ("drift_variance", "noise_variance")
PRIORS = ((3.0, 0.1), (3.0, 1.0))  # of the model below, for the simulation and the independent answer
START, START_SD = 20.0, 3.0
JOINS, FAILS, JUMP = (
    10,
    30,
    8.0,
)  # some sensors join at this step; some fail at that: they jump by so many sds of their noise
ALARM = -9.0  # log-density of an observation, below which it is an alarm


class Sensor(epf.StateSpaceModel):
    """A temperature that drifts, and a sensor with noise of its own."""

    def prior(self):
        return {"drift_variance": dist.InverseGamma(3.0, 0.1), "noise_variance": dist.InverseGamma(3.0, 1.0)}

    def initial(self, p):
        return dist.Normal(20.0, 3.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.drift_variance**0.5)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise_variance**0.5)


def simulated(sensors: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Variances from the prior (sensors, 2), observations (steps, sensors), NaN where none came, and which sensors fail."""
    rng = np.random.default_rng(1)
    truth = np.stack([stats.invgamma(a, scale=b).rvs(sensors, random_state=rng) for a, b in PRIORS], axis=1)
    drift, noise = np.sqrt(truth.T)
    late = np.arange(sensors) >= 9 * sensors // 10
    moves = drift * rng.standard_normal((steps, sensors))
    moves[:JOINS, late] = 0.0
    x = START + START_SD * rng.standard_normal(sensors) + np.cumsum(moves, axis=0)
    y = x + noise * rng.standard_normal((steps, sensors))
    fails = np.arange(sensors) < sensors // 100
    y[FAILS:, fails] += (JUMP * noise)[fails]
    y[rng.random(y.shape) < 0.05] = np.nan
    y[:JOINS, late] = np.nan
    return truth, y, fails


def watch(y: np.ndarray, method: Any) -> tuple[epf.Panel, np.ndarray, list[float]]:
    """Step by step, what came of the sensors: the panel, the log-density of each observation, and seconds per update."""
    live, surprise, seconds = epf.Panel(Sensor(), method), np.full(y.shape, np.nan), []
    for t, row in enumerate(y):
        began = time.process_time()
        # NaN for a sensor that is silent, as its temperature moves on; nothing for one that has not joined.
        taken = live.update({i: value for i, value in enumerate(row.tolist()) if i in live or not np.isnan(value)})
        seconds.append(time.process_time() - began)
        surprise[t, taken.keys] = taken.info.log_evidence
    return live, surprise, seconds


def exact(y: np.ndarray, points: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means and sds (sensors, 2), by Kalman filters on a grid that is even in the logarithms of the variances."""
    grids = [np.geomspace(*stats.invgamma(a, scale=b).ppf([1e-6, 1 - 1e-5]), points) for a, b in PRIORS]
    drift, noise = np.meshgrid(*grids, indexing="ij")
    prior = sum(
        stats.invgamma(a, scale=b).logpdf(v) + np.log(v) for (a, b), v in zip(PRIORS, (drift, noise), strict=True)
    )
    means, sds = np.zeros((y.shape[1], 2)), np.zeros((y.shape[1], 2))
    for i, series in enumerate(y.T):
        mean, variance, total = START, START_SD**2 + 0.0 * drift, prior.copy()
        for value in series[np.argmin(np.isnan(series)) :]:  # a series begins with its first observation
            variance = variance + drift
            if np.isnan(value):
                continue
            spread = variance + noise
            total -= 0.5 * (np.log(spread) + (value - mean) ** 2 / spread)
            gain = variance / spread
            mean, variance = mean + gain * (value - mean), (1 - gain) * variance
        weights = np.exp(total - total.max())
        weights /= weights.sum()
        for k, v in enumerate((drift, noise)):
            means[i, k] = np.sum(weights * v)
            sds[i, k] = np.sqrt(np.sum(weights * (v - means[i, k]) ** 2))
    return means, sds


def measured(sensors: int, steps: int, method: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What came out, and the numbers of the page."""
    truth, y, fails = simulated(sensors, steps)
    live, surprise, seconds = watch(y, method)
    table = live.table().reset_index()
    both = [table[table["parameter"] == name].set_index("series").loc[range(sensors)] for name in NAMES]
    mean, sd = (np.stack([one[column].to_numpy() for one in both], axis=1) for column in ("mean", "sd"))
    low, high = (np.stack([one[column].to_numpy() for one in both], axis=1) for column in ("5%", "95%"))
    answer, spread = exact(y)
    z, r = (mean - answer) / spread, sd / spread
    verdicts, alarms = both[0]["verdict"].to_numpy(str), surprise < ALARM
    late = alarms & (np.arange(steps)[:, None] >= FAILS)
    delay = [int(np.argmax(late[:, i])) - FAILS for i in np.flatnonzero(fails) if late[:, i].any()]
    outcome = {
        "sensors": sensors,
        "steps": steps,
        "observations": int(np.sum(~np.isnan(y))),
        "verdicts": {
            word: {
                "sensors": int(np.sum(of)),
                **{
                    name: {
                        "rms z": round(float(np.sqrt(np.mean(z[of, k] ** 2))), 2),
                        "largest z": round(float(np.max(np.abs(z[of, k]))), 2),
                        "r": [round(float(level), 2) for level in np.quantile(r[of, k], (0.5, 0.05, 0.95))],
                    }
                    for k, name in enumerate(NAMES)
                },
            }
            for word in sorted(set(verdicts))
            for of in [verdicts == word]
        },
        "covered": {
            name: round(float(np.mean((low <= truth)[:, k] & (truth <= high)[:, k], where=~fails)), 3)
            for k, name in enumerate(NAMES)
        },
        "failed": int(fails.sum()),
        "found": len(delay),
        "found at once": int(np.sum(np.array(delay) == 0)),
        "false alarms": int(alarms[:, ~fails].sum()),
        "seconds of the first update": round(seconds[0], 1),
        "seconds per update": round(float(np.median(seconds[1:])), 2),
    }
    found = {"mean": mean, "answer": answer, "y": y, "surprise": surprise, "trusted": verdicts != "do not trust"}
    return found, outcome


def table_of(outcome: dict[str, Any]) -> str:
    """The comparison as the page has it."""
    lines = [
        "| verdict | sensors | parameter | rms z | largest \\|z\\| | r, median (5% to 95%) |",
        "|---|---|---|---|---|---|",
    ]
    for word in ("good", "doubtful", "do not trust"):
        found = outcome["verdicts"].get(word)
        for name in NAMES if found else ():
            one = found[name]
            middle, low, high = one["r"]
            lines.append(
                f"| {word} | {found['sensors']} | `{name}` | {one['rms z']:.2f} | {one['largest z']:.2f} "
                f"| {middle:.2f} ({low:.2f} to {high:.2f}) |"
            )
    return "\n".join(lines)


def draw(found: dict[str, Any], path: Path) -> None:
    """Every sensor beside its exact answer, and one that fails."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from epf.results._panels import BLUE, ORANGE

    figure = plt.figure(figsize=(8, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    for k, name in enumerate(NAMES):
        ax = figure.add_subplot(grid[0, k])
        for which, colour, label in (
            (~found["trusted"], ORANGE, "do not trust"),
            (found["trusted"], BLUE, "good or doubtful"),
        ):
            ax.loglog(found["answer"][which, k], found["mean"][which, k], ".", color=colour, markersize=3, label=label)
        ends = [found["answer"][:, k].min(), found["answer"][:, k].max()]
        ax.plot(ends, ends, "k-", linewidth=0.6)
        ax.set_xlabel("exact posterior mean", fontsize="small")
        ax.set_title(f"{name}: mean of each sensor", loc="left", fontsize="medium")
        ax.legend(frameon=False, fontsize="small", loc="lower right")
    ax, i = figure.add_subplot(grid[1, :]), 0
    y, alarm = found["y"][:, i], found["surprise"][:, i] < ALARM
    steps = np.arange(1, len(y) + 1)
    ax.plot(steps, y, "k.-", linewidth=0.5, markersize=4, label=f"sensor {i}, which fails at step {FAILS + 1}")
    ax.plot(steps[alarm], y[alarm], "o", color=ORANGE, markersize=6, label="alarm")
    ax.set_xlabel("step", fontsize="small")
    ax.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def made() -> Made:
    found, outcome = measured(1000, 50, epf.Storvik(800))
    return outcome, lambda path: draw(found, path), [table_of(outcome), json.dumps(outcome, indent=1)]


if __name__ == "__main__":
    write("sensors", "A live panel of simulated sensors.", made)
