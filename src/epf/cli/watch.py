"""`epf watch`, and the page of `epf stream --watch`."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

from epf.run.watch._server import LOOPBACK
from epf.run.watch._watch import Watch, watch_file

PORT = 8700


def serve(make: Callable[..., Watch], port: int | None, host: str | None, quiet: bool) -> Watch:
    """Serve a page and say where it is."""
    token = os.environ.get("EPF_WATCH_TOKEN") or None
    watch = make(PORT if port is None else port, host=host or LOOPBACK, token=token)
    made_up = watch.url.partition("?token=")[2] and token is None
    if made_up or not quiet:  # nobody could know it otherwise
        print(f"The page is at {watch.url}", file=sys.stderr, flush=True)
    return watch


def run(path: Path, port: int | None, host: str | None, quiet: bool) -> None:
    """Serve a page of the file until Ctrl-C or SIGTERM."""
    ended = Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with serve(partial(watch_file, path), port, host, quiet):
            while not ended.wait(1.0):  # in one long wait a signal would not be seen everywhere
                pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
