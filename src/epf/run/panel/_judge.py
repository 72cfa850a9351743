"""Certificate and verdict of each series of a live panel, from its rows alone: a stream per series would take longer."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from epf.results._certificate import Certificate, certificate
from epf.results._record import Record
from epf.results._verdict import MethodFacts, Verdict, judge_run
from epf.run.panel._series import Key

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
