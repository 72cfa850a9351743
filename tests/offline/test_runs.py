"""What every method that needs the whole series must do: repeat itself, be interrupted, miss data, answer and refuse."""

import contextlib
import dataclasses
import os
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf import iterations
from epf.errors import EPFWarning, NumericalError, SettingError, UnsupportedModelError
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


@pytest.fixture(scope="module", params=METHODS, ids=lambda method: type(method).__name__)
def ran(request):
    return request.param, epf.fit(AR(), data(), request.param, seed=3)


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

    with monkeypatch.context() as patch:
        patch.setattr(iterations, "progress_bar", bar)
        yield


def trajectory(result):
    return np.asarray(result.record.theta if isinstance(result, epf.Chains) else result.record.mean)


def test_the_same_seed_gives_the_same_answer_and_another_does_not(ran, monkeypatch):
    method, result = ran
    monkeypatch.setattr(iterations, "_FIRST_BLOCK", 1)  # other cuts, which change nothing
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
    whole = epf.fit(AR(), rest, method, seed=3, after=part)
    assert not whole.interrupted
    np.testing.assert_array_equal(trajectory(whole), trajectory(result))
    assert whole.sample(5)["a"].tolist() == result.sample(5)["a"].tolist()
    with pytest.raises(SettingError, match="pass the same"):
        epf.fit(AR(), rest, method, seed=4, after=part)


def test_the_posterior_answers_every_question(ran):
    method, result = ran
    assert result.t == STEPS
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
    assert result.forecast(3, draws=20).y.shape == (20, 3)
    assert type(method).__name__ in repr(result)
    assert result.settings["method"] == type(method).__name__
    assert result.verdict.word in ("good", "doubtful", "do not trust")


def test_chains_are_kept_as_chains(ran, tmp_path):
    method, result = ran
    if not isinstance(result, epf.Chains):
        assert dict(result.history.sizes) == {"time": STEPS, "parameter": 2, "level": 3}
        assert np.isfinite(result.log_evidence)
        np.testing.assert_allclose(
            result.history["log_evidence"][5] - result.history["log_evidence"][4], 0.0, atol=1e-5
        )
        result.save(tmp_path / "out")
        loaded = epf.load(tmp_path / "out")
        assert loaded.mean == result.mean
        assert loaded.history.equals(result.history)
        return
    assert result.draws["a"].shape == (2, 12)
    inference = result.to_arviz()
    assert dict(inference.posterior.sizes) == {"chain": 2, "draw": 12}
    np.testing.assert_array_equal(inference.posterior["a"].values, result.draws["a"])
    assert set(result.rhat) == set(result.ess) == {"a", "v"}
    assert {"r_hat", "ess"} <= set(result.summary().columns)
    for ask, words in (
        (lambda: result.log_evidence, "no evidence: use epf.SMC2"),
        (lambda: result.history, "no history over time: use epf.SMC2"),
        (lambda: result.report("x.html"), "to_arviz"),
    ):
        with pytest.raises(SettingError, match=words):
            ask()
    result.save(tmp_path / "out")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "draws.npz")["v"], result.draws["v"])
    if isinstance(method, epf.ParticleGibbs):
        assert result.smoothed["state_mean"].shape == (STEPS,)
        assert (result.smoothed["state_sd"].values > 0.0).all()
        assert "conjugate" in result.settings["theta given the path"]
    else:
        with pytest.raises(SettingError, match=r"use epf\.ParticleGibbs"):
            _ = result.smoothed
    with pytest.raises(SettingError, match="ask for more draws"):
        epf.fit(AR(), data(), method, seed=3, after=result)
    with pytest.raises(SettingError, match="the y and inputs"):
        epf.fit(AR(), data()[:-1], dataclasses.replace(method, draws=20), seed=3, after=result)


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
        with pytest.raises(UnsupportedModelError, match=r"use epf\.PMMH"):
            epf.fit(KnownStart(), y, method)


@pytest.mark.slow
def test_a_series_that_no_parameter_explains_is_an_error():
    with pytest.raises(NumericalError, match="every likelihood it tried was zero"):
        epf.fit(Impossible(), np.full(2, 1.0), METHODS[0])


@pytest.mark.usefixtures("_as_a_user")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: epf.PMMH(draws=1), "draws"),
        (lambda: epf.PMMH(chains=0), "chains"),
        (lambda: epf.PMMH(warmup=-1), "warmup"),
        (lambda: epf.PMMH(particles=0), "particles"),
        (lambda: epf.PMMH(proposal=3), "epf.Bootstrap"),
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
    from epf.check import shapes_of
    from epf.offline.path import memory

    for model, steps in ((AR(), 1), (epf.zoo.STAR(), 1), (epf.zoo.STAR(lags=1, delay=3), 3)):
        assert memory(model, shapes_of(model, None)) == steps

    class Sum(AR):
        def advance(self, x, new):
            return x + new

    assert memory(Sum(), shapes_of(Sum(), None)) == 0


def test_the_slice_samplers_window_is_a_change_of_variables():
    from epf.offline.path import Window

    window = Window(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    z = jnp.array([[1.2, -9.0], [0.1, 4.0], [40.0, -2.0]])
    u = eqx.filter_vmap(window.inside)(z)
    assert (jnp.abs(u) < 1.0).all()
    np.testing.assert_allclose(eqx.filter_vmap(window.outside)(u), z, rtol=2e-4, atol=1e-4)
    slope = jnp.linalg.slogdet(jax.jacfwd(window.outside)(u[1]))[1]
    np.testing.assert_allclose(window.log_slope(u[1]), slope, rtol=1e-4)
