"""What every method that needs the whole series must do: repeat itself, be interrupted, miss data, answer and refuse."""

import contextlib
import copy
import dataclasses
import os
import random
import signal
import sys
from types import SimpleNamespace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import CheckpointError, EPFError, EPFWarning, NumericalError, SettingError, UnsupportedModelError
from epf.results._verdict import judge_chains
from epf.run import _fit as run_fit
from epf.run import _runner as runner
from epf.storage import _checkpoint as checkpoint
from epf.storage._fingerprint import describe
from forged import mutate_meaning, resealed
from models import AR

STEPS = 12
METHODS = [
    epf.PMMH(12, chains=2, warmup=8, particles=10),
    epf.ParticleGibbs(12, chains=2, warmup=8, particles=8),
    epf.SMC2(16, particles=10, moves=1),
]
pytestmark = [
    pytest.mark.usefixtures("quick_compilation"),
    pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning"),  # so few draws have not mixed
]


@pytest.fixture
def _as_a_user():
    """No type checker stands before the library's own checks."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def data():
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=STEPS, seed=1)
    y[5] = np.nan
    return y


@pytest.fixture(
    scope="module",
    params=[METHODS[0], pytest.param(METHODS[1], marks=pytest.mark.slow), METHODS[2]],
    ids=lambda method: type(method).__name__,
)
def ran(request):
    return request.param, epf.fit(AR(), data(), request.param, seed=3)


class Draws(NamedTuple):
    """What `Chains` reads of a record."""

    theta: np.ndarray
    log_likelihood: np.ndarray
    accepted: np.ndarray


@contextlib.contextmanager
def interrupted_after(monkeypatch, blocks):
    """Ctrl-C, the signal itself, when so many blocks are done."""

    @contextlib.contextmanager
    def bar(*_):
        seen = []

        def advance(count):
            seen.append(count)
            if len(seen) == blocks:
                os.kill(os.getpid(), signal.SIGINT)

        yield advance

    # What a shell starts in the background ignores the signal, and so would the tests.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "progress_bar", bar)
            yield
    finally:
        signal.signal(signal.SIGINT, before)


def trajectory(result):
    return np.asarray(result.record.theta if isinstance(result, epf.Chains) else result.record.mean)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer_and_another_does_not(ran, monkeypatch):
    method, result = ran
    monkeypatch.setattr(run_fit, "_ITERATIONS", (run_fit._ITERATIONS[0], 1))  # other cuts, which change nothing
    again = epf.fit(AR(), data(), method, seed=3)
    np.testing.assert_array_equal(trajectory(again), trajectory(result))
    assert again.mean == result.mean
    assert epf.fit(AR(), data(), method, seed=4).mean != result.mean


def test_an_interrupted_run_returns_what_it_has_and_goes_on_bit_for_bit(ran, monkeypatch):
    method, result = ran
    y, total = data(), len(trajectory(result))
    with interrupted_after(monkeypatch, 2), pytest.warns(EPFWarning, match=rf"Interrupted after \d+ of {total} "):
        part = epf.fit(AR(), y, method, seed=3)
    done = len(trajectory(part))
    assert part.interrupted
    assert 0 < done < total
    np.testing.assert_array_equal(trajectory(part), trajectory(result)[:done])
    assert all(np.isfinite(value) for value in part.mean.values())
    rest = y if isinstance(part, epf.Chains) else y[done:]
    whole = epf.fit(AR(), rest, method, seed=3, resume_from=part)
    assert not whole.interrupted
    np.testing.assert_array_equal(trajectory(whole), trajectory(result))
    assert whole.sample(5)["a"].tolist() == result.sample(5)["a"].tolist()
    with pytest.raises(SettingError, match="pass the same"):
        epf.fit(AR(), rest, method, seed=4, resume_from=part)


def test_the_posterior_answers_every_question(ran):
    method, result = ran
    assert result.num_observations == STEPS
    assert isinstance(result.mean["a"], float)
    assert result.sd["v"] > 0.0
    low, high = result.interval(0.9)["v"]
    assert 0.0 < low <= result.quantile(0.5)["v"] <= high  # inside the support, as every draw
    assert (trajectory(result)[..., 1] > 0.0).all()
    grid = np.linspace(result.mean["a"] - 12 * result.sd["a"], result.mean["a"] + 12 * result.sd["a"], 801)
    assert np.trapezoid(result.density("a", grid), grid) == pytest.approx(1.0, abs=0.02)
    assert result.sample(7)["a"].shape == (7,)
    assert np.isfinite(result.posterior.state_mean)
    assert list(result.summary().index) == ["a", "v"]
    assert result.forecast(3, num_samples=20).y.shape == (20, 3)
    assert type(method).__name__ in repr(result)
    assert result.settings["method"] == type(method).__name__
    assert result.verdict.word in ("good", "doubtful", "do not trust")


def test_what_is_decided_for_the_model_is_known_before_the_run(ran):
    method, result = ran
    bound = method.bind(AR())
    assert result.settings == {"model": "AR", **bound.describe()}
    assert eqx.tree_equal(result.bound, bound)
    assert "optimal" in bound.describe()["proposal"]


def test_what_only_the_data_can_decide_is_left_open_until_the_run():
    assert epf.PMMH().bind(AR()).describe()["particles"] == "chosen per filter"


def test_chains_are_kept_as_chains(ran):
    method, result = ran
    if not isinstance(result, epf.Chains):
        assert dict(result.history.sizes) == {"time": STEPS, "parameter": 2, "level": 3}
        assert np.isfinite(result.log_evidence)
        np.testing.assert_allclose(
            result.history["log_evidence"][5] - result.history["log_evidence"][4], 0.0, atol=1e-5
        )
        return
    assert result.draws["a"].shape == (2, 12)
    az, inference = pytest.importorskip("arviz"), result.to_arviz()
    assert dict(inference.posterior.sizes) == {"chain": 2, "draw": 12}
    np.testing.assert_array_equal(inference.posterior["a"].values, result.draws["a"])
    assert set(result.rhat) == set(result.ess) == {"a", "v"}
    assert result.rhat == pytest.approx({name: float(found) for name, found in az.rhat(inference).items()})
    assert {"r_hat", "ess"} <= set(result.summary().columns)
    assert not hasattr(result, "history")
    assert not hasattr(result, "log_evidence")
    for ask, words in (
        (lambda: result.log_evidence, "no evidence: use epf.SMC2"),
        (lambda: result.history, "no history over time: use epf.SMC2"),
        (lambda: result.report("x.html"), "to_arviz"),
    ):
        with pytest.raises(SettingError, match=words):
            ask()
    if isinstance(method, epf.ParticleGibbs):
        assert result.smoothed["state_mean"].shape == (STEPS,)
        assert (result.smoothed["state_sd"].values > 0.0).all()
        assert "conjugate" in result.settings["theta given the path"]
    else:
        with pytest.raises(SettingError, match=r"use epf\.ParticleGibbs"):
            _ = result.smoothed
    with pytest.raises(SettingError, match="ask for more draws"):
        epf.fit(AR(), data(), method, seed=3, resume_from=result)
    with pytest.raises(SettingError, match="the y and inputs"):
        epf.fit(AR(), data()[:-1], dataclasses.replace(method, draws=20), seed=3, resume_from=result)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_a_saved_run_is_the_run(ran, tmp_path):
    method, result = ran
    result.save(tmp_path / "out")
    seen = epf.load(tmp_path / "out")  # without the model
    whole = epf.load(tmp_path / "out", AR())
    for loaded in (seen, whole):
        assert (loaded.num_observations, loaded.seed) == (STEPS, 3)
        assert (loaded.settings, loaded.seconds) == (result.settings, result.seconds)
        np.testing.assert_array_equal(trajectory(loaded), trajectory(result))
        assert str(loaded.verdict).split("\n")[0] == result.verdict.word
    assert eqx.tree_equal((whole.model, whole.method), (AR(), method))
    for a, b in zip(leaves((whole.state, whole.record)), leaves((result.state, result.record)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    assert (whole.mean, whole.sd) == (result.mean, result.sd)
    assert whole.sample(5)["v"].tolist() == result.sample(5)["v"].tolist()
    np.testing.assert_array_equal(whole.past[0], result.past[0])
    for chosen in (method, None):  # without a method it is that of the result, which only the whole result knows
        with pytest.raises(SettingError, match=r"loaded without its model: load it with the model, as in epf\.load"):
            epf.fit(AR(), data(), chosen, seed=3, resume_from=seen)
    with pytest.raises(SettingError, match="loaded without its model: copy its folder"):
        seen.save(tmp_path / "again")
    with pytest.raises(SettingError, match="needs the model"):
        seen.forecast(2)
    if not isinstance(result, epf.Chains):
        for loaded in (seen, whole):
            assert loaded.history.equals(result.history)
            assert (loaded.log_evidence, loaded.paused) == (result.log_evidence, result.paused)
        # What is in the history was compiled with the step, and may be rounded otherwise.
        assert seen.mean == pytest.approx(result.mean, rel=1e-6)
        assert seen.sd == pytest.approx(result.sd, rel=1e-6)
        return
    for loaded in (seen, whole):
        assert isinstance(loaded, epf.Chains)
        assert loaded.summary().equals(result.summary())
        for name, values in result.draws.items():
            np.testing.assert_array_equal(loaded.draws[name], values)
        assert (loaded.rhat, loaded.ess) == (result.rhat, result.ess)
        assert (loaded.mean, loaded.sd, loaded.quantile(0.3)) == (result.mean, result.sd, result.quantile(0.3))
        assert repr(loaded) == repr(result)
        np.testing.assert_array_equal(loaded.acceptance, result.acceptance)
        with pytest.raises(SettingError, match=f"{type(method).__name__} estimates no evidence"):
            _ = loaded.log_evidence
        if isinstance(method, epf.ParticleGibbs):
            assert loaded.smoothed.equals(result.smoothed)
    assert eqx.tree_equal(whole.bound, result.bound)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "draws.npz")["v"], result.draws["v"])


def test_a_loaded_run_goes_on_bit_for_bit(ran, tmp_path):
    method, result = ran
    y, chains = data(), isinstance(result, epf.Chains)
    part = epf.fit(AR(), *((y, dataclasses.replace(method, draws=5)) if chains else (y[:10], method)), seed=3)
    part.save(tmp_path / "part")
    loaded = epf.load(tmp_path / "part", AR())
    assert len(trajectory(loaded)) == (13 if chains else 10)
    whole = epf.fit(AR(), y if chains else y[10:], method, seed=3, resume_from=loaded)
    for a, b in zip(leaves((whole.state, whole.record)), leaves((result.state, result.record)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.settings == result.settings


@pytest.fixture(scope="module")
def chains():
    """Chains of one method, for what is the same with all."""
    return epf.fit(AR(), data(), METHODS[0], seed=3)


def test_what_was_chosen_from_the_data_is_kept(chains, tmp_path):
    left_open = copy.copy(chains)
    left_open.method = dataclasses.replace(chains.method, particles=None)
    left_open.interrupted = True
    left_open.save(tmp_path / "out")
    loaded = epf.load(tmp_path / "out", AR())
    assert loaded.method.particles is None
    assert eqx.tree_equal(loaded.bound, chains.bound)
    assert loaded.interrupted
    assert epf.load(tmp_path / "out").interrupted


def refused(words, path, *arguments):
    with pytest.raises(CheckpointError, match=words) as caught:
        epf.load(path, *arguments)
    assert "\n" not in str(caught.value)


def test_a_file_that_holds_no_chains_is_refused_in_a_sentence(chains, tmp_path):
    chains.save(tmp_path / "out")
    path = tmp_path / "out" / "result.epf"
    content = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"holds Markov chains, not a stream: use epf\.load\."):
        epf.Stream.load(path, AR())
    epf.Stream(AR(), epf.SIR(10)).save(tmp_path / "stream.epf")
    refused(r"holds a stream, not a result: use epf\.Stream\.load\.", tmp_path / "stream.epf")
    refused("first bytes", tmp_path / "out" / "draws.npz")
    refused("There is no file", tmp_path / "nowhere")
    refused("with the model AR, not Stable", path, Stable())
    refused("PMMH, not ParticleGibbs", path, AR(), METHODS[1])
    refused("PMMH with other settings", path, AR(), dataclasses.replace(METHODS[0], draws=13))

    def forged(change, words, sign=False):
        (tmp_path / "forged.epf").write_bytes(resealed(content, lambda h, top, data: change(h) or data, sign))
        refused(words, tmp_path / "forged.epf", AR())

    forged(lambda h: h.update(schema=1), "schema '1' and this version of epf reads schema 5")
    forged(lambda h: h["facts"].update(chains=3), "malformed header")
    forged(lambda h: h["facts"].update(done=10**6), "array 'record.*' is float32")
    forged(lambda h: h["facts"].update(chosen={"particles": 10**9}), "malformed header")
    forged(lambda h: h["facts"].update(warmup=None), "malformed header")
    forged(lambda h: h.update(method=describe(epf.SIR(10))), "cannot be made again", sign=True)
    forged(lambda h: h.update(kind="result"), "cannot be made again")
    (tmp_path / "bad.epf").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    refused("checksum is wrong", tmp_path / "bad.epf")
    (tmp_path / "bad.epf").write_bytes(content[:-9])
    refused("cannot be used", tmp_path / "bad.epf")


@pytest.mark.slow
def test_mutated_files_of_chains_are_refused_or_right(chains, tmp_path, monkeypatch):
    """One entry of the header or the table changed, the checksum set right; with the model and without."""
    chains.save(tmp_path / "out")
    content, path, random_ = (tmp_path / "out" / "result.epf").read_bytes(), tmp_path / "mutated.epf", random.Random(1)
    known, traces = checkpoint.versions(), checkpoint.model_traces(AR(), 0)  # the same in all cases
    monkeypatch.setattr(checkpoint, "versions", lambda: known)
    monkeypatch.setattr(checkpoint, "model_traces", lambda *_: traces)
    for case in range(1000):
        path.write_bytes(mutate_meaning(bytearray(content), random_))
        try:
            loaded = epf.load(path, AR() if case % 10 == 0 else None)
        except EPFError:
            continue
        assert loaded.record.theta.shape[1:] == (2, 2)
        assert loaded.num_draws <= 20


class Stable(AR):
    def prior(self):
        return {"a": dist.Normal(0.0, 0.5), "v": dist.InverseGamma(3.0, 1.0)}


class Known(AR):
    def prior(self):
        return {}

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x, 1.0)


class Discrete(AR):
    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "v": dist.Poisson(3.0)}

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, 1.0 + p.v)


class KnownStart(AR):
    def initial(self, p):
        return dist.Delta(p.a)


class Heavy(AR):
    def transition(self, p, x, u):
        return dist.Laplace(p.a * x, 1.0)


class Impossible(AR):
    def observation(self, p, x, u):
        return dist.Uniform(x + 50.0, x + 51.0)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_what_cannot_be_served_is_refused_in_a_sentence_that_names_what_can(method):
    y = np.zeros(3)
    for model, words in ((Known(), "epf.SIR"), (Discrete(), "'v' is discrete: use epf.SIR")):
        with pytest.raises(UnsupportedModelError, match=words):
            epf.fit(model, y, method)
    if isinstance(method, epf.ParticleGibbs):
        with pytest.raises(UnsupportedModelError, match=r"epf\.PMMH"):
            epf.fit(KnownStart(), y, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[:2], ids=lambda method: type(method).__name__)
def test_a_series_that_no_parameter_explains_is_an_error(method):
    with pytest.raises(NumericalError, match="every likelihood it tried was zero"):
        epf.fit(Impossible(), np.full(2, 1.0), method)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_a_proposal_that_does_not_fit_is_refused_before_the_run(method):
    method = dataclasses.replace(method, proposal=epf.proposals.Optimal())
    with pytest.raises(UnsupportedModelError, match="Optimal"):
        method.bind(Heavy())


def test_what_was_known_before_the_first_observation_is_saved(tmp_path):
    with pytest.raises(NumericalError, match=r"At t = 1 .* no theta of SMC2 could explain the observation") as caught:
        epf.fit(Impossible(), np.full(2, 1.0), METHODS[2])
    before = caught.value.result
    assert before.num_observations == 0
    before.save(tmp_path / "before")
    assert epf.load(tmp_path / "before", Impossible()).mean == before.mean


def test_a_series_without_a_value_is_doubted():
    result = epf.fit(AR(), np.full(3, np.nan), METHODS[2])
    assert "No value was observed" in str(result.verdict)


@pytest.mark.usefixtures("_as_a_user")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: epf.PMMH(draws=1), "draws"),
        (lambda: epf.PMMH(chains=0), "chains"),
        (lambda: epf.PMMH(warmup=-1), "warmup"),
        (lambda: epf.PMMH(particles=0), "particles"),
        (lambda: epf.PMMH(proposal=3), "epf.proposals.Bootstrap"),
        (lambda: epf.ParticleGibbs(particles=1), "particles"),
        (lambda: epf.ParticleGibbs(ahead=-1), "ahead"),
        (lambda: epf.SMC2(thetas=2), "thetas"),
        (lambda: epf.SMC2(particles=100, most=50), "most"),
        (lambda: epf.SMC2(threshold=0.0), "threshold"),
    ],
)
def test_settings_out_of_range_say_so(make, words):
    with pytest.raises(SettingError, match=words):
        make()


@pytest.mark.usefixtures("_as_a_user")
def test_a_method_is_made_before_it_is_used_and_not_for_a_stream():
    with pytest.raises(SettingError, match=r"needs the whole series at once: use epf\.fit"):
        epf.Stream(AR(), METHODS[0])
    with pytest.raises(SettingError, match=r"make one, for example epf.PMMH\(\)"):
        epf.fit(AR(), np.zeros(3), epf.PMMH)


def test_states_of_two_paths_that_move_alike_meet_when_their_lags_have_passed():
    from epf.model._shapes import shapes_of
    from epf.offline._path import memory

    for model, steps in ((AR(), 1), (epf.zoo.STAR(), 1), (epf.zoo.STAR(lags=1, delay=3), 3)):
        assert memory(model, shapes_of(model, None)) == steps

    class Sum(AR):
        def advance(self, x, new):
            return x + new

    assert memory(Sum(), shapes_of(Sum(), None)) == 0


def test_the_slice_samplers_window_is_a_change_of_variables():
    from epf.offline._path import Window

    window = Window(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    z = jnp.array([[1.2, -9.0], [0.1, 4.0], [40.0, -2.0]])
    u = eqx.filter_vmap(window.inside)(z)
    assert (jnp.abs(u) < 1.0).all()
    np.testing.assert_allclose(eqx.filter_vmap(window.outside)(u), z, rtol=2e-4, atol=1e-4)
    slope = jnp.linalg.slogdet(jax.jacfwd(window.outside)(u[1]))[1]
    np.testing.assert_allclose(window.log_slope(u[1]), slope, rtol=1e-4)


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_convergence_is_that_of_arviz_and_does_not_need_it(monkeypatch, memory):
    """Chains of a first-order autoregression with this coefficient; an odd number of draws."""
    az, draws = pytest.importorskip("arviz"), np.random.default_rng(1).normal(size=(4, 401, 2)).astype(np.float32)
    for t in range(1, 401):
        draws[:, t] += memory * draws[:, t - 1]
    theta = np.moveaxis(draws, 1, 0)
    chains = epf.Chains(AR(), METHODS[0], 0, 3, None, Draws(theta, np.zeros(401), np.ones((401, 4))), 1.0, {})
    chains.warmup = 0
    data = az.convert_to_dataset({"a": draws[..., 0], "v": draws[..., 1]})
    expected = [{name: float(found[name]) for name in ("a", "v")} for found in (az.rhat(data), az.ess(data))]
    monkeypatch.setitem(sys.modules, "arviz", None)
    assert chains.rhat == pytest.approx(expected[0], rel=1e-6)
    assert chains.ess == pytest.approx(
        expected[1], rel=0.03
    )  # the lag after which autocorrelations are noise may differ
    assert chains.verdict.level == (2 if memory else 0)


def test_a_parameter_that_never_moved_hides_no_other():
    """Its R-hat and its number of draws are not known: the verdict is not good, and the largest is that of the others."""
    unknown = {"a": np.nan, "v": np.array([1.0, 3.0])}
    for rhat in (unknown, dict(reversed(unknown.items()))):
        stuck = SimpleNamespace(rhat=rhat, ess={"a": np.nan, "v": 1e4}, acceptance=np.ones(2), interrupted=False)
        assert epf.Chains.largest_rhat.fget(stuck) == 3.0
        stuck.rhat = {**rhat, "v": 1.0}
        assert judge_chains(stuck).level == 1
