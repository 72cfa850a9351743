"""The skeletons of `docs/extending.md` run as they stand, and their answers are right."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def blocks() -> dict[str, str]:
    """The code of each section of the page, by its heading; what comes before the first heading is 'shared'."""
    sections = re.split(r"^## (?:An? )?", PAGE.read_text(), flags=re.MULTILINE)
    named = [("shared", sections[0]), *(section.split("\n", 1) for section in sections[1:])]
    code = {name.strip(): "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)) for name, text in named}
    return {name: text for name, text in code.items() if text}


@cache
def run(section: str, until: str | None = None) -> dict:
    """What a reader has after pasting the shared code and one section (`until` a line that begins like this)."""
    names: dict = {"__name__": "extending"}
    code = blocks()
    for part in dict.fromkeys(("shared", section)):
        text = code[part].split(f"\n{until}")[0] if until else code[part]
        exec(compile(text, f"{PAGE.name}, {part}", "exec"), names)
    return names


@pytest.fixture(scope="module")
def exact():
    """The exact posterior of the page's model and data, from a grid of Kalman filters."""
    y = np.asarray(run("shared")["y"], float)
    grid = np.linspace(-1.3, 1.3, 261)
    log_prior = -0.5 * (grid / 0.5) ** 2
    values = log_prior + np.array([kalman_log_likelihood(a, y) for a in grid])
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    mean = float(weights @ grid)
    return mean, float(np.sqrt(weights @ (grid - mean) ** 2))


def kalman_log_likelihood(a: float, y: np.ndarray) -> float:
    """log p(y | a) of x_t = a x_t-1 + N(0, 1), y_t = x_t + N(0, 0.5^2), x_0 = N(0, 1), in double precision."""
    mean, variance, total = 0.0, 1.0, 0.0
    for value in y:
        mean, variance = a * mean, a * a * variance + 1.0
        spread = variance + 0.25
        total += -0.5 * (np.log(2.0 * np.pi * spread) + (value - mean) ** 2 / spread)
        gain = variance / spread
        mean, variance = mean + gain * (value - mean), (1.0 - gain) * variance
    return float(total)


def test_every_section_with_code_is_tested():
    assert set(blocks()) == {"shared", "proposal", "sampler", "statistic", "filter"}


def test_the_proposal_estimates_the_evidence():
    names = run("proposal")
    exact = kalman_log_likelihood(0.7, np.asarray(names["y"], float))
    # Over 150 seeds the log-evidence scatters with sd 0.34.
    assert abs(names["widened"].log_evidence - exact) < 1.5
    assert names["widened"].settings["proposal"] == "the transition, 2 times as wide"


@pytest.mark.slow
def test_the_sampler_leaves_a_density_invariant():
    names = run("sampler")
    sampler = names["Candidates"](16)

    def log_density(points):
        return -0.5 * jnp.sum((points / 0.3) ** 2, axis=-1)

    k_start, k_move = jax.random.split(jax.random.key(0))
    count = 20_000

    @jax.jit
    def moved_from_start():
        start = 0.3 * jax.random.truncated_normal(k_start, -1 / 0.3, 1 / 0.3, (count, 1))
        keys = jax.random.split(k_move, count)
        return start, jax.vmap(lambda key, u: sampler.draw(key, log_density, u))(keys, start)

    start, moved = (np.asarray(part) for part in moved_from_start())
    assert np.mean(moved != start) > 0.5
    assert abs(np.mean(moved)) < 5 * 0.3 / count**0.5
    assert abs(np.std(moved) / np.std(start) - 1.0) < 5 / (2 * count) ** 0.5
    nowhere = jax.jit(lambda u: sampler.draw(k_move, lambda points: jnp.full(len(points), jnp.nan), u))(start[0])
    assert nowhere == start[0]


def test_the_sampler_learns_in_the_filter(exact):
    found = run("sampler")["sampled"]
    mean, sd = exact
    # Over 8 seeds |z| is at most 0.12 and r 0.98 to 1.02.
    assert abs(found.mean["a"] - mean) < 0.4 * sd
    assert abs(found.sd["a"] / sd - 1.0) < 0.2
    assert "64 uniform candidates" in found.settings["draws of theta"]


def test_the_statistic_is_the_log_density_of_the_path():
    names = run("statistic", until="class CoefficientFilter")
    model, x = names["AR"](), np.asarray(names["x"], float)
    statistic = names["CoefficientSums"](model, names["parameters"](model))
    sums = statistic.init(x[0])
    for before, after in pairwise(x[:20]):
        sums = statistic.update(sums, jnp.asarray(before), jnp.asarray(after), jnp.asarray(after), None, None)
    theta = np.array([-0.5, 0.0, 0.4, 0.9])
    found = np.array([statistic.log_density(sums, jnp.asarray([a])) for a in theta])
    path = np.array([-0.5 * (a / 0.5) ** 2 - 0.5 * np.sum((x[1:20] - a * x[:19]) ** 2) for a in theta])
    np.testing.assert_allclose(found - found[0], path - path[0], rtol=1e-4, atol=1e-4)


def test_the_statistic_learns_in_the_learner(exact):
    found = run("statistic")["summed"]
    mean, sd = exact
    assert abs(found.mean["a"] - mean) < 0.4 * sd
    assert abs(found.sd["a"] / sd - 1.0) < 0.2


def test_the_filter_is_exact_up_to_its_grid(exact):
    names = run("filter")
    found = names["gridded"]
    mean, sd = exact
    assert abs(found.mean["a"] - mean) < 0.02 * sd
    assert abs(found.sd["a"] / sd - 1.0) < 0.02
    stream = epf.Stream(names["AR"](), names["KalmanGrid"]())
    for row in names["y"]:
        stream.update(row)
    assert stream.posterior.mean == found.mean
    with pytest.raises(epf.errors.UnsupportedModelError, match="KalmanGrid learns one parameter"):
        names["KalmanGrid"]().bind(epf.zoo.STAR())
