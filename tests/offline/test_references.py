"""The committed reference posteriors: made from the data they say, accurate, and found again on other grids."""

import jax.numpy as jnp
import numpy as np
import pytest

import epf
from epf.offline._point_mass import PointMass, run
from epf.results._score import score

SEEDS = (1, 2, 3)
MODELS = ("sin", "cauchy", "star")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_data_are_those_of_simulate(references, name, seed):
    """To the bit where the machine rounds as the one that made them; to rounding everywhere."""
    content, y = references.files[name, seed], references.observations[name, seed]
    assert [entry["t"] for entry in content["entries"]] == list(references.make.CASES[name].times)
    for entry in content["entries"]:
        here = references.make.about_data(y[: entry["t"]])
        if here["y_sha256"] != entry["y_sha256"]:
            for moment in ("y_mean", "y_rms"):
                assert here[moment] == pytest.approx(entry[moment], abs=1e-5 * entry["y_rms"])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_grids_were_fine_enough(references, name, seed):
    for entry in references.files[name, seed]["entries"]:
        assert entry["estimated_error"] < 1e-5
        assert entry["effective_points"] > 4.0 ** len(entry["mean"])


# The first two as in `test_point_mass`, compiled once; the tolerances are a few times the changes that were measured.
OTHER_GRIDS = [("sin", 1, 49, 41, 1e-5), ("cauchy", 2, 161, 31, 2e-4), ("star", 1, 17, 45, 5e-3)]


@pytest.mark.usefixtures("quick_compilation", "float64")
@pytest.mark.parametrize(("name", "seed", "nodes", "points", "tolerance"), OTHER_GRIDS)
@pytest.mark.slow
def test_another_grid_says_the_same(references, name, seed, nodes, points, tolerance):
    case, entry = references.make.CASES[name], references.files[name, seed]["entries"][0]
    y = references.observations[name, seed][: entry["t"]]
    if name == "sin":  # as users have it; the others without a history, which would take longer to compile
        result = epf.fit(case.model, y, PointMass(nodes, points))
        mean, sd, log_evidence = result.mean, result.sd, result.log_evidence
    else:
        spans = {parameter: (low, high, points) for parameter, (low, high, _) in entry["grid"].items()}
        grid = spans if name == "star" else {parameter: np.linspace(*span) for parameter, span in spans.items()}
        posterior, info = run(PointMass(nodes, grid), case.model, jnp.asarray(y, float), None)
        mean, sd, log_evidence = posterior.mean, posterior.sd, float(np.sum(info.log_evidence))
    for parameter, exact_sd in entry["sd"].items():
        assert (mean[parameter] - entry["mean"][parameter]) / exact_sd == pytest.approx(0.0, abs=tolerance)
        assert sd[parameter] / exact_sd == pytest.approx(1.0, abs=tolerance)
    assert log_evidence == pytest.approx(entry["log_evidence"], abs=tolerance)


def test_a_file_is_an_exact_answer_for_score(references):
    exact = references.make.read(references.make.FOLDER / "star-1.json")
    assert exact["log_evidence"].sel(time=50) == references.files["star", 1]["entries"][0]["log_evidence"]
    found = score(exact, exact)
    assert dict(found.sizes) == {"time": 4, "parameter": 2}
    assert (found["z"] == 0.0).all()
    assert (found["r"] == 1.0).all()
