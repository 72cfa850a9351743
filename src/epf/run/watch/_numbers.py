"""The posterior in plain numbers, for JSON: what a page, `/posterior.json` and the header of a checkpoint hold."""

import math
from typing import Any

import numpy as np

from epf.filters._base import Caveat
from epf.results._certificate import Certificate
from epf.results._record import Record
from epf.results._verdict import LEVELS, Verdict

_MOST = 1000  # parameters, and components of the state


def plain(values: Any) -> Any:
    """Numbers as JSON has them: None for what is not finite."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list | tuple):
        return [plain(value) for value in values]
    if isinstance(values, float):
        return values if math.isfinite(values) else None
    return values


def numbers(
    t: int, levels: tuple[float, ...], record: Record, error: Certificate, verdict: Verdict, particles: int | None
) -> dict[str, Any]:
    """The last row of a record, with certificate and verdict."""
    mean_error, sd_error = error.total
    found: dict[str, Any] = {"t": t, "ess": plain(float(record.info.ess[-1])), "particles": particles}
    found["parameters"] = [
        {
            "label": label,
            "mean": plain(float(record.mean[-1, i])),
            "sd": plain(float(record.sd[-1, i])),
            "quantiles": {f"{level:g}": plain(float(record.quantiles[-1, j, i])) for j, level in enumerate(levels)},
            "error_of_mean": plain(float(mean_error[i])),
            "error_of_sd": plain(float(sd_error[i])),
        }
        for i, label in enumerate(error.labels[:_MOST])
    ]
    state = [np.asarray(part[-1], float).ravel()[:_MOST] for part in (record.state_mean, record.state_sd)]
    found["state"] = {"mean": plain(state[0]), "sd": plain(state[1])}
    return found | {"verdict": words(verdict)}


def words(verdict: Verdict) -> dict[str, Any]:
    return {"word": verdict.word, "level": verdict.level, "reasons": [list(finding) for finding in verdict.findings]}


def summary(stream: Any) -> dict[str, Any]:
    """What is known after the last update of a stream."""
    t, particles = stream.num_observations, stream.method.weighted_particles
    error = stream.error
    found = numbers(t, stream.quantile_levels, stream.latest, error, stream._judged(error), particles)
    return found | {"log_evidence": plain(float(stream.log_evidence)), **names(stream.model, stream.method)}


def names(model: Any, method: Any) -> dict[str, str]:
    return {"model": type(model).__name__, "method": type(method).__name__}


def is_summary(found: Any) -> bool:
    """Whether this, from a file, has the form of a summary."""
    try:
        verdict = [Caveat(*reason) for reason in found["verdict"]["reasons"]]
        rows = [row for p in found["parameters"] for row in (p, p["quantiles"])]
        values = [v for row in rows for k, v in row.items() if k not in ("label", "quantiles", "density")]
        curves = [p["density"] for p in found["parameters"] if "density" in p]
        values += [v for curve in curves for pair in zip(curve["x"], curve["y"], strict=True) for v in pair]
        values += [
            *found["state"]["mean"],
            *found["state"]["sd"],
            found["log_evidence"],
            found["ess"],
            found["particles"],
        ]
        return (
            type(found["t"]) is int
            and found["verdict"]["level"] in range(3)
            and found["verdict"]["word"] in LEVELS
            and all(type(level) is int and isinstance(sentence, str) for level, sentence in verdict)
            and all(isinstance(p["label"], str) and {"mean", "sd"} <= p.keys() for p in found["parameters"])
            and len({tuple(p["quantiles"]) for p in found["parameters"]}) <= 1
            and all(0.0 <= float(level) <= 1.0 for p in found["parameters"][:1] for level in p["quantiles"])
            and len(found["state"]["mean"]) == len(found["state"]["sd"])
            and all(value is None or type(value) in (int, float) for value in values)
            and all(isinstance(found[name], str) for name in ("model", "method"))
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return False
