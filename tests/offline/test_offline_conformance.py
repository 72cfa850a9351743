"""What every method that needs the whole series must do on vectors, inputs, lags and in both precisions; see `test_runs`."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from models import AR, VectorAR

STEPS = 12
METHODS = [
    epf.PMMH(20, chains=2, warmup=10, particles=10),
    epf.ParticleGibbs(20, chains=2, warmup=10, particles=8),
    epf.SMC2(16, particles=10, moves=1),
]
pytestmark = [
    pytest.mark.usefixtures("quick_compilation"),
    pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning"),  # so few draws have not mixed
]
each = pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)


def trajectory(result):
    return np.asarray(result.record.theta if isinstance(result, epf.Chains) else result.record.mean)


@each
@pytest.mark.slow
def test_vectors_inputs_and_missing_components(method, tmp_path):
    inputs = np.sin(np.arange(STEPS, dtype=np.float32))[:, None]
    _, y = epf.simulate(VectorAR(), {"a": [0.9, 0.5], "gain": 0.7}, steps=STEPS, seed=1, inputs=inputs)
    y[5], y[3, 1] = np.nan, np.nan
    result = epf.fit(VectorAR(), y, method, inputs=inputs)
    assert result.mean["a"].shape == result.sd["a"].shape == result.quantile(0.9)["a"].shape == (2,)
    assert result.sample(30)["a"].shape == (30, 2)
    assert np.isfinite(trajectory(result)).all()
    assert result.posterior.state_mean.shape == result.posterior.state_sd.shape == (2,)
    assert list(result.summary().index) == ["a[0]", "a[1]", "gain"]
    assert result.forecast(2, inputs=inputs[:2], num_samples=10).x.shape == (10, 2, 2)
    other = epf.fit(VectorAR(), y, method, inputs=2.0 * inputs)
    assert other.mean["gain"] != result.mean["gain"]  # the inputs matter
    if isinstance(method, epf.ParticleGibbs):
        assert dict(result.smoothed.sizes) == {"time": STEPS, "state": 2}
    result.save(tmp_path / "out")
    loaded = epf.load(tmp_path / "out", VectorAR())
    pairs = zip(jax.tree.leaves((loaded.state, loaded.past)), jax.tree.leaves((result.state, result.past)), strict=True)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


class Simplex(AR):
    """Parameters bound to each other, and one in an interval: none is moved out of its support."""

    def prior(self):
        return {"w": dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])), "a": dist.Uniform(-1.0, 1.0)}

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, 0.2 + p.w[0])

    def observation(self, p, x, u):
        return dist.Normal(x, 0.2 + p.w[1])


@each
@pytest.mark.slow
def test_supports_are_respected(method):
    _, y = epf.simulate(Simplex(), {"w": [0.3, 0.3, 0.4], "a": 0.5}, steps=STEPS, seed=1)
    result = epf.fit(Simplex(), y, method)
    theta = trajectory(result)
    draws = result.sample(100)
    np.testing.assert_allclose(draws["w"].sum(axis=1), 1.0, atol=1e-5)
    assert (theta[..., :3] > 0.0).all()
    assert (np.abs(draws["a"]) < 1.0).all()


@each
@pytest.mark.slow
def test_lags_go_with_the_path(method):
    prior = dist.Normal(0.0, 0.5).expand([2]).to_event(1)
    model = epf.zoo.STAR(a=prior, b=(0.1, 0.0), gamma=1.0, c=3.0, lags=2)
    _, y = epf.simulate(model, {"a": [0.6, 0.2]}, steps=STEPS, seed=1)
    result = epf.fit(model, y, method)
    assert result.posterior.state_mean.shape == (2,)
    if isinstance(method, epf.ParticleGibbs):
        assert "2 steps ahead" in result.settings["ancestors"]
        mean = result.smoothed["state_mean"].values
        np.testing.assert_allclose(mean[1:, 1], mean[:-1, 0], atol=1e-5)  # the lag at t is the state at t - 1


@each
@pytest.mark.slow
def test_double_precision_is_used_when_it_is_on(method, float64):
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=STEPS, seed=1)
    result = epf.fit(AR(), y.astype(np.float64), method)
    leaves = jax.tree.leaves((result.state, result.record))
    floats = {leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)}
    assert floats == {jnp.dtype("float64")}
    assert np.isfinite(trajectory(result)).all()
