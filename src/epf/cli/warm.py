"""`epf warm`: compiles what the other commands need for a model, before there are data.

A program depends on the model, the method and the shapes, and not on the numbers. So a few simulated observations make all
of them, and JAX's persistent cache (`storage/_cache.py`) keeps them for the commands that come.
"""

from typing import Annotated, Any

import typer

from epf.cli.options import MODEL, Method, Order, Particles, Quiet

EXAMPLES = "Examples: `epf warm sin`, `epf warm sin --method epf --stream`, `epf warm model.py:Room --inputs 2`"
_STEPS = 4


def warm(
    arguments: Annotated[list[str], typer.Argument(metavar="MODEL [--FIELD VALUE]...", help=f"{MODEL}.")],
    inputs: Annotated[int, typer.Option(min=0, help="Number of columns of the inputs u.")] = 0,
    method: Method = None,
    particles: Particles = None,
    order: Order = None,
    stream: Annotated[bool, typer.Option("--stream", help="For `epf stream` too, not only for `epf fit`.")] = False,
    quiet: Quiet = False,
) -> None:
    """Compile ahead what `epf fit` needs for a model, so that it starts sooner."""
    from epf.cli.methods import make_method
    from epf.cli.models import known_model, split
    from epf.cli.outcome import outcome

    with outcome(quiet):
        (name,), options = split(arguments, 1, "a model")
        run(known_model(name, options), make_method(method, particles, order), inputs, stream, quiet)


def run(model: Any, method: Any, inputs: int, stream: bool, quiet: bool) -> None:
    """Compile, and say what came of it."""
    import time
    import warnings
    from pathlib import Path

    import jax
    import numpy as np

    from epf.cli.fit import as_dictionary
    from epf.cli.simulate import defaults
    from epf.errors import SettingError
    from epf.model._simulate import simulate
    from epf.run._fit import fit
    from epf.run._stream import Stream

    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if not folder:
        raise SettingError("Nothing would be kept, as EPF_CACHE is off: unset it, or let it name a folder.")
    began, before = time.perf_counter(), _programs(Path(folder))
    us = np.ones((_STEPS, inputs)) if inputs else None
    _, y = simulate(model, defaults(model), steps=_STEPS, inputs=us)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few observations say nothing of a method
        # The least budget: the rounds that it would take depend on the data.
        result = fit(model, y, method, inputs=us, budget=1e-3, progress=None if not quiet else False)
        as_dictionary(result, [])
        if stream:
            opened = Stream(model, method) if method is not None else Stream(model)
            opened.update(y[0], None if us is None else us[0])
            opened.posterior.mean  # noqa: B018  what a printed line reads
    if not quiet:
        new = _programs(Path(folder)) - before
        print(f"{new} new programs in {folder}, in {time.perf_counter() - began:.0f} s.")


def _programs(folder: Any) -> int:
    return sum(1 for _ in folder.glob("*-cache")) if folder.is_dir() else 0
