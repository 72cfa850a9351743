"""Experiments side by side, each in a process of its own: most of a run is one core compiling or stepping a filter."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

from experiments.paper import registry
from experiments.paper.experiment import Done, Numbers

_SECONDS = 0.5  # between two looks at the bar
_stages: Any = None  # in a worker: where it tells of every stage that is done


def computed(names: Sequence[str], seed: int, jobs: int, done: Done) -> Iterator[tuple[str, Numbers]]:
    """The numbers of each experiment as they come, `jobs` at once; the same ones whatever their number."""
    if min(jobs, len(names)) <= 1:
        for name in names:
            experiment = registry.find(name)
            yield name, experiment.numbers(experiment.settings, seed, done)
        return
    context = get_context("spawn")  # a fork would copy JAX's threads in the middle of what they do
    stages = context.SimpleQueue()  # what a worker tells is there before its result is
    pool = ProcessPoolExecutor(jobs, context, _begin, (stages,))
    try:
        left = {pool.submit(_work, name, seed): name for name in sorted(names, key=_length, reverse=True)}
        while left:
            finished, _ = wait(left, timeout=_SECONDS, return_when=FIRST_COMPLETED)
            while not stages.empty():
                done(stages.get())
            for future in finished:
                yield left.pop(future), future.result()
        while not stages.empty():
            done(stages.get())
    finally:  # also where the reader stops early: what has not begun is dropped
        pool.shutdown(cancel_futures=True)


def _length(name: str) -> int:
    """The longest go first, so that none is left alone at the end."""
    experiment = registry.find(name)
    return experiment.stages(experiment.settings)


def _begin(stages: Any) -> None:
    global _stages
    _stages = stages


def _work(name: str, seed: int) -> Numbers:
    experiment = registry.find(name)
    return experiment.numbers(experiment.settings, seed, _stages.put)
