"""The page of a panel: one row per series, the worst verdict first, in one file that opens offline and runs nothing."""

import html
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from epf.errors import SettingError, kind
from epf.results._verdict import LEVELS
from epf.storage._files import as_path, replace

if TYPE_CHECKING:
    from epf.run.panel._result import PanelResult

_MOST = 2000  # rows: more are slow to open, and nobody reads them
_POINTS = 60
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 0 auto; padding: 1rem; max-width: 80rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd; }
td, th { white-space: nowrap; vertical-align: top; }
td:first-child, th:first-child, .words, .why { text-align: left; }
.why { white-space: normal; min-width: 24rem; } svg { display: block; margin-left: auto; }
.verdict { border-left: .5rem solid; padding-left: .5rem; }
.good { border-color: #009E73; } .doubtful { border-color: #E69F00; } .do-not-trust { border-color: #D55E00; }
svg { width: 8rem; height: 2rem; } path { fill: #0072B2; fill-opacity: .2; } polyline { fill: none; stroke: #0072B2; }
"""


def write_page(panel: "PanelResult", path: Any, title: str | None) -> None:
    """Write the page."""
    path = as_path("report", path)
    if not (title is None or isinstance(title, str)):
        raise SettingError(f"report(title=...) is {kind(title)}: give the title as text.")
    name = html.escape(title or f"{type(panel.model).__name__}: {len(panel)} series")
    body = "\n".join([f"<h1>{name}</h1>", _counts(panel), *_failed(panel), *_table(panel)])
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
    replace(path, page.encode())


def _counts(panel: "PanelResult") -> str:
    counts = Counter(panel.levels.values())
    parts = [f"{counts[level]} {word}" for level, word in reversed(list(enumerate(LEVELS))) if counts[level]]
    parts += [f"{len(panel.failed)} set aside"] if panel.failed else []
    return f"<p>{'; '.join(parts)}.</p>"


def _failed(panel: "PanelResult") -> list[str]:
    if not panel.failed:
        return []
    rows = [
        f"<tr><td>{html.escape(str(key))}</td><td class='why'>{html.escape(str(error))}</td></tr>"
        for key, error in list(panel.failed.items())[:_MOST]
    ]
    return ["<h2>Set aside</h2>", f'<div class="scroll"><table>{"".join(rows)}</table></div>']


def _table(panel: "PanelResult") -> list[str]:
    keys = panel.worst_first
    if not keys:
        return []
    labels = panel[keys[0]].parameters.labels
    names = ["series", "verdict", "observations", *(f"{label}: mean ± sd" for label in labels)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names) + '<th class="why">why</th>'
    rows = "".join(_row(panel, key) for key in keys[:_MOST])
    rest = len(keys) - _MOST
    more = [f"<p>{rest} further series are better than these: panel.table() has them.</p>"] if rest > 0 else []
    return ["<h2>Series</h2>", f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>', *more]


def _row(panel: "PanelResult", key: Any) -> str:
    result = panel[key]
    verdict, record = result.verdict, result.record
    cells = [f"<td>{html.escape(str(key))}</td>"]
    cells.append(f'<td class="words"><span class="verdict {verdict.word.replace(" ", "-")}">{verdict.word}</span></td>')
    cells.append(f"<td>{result.num_observations}</td>")
    for j, (mean, sd) in enumerate(zip(record.mean[-1], record.sd[-1], strict=True)):
        cells.append(f"<td>{mean:.4g} ± {sd:.2g}{_line(result, j)}</td>")
    cells.append(f'<td class="why">{html.escape(verdict.findings[0].sentence)}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _line(result: Any, j: int) -> str:
    """A parameter over time, with the band between its outer quantiles."""
    record = result.record
    at = np.unique(np.linspace(0, len(record.mean) - 1, _POINTS).astype(int))
    quantiles = record.quantiles[at, :, j]
    low, mean, high = quantiles.min(axis=1), record.mean[at, j], quantiles.max(axis=1)
    sound = np.isfinite(low) & np.isfinite(mean) & np.isfinite(high)
    if sound.sum() < 2:
        return ""
    low, mean, high, x = (part[sound].astype(float) for part in (low, mean, high, at))
    bottom, top = low.min(), high.max()
    left, wide, tall = x[0], x[-1] - x[0], (top - bottom) or 1.0

    def points(x: np.ndarray, y: np.ndarray) -> str:
        pairs = zip(100 * (x - left) / wide, 30 - 30 * (y - bottom) / tall, strict=True)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)

    band = f"{points(x, high)} L{points(x[::-1], low[::-1])}"
    label = html.escape(f"{result.parameters.labels[j]}: {mean[-1]:.4g}")
    return (
        f'<svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label="{label}"><title>{label}</title>'
        f'<path d="M{band}Z"/><polyline points="{points(x, mean)}" vector-effect="non-scaling-stroke"/></svg>'
    )
