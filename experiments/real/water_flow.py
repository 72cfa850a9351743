"""Hourly water flow through a pipe: anomalies found while they happen, by the tail of the forecast made an hour before.

        python -m experiments.real.water_flow            # numbers and picture of docs/real/water_flow.md
        python -m experiments.real.water_flow --out DIR  # elsewhere

The series comes with river (`pip install river`), to which the company Tecnojest gave it; it is not shipped here.
"""

import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from experiments.real.outcome import Made, table, write
from scipy import optimize, stats

import epf

SCALES = {"level_sd": 1.0, "day_sd": 0.1, "noise_sd": 1.0}  # of the priors below, for the independent answer
ALARM = 5.0  # an hour so many sds from its forecast is an alarm, and nothing is learned from it
QUIET = 6  # hours without an alarm that end an event


class WaterFlow(epf.StateSpaceModel):
    """A level that wanders, and a daily course of two waves that changes slowly; litres per second."""

    def prior(self):
        return {"level_sd": dist.HalfNormal(1.0), "day_sd": dist.HalfNormal(0.1), "noise_sd": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(jnp.array([100.0, 0.0, 0.0, 0.0, 0.0]), jnp.array([10.0, 1.0, 1.0, 1.0, 1.0])).to_event(1)

    def transition(self, p, x, u):
        c1, s1, c2, s2 = (float(f(k * np.pi / 12)) for k in (1, 2) for f in (np.cos, np.sin))
        day = [c1 * x[1] + s1 * x[2], c1 * x[2] - s1 * x[1], c2 * x[3] + s2 * x[4], c2 * x[4] - s2 * x[3]]
        return dist.Normal(jnp.stack([x[0], *day]), jnp.stack([p.level_sd, *[p.day_sd] * 4])).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] + x[1] + x[3], p.noise_sd)


def data() -> pd.Series:
    """The series hour by hour; hours that were not recorded are NaN."""
    from river import datasets

    rows = [(row["Time"].replace(tzinfo=None), value) for row, value in datasets.WaterFlow()]
    times, values = zip(*rows, strict=True)
    return pd.Series(values, pd.DatetimeIndex(times, name="hour"), name="flow").asfreq("h")


def watch(y: pd.Series, method: Any = None) -> tuple[epf.Stream, pd.DataFrame]:
    """One hour after the other: the forecast, then whether the hour is in its tail, then learning, if it is not."""
    stream, rows = epf.Stream(WaterFlow(), method), []
    for value in y:
        ahead = stream.forecast(1)
        mean, sd = float(ahead.mean[0]), float(ahead.sd[0])
        alarm = bool(abs(value - mean) > ALARM * sd)
        stream.update(np.nan if alarm else value)
        now = stream.posterior
        rows.append((mean, sd, alarm, *(x for name in SCALES for x in (now.mean[name], now.sd[name]))))
    names = [f"{name} {what}" for name in SCALES for what in ("mean", "sd")]
    return stream, pd.DataFrame(rows, y.index, ["forecast", "sd", "alarm", *names])


def events(y: pd.Series, watched: pd.DataFrame) -> list[dict[str, Any]]:
    """The alarms that follow each other within some hours, as one."""
    hours = watched.index[watched["alarm"].to_numpy()]
    starts = np.flatnonzero(np.diff(hours, prepend=pd.Timestamp(0)) > pd.Timedelta(hours=QUIET))
    found = []
    for first, end in zip(starts, [*starts[1:], len(hours)], strict=True):
        at, own = hours[first], hours[first:end]
        gap = (y - watched["forecast"])[own]
        worst = gap.abs().idxmax()
        found.append(
            {
                "from": str(at),
                "to": str(own[-1]),
                "alarms": len(own),
                "first": f"{y[at]:.1f}, expected {watched['forecast'][at]:.1f} ± {watched['sd'][at]:.1f}",
                "largest gap": round(float(gap[worst]), 1),
            }
        )
    return found


def log_likelihoods(theta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p(y | theta) for rows of sds (many, 3): Kalman filters in NumPy, of their own, in double precision."""
    level, day, noise = theta.T**2
    turn = np.eye(5)
    for k in (1, 2):
        c, s = np.cos(k * np.pi / 12), np.sin(k * np.pi / 12)
        turn[2 * k - 1 : 2 * k + 1, 2 * k - 1 : 2 * k + 1] = [[c, s], [-s, c]]
    seen = np.array([1.0, 1.0, 0.0, 1.0, 0.0])
    moved = np.zeros((len(theta), 5, 5))
    moved[:, range(5), range(5)] = np.stack([level, day, day, day, day], axis=1)
    mean = np.tile([100.0, 0.0, 0.0, 0.0, 0.0], (len(theta), 1))
    spread = np.tile(np.diag([100.0, 1.0, 1.0, 1.0, 1.0]), (len(theta), 1, 1))
    total = np.zeros(len(theta))
    for value in y:
        mean, spread = mean @ turn.T, turn @ spread @ turn.T + moved
        if np.isnan(value):
            continue
        with_y = spread @ seen
        variance = with_y @ seen + noise
        gap = value - mean @ seen
        total -= 0.5 * (np.log(2 * np.pi * variance) + gap**2 / variance)
        gain = with_y / variance[:, None]
        mean, spread = mean + gain * gap[:, None], spread - gain[:, :, None] * with_y[:, None, :]
    return total


def exact(y: np.ndarray, draws: int = 4000) -> dict[str, tuple[float, float]]:
    """Posterior means and sds, by importance sampling in the logarithms of the sds, from Student's t at the maximum."""
    scales = np.array(list(SCALES.values()))

    def log_posterior(z: np.ndarray) -> np.ndarray:
        theta = np.exp(z)
        return log_likelihoods(theta, y) - 0.5 * np.sum((theta / scales) ** 2, axis=1) + z.sum(axis=1)

    best = optimize.minimize(lambda z: -log_posterior(z[None])[0], np.log([0.4, 0.02, 0.5]), method="Nelder-Mead").x
    steps = 0.05 * np.eye(3)
    corners = np.array([[best + a * i + b * j for a in (1, -1) for b in (1, -1)] for i in steps for j in steps])
    value = log_posterior(corners.reshape(-1, 3)).reshape(9, 4)
    curvature = -((value @ [1, -1, -1, 1]) / (4 * 0.05**2)).reshape(3, 3)
    root = np.linalg.cholesky(np.linalg.inv(curvature)) * 1.3
    rng = np.random.default_rng(0)
    white = rng.standard_normal((draws, 3)) / np.sqrt(rng.chisquare(4, (draws, 1)) / 4)
    z = best + white @ root.T
    log_weights = log_posterior(z) - stats.multivariate_t(np.zeros(3), np.eye(3), df=4).logpdf(white)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    means = weights @ np.exp(z)
    sds = np.sqrt(weights @ (np.exp(z) - means) ** 2)
    return {name: (float(m), float(s)) for name, m, s in zip(SCALES, means, sds, strict=True)}


def measured(y: pd.Series, method: Any = None) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The run over the series, and what it is worth."""
    began = time.perf_counter()
    stream, watched = watch(y, method)
    seconds, verdict = time.perf_counter() - began, stream.verdict.word
    rows = {}
    for name, (mean, sd) in exact(y.where(~watched["alarm"]).to_numpy()).items():
        ours, spread = float(stream.posterior.mean[name]), float(stream.posterior.sd[name])
        rows[name] = {
            "mean": ours,
            "sd": spread,
            "answer": mean,
            "answer sd": sd,
            "z": (ours - mean) / sd,
            "r": spread / sd,
        }
    found = {"parameters": rows, "verdict": verdict, "seconds": round(seconds, 1), "events": events(y, watched)}
    return watched, {**found, "hours": int(y.notna().sum()), "alarms": int(watched["alarm"].sum())}


def table_of_events(outcome: dict[str, Any]) -> str:
    """The events as the page has them."""
    lines = ["| first alarm | last | alarms | the first hour | largest gap |", "|---|---|---|---|---|"]
    for one in outcome["events"]:
        lines.append(
            f"| {one['from'][:16]} | {one['to'][:16]} | {one['alarms']} | {one['first']} | {one['largest gap']:+.1f} |"
        )
    return "\n".join(lines)


def draw(y: pd.Series, watched: pd.DataFrame, path: Path) -> None:
    """The series with alarms, one outage near by with its forecasts, and the parameters as they were learned."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from epf.results._panels import BLUE, ORANGE

    figure, axes = plt.subplots(3, 1, figsize=(8, 8), layout="constrained")
    alarms = watched["alarm"].to_numpy()
    for ax, part in ((axes[0], slice(None)), (axes[1], slice(60, 240))):
        here, seen = watched.iloc[part], y.iloc[part]
        low, high = (here["forecast"] + sign * ALARM * here["sd"] for sign in (-1, 1))
        ax.fill_between(here.index, low, high, color=BLUE, alpha=0.25, linewidth=0, label=f"forecast, {ALARM:.0f} sds")
        ax.plot(seen.index, seen, "k.", markersize=2, label="flow, l/s")
        ax.plot(seen.index[alarms[part]], seen[alarms[part]], "o", color=ORANGE, markersize=4, label="alarm")
    axes[1].set_ylim(96, 110)
    axes[0].set_title("Water flow: each hour against the forecast made an hour before", loc="left", fontsize="medium")
    axes[1].set_title("The first outages near by", loc="left", fontsize="medium")
    axes[0].set_ylim(top=130)  # room for the legend, which must cover no alarm
    axes[0].legend(frameon=False, fontsize="small", ncols=3, loc="upper right")
    for name in SCALES:
        mean, sd = watched[f"{name} mean"], watched[f"{name} sd"]
        (line,) = axes[2].plot(watched.index, mean, linewidth=1.2, label=name)
        axes[2].fill_between(
            watched.index, mean - 2 * sd, mean + 2 * sd, color=line.get_color(), alpha=0.2, linewidth=0
        )
    axes[2].set_ylim(0, 1)
    axes[2].set_title("What was known of the parameters after each hour, two sds", loc="left", fontsize="medium")
    axes[2].legend(frameon=False, fontsize="small", ncols=3)
    for ax in axes:
        ax.tick_params(labelsize="small")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def made() -> Made:
    y = data()
    watched, outcome = measured(y)
    said = [table(outcome), table_of_events(outcome), outcome["verdict"], str(outcome["seconds"])]
    return outcome, lambda path: draw(y, watched, path), said


if __name__ == "__main__":
    write("water_flow", "Watch the water flow hour by hour.", made)
