"""The default method: what it begins with, when it takes more, and that it gets there."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import NumericalError, SettingError
from epf.filters.marginal._mixture_kalman import GAUSSIANS
from epf.model._model import parameters
from epf.results._certificate import PARTS, Certificate
from epf.results._verdict import MethodFacts
from epf.run._default import choose, enlarged, size_of
from epf.run._search import reach
from models import AR, SwitchedAR, exact_coefficient

KNOWN = epf.fix(AR(), {"v": 0.5})


class Coin(AR):
    """A parameter that is one of two numbers."""

    def prior(self):
        return {"heads": dist.Bernoulli(0.5)}

    def transition(self, p, x, u):
        return dist.Normal(0.5 * p.heads * x, 1.0)


class Count(Coin):
    """A parameter that may be any whole number."""

    def prior(self):
        return {"heads": dist.Poisson(1.0)}


class Pair(AR):
    """A state of two numbers that are not Gaussian."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0).expand([2]).to_event(1)

    def transition(self, p, x, u):
        return dist.StudentT(4.0, p.a * x, 1.0).to_event(1)

    def observation(self, p, x, u):
        return dist.Normal(x[0] * x[1], 1.0)


class Sensor(AR):
    """Four parameters: the sensor has an offset and a noise of its own."""

    def prior(self):
        return {**super().prior(), "offset": dist.Normal(0.0, 1.0), "noise": dist.HalfNormal(1.0)}

    def observation(self, p, x, u):
        return dist.Normal(x + p.offset, p.noise)


class HeavySensor(Sensor):
    """The offset's prior is not Gaussian."""

    def prior(self):
        return {**super().prior(), "offset": dist.StudentT(3.0)}


def run_of(method, seconds=0.1, mean=0.0, sd=1.0, **parts):
    """What `reach` looks at in a result: the answer, and errors by cause, of mean and sd alike; `means` for means alone."""
    found = {name: np.full((2, 1), float(parts.get(name, 0.0))) for name in PARTS}
    found["expansion"][0] += parts.get("means", 0.0)
    error = Certificate(("a",), found)
    facts = {"seconds_of_steps": seconds, "interrupted": False, "settings": {}, "method_facts": MethodFacts()}
    facts["parameters"] = parameters(KNOWN)
    record = SimpleNamespace(mean=np.array([[mean]]), sd=np.array([[sd]]))
    return SimpleNamespace(error=error, record=record, **facts, bound=None, state=None, log_evidence=0.0, method=method)


def test_the_method_is_chosen_by_the_model():
    linear = epf.zoo.LinearGaussian.rotation(2, 2)
    assert isinstance(choose(linear, None), epf.Kalman)
    assert choose(epf.fix(epf.zoo.Sin(), {"theta": 0.7}), None) == epf.SIR(1000)
    one, two = choose(epf.zoo.Sin(), None), choose(AR(), None)
    assert isinstance(one, epf.MarginalEPF)
    assert isinstance(two, epf.MarginalEPF)
    assert (one.nodes, two.nodes) == (64, 128)
    assert choose(Sensor(), None).nodes == 192  # the filters learn the offset
    assert choose(HeavySensor(), None).nodes == 400
    assert choose(Pair(), None).nodes == 32  # with particles half as many
    assert choose(Coin(), None) == epf.MultipleModel(epf.MarginalEPF(2000))  # nothing else is unknown
    assert choose(SwitchedAR(), None) == epf.MultipleModel(epf.MarginalEPF(nodes=64))
    assert choose(Count(), None) == epf.SIR(10_000)


def test_the_filters_of_all_values_grow_together():
    method, found = epf.MultipleModel(epf.MarginalEPF(100, 16)), run_of(epf.MarginalEPF(100, 16), monte_carlo=0.14)
    assert enlarged(method, found, 0.1, 100.0) == epf.MultipleModel(epf.MarginalEPF(400, 16))
    # All of them must fit into memory.
    found.settings = {"banks": "64", "particles": "many"}
    many = epf.MultipleModel(epf.MarginalEPF(1 << 11, 16))
    assert enlarged(many, found, 0.1, 100.0) is None
    alone = epf.MultipleModel(epf.MarginalEPF(100))  # without nodes, as nothing else is unknown
    assert enlarged(alone, run_of(epf.MarginalEPF(100, 16), monte_carlo=0.14), 0.1, 100.0).inner.particles == 400
    assert size_of(alone) == "100 particles for each value"


def test_an_answer_that_is_accurate_enough_is_not_improved():
    method = epf.MarginalEPF(200, 16)
    assert enlarged(method, run_of(method, monte_carlo=0.09), 0.1, 100.0) is None
    nothing = SimpleNamespace(error=Certificate((), {name: np.zeros((2, 0)) for name in PARTS}))
    assert enlarged(epf.Kalman(), nothing, 0.1, 100.0) is None


@pytest.mark.parametrize(
    ("parts", "most", "particles", "nodes"),
    [
        ({"monte_carlo": 0.14}, 100.0, 4, 1),  # 1.2 times (0.14 / 0.07)^2, the nearest power of two
        ({"bias": 10.0}, 100.0, 16, 1),  # at most so many times at once
        (dict.fromkeys(PARTS, np.nan), 100.0, 16, 4),  # nothing is known
        ({"expansion": 0.09, "truncation": 0.05}, 100.0, 1, 4),
        ({"expansion": 5.0}, 100.0, 1, 4),
        ({"monte_carlo": 0.14, "truncation": 0.3}, 100.0, 4, 4),
        ({"bias": 10.0}, 5.0, 4, 1),  # as much as the budget allows
        ({"monte_carlo": 0.14, "truncation": 0.3}, 5.0, 1, 4),  # the worst part first
    ],
)
def test_the_part_that_is_large_decides_what_there_is_more_of(parts, most, particles, nodes):
    method = epf.MarginalEPF(100, 16)
    larger = enlarged(method, run_of(method, **parts), 0.1, most)
    assert larger is not None
    assert (larger.particles, larger.nodes) == (100 * particles, 16 * nodes)
    assert dataclasses.replace(larger, particles=100, nodes=16) == method


@pytest.mark.parametrize(("parts", "most"), [({"monte_carlo": 0.2}, 1.2), ({"numbers": 0.3}, 100.0)])
def test_nothing_more_is_bought_where_the_budget_ends_or_nothing_helps(parts, most):
    method = epf.MarginalEPF(100, 16)
    assert enlarged(method, run_of(method, **parts), 0.1, most) is None


@pytest.mark.parametrize(
    ("noise", "points", "then"),
    [
        (0.12, 32, {"points": 64}),
        (9.0, 32, {"points": 128}),
        (0.12, 128, {"exact": False}),  # what so many points do not resolve is left to particles
        (0.05, 32, {"nodes": 64}),
    ],
)
def test_a_quadrature_gets_points_until_they_do_not_help(noise, points, then):
    method = epf.MarginalEPF(100, 16, points=points)
    result = run_of(method, monte_carlo=noise, expansion=0.3)
    result.settings.update(filters="quadrature over the state", points="some")
    assert enlarged(method, result, 0.1, 100.0) == dataclasses.replace(method, **then)


@pytest.mark.parametrize(
    ("parts", "then"),
    [
        ({"numbers": 0.3, "monte_carlo": 9.0}, {"particles": 256, "exact": False}),
        ({"numbers": 0.05, "monte_carlo": 0.14}, {"particles": 128}),
    ],
)
def test_gaussians_that_leave_too_much_out_become_draws(parts, then):
    method = epf.MarginalEPF(32, 16)
    result = run_of(method, **parts)
    result.settings.update(filters=f"{GAUSSIANS}: what is said of them", particles="some")
    assert enlarged(method, result, 0.1, 100.0) == dataclasses.replace(method, **then)


def test_where_one_node_has_all_weight_particles_come_first():
    method = epf.MarginalEPF(100, 16)
    found = run_of(method, numbers=np.inf, expansion=1.0)
    assert enlarged(method, found, 0.1, 16.0) == epf.MarginalEPF(1600, 16)
    assert enlarged(method, found, 0.1, 64.0) == epf.MarginalEPF(1600, 64)


def test_a_method_without_nodes_gets_particles_and_none_more_than_fit_into_memory():
    assert enlarged(epf.SIR(1000), run_of(epf.SIR(1000), monte_carlo=0.2), 0.1, 100.0) == epf.SIR(8000)
    huge = epf.SIR(1 << 21)
    assert enlarged(huge, run_of(huge, monte_carlo=0.2), 0.1, 100.0) is None


def test_rounds_end_with_the_accuracy_or_with_the_budget():
    """Errors that fall with the root of the number of particles, at a second per 100 of them and node."""

    def run(method):
        noise = 0.38 / np.sqrt(method.particles / 100)
        return run_of(method, seconds=method.particles / 100, monte_carlo=noise)

    method = epf.MarginalEPF(100, 16)
    result, search = reach(method, run, 0.1, budget=1000.0)
    assert result.error.worst <= 0.1
    assert [one.method.particles for one in search.rounds] == [100, 1600]
    assert "16 nodes x 1600 particles: error 0.095 (Monte Carlo)" in str(search.rounds[-1])

    result, search = reach(
        method, run, 0.1, budget=2.2
    )  # after the first second there is too little left for twice the work
    assert len(search.rounds) == 1
    assert result.error.worst == pytest.approx(0.38)

    stopped = run_of(method, monte_carlo=0.4)
    stopped.interrupted = True
    result, search = reach(method, lambda _: stopped, 0.1, budget=1000.0)
    assert result is stopped
    assert [one[:4] for one in search.rounds] == [(method, stopped.error, 0.1, "particles")]


def test_a_model_and_data_are_enough():
    _, y = epf.simulate(KNOWN, {"a": 0.8}, steps=50, seed=6)
    mean, sd, log_evidence = exact_coefficient(y)
    result = epf.fit(KNOWN, y, progress=False)
    assert result.error.worst <= 0.1
    assert abs(result.mean["a"] - mean) < 0.1 * sd
    assert result.sd["a"] == pytest.approx(sd, rel=0.05)
    assert result.log_evidence == pytest.approx(log_evidence, abs=0.25)
    assert result.verdict.word == "good"
    assert isinstance(result.method, epf.MarginalEPF)
    assert result.settings["chosen"].startswith("64 nodes: error ")
    more = epf.fit(KNOWN, y[:5], resume_from=result, progress=False)
    assert more.num_observations == 55
    assert more.method == result.method


def test_a_budget_that_is_used_up_ends_the_search():
    """The answer is the best there is, and says how far it got."""
    _, y = epf.simulate(KNOWN, {"a": 0.8}, steps=50, seed=6)
    result = epf.fit(KNOWN, y, accuracy=1e-6, budget=1e-3, progress=False)
    assert result.error.worst > 1e-6
    assert ";" not in result.settings["chosen"]


@pytest.mark.parametrize("wrong", [{"accuracy": 0.0}, {"accuracy": "high"}, {"budget": -1.0}, {"budget": np.nan}])
def test_limits_that_make_no_sense(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        epf.fit(KNOWN, np.zeros(3), **wrong)


@pytest.mark.parametrize(("second", "interrupted", "kept"), [(0.5, False, 0), (0.15, False, 1), (0.05, True, 0)])
def test_the_answer_is_that_of_the_best_run_that_went_to_the_end(second, interrupted, kept):
    method, runs = epf.MarginalEPF(100, 16), []

    def run(method):
        runs.append(run_of(method, monte_carlo=second if runs else 0.3, seconds=20.0))
        runs[-1].interrupted = interrupted and len(runs) == 2
        return runs[-1]

    result, search = reach(method, run, 0.1, 60.0)
    assert len(search.rounds) == 2
    assert result is runs[kept]


def test_a_larger_run_without_room_in_memory_does_not_cost_the_answer():
    for error in (SettingError("It asks for too much."), MemoryError()):
        runs = []

        def run(method, runs=runs, error=error):
            if runs:
                raise error
            runs.append(run_of(method, monte_carlo=0.3, seconds=20.0))
            return runs[-1]

        result, search = reach(epf.MarginalEPF(100, 16), run, 0.1, 60.0)
        assert result is runs[0]
        assert ["A larger run" in caveat.sentence for caveat in search.doubts()] == [True]
        with pytest.raises(SettingError):
            reach(epf.MarginalEPF(100, 16), run, 0.1, 60.0)


@pytest.mark.parametrize(
    ("mean", "sd", "contradicted"),
    [(0.7, 1.0, False), (1.5, 1.0, True), (0.0, 0.7, False), (0.0, 0.4, True), (0.0, 3.0, True)],
)
def test_runs_that_contradict_each_other_are_doubted(mean, sd, contradicted):
    """Means or sds further apart than twice both certificates, 0.3 and 0.08 sds, allow: a mode was lost, say."""
    method, runs = epf.MarginalEPF(100, 16), []

    def run(method):
        first = {"mean": mean, "sd": sd, "monte_carlo": 0.3}
        runs.append(run_of(method, seconds=20.0, **({"monte_carlo": 0.08} if runs else first)))
        return runs[-1]

    result, _ = reach(method, run, 0.1, 60.0)
    assert result is runs[1]
    said = [caveat.sentence for caveat in result.method_facts.caveats if caveat.level == 1]
    assert len(said) == contradicted
    assert all("Two runs contradict each other: a is 0 (sd 1) with 16 nodes" in sentence for sentence in said)


@pytest.mark.parametrize(("first", "contradicted"), [(0.3, False), (0.12, False), (0.06, True)])
def test_a_small_run_does_not_contradict_two_larger_ones_that_agree(first, contradicted):
    """Unless it was far surer than the one of them that does not have the answer."""
    runs = []

    def run(method):
        found = [{"mean": 1.5, "monte_carlo": first}, {"mean": 0.1, "monte_carlo": 0.14}, {"monte_carlo": 0.04}]
        runs.append(run_of(method, seconds=10.0, **found[len(runs)]))
        return runs[-1]

    result, search = reach(epf.MarginalEPF(100, 16), run, 0.05, 100.0)
    assert result is runs[2]
    assert len(search.doubts()) == contradicted


def test_of_the_runs_that_are_about_as_sure_the_largest_speaks():
    """A small run may miss a mode and not know; that another one missed it too is no proof."""
    runs = []

    def run(method):
        found = [
            {"monte_carlo": 0.104},
            {"mean": 1.5, "monte_carlo": 0.3},
            {"monte_carlo": 0.13},
            {"mean": 1.5, "monte_carlo": 0.115},
        ]
        runs.append(run_of(method, seconds=1.0, **found[len(runs)]))
        return runs[-1]

    result, search = reach(epf.MarginalEPF(100, 16), run, 0.1, 40.0)
    assert result is runs[0]
    assert len(search.doubts()) == 1


def test_a_run_that_is_not_sure_of_its_own_answer_contradicts_nobody():
    """Its sd may be known by its own account, and be far off."""
    runs = []

    def run(method):
        found = {"sd": 3.0, "monte_carlo": 0.1, "means": 1.2}, {"monte_carlo": 0.08}
        runs.append(run_of(method, seconds=20.0, **found[len(runs)]))
        return runs[-1]

    result, search = reach(epf.MarginalEPF(100, 16), run, 0.1, 60.0)
    assert result is runs[1]
    assert search.doubts() == []


@pytest.mark.parametrize(("second", "third", "doubted"), [(0.43, 0.09, True), (0.43, 0.5, True), (0.28, 0.09, False)])
def test_a_larger_run_that_is_less_sure_is_told(second, third, doubted):
    """One of few nodes far out had much weight: the runs before and after it had none there."""
    runs = []

    def run(method):
        runs.append(run_of(method, seconds=10.0, expansion=[0.16, second, third, third][len(runs)]))
        return runs[-1]

    _, search = reach(epf.MarginalEPF(100, 16), run, 0.1, 1000.0)
    said = [caveat.sentence for caveat in search.doubts()]
    assert ["A larger run was less sure" in sentence for sentence in said] == [True] * doubted


def test_a_larger_run_that_was_stopped_is_not_less_sure():
    """It has seen a part of the observations."""
    runs = []

    def run(method):
        runs.append(run_of(method, expansion=0.43 if runs else 0.16))
        runs[-1].interrupted = len(runs) == 2
        return runs[-1]

    result, search = reach(epf.MarginalEPF(100, 16), run, 0.1, 1000.0)
    assert result is runs[0]
    assert len(search.rounds) == 2
    assert search.doubts() == []


def test_of_two_runs_that_are_as_sure_the_larger_is_the_answer():
    runs = []

    def run(method):
        runs.append(run_of(method, seconds=10.0, monte_carlo=0.21 if runs else 0.2))
        return runs[-1]

    result, _ = reach(epf.MarginalEPF(100, 16), run, 0.1, 60.0)
    assert result is runs[-1]
    assert len(runs) > 1


@pytest.mark.parametrize(("error", "contradicted"), [(30.0, False), (0.3, True)])
def test_a_run_that_says_that_it_collapsed_contradicts_nothing(error, contradicted):
    """Its sd is next to zero, and so is its error in units of that sd; but it says that the sd itself is not known."""
    method, runs = epf.MarginalEPF(100, 16), []

    def run(method):
        collapsed = {"mean": 2.0, "sd": 1e-18, "monte_carlo": error}
        runs.append(run_of(method, seconds=20.0, **({"monte_carlo": 0.08} if runs else collapsed)))
        return runs[-1]

    result, _ = reach(method, run, 0.1, 60.0)
    said = [caveat.sentence for caveat in result.method_facts.caveats if caveat.level == 1]
    assert len(said) == contradicted


def test_the_diagonal_of_a_correlation_matrix_contradicts_nothing():
    """It is one, and its sd is rounding, which differs from run to run."""
    runs = []

    def run(method):
        found = {"mean": 1.0, "sd": 6e-8, "monte_carlo": 0.3}, {"mean": 1.0 + 1e-7, "sd": 2e-8, "monte_carlo": 0.08}
        runs.append(run_of(method, seconds=20.0, **found[len(runs)]))
        return runs[-1]

    result, search = reach(epf.MarginalEPF(100, 16), run, 0.1, 60.0)
    assert result is runs[1]
    assert search.doubts() == []


def test_a_larger_run_that_fails_does_not_cost_the_answer():
    method, runs = epf.MarginalEPF(100, 16), []

    def run(method):
        if runs:
            raise NumericalError("At t = 7 there was no number: look at the laws.", time=7)
        runs.append(run_of(method, seconds=20.0, monte_carlo=0.3))
        return runs[-1]

    result, search = reach(method, run, 0.1, 60.0)
    assert result is runs[0]
    assert len(search.rounds) == 1
    said = [caveat.sentence for caveat in result.method_facts.caveats if caveat.level == 1]
    assert len(said) == 1
    assert "At t = 7 there was no number. The answer is that of a smaller one." in said[0]
    with pytest.raises(NumericalError):
        reach(method, run, 0.1, 60.0)
