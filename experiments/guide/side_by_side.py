"""Runs jobs in parallel, one core each, and stores finished ones in a file so that they are not run again."""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def finished(
    run: Callable[[Any], tuple[Any, dict[str, Any]]], jobs: Iterable[Any], out: Path, processes: int
) -> dict[str, Any]:
    """The results of all jobs by name; `run(job)` returns the job and its result."""
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    left = [job for job in jobs if str(job) not in found]
    if not left:
        return found
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in sorted(os.sched_getaffinity(0))[:processes]:
        cores.put(core)
    with context.Pool(processes, _alone, (cores,)) as pool:
        for job, told in pool.imap_unordered(run, left):
            found[str(job)] = told
            print(job, told, flush=True)
            out.write_text(json.dumps(dict(sorted(found.items())), separators=(",", ":")) + "\n")
    return found


def _alone(cores: Any) -> None:
    """Pin the process to one core: a filter's step is too small for several threads."""
    os.sched_setaffinity(0, {cores.get()})
