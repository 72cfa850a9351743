"""`epf demo`: several filters on the same data, as a table and a figure."""

import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table

from epf.cli.fit import save_figure
from epf.errors import AccuracyWarning
from epf.filters._base import Filter
from epf.filters._epf import EPF
from epf.filters._liu_west import LiuWest
from epf.filters._sir import SIR
from epf.filters._storvik import Storvik
from epf.model._model import StateSpaceModel
from epf.model._simulate import simulate
from epf.model.zoo import LinearGaussian, Sin
from epf.results._result import Result
from epf.run._fit import fit


def run(steps: int, particles: int, seed: int, out: Path) -> None:
    """Simulate, filter, print and plot."""
    console = Console(width=max(120, Console().width))
    linear = LinearGaussian(
        A=dist.Normal(0.0, 1.0).expand([1, 1]).to_event(2),
        Q=dist.InverseWishart(4.0, jnp.eye(1)),
        H=jnp.eye(1),
        R=0.25 * jnp.eye(1),
        m_0=jnp.zeros(1),
        P_0=jnp.eye(1),
    )
    cases: list[tuple[str, StateSpaceModel, dict[str, Any], list[Filter | None]]] = [
        (
            "SIN: x = sin(theta x) + N(0, 1)",
            Sin(),
            {"theta": 0.7},
            [SIR(particles), LiuWest(particles), EPF(particles), None],
        ),
        ("linear: x = A x + N(0, Q)", linear, {"A": [[0.8]], "Q": [[0.5]]}, [Storvik(particles)]),
    ]
    table = Table(title=f"{steps} observations, {particles} particles", title_justify="left")
    for heading in ("model", "method", "parameter", "truth", "estimate", "sd", "90% interval", "seconds", "verdict"):
        table.add_column(heading, justify="left" if heading in ("model", "method", "parameter", "verdict") else "right")
    results: list[tuple[str, Result, dict[str, Any]]] = []
    for title, model, truth, methods in cases:
        _, y = simulate(model, truth, steps=steps, seed=seed)
        for method in methods:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AccuracyWarning)  # the table has the verdict
                result = fit(model, y, method, seed=seed, progress=True)
            results.append((title, result, truth))
            _add_rows(table, title.split(":")[0], result, truth)
        table.add_section()
    console.print(table)
    console.print(
        f"Seconds include compilation. SIR drew {particles} values of theta from the prior and loses most of them: it looks "
        "certain, and its verdict says that it should not. The EPF draws new values from each particle's polynomial. The "
        "marginal EPF, which epf.fit takes if no method is named, does not depend on paths. The true value is 3.5 standard "
        "deviations from the mean of the prior N(0, 0.2^2), so the exact posterior mean after few observations still lies "
        "below it.",
        soft_wrap=False,
    )
    _draw(results, out)
    console.print(f"Figure: {out}")


def _add_rows(table: Table, title: str, result: Result, truth: dict[str, Any]) -> None:
    posterior = result.posterior
    mean, sd = posterior.moments()
    low, high = posterior.quantiles(jnp.array([0.05, 0.95]))
    true = posterior.parameters.vector(truth)
    for i, label in enumerate(posterior.parameters.labels):
        interval = f"{low[i]:.3f} .. {high[i]:.3f}"
        cells = (
            title,
            type(result.method).__name__,
            label,
            f"{true[i]:.3f}",
            f"{mean[i]:.3f}",
            f"{sd[i]:.3f}",
            interval,
        )
        table.add_row(*cells, f"{result.seconds:.1f}", result.verdict.word)


def _draw(results: list[tuple[str, Result, dict[str, Any]]], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from epf.results._panels import BLUE, GREY
    from epf.results._plots import draw_parameter

    panels = [(title, result, truth, label) for title, result, truth in results for label in result.parameters.labels]
    columns = (len(panels) + 1) // 2
    figure, axes = plt.subplots(2, columns, figsize=(4.5 * columns, 6.5), sharex=True, layout="constrained")
    for panel in axes.flat[len(panels) :]:
        panel.set_axis_off()
    for panel, (title, result, truth, label) in zip(axes.flat, panels, strict=False):
        draw_parameter(panel, result, label, BLUE)
        true = float(result.parameters.vector(truth)[result.parameters.index(label)])
        panel.axhline(true, color=GREY, linestyle="--", linewidth=1, label="truth")
        panel.set_title(f"{type(result.method).__name__} on {title}", fontsize="medium", loc="left")
        panel.set_ylabel(label)
        panel.legend(frameon=False, fontsize="small", loc="best")
    for panel in axes.flat[len(panels) - columns : len(panels)]:
        panel.set_xlabel("time step")
        panel.tick_params(labelbottom=True)
    save_figure(figure, out)
