"""Certificates of runs that are wrong: they are not called good, and the warning says what helps."""

import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import AccuracyWarning
from epf.model._parameters import Parameters
from epf.results._certificate import PARTS, Certificate, cause
from epf.results._verdict import MEAN_LIMIT, REMEDIES, SD_LIMIT, judge_error
from methods import FILTERS
from models import AR
from scoring import reference


def made(**parts):
    """A certificate of one parameter with these errors of mean and sd by cause, and no others."""
    found = {name: np.zeros((2, 1)) for name in PARTS}
    found |= {name: np.asarray(value, float).reshape(2, 1) for name, value in parts.items()}
    return Certificate(("a",), found)


def test_paths_that_have_degenerated_are_warned_of():
    """Issue 16: the EPF with few particles is dozens of sds off on heavy-tailed data, and was called good."""
    model, y, _, mean, sd = reference("cauchy", 1, 300)
    z = []
    for seed in (1, 2, 3):
        with pytest.warns(AccuracyWarning, match=r"may be off by"):
            result = epf.fit(model, y, epf.EPF(25), seed=seed, progress=False)
        z.append(abs(result.mean["a"] - mean[-1, 0]) / sd[-1, 0])
        assert result.verdict.word != "good"
        assert result.error.parts["monte_carlo"][0, 0] > MEAN_LIMIT
    assert max(z) > 1.0  # otherwise there was nothing to warn of


def test_parameters_that_never_move_are_warned_of():
    """SIR keeps the values it drew at the start, and after 300 steps a few of them are left."""
    _, y = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=300, seed=1)
    with pytest.warns(AccuracyWarning, match=r"^Do not trust this posterior\. .* Monte Carlo.* --budget 600"):
        result = epf.fit(epf.zoo.Sin(), y, epf.SIR(200), progress=False)
    assert result.verdict.word == "do not trust"
    history = result.history
    assert history["error"].dims == history["sd_error"].dims == ("time", "parameter")
    assert float(history["error"][-1, 0]) == pytest.approx(result.error.mean["theta"], rel=1e-5)
    assert float(history["error"][0, 0]) < float(history["error"][-1, 0])


@pytest.mark.slow
def test_a_stream_has_the_certificate_of_a_fit():
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=8, seed=1)
    method = epf.Storvik(40, islands=2)
    stream = epf.Stream(AR(), method)
    for row in y:
        stream.update(row)
    whole = epf.fit(AR(), y, method, progress=False)
    assert stream.error.labels == whole.error.labels == ("a", "v")
    for name in PARTS:
        np.testing.assert_array_equal(stream.error.parts[name], whole.error.parts[name])


def test_one_island_cannot_tell_its_error():
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=8, seed=1)
    with pytest.warns(AccuracyWarning, match="not measured.* names no method"):
        result = epf.fit(AR(), y, FILTERS["SIR"], progress=False)
    assert result.verdict.word == "doubtful"
    assert np.isnan(result.error.worst)


def test_a_good_verdict_says_the_largest_error_of_a_mean_and_of_an_sd():
    means, sds = (0.07, 0.11), (0.08, 0.02)
    one = Certificate(("top", "shock"), {**{name: np.zeros((2, 2)) for name in PARTS}, "bias": np.array([means, sds])})
    assert judge_error(one).level == 0
    assert judge_error(one).sentence == (
        "At most, the mean of shock may be off by 0.11 posterior sds, the sd of top by 8%."
    )


@pytest.mark.parametrize("part", PARTS)
def test_the_verdict_names_the_part_that_is_large_and_what_helps(part):
    good, doubtful, bad = (made(**{part: (share * MEAN_LIMIT, 0.0)}) for share in (0.9, 1.5, 3.0))
    assert [judge_error(one).level for one in (good, doubtful, bad)] == [0, 1, 2]
    assert REMEDIES[part] in judge_error(bad).sentence
    assert bad.largest_part == part


def test_an_sd_that_is_off_counts_as_much_as_a_mean():
    assert judge_error(made(bias=(0.0, 1.1 * SD_LIMIT))).level == 1
    assert judge_error(made(bias=(0.0, 0.9 * SD_LIMIT))).level == 0


@pytest.mark.parametrize("mean", [0.3, np.inf])
def test_an_error_that_is_not_known_is_no_number(mean):
    endless = judge_error(made(monte_carlo=(mean, np.inf)))
    assert endless.level == 2
    assert "off is not known, because of Monte Carlo: use more particles" in endless.sentence
    assert "inf" not in endless.sentence


def test_a_certificate_is_printed_with_its_parts():
    text = str(made(monte_carlo=(0.03, 0.04), bias=(0.1, 0.0)))
    assert "bias of the likelihood" in text
    assert "a " in text.splitlines()[1]
    assert "0.13" in text
    assert made(monte_carlo=(0.03, 0.04)).mean == pytest.approx({"a": 0.03})
    assert made(monte_carlo=(0.03, 0.04)).sd == pytest.approx({"a": 0.04})


def test_a_part_that_is_known_explains_one_that_is_not():
    """Islands whose polynomials diverged know nothing of their spread: the expansion is to blame."""
    parts = {name: np.zeros((2, 1)) for name in PARTS}
    infinite, large = np.full((2, 1), np.inf), np.full((2, 1), 3e6)
    assert cause({**parts, "monte_carlo": infinite}) == "monte_carlo"
    assert cause({**parts, "monte_carlo": infinite, "expansion": 1e-7 * large}) == "monte_carlo"
    assert cause({**parts, "monte_carlo": infinite, "expansion": large}) == "expansion"
    assert cause({**parts, "monte_carlo": np.full((2, 1), np.nan), "expansion": large}) == "expansion"
    assert cause({**parts, "monte_carlo": 2.0 * large, "expansion": large}) == "monte_carlo"


def test_a_prior_without_variance_is_named_as_a_cause():
    """The posterior of HalfCauchy that no data touch has no mean: more particles find none."""
    two = dist.StudentT(2.0).expand([2]).to_event(1)
    params = Parameters({"a": dist.HalfCauchy(1.0), "b": two, "c": dist.InverseGamma(1.0)})
    assert params.without_variance == ("a", "b[0]", "b[1]", "c")
    others = {"d": dist.HalfNormal(1.0), "e": dist.Categorical(np.ones(2) / 2), "f": dist.LKJCholesky(2)}
    assert Parameters(others).without_variance == ()
    assert "HalfNormal" in judge_error(made(monte_carlo=[0.5, 0.1])._replace(parameters=params)).sentence
    assert "HalfNormal" not in judge_error(made(monte_carlo=[0.5, 0.1])).sentence
    assert "HalfNormal" not in judge_error(made(monte_carlo=[0.1, 0.1])._replace(parameters=params)).sentence
