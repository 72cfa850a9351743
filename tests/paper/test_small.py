"""Small versions of every experiment against the committed numbers, exactly or within their Monte Carlo error."""

import numpy as np
import pytest
from experiments.paper import registry, runs
from experiments.paper.experiment import array


def small(name, seed=0, **changes):
    """The numbers of the quick version, with some settings changed."""
    experiment = registry.find(name, quick=True)
    settings = {**experiment.settings, **changes}
    stages = []
    numbers = experiment.numbers(settings, seed, stages.append)
    assert sum(stages) == experiment.stages(settings)  # so the bar ends full
    return numbers


def kl_at(numbers, orders):
    """The divergences at these orders."""
    return [numbers["kl"][numbers["orders"].index(M)] for M in orders]


# Double precision throughout; simulated paths may differ in the last bits of float32 between machines.
ROUNDING, PATHS = 1e-6, 1e-3


def test_fig2(committed):
    found, known = small("fig2"), committed["fig2"]["numbers"]
    np.testing.assert_allclose(found["kl"], kl_at(known, found["orders"]), rtol=ROUNDING)
    np.testing.assert_allclose(found["approximate"]["4"], known["approximate"]["4"], rtol=ROUNDING)
    spacing = found["x"][1] - found["x"][0]
    assert np.trapezoid(found["density"], dx=spacing) == pytest.approx(1.0, abs=1e-3)  # it is a density


def test_theorem2(committed):
    found, known = small("theorem2"), committed["theorem2"]["numbers"]
    at = [known["orders"].index(M) for M in found["orders"]]
    np.testing.assert_allclose(found["kl"]["2.0"], [known["kl"]["2.0"][i] for i in at], rtol=ROUNDING)
    np.testing.assert_allclose(found["bound"]["2.0"], [known["bound"]["2.0"][i] for i in at], rtol=ROUNDING)


def test_fig3(committed):
    found, known = small("fig3"), committed["fig3"]["numbers"]
    for key in ("mean", "sd"):
        np.testing.assert_allclose(found[key], known[key][:2], rtol=PATHS)


def test_fig4a(committed):
    found, known = small("fig4a"), committed["fig4a"]["numbers"]
    for M in ("3", "7"):
        assert found["kl"][M] == pytest.approx(known["kl"][M], rel=PATHS)
        np.testing.assert_allclose(found["moments"][M], known["moments"][M], rtol=PATHS)


def test_fig4b(committed):
    found, known = small("fig4b"), committed["fig4b"]["numbers"]
    columns = [known["orders"].index(M) for M in found["orders"]]
    np.testing.assert_allclose(found["kl"][0], array(known["kl"])[0, :3][:, columns], rtol=PATHS)


def test_theorem4(committed):
    found, known = small("theorem4", paths=1), committed["theorem4"]["numbers"]
    rows = [known["series"].index(pair) for pair in found["series"]]
    for key in ("kl", "noise_under_posterior"):
        np.testing.assert_allclose(array(found[key])[:, 0], array(known[key])[rows, 0, :3], rtol=PATHS)


@pytest.mark.slow
def test_theorem3(committed):
    """At another length and order: the three forms agree to rounding, and the proof's signs do not."""
    found, known = small("theorem3"), committed["theorem3"]["numbers"]
    for numbers in (found, known):
        assert numbers["away"]["theorem"] < 1e-8
        assert numbers["away"]["library"] < 1e-8
        assert numbers["away"]["appendix"] > 1.0


@pytest.mark.slow
def test_storvik(committed):
    found, known = small("storvik"), committed["storvik"]["numbers"]
    assert max(found["largest"].values()) < 1e-9
    assert found["transpose"]["F"] == pytest.approx(known["transpose"]["F"], rel=ROUNDING)
    assert found["transpose"]["transpose"] < 1e-9
    first = known["t"].index(1)
    np.testing.assert_allclose(found["mean"][found["t"].index(1)], known["mean"][first], rtol=ROUNDING)


def agree(found, known, label):
    """Means over runs on data set 1 at t = 100 differ by no more than their Monte Carlo error.

    The error of a mean is taken from the spread over runs, pooled and of few degrees of freedom, so five of them are
    allowed, and not less than 2% of the exact sd.
    """
    means = []
    for numbers in (found, known):
        run, at = numbers["methods"][label], numbers["t"].index(100)
        means.append(array([m[at] for m, data in zip(run["mean"], run["data"], strict=True) if data == 1]))
    spread = np.sqrt(np.mean([m.var(axis=0, ddof=1) for m in means], axis=0))
    error = spread * np.sqrt(sum(1.0 / len(m) for m in means))
    exact = array(known["exact"]["1"]["sd"])[known["exact"]["1"]["t"].index(100)]
    gap = np.abs(means[0].mean(axis=0) - means[1].mean(axis=0))
    assert np.all(gap < 5.0 * error + 0.02 * exact), (label, gap, error)


@pytest.mark.slow
def test_fig5(committed):
    known = committed["fig5"]["numbers"]
    found = small("fig5", runs=4, epf=1000)
    for label in ("EPF", "EPF, library's form"):
        agree(found, known, label)
        assert np.all(np.abs(runs.Scores(found, label).z) < 0.5)
    np.testing.assert_allclose(found["exact"]["1"]["mean"], known["exact"]["1"]["mean"][:2], rtol=1e-6)


@pytest.mark.slow
def test_fig6(committed):
    known = committed["fig6"]["numbers"]
    found = small("fig6", runs=3, marginal=100)
    agree(found, known, "MarginalEPF")
    assert np.all(np.abs(runs.Scores(found, "MarginalEPF").z) < 0.8)  # 100 particles a node on the worst data set
    literal = found["methods"]["EPF, series about v = 0"]
    assert not runs.Scores(found, "EPF, series about v = 0").close
    for stop, mean in zip(literal["stopped"], literal["mean"], strict=True):  # nothing is made up after a run has ended
        assert all(
            (row[0] is None) == (stop is not None and t >= stop) for t, row in zip(found["t"], mean, strict=True)
        )


@pytest.mark.slow
def test_fig7(committed):
    known = committed["fig7"]["numbers"]
    found = small("fig7", times=[64], grid=81)
    agree(found, known, "EPF, library's form")
    np.testing.assert_allclose(found["moments"][0]["gamma"], known["moments"][0]["gamma"], rtol=PATHS)


@pytest.mark.slow
def test_complexity_counts_the_terms_of_a_polynomial(committed):
    from math import comb

    found = small("complexity", blocks=2)
    for numbers in (found, committed["complexity"]["numbers"]):
        for p, one in numbers["orders"].items():
            assert one["terms"] == [comb(2 * M + int(p), int(p)) for M in one["M"]]
            assert len(one["seconds"]) == len(one["M"])
