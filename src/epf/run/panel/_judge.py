"""Certificates and verdicts of many series: from their arrays, since a stream or a result per series would take longer."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from epf.results._certificate import PARTS, Certificate, certificate, total_of
from epf.results._observed import _ENOUGH, Observed
from epf.results._record import Record, shrinkage
from epf.results._verdict import _FEW_PARTICLES, MEAN_LIMIT, SD_LIMIT, MethodFacts, Verdict, judge_run
from epf.run.panel._chunks import Part
from epf.run.panel._series import Key, Series
from epf.run.panel._store import Rows

if TYPE_CHECKING:
    from epf.run.panel._panel import Panel


class Judged(NamedTuple):
    """One series after its last observation."""

    key: Key
    t: int
    log_evidence: float
    record: Record
    error: Certificate
    verdict: Verdict


def judged(panel: "Panel", keys: Iterable[Key] | None = None) -> Iterator[Judged]:
    """Each series, or those of some keys."""
    if not len(panel):
        return
    rows, bound = panel._store.rows, panel._bound
    assert bound is not None
    for key in panel if keys is None else keys:
        i = panel._store.place(key)

        def own(tree: Any, i: int = i) -> Any:
            return jax.tree.map(lambda leaf: leaf[i], tree)

        record, t = own(rows.record), int(rows.t[i])
        error = certificate(bound.parameters, record, float(rows.error_before[i]))
        facts = MethodFacts.of(panel.method, own(rows.state)).also(rows.observed(i).caveats())
        verdict = judge_run(error, t, *rows.flagged(i), record.info.ess, facts)
        yield Judged(key, t, float(rows.log_evidence[i]), record, error, verdict)


def levels(rows: Rows, facts: MethodFacts) -> tuple[np.ndarray, np.ndarray]:
    """The level of the verdict of all series at once, and the largest error of each; `facts` are those of any one series."""
    count, record = len(rows.t), rows.record
    parts: dict[str, Any] = {name: np.asarray(getattr(record.error, name), float)[:, 0] for name in PARTS}
    parts["expansion"] = parts["expansion"] + rows.error[:, None, None]
    total = total_of(parts)
    worst = np.max(total, axis=(1, 2), initial=0.0)
    with np.errstate(invalid="ignore"):
        share = np.max(np.maximum(total[:, 0] / MEAN_LIMIT, total[:, 1] / SD_LIMIT), axis=1, initial=0.0)
    found = [np.where(np.isnan(worst), 1, np.where(share <= 1.0, 0, np.where(share <= 2.0, 1, 2)))]
    for times in (rows.collapsed[:, 0], rows.invalid[:, 0]):
        found.append(np.where(times > 0, 1 + (times > 0.01 * rows.t), 0))
    if 0 < (facts.weighted_particles or 0) < _FEW_PARTICLES:
        found.append(np.where(np.isnan(record.info.ess[:, 0]), 0, 1))
    rounded = ((rows.steps >= _ENOUGH) & (2 * rows.close > rows.steps)).any(axis=1)
    found.append(((rows.values == 0) | rounded).astype(int))
    found.append(np.full(count, max((caveat.level for caveat in facts.caveats), default=0)))
    return np.max(found, axis=0), np.nan_to_num(worst, nan=np.inf)


def rows_of(part: Part, series: list[Series]) -> Rows:
    """What `levels` needs to know of series that were run as a whole; there is no state."""
    t, info = np.asarray(part.counts), part.records.info
    taken = np.arange(info.failed.shape[1]) < t[:, None]
    record = jax.tree.map(lambda leaf: leaf[np.arange(len(t)), np.maximum(t - 1, 0)][:, None], part.records)
    collapsed, invalid = (
        np.stack([np.sum((flag != 0) & taken, axis=1), t], axis=1) for flag in (info.collapsed, info.invalid)
    )
    seen = [Observed().after(one.ys[:count]) for one, count in zip(series, part.counts, strict=True)]
    values, steps, close = (np.asarray([one[i] for one in seen]) for i in range(3))
    none, nats = np.zeros(len(t)), _nats(part.records, t)
    return Rows(t, none, nats, none, collapsed, invalid, values, steps, close, close, record, None)


def _nats(records: Record, counts: np.ndarray) -> np.ndarray:
    """`approximation_error` of each series after its last step."""
    residual = np.nan_to_num(np.asarray(records.info.residual, float), nan=0.0, posinf=1e6)
    total = np.zeros(len(counts))
    if not residual.any():
        return total
    weights = np.insert(shrinkage(records.sd[:, 1:], records.sd[:, :-1]), 0, 1.0, axis=1)
    for i, (step, weight) in enumerate(zip(np.minimum(residual, 1e6).T, weights.T, strict=True)):
        total = np.where(i < counts, total * weight + step, total)
    return total
