"""A progress bar where someone can see it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, title: str, show: bool | None, unit: str = "step") -> Iterator[Callable[[int], object]]:
    """Yields a function to call with the number of steps done; `show=None` means only on a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda steps: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=title, unit=unit, leave=True) as bar:
        yield bar.update
