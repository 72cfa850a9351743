"""How a command ends: a sentence on standard error, and an exit code that scripts can use."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from epf.errors import CheckpointError, DataError, EPFError, EPFWarning, NumericalError

USAGE, DATA, NUMBERS, CHECKPOINT, INTERRUPTED = 2, 3, 4, 5, 130
CODES = (
    "Exit codes: 0 done; 2 a wrong option, model or method; 3 data that cannot be used; 4 a model that gave no number; "
    "5 a checkpoint that cannot be used; 130 interrupted."
)


@contextmanager
def outcome(quiet: bool) -> Iterator[list[str]]:
    """Errors of the library become one line and a code; its warnings one line each, and are also collected."""
    said: list[str] = []

    def show(message: Any, category: Any, *_: Any, **__: Any) -> None:
        if issubclass(category, EPFWarning):
            said.append(str(message))
            if not quiet:
                print(f"Warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", EPFWarning)
            warnings.showwarning = show
            yield said
    except EPFError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise typer.Exit(code_of(error)) from None
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def code_of(error: EPFError) -> int:
    """The exit code of an error."""
    kinds = {DataError: DATA, NumericalError: NUMBERS, CheckpointError: CHECKPOINT}
    return next((code for kind, code in kinds.items() if isinstance(error, kind)), USAGE)
