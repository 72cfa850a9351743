"""What every online filter must do, whatever the algorithm: compile, map, miss data, answer, and give the same bits
however the observations come in.

All of it in one file, so that a process traces a filter once for one series and once for one row.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import epf
from epf.results._certificate import PARTS
from methods import FILTERS, REST, STEPS, assert_same, each_filter, interrupted, scalar_case, vector_case
from models import run

pytestmark = pytest.mark.usefixtures("quick_compilation")


# Mapping traces everything once more: the larger filters are mapped by `make test-slow`.
@each_filter(*REST, "Storvik", "EPF", "MarginalEPF")
def test_it_maps_over_seeds_and_series(name):
    """jit(vmap over pairs of a seed and a series) gives, for each pair, what `epf.fit` gives alone."""
    method, (model, first), (_, second) = FILTERS[name], scalar_case(name, seed=1), scalar_case(name, seed=2)
    series = np.stack([first, first, second])
    mapped = jax.jit(jax.vmap(lambda seed, ys: run(method, model, seed, ys)[1]))
    infos, (means, sds), (x_means, x_sds) = mapped(jnp.asarray([0, 1, 1]), jnp.asarray(series))
    assert means.shape == sds.shape == (3, STEPS, len(model.prior()))
    assert x_means.shape == x_sds.shape == (3, STEPS)
    assert all(np.isfinite(part).all() for part in (means, x_means, x_sds))
    if isinstance(method, epf.OnlineEM):  # a point has no spread
        assert np.all(np.asarray(sds) == 0.0)
    else:
        assert np.all(np.asarray(sds)[:, 0] > 0.0)
    assert not np.any(np.asarray(infos.failed) | np.asarray(infos.collapsed) | (np.asarray(infos.invalid) > 0))

    alone = epf.fit(model, series[2], method, seed=1).record
    # Mapping reorders sums, so the two agree to rounding, which a filter of few particles multiplies a little.
    np.testing.assert_allclose(means[2], alone.mean, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(infos.log_evidence[2], alone.info.log_evidence, rtol=1e-3, atol=1e-3)
    # A row that is missing altogether weighs nothing; every other does.
    np.testing.assert_allclose(infos.log_evidence[:, 5], 0.0, atol=1e-6)
    assert np.all(np.abs(np.delete(infos.log_evidence, 5, axis=1)) > 1e-6)
    if not isinstance(method, epf.Kalman):  # the seed matters, the series matter
        assert not np.allclose(means[0], means[1])
    assert not np.allclose(means[1], means[2])


@each_filter(*REST)
def test_the_posterior_answers_every_question(name):
    """Of a vector state and a vector parameter, with inputs, a missing row and a missing component."""
    method, (model, y, inputs) = FILTERS[name], vector_case()
    result = epf.fit(model, y, method, inputs=inputs)
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
    assert float(history["log_evidence"][5]) == pytest.approx(float(history["log_evidence"][4]), abs=1e-6)  # missing
    np.testing.assert_allclose(history["mean"][-1], [*result.mean["a"], result.mean["gain"]], rtol=1e-5)
    # Weighted quantiles are ordered, and the median lies inside.
    assert np.all(np.diff(history["quantile"].values, axis=1) >= 0.0)


@each_filter(*REST)
def test_blocks_restarts_and_single_updates_do_not_change_a_bit(name):
    """A run is cut at every quarter of its length: going on from step 5 cuts other blocks than a run without a break."""
    method, (model, y) = FILTERS[name], scalar_case(name)
    whole = epf.fit(model, y, method, seed=7)
    first = epf.fit(model, y[:5], method, seed=7)
    resumed = epf.fit(model, y[5:], method, seed=7, resume_from=first)
    assert resumed.num_observations == len(y)
    assert_same((resumed.state, resumed.record), (whole.state, whole.record))

    stream = epf.Stream(model, method, seed=7)
    for t, row in enumerate(y):
        info = stream.update(row)
        assert_same(info, jax.tree.map(lambda leaf, t=t: leaf[t], whole.record.info))
    assert stream.num_observations == len(y)
    assert_same(stream.posterior, whole.posterior)
    assert_same(stream.latest, jax.tree.map(lambda leaf: leaf[-1:], whole.record))
    assert stream.posterior.mean == whole.mean
    backlog = epf.Stream(model, method, seed=7)
    found = [backlog.update_many(y[rows]) for rows in (slice(0, 1), slice(1, 8), slice(8, None))]
    assert_same(jax.tree.map(lambda *parts: np.concatenate(parts), *found), whole.record.info)
    assert_same((backlog.latest, backlog.posterior), (stream.latest, stream.posterior))
    assert stream.log_evidence == pytest.approx(whole.log_evidence)
    for part in PARTS:  # that of an expansion, which loses weight as the posterior shrinks, up to rounding
        expected = pytest.approx(whole.error.parts[part], rel=1e-4, nan_ok=True)
        assert stream.error.parts[part] == expected
        assert backlog.error.parts[part] == expected
    if not isinstance(method, epf.Kalman):
        assert not np.array_equal(epf.fit(model, y, method, seed=8).record.mean, whole.record.mean)


@each_filter(*REST)
def test_a_stream_that_is_saved_goes_on_bit_for_bit(name, tmp_path):
    model, y = scalar_case(name)
    interrupted(epf.Stream(model, FILTERS[name], seed=5), y, tmp_path / "run.epf", model)
