"""Shared timing: ns per particle and step, the minimum over several repeats, compilation measured separately."""

import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from epf.filters._base import Filter, start
from epf.model._model import StateSpaceModel
from epf.numerics._keys import root_key
from epf.run._runner import Data, FilterEngine, run_block

OUT = Path(__file__).parent / "out"


def seconds(action: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Seconds of the first call (with compilation) and of the fastest repeat."""
    began = time.perf_counter()
    jax.block_until_ready(action())
    first = time.perf_counter() - began
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(action())
        best = min(best, time.perf_counter() - began)
    return first, best


def per_particle_step(
    method: Filter, model: StateSpaceModel, y: np.ndarray, particles: int, repeats: int = 5
) -> dict[str, float]:
    """Time the compiled block that `fit` runs, over the whole series, without the bookkeeping around it."""
    bound, root = method.bind(model), root_key(0)
    engine, state = FilterEngine(bound, jnp.asarray([0.05, 0.5, 0.95])), start(bound, root)
    arguments = (jnp.asarray(0), jnp.asarray(len(y)), Data(jnp.asarray(y), None), len(y))
    first, best = seconds(lambda: run_block(engine, root, state, *arguments), repeats)
    return {"ns": 1e9 * best / len(y) / particles, "compile_s": first - best}


def report(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table and store them as JSON."""
    columns = [column for column in rows[0] if not isinstance(rows[0][column], dict)]
    where = f"{platform.machine()}, one core" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    print(f"\n{name}  (JAX {jax.__version__}, {where}, float32)")
    print("  ".join(f"{column:>14}" for column in columns))
    for row in rows:
        cells = [row.get(column, "") for column in columns]
        print("  ".join(f"{cell:>14.3g}" if isinstance(cell, float) else f"{cell!s:>14}" for cell in cells))
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps({"jax": jax.__version__, "machine": where, "rows": rows}, indent=1))
