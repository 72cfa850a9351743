"""Other modes: found by a run outside of where the nodes are, and learnt by nodes of their own."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.special import logsumexp
from scipy.stats import halfnorm, norm

import epf
from epf.errors import NumericalError, UnsupportedModelError
from epf.filters._base import Caveat, start
from epf.filters._modes import FAR, Elsewhere, Modes, ellipse_of
from epf.filters.marginal._distribution import SkewStudent
from epf.filters.marginal._region import MOST, Region, radius
from epf.model._model import parameters
from epf.results._certificate import PARTS, Certificate
from epf.results._verdict import MethodFacts
from epf.run._default import Round
from epf.run._elsewhere import Missed, farther, log_evidence_of, look, missed, share_of
from epf.run._search import reach
from models import AR

NOISE = 0.1
METHOD = epf.MarginalEPF(nodes=128)


class MovingAverage(epf.StateSpaceModel):
    """y_t = e_t + a e_{t-1} with sd s: nearly the same likelihood at 1 / a and a s, so that there are two modes."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.5), "s": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), p.s).to_event(1)

    def transition(self, p, x, u):
        return dist.MultivariateNormal(jnp.stack([0.0 * x[0], x[0]]), jnp.diag(jnp.stack([p.s**2, 1e-8])))

    def observation(self, p, x, u):
        return dist.Normal(x[0] + p.a * x[1], NOISE)


def series(seed=3, steps=300, a=0.25):
    rng = np.random.default_rng(seed)
    shocks = rng.normal(size=steps + 1)
    return shocks[1:] + a * shocks[:-1] + NOISE * rng.normal(size=steps)


def oracle(y):
    """Mean, sd and log-evidence by sums over two grids, one at each mode; y has a covariance with three diagonals."""
    logs, at = [], []
    for a, s in (
        (np.linspace(-0.1, 0.55, 66), np.exp(np.linspace(np.log(0.85), np.log(1.25), 50))),
        (np.linspace(1.2, 8.5, 120), np.exp(np.linspace(np.log(0.1), np.log(0.8), 120))),
    ):
        found = np.zeros((len(a), len(s)))
        for i, each in enumerate(a):
            for j, sd in enumerate(s):
                band = np.zeros((2, len(y)))
                band[1], band[0, 1:] = sd**2 * (1 + each**2) + NOISE**2, sd**2 * each
                root = cholesky_banded(band)
                found[i, j] = -0.5 * y @ cho_solve_banded((root, False), y) - np.log(root[1]).sum()
        found += norm.logpdf(a, 0.0, 1.5)[:, None] + halfnorm.logpdf(s, scale=2.0) - 0.5 * len(y) * np.log(2 * np.pi)
        found += np.log((a[1] - a[0]) * np.log(s[1] / s[0]) * s)
        logs.append(found.ravel())
        at.append(np.stack([part.ravel() for part in np.meshgrid(a, s, indexing="ij")]))
    logs, at = np.concatenate(logs), np.concatenate(at, axis=1)
    evidence = logsumexp(logs)
    w = np.exp(logs - evidence)
    mean = at @ w
    return mean, np.sqrt(((at - mean[:, None]) ** 2) @ w), evidence


def numbers(middle, scale):
    """An ellipse as a method has it: a Gaussian with these sds."""
    q = len(middle)
    eye = tuple(tuple(float(i == j) for j in range(q)) for i in range(q))
    return tuple(middle), tuple(scale), (0.0,) * q, (1.0,) * q, eye


HERE = numbers((0.2, 0.0), (0.09, 0.06))  # of a and log s, around the mode that is invertible


@pytest.fixture(scope="module")
def fitted():
    y = series()
    return epf.fit(MovingAverage(), y, Modes(METHOD, (HERE,)), seed=3), oracle(y), y


@pytest.mark.slow
def test_both_modes_are_in_the_answer(fitted):
    result, (mean, sd, evidence), _ = fitted
    for i, name in enumerate(("a", "s")):
        assert result.mean[name] == pytest.approx(mean[i], abs=0.05 * sd[i])
        assert result.sd[name] == pytest.approx(sd[i], rel=0.05)
    assert result.log_evidence == pytest.approx(evidence, abs=0.05)
    assert result.error.worst < 0.1
    assert result.verdict.word == "good"
    assert result.settings["regions"] == "2, with nodes each"


@pytest.mark.slow
def test_quantiles_draws_and_forecasts_know_both(fitted):
    result, (mean, sd, _), _ = fitted
    draws = result.sample(4000, seed=1)["a"]
    assert 0.02 < np.mean(draws > 1.2) < 0.09
    assert np.mean(draws) == pytest.approx(mean[0], abs=0.07 * sd[0])
    assert result.quantile(0.5)["a"] < 0.5
    assert result.quantile(0.999)["a"] > 2.0
    assert np.all(np.isfinite(result.forecast(2, seed=1).mean))


@pytest.mark.slow
def test_the_method_is_kept_in_files(fitted, tmp_path):
    result, _, y = fitted
    result.save(tmp_path / "run.epf")
    again = epf.load(tmp_path / "run.epf", MovingAverage())
    assert again.method == result.method
    more, same = (epf.fit(MovingAverage(), y[:4], resume_from=one, seed=3) for one in (result, again))
    assert more.num_observations == len(y) + 4
    assert more.mean["a"] == same.mean["a"]


@pytest.mark.slow
def test_a_look_finds_what_is_elsewhere(fitted):
    """By sums over the grids, 5% of the posterior is at the other mode."""
    _, (_, _, evidence), y = fitted
    elsewhere = epf.fit(MovingAverage(), y, Elsewhere(METHOD, (HERE,)), seed=3)
    share = np.exp(elsewhere.log_evidence - evidence)
    assert 0.045 < share < 0.065
    assert elsewhere.mean["a"] > 2.0


@pytest.mark.slow
def test_the_default_finds_both_modes():
    for seed in (1, 2, 3):
        y = series(seed)
        mean, sd, _ = oracle(y)
        result = epf.fit(MovingAverage(), y, seed=seed, budget=300.0)  # also on a busy machine
        for i, name in enumerate(("a", "s")):
            assert result.mean[name] == pytest.approx(mean[i], abs=0.1 * sd[i])
            assert result.sd[name] == pytest.approx(sd[i], rel=0.1)
        assert result.verdict.word == "good"
        assert "elsewhere: " in result.settings["chosen"]


@pytest.mark.slow
def test_ellipses_are_of_one_model(fitted):
    result, _, _ = fitted
    with pytest.raises(UnsupportedModelError, match="other parameters"):
        result.method.bind(epf.zoo.Sin())


def ellipse(middle, scale=1.0):
    q = len(middle)
    return SkewStudent(jnp.asarray(middle), jnp.full(q, scale), jnp.zeros(q), jnp.ones(q), jnp.eye(q))


def test_the_middle_of_a_mode_is_inside_of_its_region_alone():
    """A thousandth of a mode that is twenty times as large would matter beside what is outside."""
    region = Region.of([ellipse([0.0, 0.0])], None, ellipse([0.0, 0.0]))
    angles = jnp.linspace(0.0, 6.0, 13)
    half = 0.5 * radius(2) * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    assert np.max(region.log_share(half[None])) < np.log(1e-4)


def test_shares_of_regions_add_up_to_the_whole():
    one, two, unused = ellipse([0.0, 0.0]), ellipse([8.0, 1.0], 0.5), ellipse([0.0, 0.0])
    regions = [Region.of([], one, unused), Region.of([one], two, unused), Region.of([one, two], None, unused)]
    z = jnp.asarray(np.random.default_rng(0).uniform(-12.0, 12.0, (1, 500, 2)))
    shares = np.exp([region.log_share(z) for region in regions])
    assert shares.sum(axis=0) == pytest.approx(1.0, abs=1e-5)
    assert np.all(Region.of([], None, unused).log_share(z) == 0.0)
    middles = jnp.asarray([[[0.0, 0.0], [8.0, 1.0]]])
    assert np.exp([region.log_share(middles) for region in regions]) == pytest.approx(
        np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), abs=1e-3
    )
    # Regions have the symmetries of the nodes: a point is inside if one of its images is.
    mirrored = jnp.stack([z[0], -z[0]])
    assert np.asarray(regions[1].log_share(mirrored)) == pytest.approx(
        np.asarray(regions[1].log_share(mirrored[::-1])), abs=1e-5
    )


@functools.cache
def nodes():
    """A filter that has seen nothing."""
    bound = METHOD.bind(MovingAverage())
    return bound, start(bound, jax.random.key(0))


@pytest.mark.slow
def test_a_look_has_the_program_of_the_first_run():
    """Only numbers differ, so nothing is compiled again."""
    bound, _ = nodes()
    elsewhere = Elsewhere(METHOD, (HERE,)).bind(MovingAverage())
    assert jax.tree.structure(bound) == jax.tree.structure(elsewhere)
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(one)] for one in (bound, elsewhere)]
    assert shapes[0] == shapes[1]


@pytest.mark.slow
def test_when_to_look(fitted):
    result, _, _ = fitted
    bound, state = nodes()
    assert look(epf.SIR(100), bound, state, METHOD) is None
    assert look(METHOD, bound, state, epf.SIR(100)) is None
    assert look(METHOD, epf.Kalman(extended=True).bind(MovingAverage()), None, METHOD) is None  # no nodes
    assert look(METHOD, bound, state, METHOD).ellipses == (ellipse_of(bound, state),)
    again = look(result.method, result.bound, result.state, METHOD)
    assert again.ellipses[:1] == result.method.ellipses
    assert again.ellipses[1][0][0] > 2.0  # what is outside of the first is at the other mode
    full = dataclasses.replace(result.method, ellipses=(*again.ellipses, HERE))
    assert len(full.ellipses) == MOST - 1
    assert look(full, result.bound, result.state, METHOD) is None


@pytest.mark.slow
def test_regions_have_their_share_of_the_prior():
    """While nothing is seen, evidence is the prior's own mass: 1 in all, and outside of an ellipse what sums give.

    128 nodes tell it to within a tenth.
    """
    model, y = MovingAverage(), np.full(4, np.nan)
    wide = numbers((0.0, 0.0), (0.3, 0.2))
    assert epf.fit(model, y, Modes(METHOD, (wide,))).log_evidence == pytest.approx(0.0, abs=0.1)
    outside = epf.fit(model, y, Elsewhere(METHOD, (wide,)))
    a, log_s = np.meshgrid(np.linspace(-7.5, 7.5, 401), np.linspace(-8.0, 2.5, 401))
    mass = norm.pdf(a, scale=1.5) * halfnorm.pdf(np.exp(log_s), scale=2.0) * np.exp(log_s)
    share = np.exp(outside.bound.region.log_share(jnp.stack([a.ravel(), log_s.ravel()], axis=1)[None]))
    exact = np.sum(mass.ravel() * share) / mass.sum()
    assert 0.1 < exact < 0.9
    assert np.exp(log_evidence_of(outside.log_evidence, outside.bound)) == pytest.approx(exact, abs=0.05)


def test_the_share_of_two_runs():
    assert share_of(-10.0, -10.0) == pytest.approx(0.5)
    assert share_of(-2000.0, -10.0) == 0.0
    assert share_of(-10.0, -2000.0) == 1.0


def answer(method, log_evidence, mean, error=0.05, seconds=1.0, sd=1.0, **settings):
    """What a search looks at in a result: nodes at some place, an answer and its error."""
    found = {name: np.full((2, 2), error if name == "expansion" else 0.0) for name in PARTS}
    record = SimpleNamespace(mean=np.array([[mean, 0.0]]), sd=np.array([[sd, 1.0]]))
    bound, state = nodes()
    facts = {"seconds_of_steps": seconds, "interrupted": False, "settings": {"filters": "Kalman", **settings}}
    facts |= {"method_facts": MethodFacts(), "parameters": parameters(MovingAverage()), "log_evidence": log_evidence}
    error = Certificate(("a", "s"), found)
    return SimpleNamespace(error=error, record=record, bound=bound, state=state, method=method, **facts)


def both_modes(log_evidence, mean):
    """Mean and sd of a mode at 0 and another with this log-evidence."""
    share = 1.0 / (1.0 + np.exp(-log_evidence))
    return share * mean, np.sqrt(1.0 + share * (1.0 - share) * mean**2)


def searched(elsewhere, modes=None, first=0.05, far=(-30.0, 0.0), together=None, evidence=0.0, **settings):
    """A first run at a = 0, and what those that follow it find: their log-evidence, relative to it, and the mean of a.

    Nodes at both modes have the mean and sd of both, or what they have `together`, and this log-`evidence`.
    """
    ran = []
    mean, sd = together or both_modes(*max(elsewhere, far))

    def run(method):
        ran.append(method)
        if isinstance(method, Elsewhere):
            found = far if method.reach == FAR else elsewhere
            return answer(method, *(found if len(method.ellipses) == 1 else (-30.0, 0.0)))
        if isinstance(method, Modes):
            if modes is None:
                raise NumericalError("At t = 7 there was no number: look at the laws.", time=7)
            return answer(method, evidence, mean, error=modes, sd=sd)
        return answer(method, 0.0, 0.0, error=first)

    result, search = reach(METHOD, run, 0.1, **{"budget": 60.0, **settings})
    doubts = [caveat.sentence for caveat in result.method_facts.caveats if caveat.level]
    return result, [type(method).__name__ for method in ran], search.notes, doubts


def test_nothing_elsewhere_changes_nothing():
    result, ran, notes, doubts = searched((-12.0, 5.0))
    assert ran == ["MarginalEPF", "Elsewhere", "Elsewhere"]
    assert notes[-2:] == ["elsewhere: 6e-06 of the posterior", "far away: 9e-14 of the posterior"]
    assert isinstance(result.method, epf.MarginalEPF)
    assert doubts == []


def test_a_mode_elsewhere_gets_nodes_of_its_own_and_what_is_left_is_looked_at_again():
    """The new answer counts, even if its own error is larger: the old one spoke of one mode alone."""
    result, ran, notes, doubts = searched((-1.0, 5.0), modes=0.09)
    assert ran == ["MarginalEPF", "Elsewhere", "Modes", "Elsewhere", "Elsewhere"]
    assert isinstance(result.method, Modes)
    assert notes[1:3] == ["elsewhere: 0.3 of the posterior", "128 nodes for each mode: error 0.09 (expansion)"]
    assert doubts == []


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95, 1.0])
def test_nodes_at_both_modes_that_do_not_have_both_are_doubted(share):
    """They went to what a look had found, and lost it again: one of the two is wrong."""
    mean, sd = both_modes(-1.0, 5.0)
    _, ran, _, doubts = searched((-1.0, 5.0), modes=0.05, together=(share * mean, 1.0 + share * (sd - 1.0)))
    assert "Modes" in ran
    assert [doubt[:35] for doubt in doubts] == (["A look elsewhere found that a has me"[:35]] if share < 0.9 else [])


@pytest.mark.parametrize("gained", [-0.5, 0.05, 0.2, 2.0])
def test_nodes_may_find_more_of_a_mode_than_a_look_that_saw_a_part_of_it(gained):
    """Then they have more evidence than both runs before, by more than the errors of 0.05 each."""
    found = np.logaddexp(0.0, -1.0)
    doubts = searched((-1.0, 5.0), modes=0.05, together=both_modes(1.0, 5.0), evidence=found + gained)[3]
    assert [doubt[:35] for doubt in doubts] == (["A look elsewhere found that a has me"[:35]] if gained < 0.1 else [])


def test_an_entry_that_is_always_the_same_is_not_lost():
    """The diagonal of a correlation matrix is one, with an sd of rounding."""
    expected = np.array([[1.0, 5.0], [3e-8, 2.0]])
    found = Missed(Modes(METHOD, (HERE,)), Caveat(1, ""), expected)
    one = Round.of(METHOD, answer(METHOD, 0.0, 1.0 + 2e-7, sd=6e-8))
    same = one._replace(answer=np.array([[1.0 + 2e-7, 5.0], [6e-8, 2.0]]))
    assert found.lost(same, 0.2) == []
    assert len(found.lost(same._replace(answer=np.array([[1.0, 7.0], [6e-8, 2.0]])), 0.2)) == 1


@pytest.fixture
def as_they_are(monkeypatch):
    """Results of nodes that are drawn anew stay what they are: those here have no history."""
    monkeypatch.setattr("epf.run._search.renewed", lambda before, anew: anew)


def test_nodes_at_each_mode_are_as_many_as_there_is_time_for(as_they_are):
    """Nodes at two modes at once need to be many; nodes at one mode each do not."""
    ran = []

    def run(method):
        ran.append(method)
        if isinstance(method, Elsewhere):
            return answer(method, *((-1.0, 5.0) if len(method.ellipses) == 1 else (-30.0, 0.0)))
        if isinstance(method, Modes):
            mean, sd = both_modes(-1.0, 5.0)
            return answer(method, 0.0, mean, error=0.05, seconds=2.0, sd=sd)
        few = method == METHOD
        return answer(method, 0.0, 0.0, error=0.25 if few else 0.05, seconds=1.0 if few else 40.0)

    result, search = reach(METHOD, run, 0.1, 60.0)
    names = [type(one).__name__ for one in ran]
    assert names == ["MarginalEPF", "Anew", "Elsewhere", "Modes", "Elsewhere", "Elsewhere"]
    assert ran[1].inner.nodes > METHOD.nodes
    assert result.method.inner == METHOD
    assert not any(caveat.level for caveat in result.method_facts.caveats)
    assert search.notes[-3] == "128 nodes for each mode: error 0.05 (expansion)"


def test_a_far_mode_that_the_near_look_misses_gets_nodes_too():
    result, ran, notes, doubts = searched((-12.0, 5.0), modes=0.05, far=(-1.0, 400.0))
    assert ran == ["MarginalEPF", "Elsewhere", "Elsewhere", "Modes", "Elsewhere", "Elsewhere"]
    assert notes[1:3] == ["elsewhere: 6e-06 of the posterior", "far away: 0.3 of the posterior"]
    assert isinstance(result.method, Modes)
    assert doubts == []


def test_a_near_look_that_is_not_sure_is_made_larger_after_the_far_one():
    """And what it may have seen is doubted, whatever is far away."""
    ran = []

    def run(method):
        ran.append(method)
        if isinstance(method, Elsewhere) and method.reach < FAR:
            return answer(method, -1.0, 5.0, error=0.7, seconds=8.0, points="32")
        return answer(method, -30.0 if isinstance(method, Elsewhere) else 0.0, 0.0, points="32")

    result, search = reach(METHOD, run, 0.1, 14.0)
    assert [type(one).__name__ for one in ran] == ["MarginalEPF", "Elsewhere", "Elsewhere", "Elsewhere"]
    assert [one.reach == FAR for one in ran[1:]] == [False, True, False]
    assert ran[3].inner.nodes > ran[1].inner.nodes
    assert search.notes[2].startswith("far away: ")
    sentences = [caveat.sentence for caveat in result.method_facts.caveats if caveat.level]
    assert [sentence[:26] for sentence in sentences] == ["There may be another mode:"]


def test_nobody_looks_far_away_where_the_prior_has_nothing():
    near = Elsewhere(METHOD, (numbers((0.0, 0.0), (0.02, 0.02)),))
    assert farther(near, near.bind(MovingAverage())) == dataclasses.replace(near, reach=FAR)
    wide = Elsewhere(METHOD, (numbers((0.0, 0.0), (2.0, 2.0)),))
    assert farther(wide, wide.bind(MovingAverage())) is None


@pytest.mark.parametrize(("settings", "failed"), [({"budget": 2.5}, False), ({}, True)])
def test_a_mode_that_cannot_be_had_is_told(settings, failed):
    """The budget ends, or the run with both modes fails: the answer of one mode is left, and doubted."""
    result, ran, _, doubts = searched((-1.0, 5.0), **settings)
    assert ran == ["MarginalEPF", "Elsewhere", *(["Modes"] if failed else [])]
    assert isinstance(result.method, epf.MarginalEPF)
    assert doubts[0] == "Another mode has 0.27 of the posterior: a near 5, where this answer has 0 (sd 1)."
    assert len(doubts) == 1 + failed


def test_a_method_of_the_users_choice_is_not_replaced_and_what_it_misses_is_told():
    result, ran, _, doubts = searched((-1.0, 5.0), only=True)
    assert ran == ["MarginalEPF", "Elsewhere"]
    assert isinstance(result.method, epf.MarginalEPF)
    assert doubts[0].startswith("Another mode has 0.27 of the posterior")
    assert searched((-12.0, 5.0), only=True)[3] == []
    assert searched((-1.0, 5.0), first=0.5, only=True)[1] == ["MarginalEPF"]  # its error is enough of a doubt


@pytest.mark.slow
def test_fit_looks_after_a_marginal_filter_and_after_no_other(monkeypatch):
    asked = []
    monkeypatch.setattr("epf.run._search.look", lambda method, *_: asked.append(method))
    y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=40, seed=6)[1]
    method = epf.MarginalEPF(nodes=64)
    result = epf.fit(AR(), y, method)
    assert asked == [method]
    epf.fit(AR(), y[:2], resume_from=result)
    epf.fit(AR(), y, epf.SIR(20, islands=2))
    assert asked == [method]


@pytest.mark.slow
def test_panels_look_too():
    """A panel doubts what `epf.fit` doubts: nodes of some series follow one of the modes, and a look finds the other."""
    y = series()
    panel = epf.fit_panel(MovingAverage(), dict.fromkeys("abcd", y), METHOD, seed=3)
    for key in "abcd":
        assert panel[key].verdict == epf.fit(MovingAverage(), y, METHOD, seed=panel[key].seed).verdict


def test_nobody_looks_where_the_budget_has_ended():
    assert searched((-1.0, 5.0), budget=0.9)[1] == ["MarginalEPF"]
    assert searched((-1.0, 5.0), budget=4.5)[1][:2] == ["MarginalEPF", "Elsewhere"]


def test_nobody_looks_where_the_answer_is_not_sure(as_they_are):
    """The verdict says enough. (More nodes do not help here.)"""
    assert set(searched((-1.0, 5.0), first=0.5)[1]) == {"MarginalEPF", "Anew"}


def test_a_run_with_both_modes_that_is_not_sure_is_not_the_answer():
    result, ran, _, doubts = searched((-1.0, 5.0), modes=5.0)
    assert ran[:3] == ["MarginalEPF", "Elsewhere", "Modes"]
    assert isinstance(result.method, epf.MarginalEPF)
    assert doubts[0].startswith("Another mode has 0.27 of the posterior")


def test_a_look_that_is_not_sure_counts_if_its_filters_are_exact():
    here, there = (Round.of(METHOD, answer(METHOD, 0.0, mean, error)) for mean, error in ((0.0, 0.05), (5.0, 2.0)))
    assert missed(here, there, 0.3, 0.1, lambda: HERE).method == Modes(METHOD, (HERE,))
    assert "may be another mode" in missed(here, there._replace(inside="points"), 0.3, 0.1, lambda: HERE).doubt.sentence
    assert missed(here, there, 1e-6, 0.1, lambda: HERE) is None


@pytest.mark.parametrize(("claim", "then"), [(-30.0, None), (-8.0, -1.0), (-1.0, -12.0), (-1.0, 0.5)])
def test_what_a_look_of_few_points_claims_is_checked_by_a_larger_one(claim, then):
    """If it may matter; if the larger one is not sure either, the answer is doubted. `then` is the larger one's claim."""
    looks = []

    def run(method):
        if isinstance(method, Elsewhere) and len(method.ellipses) == 1 and method.reach < FAR:
            looks.append(method)
            larger = method.inner.nodes > METHOD.nodes
            if larger and then > 0.0:  # not sure
                return answer(method, claim, 5.0, error=then, seconds=50.0, points="32")
            return answer(method, then if larger else claim, 5.0, error=0.05 if larger else 0.7, points="32")
        if isinstance(method, Modes):
            mean, sd = both_modes(then, 5.0)
            return answer(method, 0.0, mean, sd=sd, points="32")
        return answer(method, -30.0 if isinstance(method, Elsewhere) else 0.0, 0.0, points="32")

    result, search = reach(METHOD, run, 0.1, 60.0)
    doubts = [caveat.sentence for caveat in result.method_facts.caveats if caveat.level]
    assert len(looks) == (1 if then is None else 2)
    assert isinstance(result.method, Modes) == (then == -1.0)
    assert [sentence[:26] for sentence in doubts] == (["There may be another mode:"] if then == 0.5 else [])
    assert search.notes[1] == "elsewhere: not known"
