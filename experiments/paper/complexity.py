"""Complexity: the time of a step against t, N, M and p, measured and fitted.

The whole filter is timed against t and N (the paper's O(NT)), and the update of the statistics against M and p (its
O(M^p) per particle and step). A statistic has C(2M + p, p) coefficients, those of a polynomial of degree 2M in p
parameters, which is a multiple of M^p for large M. For comparison, a Gibbs density is evaluated from the whole path.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from experiments.paper import paper_methods
from experiments.paper.experiment import Done, Experiment, Finding, Numbers, Table, array, finding
from experiments.paper.quadrature import power_law
from experiments.paper.references import data_set, path
from numpyro.distributions import Distribution

from epf.errors import EPFWarning
from epf.filters._epf import EPF
from epf.filters._particle import Piece
from epf.model._model import StateSpaceModel
from epf.run._fit import fit
from epf.statistics._approximation import Taylor
from epf.statistics._log_polynomial import LogPolynomial

SETTINGS = {
    "particles": 1000,
    "order": 7,
    "blocks": 8,
    "block": 500,
    "counts": [250, 1000, 4000, 16000],
    "steps": 200,
    "update_particles": 200,  # few enough to stay in the cache, so that the arithmetic is timed
    "orders": {"1": [2, 4, 8, 16, 32], "2": [2, 4, 6, 8, 10], "3": [1, 2, 3, 4, 5]},
    "repeats": 5,
    "lengths": [1000, 4000, 16000, 64000],
}

_clock = time.process_time  # of all threads of this process; other processes do not count


class Waves(StateSpaceModel):
    """A non-separable drift in which p parameters enter together: sin(theta . (x, x^2, ..))."""

    size: int

    def prior(self) -> dict[str, Distribution]:
        return {"theta": dist.Normal(jnp.zeros(self.size), 0.2).to_event(1)}

    def initial(self, p: Any) -> Distribution:
        return dist.Normal(0.0, 1.0)

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(jnp.sin(jnp.sum(p.theta * x ** jnp.arange(1, self.size + 1))), 1.0)

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        return dist.Normal(x, 0.1)


def compute(settings: Mapping[str, Any], seed: int, done: Done) -> Numbers:
    numbers: Numbers = {key: settings[key] for key in ("particles", "update_particles", "order")}
    numbers["time"] = _against_time(settings, seed)
    done(1)
    numbers["count"] = {"N": settings["counts"], "seconds": []}
    for count in settings["counts"]:
        numbers["count"]["seconds"].append(_filter_step(settings, count, seed))
        done(1)
    numbers["orders"] = {}
    for p, orders in settings["orders"].items():
        measured = [_update(int(p), M, settings) for M in orders]
        numbers["orders"][p] = {"M": orders, "terms": [n for n, _ in measured], "seconds": [s for _, s in measured]}
        jax.clear_caches()
        done(1)
    numbers["path"] = _whole_path(settings)
    done(1)
    return numbers


def _against_time(settings: Mapping[str, Any], seed: int) -> Numbers:
    """Seconds per step of the filter, for each block of one run."""
    size, blocks = settings["block"], settings["blocks"]
    seconds = _blocks(settings["particles"], settings["order"], size, blocks, seed)
    return {"t": [(i + 0.5) * size for i in range(1, blocks)], "seconds": seconds}


def _filter_step(settings: Mapping[str, Any], count: int, seed: int) -> float:
    """Seconds per step of the filter with `count` particles: the fastest of several blocks."""
    return min(_blocks(count, settings["order"], settings["steps"], settings["repeats"] + 1, seed))


def _blocks(count: int, order: int, size: int, blocks: int, seed: int) -> list[float]:
    """Seconds per step in each block of a run on the SIN data; the first block compiles and is not counted."""
    data = data_set("sin", 1, size * blocks)
    method = paper_methods.epf(count, order, centre=0.0)
    seconds, result = [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EPFWarning)  # one population: its error is not measured
        for i in range(blocks):
            began, block = _clock(), data.y[i * size : (i + 1) * size]
            result = fit(data.model, block, method, seed=seed, progress=False, resume_from=result)
            seconds.append((_clock() - began) / size)
    return seconds[1:]


def _update(p: int, order: int, settings: Mapping[str, Any]) -> tuple[int, float]:
    """The number of coefficients per particle, and the seconds for one update of all statistics."""
    model, count = Waves(p), settings["update_particles"]
    gibbs = EPF(count, approximation=Taylor(order, centre=0.0)).bind_island(model, None).gibbs
    assert isinstance(gibbs, LogPolynomial)
    x = jnp.linspace(-1.5, 1.5, count)
    statistic = jax.vmap(lambda x: gibbs.init(x), -1, -1)(x)
    piece = Piece(x, 0.5 * x, 0.5 * x, jnp.asarray(0.0), None)
    update = jax.jit(lambda statistic, piece: gibbs.update_all(statistic, piece))
    return gibbs.indices.size, _fastest(lambda: update(statistic, piece), settings["repeats"])


def _whole_path(settings: Mapping[str, Any]) -> Numbers:
    """Seconds to evaluate log p(theta | x_0:t) from one particle's path: what a fixed-size statistic saves."""
    lengths = settings["lengths"]
    x = jnp.asarray(path("sin", 1, lengths[-1]), jnp.float32)
    theta = jnp.linspace(0.3, 0.9, 33)

    @jax.jit
    def log_density(x: jax.Array) -> jax.Array:
        return jax.vmap(lambda theta: -0.5 * jnp.sum((x[1:] - jnp.sin(theta * x[:-1])) ** 2))(theta)

    return {
        "t": lengths,
        "seconds": [_fastest(lambda t=t: log_density(x[: t + 1]), settings["repeats"]) for t in lengths],
    }


def _fastest(run: Callable[[], Any], repeats: int) -> float:
    """The fastest of several measurements, each long enough for the clock; the first call compiles and is not counted."""
    jax.block_until_ready(run())
    began = _clock()
    jax.block_until_ready(run())
    inner = max(1, int(0.02 / max(_clock() - began, 1e-9)))
    found = []
    for _ in range(repeats):
        began = _clock()
        jax.block_until_ready([run() for _ in range(inner)])
        found.append((_clock() - began) / inner)
    return min(found)


def fits(numbers: Numbers) -> dict[str, tuple[float, float]]:
    """Fitted exponents with standard errors: in t, in N, of the path evaluation in t, and in M for each p.

    Those in M use the three largest orders and M + 1, since a polynomial of order M has M + 1 powers.
    """
    found = {
        "t": power_law(array(numbers["time"]["t"]), array(numbers["time"]["seconds"])),
        "N": power_law(array(numbers["count"]["N"])[-3:], array(numbers["count"]["seconds"])[-3:]),
        "path": power_law(array(numbers["path"]["t"])[-3:], array(numbers["path"]["seconds"])[-3:]),
    }
    for p, one in numbers["orders"].items():
        for key in ("terms", "seconds"):
            found[f"{key}, p = {p}"] = power_law(array(one["M"])[-3:] + 1.0, array(one[key])[-3:])
    return found


def judge(numbers: Numbers) -> list[Finding]:
    b = fits(numbers)
    text = {name: f"{value:+.2f} ± {error:.2f}" for name, (value, error) in b.items()}
    dimensions = list(numbers["orders"])
    return [
        finding(
            "The cost of a step does not grow with time (sections 3 and 4).",
            "the exponent of the time per step in t is within 0.1 of 0, or within two standard errors",
            f"exponent {text['t']} up to t = {numbers['time']['t'][-1]:g}; for the Gibbs density from the path "
            f"{text['path']}",
            holds=abs(b["t"][0]) < max(0.1, 2.0 * b["t"][1]),
            why="it grows",
        ),
        finding(
            "The filter is O(NT) (section 5).",
            "the exponent of the time per step in N, for large N, is at most 1.15",
            f"exponent {text['N']} up to N = {numbers['count']['N'][-1]}",
            holds=b["N"][0] < 1.15,
            why="it grows faster than N",
        ),
        finding(
            "An order M expansion in p parameters has O(M^p) terms (section 4).",
            "the exponent of the number of coefficients in M + 1 is at most p, with a tolerance of 15%",
            "; ".join(f"p = {p}: {text[f'terms, p = {p}']}" for p in dimensions),
            holds=all(b[f"terms, p = {p}"][0] <= 1.15 * int(p) for p in dimensions),
            why="there are more",
        ),
        finding(
            "An update of the statistics costs O(M^p) per particle and step (section 4).",
            "the exponent of its time in M + 1 is at most p, or at most 2p, each with a tolerance of 15%",
            "; ".join(f"p = {p}: {text[f'seconds, p = {p}']}" for p in dimensions),
            holds=all(b[f"seconds, p = {p}"][0] <= 1.15 * int(p) for p in dimensions),
            change="up to O(M^2p): theorem 3 squares the series of the drift, and the product of two polynomials with O(M^p) "
            "terms, as implemented here, costs the square of that",
            holds_with_change=all(b[f"seconds, p = {p}"][0] <= 2.3 * int(p) for p in dimensions),
            why="it grows faster than the product of two such polynomials",
        ),
    ]


def tables(numbers: Numbers) -> list[Table]:
    rows = [[name, f"{value:+.3f}", f"{error:.3f}"] for name, (value, error) in fits(numbers).items()]
    names = {"t": "time per step in t", "N": "time per step in N", "path": "Gibbs density from the path, in t"}
    rows = [
        [names.get(name, f"{name.replace('seconds', 'time of an update')}, in M + 1"), *rest] for name, *rest in rows
    ]
    counts = [
        [p, ", ".join(f"{M}: {n}" for M, n in zip(one["M"], one["terms"], strict=True))]
        for p, one in numbers["orders"].items()
    ]
    return [
        Table("Fitted exponents", ["quantity", "exponent", "standard error"], rows),
        Table("Coefficients per particle", ["p", "M: coefficients"], counts),
    ]


def draw(numbers: Numbers) -> Any:
    from experiments.paper.style import BLUE, GREY, MARKS, ORANGE, PALETTE, letter, panels

    figure, axes = panels(2, 2, height=5.2)
    b = fits(numbers)
    first, second, third, fourth = axes.flat
    t, N, path = (numbers[key] for key in ("time", "count", "path"))
    _points(first, t["t"], 1e6 * array(t["seconds"]), b["t"], 0, BLUE, "o", f"step, $N$ = {numbers['particles']}", "t")
    _points(first, path["t"], 1e6 * array(path["seconds"]), b["path"], -3, ORANGE, "s", "density from a path", "t")
    first.set(xlabel="time step $t$", ylabel="time (µs)", title="one step of the EPF, against $t$")
    _points(second, N["N"], 1e6 * array(N["seconds"]), b["N"], -3, BLUE, "o", "step", "N")
    counts, seconds = array(N["N"]), 1e6 * array(N["seconds"])
    second.plot(counts, seconds[-1] * counts / counts[-1], color=GREY, linestyle=":", label="proportional to $N$")
    second.set(xlabel="particles $N$", ylabel="time (µs)", title="one step of the EPF, against $N$")
    for i, (p, one) in enumerate(numbers["orders"].items()):
        M, nanoseconds = array(one["M"]) + 1.0, 1e9 * array(one["seconds"]) / numbers["update_particles"]
        for panel, kind, values in ((third, "terms", array(one["terms"])), (fourth, "seconds", nanoseconds)):
            fit = b[f"{kind}, p = {p}"]
            _points(panel, M, values, fit, -3, PALETTE[i], MARKS[i], f"$p$ = {p}", "(M+1)")
    third.set(xlabel="$M + 1$", ylabel="coefficients", title="size of the statistic, against $M$ and $p$")
    fourth.set(xlabel="$M + 1$", ylabel="time (ns per particle)", title="one update of it, against $M$ and $p$")
    ticks = sorted({M + 1 for one in numbers["orders"].values() for M in one["M"][::2]})
    for panel in (third, fourth):
        panel.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
        panel.set_xticks([], minor=True)
    for panel in axes.flat:
        low, high = panel.get_ylim()
        panel.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend
        panel.legend(loc="upper left")
    letter(axes.flat)
    return figure


def _points(
    panel: Any, x: Any, y: Any, fit: tuple[float, float], first: int, colour: str, mark: str, name: str, of: str
) -> None:
    """The measured points, the power law that was fitted from the point `first` on, and two standard errors of its slope."""
    x, y = array(x), array(y)
    slope, error = fit
    at, values = x[first:], y[first:]
    centre, level = np.exp(np.mean(np.log(at))), np.exp(np.mean(np.log(values)))
    line = np.geomspace(at[0], at[-1], 30)
    low, high = (level * (line / centre) ** (slope + side * error) for side in (-2.0, 2.0))
    panel.fill_between(line, np.minimum(low, high), np.maximum(low, high), color=colour, alpha=0.2, linewidth=0)
    panel.loglog(line, level * (line / centre) ** slope, color=colour, linewidth=0.9)
    law = rf"${of}^{{{slope + 0.0:.2f} \pm {error:.2f}}}$".replace("-0.00 ", "0.00 ")
    panel.loglog(x, y, color=colour, linewidth=0.6, alpha=0.4)
    panel.loglog(x, y, color=colour, marker=mark, linestyle="none", label=f"{name}: {law}")


EXPERIMENT = Experiment(
    name="complexity",
    title="Complexity: time against t, N, M and p",
    caption="(a), (b) One step of the EPF for SIN as printed (order 7). (c), (d) One update of the statistics of 200 particles "
    "for a drift in which p parameters enter together. Processor time of all threads, the fastest of several repeats, without "
    "compilation. Lines are the power laws that were fitted to the points that they span, with two standard errors of the "
    "exponent (shaded). In (a) also the time to evaluate one particle's density of θ from its whole path.",
    settings=SETTINGS,
    compute=compute,
    draw=draw,
    judge=judge,
    tables=tables,
    stages=lambda settings: 2 + len(settings["counts"]) + len(settings["orders"]),
    repeatable=False,
    quick={
        "particles": 20,
        "blocks": 4,
        "block": 20,
        "counts": [10, 20, 40],
        "steps": 20,
        "repeats": 2,
        "orders": {"1": [1, 2, 3], "2": [1, 2, 3]},
        "lengths": [10, 20, 40],
    },
)
