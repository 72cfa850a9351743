"""The HTML report: one file that opens offline, on a desktop or a phone, with all that is needed to judge a run."""

import html
from typing import Any

import numpy as np

from epf.errors import DataError, SettingError, kind
from epf.results._certificate import worst_mean
from epf.results._panels import BLUE, GREY, ORANGE, time_label
from epf.results._plots import WORST_MEAN, density_curves
from epf.results._state_plots import share_an_axis
from epf.results._verdict import LEVELS, MEAN_LIMIT, judge
from epf.storage._checkpoint import versions
from epf.storage._files import as_path, replace

_POINTS = 1500  # per line: more than a screen can show, and the page stays small
_BAND = "rgba(0, 114, 178, 0.2)"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 0 auto; padding: 1rem; max-width: 60rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { border-left: .5rem solid; padding: .5rem 1rem; background: #f6f6f6; }
.good { border-color: #009E73; } .doubtful { border-color: #E69F00; } .do-not-trust { border-color: #D55E00; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; } .words td { text-align: left; }
.chart { width: 100%; }
"""


def write_page(result: Any, path: Any, y: Any, title: str | None) -> None:
    """Write the page."""
    path = as_path("report", path)
    if not (title is None or isinstance(title, str)):
        raise SettingError(f"report(title=...) is {kind(title)}: give the title as text.")
    y = None if y is None else _observations(result, y)
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ModuleNotFoundError('The report needs plotly: pip install "epfilter[report]".') from None
    title = html.escape(title or f"{result.settings['model']}: {result.num_observations} observations")
    parts = [
        f"<h1>{title}</h1>",
        _verdict(result),
        "<h2>Parameters</h2>",
        _table(result),
        *_section("Parameters over time", [_history(result, label) for label in result.parameters.labels]),
        *_section("Posterior densities", [_density(result, label) for label in result.parameters.labels]),
        *_section("States", _states(result, y)),
        *_section("Diagnostics", _diagnostics(result)),
        "<h2>Settings</h2>",
        _settings(result),
    ]
    body = "\n".join(parts)
    # The plotly library is included once, before the charts that call it; nothing is fetched.
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n<script>{get_plotlyjs()}</script>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )
    replace(path, page.encode())


def _observations(result: Any, y: Any) -> np.ndarray:
    """The observations that are shown, one row per step of the result."""
    try:
        seen = np.asarray(y, float)
    except (TypeError, ValueError, OverflowError):
        raise DataError("report(y=...) is not an array of numbers: give the observations of the fit.") from None
    if seen.ndim == 0 or len(seen) != result.num_observations:
        rows = "one number" if seen.ndim == 0 else f"{len(seen)} rows"
        raise DataError(
            f"report(y=...) has {rows}, but the result has {result.num_observations} observations: give those of the fit."
        )
    return seen


def _section(title: str, charts: list[Any]) -> list[str]:
    if not charts:
        return []
    # No mode bar: on a phone it covers the legend. Dragging still zooms, and a double click resets.
    config = {"responsive": True, "displayModeBar": False}
    drawn = [chart.to_html(full_html=False, include_plotlyjs=False, config=config) for chart in charts]
    return [f"<h2>{title}</h2>", *(f'<div class="chart">{chart}</div>' for chart in drawn)]


def _verdict(result: Any) -> str:
    verdict = judge(result)
    rows = "".join(f"<li>{LEVELS[level]}: {html.escape(sentence)}</li>" for level, sentence in verdict.findings)
    kind = verdict.word.replace(" ", "-")
    return f'<div class="verdict {kind}"><strong>{verdict.word.capitalize()}</strong><ul>{rows}</ul></div>'


def _table(result: Any) -> str:
    table = result.summary()
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in ("parameter", *table.columns))
    rows = "".join(
        f"<tr><td>{html.escape(str(name))}</td>" + "".join(f"<td>{value:.4g}</td>" for value in row) + "</tr>"
        for name, row in table.iterrows()
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _settings(result: Any) -> str:
    facts = {
        **result.settings,
        "seed": result.seed,
        "observations": result.num_observations,
        "seconds": f"{result.seconds:.1f}",
    }
    facts |= {"log-evidence": f"{result.log_evidence:.6g}"}
    facts |= {f"version of {name}": version for name, version in versions().items()}
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(str(v))}</td></tr>" for k, v in facts.items())
    return f'<div class="scroll"><table class="words">{rows}</table></div>'


def _figure(x_title: str, y_title: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        height=300,
        margin={"l": 50, "r": 10, "t": 40, "b": 40},
        template="plotly_white",
        xaxis_title=x_title,
        yaxis_title=y_title,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    return figure


def _band(figure: Any, x: Any, low: Any, high: Any, name: str) -> None:
    figure.add_scatter(x=x, y=high, mode="lines", line_width=0, showlegend=False, hoverinfo="skip")
    figure.add_scatter(x=x, y=low, mode="lines", line_width=0, fill="tonexty", fillcolor=_BAND, name=name)


def _thin(count: int) -> np.ndarray:
    """Indices of the points that are drawn."""
    return np.unique(np.linspace(0, count - 1, min(count, _POINTS)).astype(int))


def _numbers(values: Any) -> list[float | None]:
    """Values that are not finite become gaps."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _history(result: Any, label: str) -> Any:
    history, index = result.history, result.parameters.index(label)
    at = _thin(history.sizes["time"])
    time, quantile_levels = history["time"].values[at], np.asarray(result.quantile_levels)
    low, high = int(np.argmin(quantile_levels)), int(np.argmax(quantile_levels))
    quantiles = result.record.quantiles[at, :, index]
    figure = _figure(time_label(result), label)
    _band(
        figure,
        time,
        _numbers(quantiles[:, low]),
        _numbers(quantiles[:, high]),
        f"{quantile_levels[high] - quantile_levels[low]:.0%} interval",
    )
    figure.add_scatter(x=time, y=_numbers(result.record.mean[at, index]), mode="lines", line_color=BLUE, name="mean")
    return figure


def _density(result: Any, label: str) -> Any:
    grid, density, prior = density_curves(result, label)
    figure = _figure(label, "density")
    figure.add_scatter(
        x=grid, y=_numbers(density), mode="lines", fill="tozeroy", line_color=BLUE, fillcolor=_BAND, name="posterior"
    )
    if prior is not None:
        figure.add_scatter(x=grid, y=_numbers(prior), mode="lines", line_color=GREY, name="prior")
    return figure


def _states(result: Any, y: Any) -> list[Any]:
    """One chart per component of the state; the observations in the same charts if they match, else in their own."""
    time = result.history["time"].values
    if not len(time):
        return []
    mean, sd = (np.asarray(part).reshape(len(time), -1) for part in (result.record.state_mean, result.record.state_sd))
    seen = None if y is None else y.reshape(len(y), -1)[-len(time) :]
    at, charts = _thin(len(time)), []
    together = seen is not None and share_an_axis(mean, sd, seen)
    for i in range(mean.shape[1]):
        figure = _figure(time_label(result), "state" if mean.shape[1] == 1 else f"state {i}")
        _band(figure, time[at], _numbers((mean - 2 * sd)[at, i]), _numbers((mean + 2 * sd)[at, i]), "two sds")
        figure.add_scatter(x=time[at], y=_numbers(mean[at, i]), mode="lines", line_color=BLUE, name="filtered mean")
        if seen is not None and together:
            _dots(figure, time, seen[:, i])
        charts.append(figure)
    if seen is not None and not together:
        for i in range(seen.shape[1]):
            charts.append(_figure(time_label(result), "observation" if seen.shape[1] == 1 else f"observation {i}"))
            _dots(charts[-1], time, seen[:, i])
    return charts


def _dots(figure: Any, time: np.ndarray, values: np.ndarray) -> None:
    at = _thin(len(values))
    last = time[-len(values) :]
    figure.add_scatter(
        x=last[at], y=_numbers(values[at]), mode="markers", marker={"size": 3, "color": GREY}, name="observed"
    )


def _diagnostics(result: Any) -> list[Any]:
    record, time = result.record, result.history["time"].values
    at, charts = _thin(len(time)), []
    series = [
        ("effective sample size", record.info.ess),
        ("unique ancestors", record.info.ancestors),
        ("log-evidence of a step", record.info.log_evidence),
    ]
    series.append((WORST_MEAN, worst_mean(record)))
    for label, values in series:
        if np.isnan(values).all():
            continue
        figure = _figure(time_label(result), label)
        figure.add_scatter(x=time[at], y=_numbers(np.asarray(values)[at]), mode="lines", line_color=BLUE, name=label)
        if label == WORST_MEAN:
            figure.add_scatter(
                x=time[[0, -1]],
                y=[MEAN_LIMIT, MEAN_LIMIT],
                mode="lines",
                line={"color": ORANGE, "dash": "dash"},
                name="limit",
            )
        charts.append(figure)
    return charts
