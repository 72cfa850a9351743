"""Runs experiments in parallel processes, since each mostly uses one core to compile or step a filter."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from experiments.paper import registry
from experiments.paper.experiment import Done, Numbers

_SECONDS = 0.5  # between two updates of the progress bar
_stages: Any = None  # in a worker: the queue that reports finished stages


def computed(
    names: Sequence[str], seed: int, jobs: int, done: Done, quick: bool = False
) -> Iterator[tuple[str, Numbers]]:
    """Yield the numbers of each experiment as it finishes, `jobs` at once; `jobs` does not change the numbers."""
    if min(jobs, len(names)) <= 1:
        for name in names:
            experiment = registry.find(name, quick)
            yield name, experiment.numbers(experiment.settings, seed, done)
        return
    context = get_context("spawn")  # JAX is multithreaded, so a fork could deadlock
    stages = context.SimpleQueue()  # synchronous: a stage is reported before the result arrives
    pool = ProcessPoolExecutor(jobs, context, _begin, (stages,))
    try:
        left = {pool.submit(_work, name, seed, quick): name for name in sorted(names, key=_length, reverse=True)}
        while left:
            finished, _ = wait(left, timeout=_SECONDS, return_when=FIRST_COMPLETED)
            while not stages.empty():
                done(stages.get())
            for future in finished:
                yield left.pop(future), future.result()
        while not stages.empty():
            done(stages.get())
    finally:  # also if the caller stops early: pending experiments are dropped
        pool.shutdown(cancel_futures=True)


def _length(name: str) -> int:
    """Number of stages; the longest experiments start first."""
    experiment = registry.find(name)
    return experiment.stages(experiment.settings)


def _begin(stages: Any) -> None:
    global _stages
    _stages = stages


def _work(name: str, seed: int, quick: bool) -> Numbers:
    experiment = registry.find(name, quick)
    return experiment.numbers(experiment.settings, seed, _stages.put)
