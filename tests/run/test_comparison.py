"""Methods side by side: the right numbers in the right cells, the exact answer where there is one, sentences elsewhere."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import EPFWarning, SettingError, UnsupportedModelError
from epf.run._compare import growth
from models import VectorAR


class Drift(epf.StateSpaceModel):
    """x = 0.5 x + c + N(0, 1), y = x + N(0, 0.5^2): linear in the state and in c together, so Kalman is exact."""

    def prior(self):
        return {"c": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x + p.c, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5)


class ThreeStates(Drift):
    def initial(self, p):
        return dist.Normal(jnp.zeros(3), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x + p.c, 1.0).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0], 0.5)


@pytest.fixture(scope="module")
def compared():
    _, y = epf.simulate(Drift(), {"c": 0.7}, steps=40, seed=1)
    methods = {"few": epf.SIR(50), "Kalman": epf.Kalman(), "masses": epf.PointMass(3, {"d": (0.0, 1.0)})}
    return y, epf.compare(Drift(), y, methods, seed=2)


@pytest.mark.slow
def test_each_cell_has_its_number(compared):
    y, comparison = compared
    kalman, sir = epf.fit(Drift(), y, epf.Kalman()), epf.fit(Drift(), y, epf.SIR(50), seed=2)
    assert comparison.exact.method == "Kalman"
    assert comparison.exact.log_evidence == kalman.log_evidence
    table = comparison.table
    assert list(table.index) == [("exact", "c"), ("few", "c"), ("Kalman", "c")]
    row = table.loc[("few", "c")]
    low, high = sir.interval(0.9)["c"]
    assert (row["mean"], row["sd"], row["5%"], row["95%"]) == (sir.mean["c"], sir.sd["c"], low, high)
    assert row["log_evidence"] == sir.log_evidence
    assert row["z"] == pytest.approx((sir.mean["c"] - kalman.mean["c"]) / kalman.sd["c"], rel=1e-5)
    assert row["r"] == pytest.approx(sir.sd["c"] / kalman.sd["c"], rel=1e-5)
    assert (table.loc[("exact", "c"), "verdict"], row["verdict"]) == ("good", sir.verdict.word)
    assert (table.loc[("Kalman", "c"), "z"], table.loc[("Kalman", "c"), "r"]) == (0.0, 1.0)
    assert table.loc[("few", "c"), "seconds"] > 0.0
    # A setting that does not fit this model is a reason to leave a method out, not to end the comparison.
    assert "masses" in comparison.refused
    assert "masses: " in repr(comparison)
    assert "exact by Kalman" in repr(comparison)


def test_one_figure_has_every_method(compared):
    pytest.importorskip("matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    _, comparison = compared
    (panel,) = comparison.plot({"c": 0.7})
    shown = [text.get_text() for text in panel.get_legend().get_texts()]
    assert sorted(shown) == sorted(["exact (Kalman)", "few", "Kalman", "truth"])


def test_growth_is_that_of_a_step(compared):
    _, comparison = compared
    result = comparison.results["few"]
    for power, expected in ((1, 1.0), (2, 7 / 3)):  # seconds so far like t, and like t^2: a step's like 1, and like t
        result.clock = tuple((t, 5.0 + (t / 40) ** power) for t in (4, 10, 20, 30, 40))
        assert growth(result) == pytest.approx(expected)
    result.clock = ((10, 1.0), (20, 1.0001), (30, 1.0002), (40, 1.0003))
    assert np.isnan(growth(result))  # too short to tell
    result.clock = ()
    assert np.isnan(growth(result))


def test_a_reference_may_be_given(compared):
    y, comparison = compared
    own = epf.compare(Drift(), y, [epf.Kalman()], exact=comparison.results["few"])
    assert own.table.loc[("Kalman", "c"), "r"] == pytest.approx(1.0 / comparison.table.loc[("few", "c"), "r"], rel=1e-5)
    by_history = epf.compare(Drift(), y, "kalman", exact=comparison.results["Kalman"].history)
    assert by_history.table.loc[("kalman", "c"), "z"] == pytest.approx(0.0, abs=1e-6)
    assert epf.compare(Drift(), y, [epf.Kalman(), epf.Kalman()], exact=None).table["z"].isna().all()


def test_bad_requests_are_one_sentence(compared):
    y, comparison = compared
    for methods, exact, words in (
        ({}, None, "at least one method"),
        (3, None, "give methods by name"),
        ({"x": 3}, None, "it must be a filter"),
        (["none"], None, "There is no method"),
        (["kalman"], "yes", "'auto', None"),
        (["kalman"], comparison.results["Kalman"].history.isel(time=slice(0, 5)), "the end of the series"),
    ):
        with pytest.raises(SettingError, match=words):
            epf.compare(Drift(), y, methods, exact=exact)


def test_an_interrupted_comparison_has_what_was_done(compared, monkeypatch):
    from epf.run import _compare as module

    y, _ = compared
    done = []

    def fit(model, y, method, **rest):
        if done:
            raise KeyboardInterrupt
        done.append(method)
        return epf.fit(model, y, method, **rest)

    monkeypatch.setattr(module, "fit", fit)
    with pytest.warns(EPFWarning, match="1 of 2 methods"):
        part = epf.compare(Drift(), y, {"a": epf.Kalman(), "b": epf.SIR(50)}, exact=None)
    assert list(part.results) == ["a"]


@pytest.mark.parametrize("exact", [None, "auto"])
def test_an_answer_after_fewer_observations_is_not_compared(compared, monkeypatch, exact):
    """Ctrl-C in a method, or in the reference."""
    y, _ = compared

    def fit(model, y, method, **rest):
        found = epf.fit(model, y[:5], method, **rest)
        found.interrupted = True
        return found

    monkeypatch.setattr("epf.run._compare.fit", fit)
    with pytest.warns(EPFWarning, match="0 of 1 methods"):
        part = epf.compare(Drift(), y, {"SIR": epf.SIR(20)}, exact=exact)
    assert (part.results, part.exact) == ({}, None)


@pytest.mark.parametrize(
    ("model", "method", "can"),
    [
        (epf.zoo.Sin(), epf.Storvik(10), "use epf.MarginalEPF"),
        (ThreeStates(), epf.PointMass(), "use epf.SIR, or epf.Kalman"),
        (epf.zoo.Sin(), epf.Kalman(), "extended"),
    ],
)
def test_a_method_that_cannot_names_one_that_can(model, method, can):
    with pytest.raises(UnsupportedModelError, match=can):
        epf.fit(model, np.zeros(3), method)


def test_what_has_no_exact_answer_has_none():
    from epf.run._compare import _exact

    assert _exact(VectorAR(), np.zeros((2, 2)), np.zeros((2, 1)), "auto", {}) is None


@pytest.mark.slow
def test_a_reference_that_does_not_trust_itself_is_not_taken(monkeypatch):
    from epf.run import _compare as module

    _, y = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=20, seed=1)
    monkeypatch.setattr(module, "PointMass", lambda: epf.PointMass(nodes=5, grid=3))
    found = epf.compare(epf.zoo.Sin(), y, {"SIR": epf.SIR(20)})
    assert found.exact is None
    assert found.table["z"].isna().all()
    assert "PointMass as the exact answer: do not trust. The mean of theta may be off" in repr(found)
    assert "exact by" not in repr(found)
    monkeypatch.setattr(module, "PointMass", lambda: epf.PointMass(nodes=49, grid=41))
    found = epf.compare(epf.zoo.Sin(), y, {"SIR": epf.SIR(20)})
    assert (found.exact.method, found.refused) == ("PointMass", {})
    assert found.table.loc[("exact", "theta"), "verdict"] == "good"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sin", "cauchy"])
def test_sir_and_liu_west_fail_where_the_paper_says_so(name):
    """Sections 5.1 and 5.2: with bootstrap proposals both are left with one value of theta, in the wrong place.

    The paper's figures have 50000 particles and several thousand steps (100 for Liu and West on the Cauchy model); fewer of
    both show the same. The exact posteriors are the committed ones; what is sound in the same table is so by them.
    """
    import xarray as xr

    from scoring import reference

    until, particles = {"sin": (1000, 1000), "cauchy": (300, 100)}[name]
    model, y, times, mean, sd = reference(name, 1, until)
    exact = xr.Dataset({"mean": (("time", "parameter"), mean), "sd": (("time", "parameter"), sd)}, {"time": times})
    methods = {
        "SIR": epf.SIR(1000, proposal=epf.proposals.Bootstrap(), islands=1),
        "Liu-West": epf.LiuWest(particles, proposal=epf.proposals.Bootstrap(), islands=1),
        "marginal": epf.MarginalEPF(90 if name == "sin" else 400),
    }
    comparison = epf.compare(model, y, methods, exact=exact)
    table = comparison.table.droplevel("parameter")
    print(table[["mean", "sd", "z", "r", "seconds", "growth"]].to_string())
    assert len(np.unique(np.asarray(comparison.results["SIR"].state.theta))) == 1
    for failing in ("SIR", "Liu-West"):
        assert table.loc[failing, "r"] < 0.01  # sure of itself
        assert abs(table.loc[failing, "z"]) > 2.0  # and wrong
    assert comparison.results["SIR"].verdict.word != "good"
    assert abs(table.loc["marginal", "z"]) < 0.2
    assert abs(table.loc["marginal", "r"] - 1.0) < 0.1
