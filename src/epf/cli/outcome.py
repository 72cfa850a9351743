"""How a command ends: a message on standard error and an exit code for scripts."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from epf.errors import CheckpointError, DataError, EPFError, EPFWarning, NumericalError, reason

USAGE, DATA, NUMBERS, CHECKPOINT, OUTPUT, INTERRUPTED = 2, 3, 4, 5, 6, 130
CODES = (
    "Exit codes: 0 success; 2 wrong option, model or method; 3 unusable data; 4 numerical failure; 5 unusable checkpoint; "
    "6 output that cannot be written; 130 interrupted."
)


@contextmanager
def outcome(quiet: bool) -> Iterator[list[str]]:
    """Print the library's errors and warnings as one line each; yields the list of warnings."""
    warned: list[str] = []

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        if issubclass(category, EPFWarning):
            warned.append(str(message))
            if not quiet:
                print(f"Warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", EPFWarning)
            warnings.showwarning = show
            yield warned
    except EPFError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise typer.Exit(code_of(error)) from None
    except OSError as error:
        print(f"Error: the output cannot be written ({reason(error)}): check where it goes.", file=sys.stderr)
        discard_output()
        raise typer.Exit(OUTPUT) from None
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def discard_output() -> None:
    """Standard output goes nowhere from here on: what Python writes to it at its end would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def code_of(error: EPFError) -> int:
    """The exit code of an error."""
    kinds = {DataError: DATA, NumericalError: NUMBERS, CheckpointError: CHECKPOINT}
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), USAGE)
