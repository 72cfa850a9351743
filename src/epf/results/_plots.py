"""Plots of a result, with matplotlib."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from epf.errors import SettingError
from epf.model._parameters import Parameters
from epf.results._certificate import worst_mean
from epf.results._panels import BLUE, GREY, ORANGE, label_time, panels
from epf.results._state_plots import num_state_panels, plot_states
from epf.results._tables import flat
from epf.results._verdict import MEAN_LIMIT, judge

WORST_MEAN = "error of a mean (sds)"


def plot_history(
    result: Any, truth: dict[str, Any] | None = None, ax: Any = None, states: Any = False, y: Any = None
) -> Any:
    """One panel per parameter: posterior mean and central interval over time, truth dashed; states if asked for."""
    with_states = states is not False and states is not None
    labels = _labels(result, None) if result.parameters.labels or not with_states else []
    room = None if ax is None else len(np.atleast_1d(ax)) - len(labels)
    size = num_state_panels(result, y, room) if with_states else 0
    axes, true = panels(len(labels) + size, ax, "plot"), _true_values(result.parameters, truth)
    for panel, label in zip(axes, labels, strict=False):
        draw_parameter(panel, result, label, BLUE)
        if label in true:
            panel.axhline(true[label], color=GREY, linestyle="--", linewidth=1, label="truth")
        panel.set_ylabel(label)
        panel.legend(loc="best", frameon=False, fontsize="small")
    if size:
        plot_states(result, y, None, axes[len(labels) :], None if states is True else states)
    label_time(axes, result)
    return axes


def plot_chains(result: Any, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
    """One panel per parameter: trace plots of all chains, truth dashed."""
    labels = result.parameters.labels
    axes = panels(len(labels), ax, "plot")
    true = _true_values(result.parameters, truth)
    draws = np.concatenate([values.reshape(*values.shape[:2], -1) for values in result.draws.values()], axis=2)
    for i, (panel, label) in enumerate(zip(axes, labels, strict=True)):
        for chain in draws[:, :, i]:
            panel.plot(np.arange(1, len(chain) + 1), chain, linewidth=0.5, alpha=0.7)
        if label in true:
            panel.axhline(true[label], color=GREY, linestyle="--", linewidth=1, label="truth")
            panel.legend(loc="best", frameon=False, fontsize="small")
        panel.set_ylabel(label)
    axes[-1].set_xlabel("draw")
    return axes


def plot_comparison(comparison: Any, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
    """One panel per parameter: each method's mean and interval over time; without a history, an error bar at the end."""
    if not comparison.results:
        raise SettingError("There is nothing to plot: no method could learn the model.")
    params = next(iter(comparison.results.values())).parameters
    axes = panels(len(params.labels), ax, "plot")
    true = _true_values(params, truth)
    table, t, exact = comparison.table, comparison.num_observations, comparison.exact
    colours = dict(zip(comparison.results, _colours(len(comparison.results)), strict=True))
    for i, (panel, label) in enumerate(zip(axes, params.labels, strict=True)):
        place = t
        if exact is not None:
            place += 0.02 * t
            numbers = (exact.numbers.mean[i], exact.numbers.low[i], exact.numbers.high[i])
            _draw_bar(panel, place, *numbers, "black", f"exact ({exact.method})")
        for name, result in comparison.results.items():
            if hasattr(result, "history"):
                draw_parameter(panel, result, label, colours[name], name)
            else:
                row, place = table.loc[(name, label)], place + 0.02 * t
                _draw_bar(panel, place, row["mean"], row["5%"], row["95%"], colours[name], name)
        if label in true:
            panel.axhline(true[label], color=GREY, linestyle="--", linewidth=1, label="truth")
        panel.set_ylabel(label)
        handles = dict(zip(*panel.get_legend_handles_labels()[::-1], strict=True))
        shown = {name: handle for name, handle in handles.items() if not name.endswith("interval")}
        panel.legend(shown.values(), shown.keys(), loc="best", frameon=False, fontsize="small")
    axes[-1].set_xlabel("time step; bands and error bars are 90% intervals")
    return axes


def _draw_bar(panel: Any, at: float, mean: float, low: float, high: float, colour: str, name: str) -> None:
    panel.errorbar(
        [at], [mean], [[mean - low], [high - mean]], color=colour, fmt="o", markersize=3, capsize=3, label=name
    )


def _colours(count: int) -> list[Any]:
    """Okabe and Ito's palette, repeated if there are more."""
    palette = [BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", GREY]
    return [palette[i % len(palette)] for i in range(count)]


def draw_parameter(panel: Any, result: Any, label: str, colour: str, name: str = "posterior mean") -> None:
    """One parameter's mean and its widest recorded interval, on the given axes."""
    history = result.history
    time = history["time"].values
    quantile = history["quantile"].sel(parameter=label)
    low, high = float(history["level"].min()), float(history["level"].max())
    panel.fill_between(time, quantile.sel(level=low), quantile.sel(level=high), color=colour, alpha=0.2, linewidth=0,
                       label=f"{high - low:.0%} interval")  # fmt: skip
    panel.plot(time, history["mean"].sel(parameter=label), color=colour, linewidth=1.2, label=name)


def plot_density(result: Any, names: Any = None, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
    """The marginal posterior density of each parameter, with its prior as a thin line and the truth dashed."""
    labels = _labels(result, names)
    axes = panels(len(labels), ax, "plot_density", wide=True)
    true = _true_values(result.parameters, truth)
    for panel, label in zip(axes, labels, strict=True):
        grid, density, prior = density_curves(result, label)
        panel.fill_between(grid, density, color=BLUE, alpha=0.2, linewidth=0)
        panel.plot(grid, density, color=BLUE, linewidth=1.2, label="posterior")
        if prior is not None:
            panel.plot(grid, prior, color=GREY, linewidth=0.8, label="prior")
        if label in true:
            panel.axvline(true[label], color=GREY, linestyle="--", linewidth=1, label="truth")
        panel.set_xlabel(label)
        panel.set_ylim(bottom=0.0)
        panel.set_yticks([])
        panel.legend(frameon=False, fontsize="small")
    return axes


def density_curves(result: Any, label: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """A grid around the posterior, the density on it, and the prior density of a scalar parameter.

    Of a discrete parameter, a line up to the probability of each value.
    """
    index = result.parameters.index(label)
    if label.split("[")[0] in result.parameters.discrete:
        values = result.posterior.probabilities[label]
        lines = [(float(value), height) for value, p in values.items() for height in (0.0, p, np.nan)]
        return *np.array(lines).T, None
    low, high = (float(flat(result.quantile(level))[index]) for level in (0.001, 0.999))
    spread = 0.15 * (high - low) or 0.1 * abs(high) or 0.1
    grid = np.linspace(low - spread, high + spread, 301)
    name = label.split("[")[0]
    law = result.parameters.priors[name]
    grid = grid[np.asarray(law.support(jnp.asarray(grid)))] if law.event_shape == () else grid
    prior = None
    if law.event_shape == () and result.model is not None:
        prior = np.exp(np.asarray(law.log_prob(jnp.asarray(grid))))
    return grid, result.density(label, grid), prior


def plot_pair(result: Any, names: Any = None, num_samples: int = 1000, seed: int = 0, axes: Any = None) -> Any:
    """Posterior draws of each pair of parameters, with densities on the diagonal."""
    import matplotlib.pyplot as plt

    labels = _labels(result, names)
    count = len(labels)
    if axes is None:
        figure, axes = plt.subplots(
            count, count, sharex="col", squeeze=False, figsize=(2.2 * count + 1, 2.2 * count + 1)
        )
        figure.set_layout_engine("constrained")
    axes = np.atleast_2d(axes)
    if axes.shape != (count, count):
        raise SettingError(
            f"plot_pair(axes=...) has shape {axes.shape}: give {count} x {count} axes for {count} parameters."
        )
    sample = result.sample(num_samples, seed)
    flat = np.concatenate([np.reshape(values, (num_samples, -1)) for values in sample.values()], axis=1)
    places = [result.parameters.index(label) for label in labels]
    for i, row in enumerate(places):
        for j, column in enumerate(places):
            panel = axes[i, j]
            if j > i:
                panel.set_axis_off()
            elif i == j:
                grid, density, _ = density_curves(result, labels[i])
                panel.plot(grid, density, color=BLUE, linewidth=1.2)
                panel.set_yticks([])
            else:
                panel.scatter(flat[:, column], flat[:, row], s=3, color=BLUE, alpha=0.3, linewidths=0)
            if i == count - 1:
                panel.set_xlabel(labels[j])
            if j == 0 and i > 0:
                panel.set_ylabel(labels[i])
    return axes


def plot_forecast(result: Any, steps: int = 20, y: Any = None, inputs: Any = None, ax: Any = None) -> Any:
    """Forecast of the next observations with 50% and 90% intervals, after the last observations if given."""
    ahead = result.forecast(steps, inputs=inputs)
    values = ahead.y.reshape(*ahead.y.shape[:2], -1)
    axes = panels(values.shape[2], ax, "plot_forecast")
    seen = None if y is None else np.asarray(y, float).reshape(len(y), -1)[-4 * steps :]
    for i, panel in enumerate(axes):
        if seen is not None:
            last = result.num_observations
            times = np.arange(last - len(seen) + 1, last + 1) if ahead.dates is None else result.dates[-len(seen) :]
            panel.plot(times, seen[:, i], ".-", color=GREY, markersize=3, linewidth=0.6, label="observed")
        for mass, alpha in ((0.9, 0.2), (0.5, 0.3)):
            low, high = np.quantile(values[:, :, i], [0.5 - mass / 2, 0.5 + mass / 2], axis=0)
            panel.fill_between(
                ahead.time, low, high, color=BLUE, alpha=alpha, linewidth=0, label=f"{mass:.0%} interval"
            )
        panel.plot(ahead.time, np.median(values[:, :, i], axis=0), color=BLUE, linewidth=1.2, label="median")
        panel.set_ylabel("observation" if len(axes) == 1 else f"observation {i}")
        panel.legend(frameon=False, fontsize="small", loc="best")
    label_time(axes, ahead)
    return axes


def plot_diagnostics(result: Any, ax: Any = None) -> Any:
    """Effective sample size, unique ancestors, log-evidence of each step, and the certificate.

    Steps whose observation was set aside are marked; the title is the verdict on the run.
    """
    time = result.history["time"].values
    series: list[tuple[str, np.ndarray]] = []
    if not np.isnan(result.record.info.ess).all():
        series.append(("effective sample size", np.asarray(result.record.info.ess)))
    if not np.isnan(result.record.info.ancestors).all():
        series.append(("unique ancestors", np.asarray(result.record.info.ancestors)))
    series.append(("log-evidence of a step", np.asarray(result.record.info.log_evidence)))
    if not np.isnan(worst_mean(result.record)).all():
        series.append((WORST_MEAN, worst_mean(result.record)))
    axes = panels(len(series), ax, "plot_diagnostics")
    for panel, (label, values) in zip(axes, series, strict=True):
        panel.plot(time, np.where(np.isfinite(values), values, np.nan), color=BLUE, linewidth=0.8)
        panel.set_ylabel(label)
        if label == WORST_MEAN:
            panel.axhline(MEAN_LIMIT, color=ORANGE, linestyle="--", linewidth=1, label="limit")
            panel.legend(frameon=False, fontsize="small", loc="best")
        for at in time[np.asarray(result.record.info.collapsed)][:50]:
            panel.axvline(at, color=ORANGE, linewidth=0.6)
    verdict = judge(result)
    axes[0].set_title(f"{verdict.word}: {verdict.findings[0].sentence}", fontsize="small", loc="left", wrap=True)
    label_time(axes, result)
    return axes


def _true_values(params: Parameters, truth: dict[str, Any] | None) -> dict[str, float]:
    """The true value of each label, if they are known."""
    values = () if truth is None else params.vector(truth)
    return {label: float(value) for label, value in zip(params.labels, values, strict=truth is not None)}


def _labels(result: Any, names: Any) -> list[str]:
    """All labels, or those of the given names."""
    labels = result.parameters.labels
    if names is None:
        if not labels:
            raise SettingError("There is no unknown parameter to plot: the model's prior is empty.")
        return list(labels)
    names = [names] if isinstance(names, str) else list(names)
    return [label for name in names for label in (labels[i] for i in _places(result, name))]


def _places(result: Any, name: str) -> range:
    if name in result.parameters.slices:
        part = result.parameters.slices[name]
        return range(part.start, part.stop)
    index = result.parameters.index(name)
    return range(index, index + 1)
