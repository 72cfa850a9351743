"""Larger runs of the default: nodes drawn anew where the run before has ended, which go through the series once."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import halfnorm, norm

import epf
from epf.errors import UnsupportedModelError
from epf.filters._modes import Anew, ellipse_of, passes
from epf.results._certificate import PARTS
from epf.run._answer import renewed
from epf.run._search import reach

STEPS, MORE = 60, 20


class Level(epf.StateSpaceModel):
    """Two unknown scales: the likelihood is a Kalman filter's."""

    def prior(self):
        return {"move": dist.HalfNormal(1.0), "noise": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, p.move)

    def observation(self, p, x, u):
        return dist.Normal(x, p.noise)


def series(steps=STEPS):
    rng = np.random.default_rng(4)
    moves, noise = rng.normal(size=(2, STEPS + MORE))
    return (np.cumsum(0.4 * moves) + 0.6 * noise)[:steps]


def oracle(y):
    """Mean, sd and log-evidence by a sum over a grid of Kalman filters."""
    grid = np.exp(np.linspace(-6.0, 1.5, 301))
    move, noise = np.meshgrid(grid, grid, indexing="ij")
    mean, variance, log_density = np.zeros_like(move), np.ones_like(move), np.zeros_like(move)
    for value in y:
        variance = variance + move**2
        total = variance + noise**2
        log_density += norm.logpdf(value, mean, np.sqrt(total))
        mean, variance = mean + variance / total * (value - mean), variance * noise**2 / total
    log_density += (
        halfnorm.logpdf(move) + halfnorm.logpdf(noise) + np.log(move * noise) + 2.0 * np.log(np.log(grid[1] / grid[0]))
    )
    top = log_density.max()
    w = np.exp(log_density - top)
    evidence, w = top + np.log(w.sum()), w / w.sum()
    means = np.array([(w * part).sum() for part in (move, noise)])
    sds = np.array([np.sqrt((w * (part - m) ** 2).sum()) for part, m in zip((move, noise), means, strict=True)])
    return means, sds, evidence


@pytest.fixture(scope="module")
def fitted():
    """A small run, and what the search makes of it."""
    y, ran = series(), []

    def run(method):
        ran.append(method)
        return epf.fit(Level(), y, method, seed=2, progress=False)

    result, search = reach(epf.MarginalEPF(nodes=32), run, accuracy=0.015, budget=1e6)
    return SimpleNamespace(result=result, search=search, ran=ran, y=y)


def test_the_answer_is_the_exact_posterior(fitted):
    result, (means, sds, evidence) = fitted.result, oracle(fitted.y)
    assert isinstance(fitted.ran[1], Anew)
    assert result.error.worst < fitted.search.rounds[0].error.worst / 2
    for i, name in enumerate(("move", "noise")):
        assert abs(result.mean[name] - means[i]) / sds[i] < 2.0 * result.error.total[0, i]
        assert abs(np.log(result.sd[name] / sds[i])) < 2.0 * result.error.total[1, i]
    assert result.log_evidence == pytest.approx(evidence, abs=0.02)


def test_the_result_is_one_of_the_filter_itself(fitted, tmp_path):
    """With the history of the first run, and as if its nodes had moved once more: so it can be continued."""
    result, first = fitted.result, epf.fit(Level(), fitted.y, epf.MarginalEPF(nodes=32), seed=2, progress=False)
    assert isinstance(result.method, epf.MarginalEPF)
    assert result.method.nodes > 32
    assert result.settings["nodes"] == str(result.method.nodes)
    np.testing.assert_array_equal(result.record.mean[:-1], first.record.mean[:-1])
    assert result.record.mean.shape == (STEPS, 2)
    result.save(tmp_path / "run")
    more = series(STEPS + MORE)[STEPS:]
    again = [epf.fit(Level(), more, resume_from=one, seed=2) for one in (result, epf.load(tmp_path / "run", Level()))]
    assert again[0].mean == again[1].mean
    means, sds, evidence = oracle(series(STEPS + MORE))
    for i, name in enumerate(("move", "noise")):
        assert abs(again[0].mean[name] - means[i]) / sds[i] < 2.0 * again[0].error.total[0, i]
    assert again[0].log_evidence == pytest.approx(evidence, abs=0.02)
    # One step at a time, the first run does, whichever run the answer is of: several were larger.
    assert len(fitted.search.rounds) > 2
    np.testing.assert_array_equal(result.residuals(fitted.y).z, first.residuals(fitted.y).z)


def test_nodes_come_from_the_ellipse_and_stay(fitted):
    where = ellipse_of(fitted.result.bound, fitted.result.state)
    found = epf.fit(Level(), fitted.y, Anew(epf.MarginalEPF(nodes=64), (where,)), seed=2, progress=False)
    assert passes(found.state) == 1.0
    assert int(found.state.rounds) == 0
    # Where the posterior was, not where the prior is.
    assert np.ptp(np.log(np.asarray(found.state.old.theta)), axis=0).max() < 5.0
    assert passes(epf.fit(Level(), fitted.y, epf.MarginalEPF(nodes=32), progress=False).state) > 1.5


def test_what_either_run_has_set_aside_is_told(fitted):
    where = ellipse_of(fitted.result.bound, fitted.result.state)
    anew = epf.fit(Level(), fitted.y, Anew(epf.MarginalEPF(nodes=64), (where,)), seed=2, progress=False)
    before = epf.fit(Level(), fitted.y, epf.MarginalEPF(nodes=32), seed=2, progress=False)
    before.record.info.collapsed[3] = anew.record.info.collapsed[5] = True
    assert np.flatnonzero(renewed(before, anew).record.info.collapsed).tolist() == [3, 5]


def test_an_ellipse_of_another_model_is_refused(fitted):
    where = ellipse_of(fitted.result.bound, fitted.result.state)
    with pytest.raises(UnsupportedModelError, match="other parameters"):
        Anew(epf.MarginalEPF(), (where,)).bind(epf.fix(Level(), {"noise": 0.5}))


def test_a_run_that_is_interrupted_leaves_the_answer_of_the_one_before(fitted):
    runs = []

    def run(method):
        runs.append(epf.fit(Level(), fitted.y, method, seed=2, progress=False))
        runs[-1].interrupted = isinstance(method, Anew)
        return runs[-1]

    result, search = reach(epf.MarginalEPF(nodes=32), run, accuracy=0.015, budget=1e6)
    assert result is runs[0]
    assert len(runs) == 2
    assert len(search.rounds) == 1
    assert jnp.isfinite(result.error.worst)


def test_after_a_run_that_was_less_sure_nodes_come_from_the_prior_again(fitted):
    """The region that the run before had found was too narrow, or missed something."""
    ran, errors = [], [0.16, 0.5, 0.05, 0.05, 0.05]

    def run(method):
        result = epf.fit(Level(), fitted.y, method, seed=2, progress=False)
        for name in PARTS:
            getattr(result.record.error, name)[-1] = errors[len(ran)] if name == "expansion" else 0.0
        vars(result).pop("error", None)  # read by the warning already
        ran.append(type(method).__name__)
        return result

    _, search = reach(epf.MarginalEPF(nodes=32), run, accuracy=0.1, budget=1e6)
    assert ran[:3] == ["MarginalEPF", "Anew", "MarginalEPF"]
    assert "less sure" in search.doubts()[0].sentence
