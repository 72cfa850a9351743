"""One method on the data sets of one case: `python -m proving._run METHOD CASE FOLDER K ...`, a file for each."""

import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from proving._case import Case, all_cases, fingerprint, flat
from proving._methods import METHODS
from proving._reference import read
from proving._score import plain, score

SEED = 1
_compilation = {"seconds": 0.0}


def _listen(event: str, duration_secs: float, **_: Any) -> None:
    if "/compile/" in event:
        _compilation["seconds"] += duration_secs


def path(folder: Path, method: str, case: str, k: int) -> Path:
    return folder / method / f"{case}-{k}.json"


def write(target: Path, found: dict[str, Any]) -> None:
    """At once or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_text(json.dumps(plain(found), indent=1) + "\n")
    part.replace(target)


def head(method: str, case: Case, k: int) -> dict[str, Any]:
    """What is known of a run before it begins."""
    steps = len(case.data(k)[0])
    labels = list(case.labels)
    return {"method": method, "case": case.name, "half": case.half, "data_set": k, "T": steps, "labels": labels}


def run(method: str, case: Case, k: int) -> dict[str, Any]:
    """Fit and score; whatever happens is recorded."""
    from epf.errors import UnsupportedModelError

    reference, series = read(case, k), case.data(k)
    if not np.allclose(reference["fingerprint"], fingerprint(series), rtol=1e-6, atol=1e-6):
        raise SystemExit(
            f"{case.name}: data set {k} is not the one of its reference. Run python -m proving.references."
        )
    found = {**head(method, case, k), "seed": SEED}
    _compilation["seconds"] = 0.0
    result, answer, began = None, {}, time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = METHODS[method](case.build(), series[0], inputs=series[1], seed=SEED, progress=False)
            posterior = result.posterior
            answer = {"mean": flat(posterior.mean), "sd": flat(posterior.sd)}
            answer |= {"low": flat(posterior.quantile(0.05)), "high": flat(posterior.quantile(0.95))}
        except UnsupportedModelError as error:
            result = None
            found |= {"outcome": "unsupported", "exception": str(error)}
        except Exception as error:
            result = None
            absent = method == "default" and isinstance(error, TypeError) and "'method'" in str(error)
            found["outcome"] = "absent" if absent else "raised"
            found["exception"] = f"{type(error).__name__}: {error}"
            found["traceback"] = _places(error)
            found["verdict"] = None
    found["seconds"] = time.perf_counter() - began
    found["compile_seconds"] = _compilation["seconds"]
    found["warnings"] = [str(warning.message) for warning in caught][:10]
    if result is not None:
        found |= answer | score(answer, reference)
        error = getattr(result, "error", None)
        found["error"] = error and plain({"labels": error.labels, "parts": error.parts})
        found["verdict"] = result.verdict.word
        found["findings"] = [[finding.level, finding.sentence] for finding in result.verdict.findings]
        found["log_evidence_error"] = _evidence(result) - reference["log_evidence"]
        found["settings"] = plain(result.settings)
    return found


def _places(error: BaseException) -> list[str]:
    """Where an error was raised, from the call of the method inwards: files by name, whatever the machine."""
    return [f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in traceback.extract_tb(error.__traceback__)]


def _evidence(result: Any) -> float:
    try:
        return float(result.log_evidence)
    except Exception:
        return float("nan")


def _pin() -> None:
    """One core for each job, so that seconds mean the same whatever runs beside it."""
    core = os.environ.get("PROVING_CORE")
    if core and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[int(core) % len(allowed)]})


def main() -> None:
    _pin()
    method, name, folder, *numbers = sys.argv[1:]
    jax.monitoring.register_event_duration_secs_listener(_listen)
    for k in map(int, numbers):
        write(path(Path(folder), method, name, k), run(method, all_cases()[name], k))


if __name__ == "__main__":
    main()
