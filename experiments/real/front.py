"""The picture of the front page (`python -m experiments.real.front`): the Nile, what is learned, and how far off it is."""

from pathlib import Path

import matplotlib
import numpy as np
from experiments.real import nile
from experiments.real.outcome import run

from epf.results._panels import BLUE, GREY, ORANGE, label_time
from epf.results._plots import draw_parameter

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    result, _ = run(nile)
    means, spreads = nile.exact()
    off = np.abs(result.history["mean"].sel(parameter="level_sd").to_numpy() - means[:, 1]) / spreads[:, 1]
    said = 2 * result.history["error"].sel(parameter="level_sd").to_numpy()
    draw(result, means[:, 1], off, said, (1, 3), (9.5, 3.0), "index.png")
    draw(result, means[:, 1], off, said, (3, 1), (4.2, 7.6), "index-tall.png")  # for a phone
    print("share of years within twice the certificate:", float(np.mean(off <= said)))


def draw(result, exact, off, said, shape, size, name) -> None:
    times = nile.data().index.to_numpy()
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained")
    data, parameter, error = axes
    ((_, level, sd),) = nile.filtered(result)
    data.plot(times, nile.data(), "o", color=GREY, markersize=2.5, label="observed")
    data.fill_between(times, level - 2 * sd, level + 2 * sd, color=BLUE, alpha=0.2, linewidth=0)
    data.plot(times, level, color=BLUE, linewidth=1.2, label="level, two sds")
    data.set_title("A series comes in", loc="left", fontsize="medium")
    draw_parameter(parameter, result, "level_sd", BLUE)
    parameter.plot(times, exact, color=GREY, linestyle="--", linewidth=1, label="exact")
    parameter.set_ylim(0, 250)
    parameter.set_title("A parameter is learned (level_sd)", loc="left", fontsize="medium")
    error.plot(times, said, color=ORANGE, linewidth=1.2, label="twice the certificate")
    error.plot(times, off, color=GREY, linewidth=1, label="true error")
    error.set_ylim(0, 0.6)
    error.set_title("and how far off its mean is (sds)", loc="left", fontsize="medium")
    label_time(axes, result)
    for panel in axes:
        panel.legend(frameon=False, fontsize="small")
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(DOCS / name, dpi=140)
    plt.close(figure)


if __name__ == "__main__":
    main()
