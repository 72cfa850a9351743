"""Chunks of a panel over a cluster of Dask: a `map(function, chunks)` that survives the loss of workers.

A task is two pieces of text: the work and its chunk, both pickled. The work is unpickled once per worker and method, which
then binds and compiles once. Chunks travel with their tasks, not as data on some worker (`scatter`), and every result is
fetched as soon as it is there: a worker that dies takes along what it was working on, and the scheduler hands that to
another.
"""

import pickle
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, cast

from epf.errors import EPFError, SettingError, kind
from epf.run.panel._chunks import Map, Part, Work
from epf.run.panel._series import Series

Client = Any  # distributed.Client, of an optional package
_AHEAD = 2  # tasks per thread of the cluster: one runs while the next is on its way
_SECONDS = 30.0  # to wait for the first worker


@contextmanager
def as_map(given: Any) -> Iterator[Map | None]:
    """A `map` as it is; or that of a Dask client, of the scheduler at an address, or of this machine's cores."""
    if given is None or callable(given):
        yield cast(Map | None, given)
        return
    try:
        import distributed  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise SettingError(
            f"fit_panel(map={given!r}) needs Dask, which is not installed: pip install 'epfilter[dask]', or give a "
            "function like Python's map."
        ) from None
    if isinstance(given, distributed.Client):
        yield _map_of(given)
        return
    if not isinstance(given, str):
        raise SettingError(
            f"fit_panel(map=...) is {kind(given)}: give a function like Python's map, a Dask client, the address of its "
            "scheduler, or 'local'."
        )
    with _connected(given) as client:
        yield _map_of(client)


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    import distributed  # pyright: ignore[reportMissingImports]

    if address == "local":
        # One thread each: a program of JAX uses the other cores by itself where that pays.
        with (
            distributed.LocalCluster(threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = distributed.Client(address)
    except (OSError, ValueError) as error:
        raise SettingError(
            f"No Dask scheduler answers at {address!r} ({error}): check the address (tcp://HOST:8786), or use 'local'."
        ) from None
    with client:
        yield client


def _map_of(client: Client) -> Map:
    def over_the_cluster(work: Any, chunks: Iterable[list[Series]]) -> Iterator[list[Part]]:
        return _parts(client, _pickled(work), list(chunks))

    return over_the_cluster


def _parts(client: Client, work: bytes, chunks: list[list[Series]]) -> Iterator[list[Part]]:
    """The results in the order of the chunks, of which a few at a time are with the scheduler."""
    from distributed import KilledWorker, as_completed  # pyright: ignore[reportMissingImports]

    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError:
        raise EPFError(
            f"The Dask cluster has had no worker for {_SECONDS:g} s: start some with `dask worker ADDRESS`."
        ) from None
    places: dict[Any, int] = {}
    done: dict[int, list[Part]] = {}
    running = as_completed(with_results=False)

    def submit(place: int) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            future = client.submit(_run, work, pickle.dumps(chunks[place]), pure=False)
        places[future] = place
        running.add(future)

    submitted = yielded = 0
    try:
        while yielded < len(chunks):
            # Counted from the last result that was handed on: those behind one slow chunk do not fill the memory here.
            window = _AHEAD * max(1, sum(client.nthreads().values()))
            while submitted < min(len(chunks), yielded + window):
                submit(submitted)
                submitted += 1
            future = next(running)
            try:
                done[places.pop(future)] = future.result()
            except KilledWorker as error:
                raise EPFError(
                    f"Workers of the Dask cluster died again and again at the same chunk ({error}): give them more memory, "
                    "or fit_panel a smaller chunk=."
                ) from None
            future.release()
            while yielded in done:
                yield done.pop(yielded)
                yielded += 1
    finally:
        client.cancel(list(places))


def _run(work: bytes, chunk: bytes) -> list[Part]:
    """The task: runs in a worker."""
    return _unpickled(work)(pickle.loads(chunk))


@lru_cache(maxsize=4)
def _unpickled(work: bytes) -> Work:
    """The same object for all chunks of a panel, and so one bound filter and one compiled program."""
    return pickle.loads(work)


def _pickled(work: Work) -> bytes:
    """With the classes themselves where they are not the library's: a worker need not have the user's files."""
    import cloudpickle  # pyright: ignore[reportMissingImports]  comes with Dask

    own = [module for one in (work.model, work.method) for module in _own_modules(type(one))]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(work)
    except (TypeError, AttributeError, pickle.PicklingError):
        pass  # something beside the classes does not travel: the workers import them
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    return cloudpickle.dumps(work)


def _own_modules(cls: type) -> list[ModuleType]:
    """The modules of a class and its bases that belong to the user; of `__main__` cloudpickle thinks by itself."""
    package = cls.__module__.partition(".")[0]
    if package in ("epf", "__main__"):
        return []
    names = {base.__module__ for base in cls.__mro__ if base.__module__.partition(".")[0] == package}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]
