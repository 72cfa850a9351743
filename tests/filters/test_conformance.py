"""What every online filter must do, whatever the algorithm: compile, map, miss data, and keep its numbers' precision."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf
from epf.filters._base import Filter, Info
from models import AR, VectorAR, run

FILTERS: list[Filter] = [
    epf.SIR(50),
    epf.LiuWest(50),
    epf.LiuWest(50, discount=0.98),
    epf.Storvik(50),
    epf.Kalman(extended=True),
    epf.EPF(50),
    epf.MarginalEPF(20, 9),
    epf.MarginalEPF(20, 9, regrid=False),
    epf.Kalman(unscented=True),
    epf.ResampleMove(50, capacity=20),
    epf.ParticleLearning(50),
    epf.PracticalFilter(50, lag=4, sweeps=2),
    epf.OnlineEM(50, burn_in=3),
]
STEPS = 12


def case(name):
    """A model, two series with missing values (a component, a row), and inputs."""
    if name == "scalar":
        model, values, inputs = AR(), {"a": 0.8, "v": 0.5}, None
    else:
        inputs = np.sin(np.arange(STEPS, dtype=np.float32))[:, None]
        model, values = VectorAR(), {"a": [0.9, 0.5], "gain": 0.7}
    series = np.stack([epf.simulate(model, values, steps=STEPS, seed=s, inputs=inputs)[1] for s in (1, 2)])
    series[:, 5] = np.nan
    if name == "vector":
        series[:, 3, 1] = np.nan
    return model, series, inputs


def named(method):
    kind = "-fixed" if not getattr(method, "regrid", True) else "-u" if getattr(method, "unscented", False) else ""
    return type(method).__name__ + kind


def each(test):
    test = pytest.mark.parametrize("method", FILTERS, ids=named)(test)
    return pytest.mark.parametrize("name", ["scalar", "vector"])(test)


@each
def test_it_compiles_maps_over_seeds_and_series_and_misses_data(method, name):
    """jit(vmap over seeds and series) gives, for each pair, what the filter gives alone."""
    model, series, inputs = case(name)
    us = None if inputs is None else jnp.asarray(inputs)

    def one(seed, ys):
        return run(method, model, seed, ys, us)

    over_both = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))
    _, (infos, (means, sds), (x_means, x_sds)) = jax.jit(over_both)(jnp.arange(3), jnp.asarray(series))
    p = 2 if name == "scalar" else 3
    shape = () if name == "scalar" else (2,)
    assert means.shape == sds.shape == (3, 2, STEPS, p)
    assert x_means.shape == x_sds.shape == (3, 2, STEPS, *shape)
    assert all(np.isfinite(part).all() for part in (means, x_means, x_sds))
    if isinstance(method, epf.OnlineEM):  # a point has no spread
        assert np.all(np.asarray(sds) == 0.0)
    else:
        assert np.all(np.asarray(sds)[:, :, -1] > 0.0)
    assert not np.any(np.asarray(infos.failed) | np.asarray(infos.collapsed) | (np.asarray(infos.invalid) > 0))

    _, (info, (mean, _), _) = eqx.filter_jit(one)(jnp.asarray(2), jnp.asarray(series[1]))
    # Mapping reorders sums, so the two agree to rounding, which a filter of 50 particles multiplies a little.
    np.testing.assert_allclose(means[2, 1], mean, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(infos.log_evidence[2, 1], info.log_evidence, rtol=1e-3, atol=1e-3)
    # A row that is missing altogether weighs nothing; every other does.
    assert isinstance(infos, Info)
    np.testing.assert_allclose(infos.log_evidence[:, :, 5], 0.0, atol=1e-6)
    assert np.all(np.abs(np.delete(infos.log_evidence, 5, axis=2)) > 1e-6)
    if not isinstance(method, epf.Kalman):  # the seed matters, the series matter
        assert not np.allclose(means[0, 0], means[1, 0])
    assert not np.allclose(means[0, 0], means[0, 1])


@pytest.mark.parametrize("method", FILTERS, ids=named)
def test_double_precision_is_used_when_it_is_on(method, float64):
    model, series, _ = case("scalar")
    state, (info, (mean, _), _) = run(method, model, 0, series[0].astype(np.float64))
    floats = [
        leaf for leaf in jax.tree.leaves((state, mean, info.log_evidence)) if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    assert {leaf.dtype for leaf in floats} == {jnp.dtype("float64")}
    assert np.isfinite(mean).all()


@pytest.mark.filterwarnings("ignore::epf.errors.EPFWarning")  # so few nodes are warned of
@pytest.mark.parametrize("method", FILTERS, ids=named)
def test_the_posterior_answers_every_question(method):
    model, series, inputs = case("vector")
    result = epf.fit(model, series[0], method, inputs=inputs)
    assert result.mean["a"].shape == result.sd["a"].shape == result.quantile(0.9)["a"].shape == (2,)
    assert isinstance(result.mean["gain"], float)
    draws = result.sample(300)
    assert draws["a"].shape == (300, 2)
    assert draws["gain"].shape == (300,)
    low, high = result.interval(0.9)["a"]
    # Not strictly: SIR's few surviving values may put one particle at several quantiles.
    assert np.all(low <= result.quantile(0.5)["a"])
    assert np.all(result.quantile(0.5)["a"] <= high)
    spread = 12 * result.sd["a"][0]
    grid = np.linspace(result.mean["a"][0] - spread, result.mean["a"][0] + spread, 801)
    if isinstance(method, epf.OnlineEM):
        assert result.density("a[0]", [result.mean["a"][0]]) == np.inf
        assert result.density("a[0]", [0.123]) == 0.0
    else:
        assert np.trapezoid(result.density("a[0]", grid), grid) == pytest.approx(1.0, abs=0.02)
    assert result.posterior.state_mean.shape == result.posterior.state_sd.shape == (2,)
    assert np.isfinite(result.log_evidence)
    history = result.history
    assert dict(history.sizes) == {"time": STEPS, "parameter": 3, "level": 3, "state": 2}
    assert list(history["parameter"].values) == ["a[0]", "a[1]", "gain"]
    assert history["time"].values[[0, -1]].tolist() == [1, STEPS]
    assert float(history["log_evidence"][-1]) == pytest.approx(result.log_evidence)
    np.testing.assert_allclose(history["mean"][-1], [*result.mean["a"], result.mean["gain"]], rtol=1e-5)
    # Weighted quantiles are ordered, and the median lies inside.
    assert np.all(np.diff(history["quantile"].values, axis=1) >= 0.0)
