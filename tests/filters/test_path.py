"""States without noise: one path per node, exact."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.numerics._keys import root_key


class Cooling(epf.StateSpaceModel):
    """A cup of tea: no noise but that of the thermometer, which slips. (With normal noise Kalman filters serve.)"""

    def prior(self):
        return {"rate": dist.LogNormal(-2.0, 0.5), "noise": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Delta(90.0)

    def transition(self, p, x, u):
        return dist.Delta(20.0 + (x - 20.0) * jnp.exp(-p.rate * u[0]))

    def observation(self, p, x, u):
        return dist.StudentT(4.0, x, p.noise)


@pytest.mark.slow
def test_the_answer_is_that_of_a_grid():
    rng = np.random.default_rng(4)
    gaps = rng.uniform(0.5, 2.0, 25)
    y = 20.0 + 70.0 * np.exp(-0.15 * np.cumsum(gaps)) + 0.5 * rng.normal(size=25)
    y[7] = np.nan
    rate, noise = np.linspace(0.14, 0.16, 401), np.linspace(0.2, 1.5, 400)
    curve = 20.0 + 70.0 * np.exp(-rate[:, None] * np.cumsum(gaps))
    seen = np.isfinite(y)
    density = stats.t.logpdf(y[seen], 4.0, curve[:, None, seen], noise[:, None]).sum(axis=-1)
    density += stats.lognorm.logpdf(rate, 0.5, scale=np.exp(-2.0))[:, None] + stats.halfnorm.logpdf(noise)
    weights = np.exp(density - density.max())
    evidence = np.log(weights.sum() * (rate[1] - rate[0]) * (noise[1] - noise[0])) + density.max()
    result = epf.fit(Cooling(), y, inputs=gaps[:, None], progress=False)
    assert result.settings["filters"].startswith("the path of the state, exact")
    assert "particles" not in result.settings
    assert result.verdict.word == "good"
    assert "particles" not in str(result.verdict.findings)
    for axis, grid, name in ((1, rate, "rate"), (0, noise, "noise")):
        marginal = weights.sum(axis=axis) / weights.sum()
        mean = marginal @ grid
        sd = np.sqrt(marginal @ (grid - mean) ** 2)
        assert abs(result.mean[name] - mean) < 0.05 * sd
        assert abs(result.sd[name] / sd - 1.0) < 0.05
    assert abs(result.log_evidence - evidence) < 0.05
    mean, _ = result.posterior.state_moments()
    np.testing.assert_allclose(mean, 20.0 + 70.0 * np.exp(-result.mean["rate"] * gaps.sum()), rtol=1e-2)


@pytest.mark.parametrize(("exact", "due"), [(True, True), (False, False)])
def test_nodes_with_exact_filters_do_not_wait_as_noisy_ones_do(exact, due):
    """A fifth of 100 nodes count, the last ones helped, and few observations have come since."""
    bound = epf.MarginalEPF(nodes=100, exact=exact).bind(Cooling(), jnp.ones(1))
    state = jax.eval_shape(bound.init, root_key(0))
    old = eqx.tree_at(lambda n: n.weights, state.old, jnp.where(jnp.arange(100) < 20, 0.05, 0.0))
    parts = old, jnp.asarray(11), jnp.asarray(10), jnp.asarray(False), jnp.asarray(30.0)
    state = eqx.tree_at(lambda s: (s.old, s.t, s.tried, s.stalled, s.reached), state, parts)
    state = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, state
    )
    assert bool(bound._is_due(state)) == due


def test_a_state_that_starts_anywhere_has_particles():
    class Unknown(Cooling):
        def initial(self, p):
            return dist.Normal(90.0, 2.0)

    assert "particles" in epf.MarginalEPF().bind(Unknown(), jnp.ones(1)).describe()
