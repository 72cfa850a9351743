"""States of which a part has no noise: its path is known given theta, and the filters at the nodes are of the rest."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.filters.marginal._noiseless import noiseless_part

INPUTS = np.random.default_rng(0).gamma(1.0, 1.0, (25, 1)).astype(np.float32)


class Adverts(epf.StateSpaceModel):
    """Sales with a wandering level, and advertisements that are forgotten slowly and saturate."""

    def prior(self):
        return {"keeps": dist.Beta(4.0, 2.0), "gain": dist.Normal(0.0, 2.0), "base": dist.Normal(5.0, 1.0)}

    def initial(self, p):
        return epf.Sensors(dist.Delta(0.5), dist.Normal(0.0, 1.0))

    def transition(self, p, x, u):
        return epf.Sensors(dist.Delta(p.keeps * x[0] + u[0]), dist.Normal(x[1], 0.2))

    def observation(self, p, x, u):
        return dist.Normal(p.base + x[1] + p.gain * x[0] / (x[0] + 1.0), 0.5)


class Counted(Adverts):
    """The same with counts, which no Kalman filter takes in; the noisy component comes first."""

    def prior(self):
        return {"keeps": dist.Beta(4.0, 2.0), "gain": dist.HalfNormal(1.0)}

    def initial(self, p):
        return epf.Sensors(dist.Normal(0.0, 1.0), dist.Delta(0.5))

    def transition(self, p, x, u):
        return epf.Sensors(dist.Normal(x[0], 0.2), dist.Delta(p.keeps * x[1] + u[0]))

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x[0] + p.gain * x[1]))


class Given(Counted):
    """`Counted` with its noiseless component as an input."""

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(x, 0.2)

    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x + p.gain * u[0]))


class Followed(Adverts):
    """The first component follows the second, which has noise; the third follows the first, and the last nothing."""

    def initial(self, p):
        return epf.Sensors(dist.Delta(0.0), dist.Normal(0.0, 1.0), dist.Delta(0.0), dist.Delta(1.0))

    def transition(self, p, x, u):
        return epf.Sensors(
            dist.Delta(jnp.tanh(x[0] + x[1])),
            dist.Normal(x[1], 0.2),
            dist.Delta(x[0] * p.keeps),
            dist.Delta(x[3] + 1.0),
        )

    def observation(self, p, x, u):
        return dist.Normal(x[0], 1.0)


def path(keeps):
    values = [0.5]
    for u in INPUTS[:, 0]:
        values.append(keeps * values[-1] + u)
    return np.array(values[1:])


def sales(seed=2, **values):
    return epf.simulate(Adverts(), values, steps=len(INPUTS), seed=seed, inputs=INPUTS)[1]


def test_only_what_nothing_random_reaches_is_known():
    u = jnp.ones(1)
    assert noiseless_part(Adverts(), u).entries == (0,)
    assert noiseless_part(Counted(), u).entries == (1,)
    assert noiseless_part(Followed(), u).entries == (3,)
    assert noiseless_part(Given(), u) is None
    assert noiseless_part(epf.zoo.LocalLevel(), None) is None


def test_a_quadrature_of_the_rest_is_that_of_a_model_that_is_given_the_known_path():
    values = {"keeps": 0.6, "gain": 0.4}
    _, y = epf.simulate(Counted(), values, steps=len(INPUTS), seed=1, inputs=INPUTS)
    y[4] = np.nan
    one = epf.fit(epf.fix(Counted(), values), y, epf.MarginalEPF(), inputs=INPUTS, progress=False)
    other = epf.fit(epf.fix(Given(), values), y, epf.MarginalEPF(), inputs=path(0.6)[:, None], progress=False)
    assert one.settings["filters"] == "quadrature over the state"
    assert one.settings["without noise"] == "x[1]: known given the parameters"
    assert abs(one.log_evidence - other.log_evidence) < 1e-3
    (mean, sd), (same, spread) = one.posterior.state_moments(), other.posterior.state_moments()
    np.testing.assert_allclose([mean[0], sd[0]], [same, spread], rtol=1e-3)
    np.testing.assert_allclose([mean[1], sd[1]], [path(0.6)[-1], 0.0], rtol=1e-5)


def test_kalman_filters_of_the_rest_learn_its_coefficients():
    y = sales(keeps=0.7, gain=2.0, base=5.0)
    y[7] = np.nan
    result = epf.fit(Adverts(), y, epf.MarginalEPF(), inputs=INPUTS, progress=False)
    assert result.settings["integrated out"] == "gain, base, exactly"
    assert epf.explain(Adverts(), INPUTS).noiseless == (0,)
    assert "x[0] is known, since it has no noise" in str(epf.explain(Adverts(), INPUTS))
    assert epf.explain(Adverts(), INPUTS)["keeps"].why.startswith("transition() depends on it without noise")
    # Given `keeps` all is Gaussian: y = Z b + noise, where the covariance of the noise is that of the level.
    seen = np.isfinite(y)
    times = np.arange(1, len(y) + 1)[seen]
    noise = 1.0 + 0.04 * np.minimum.outer(times, times) + 0.25 * np.eye(len(times))
    grid = np.linspace(0.005, 0.995, 199)
    found = []
    for keeps in grid:
        design = np.stack([(path(keeps) / (path(keeps) + 1.0))[seen], np.ones(seen.sum())], axis=1)
        prior, middle = np.diag([4.0, 1.0]), np.array([0.0, 5.0])
        total = design @ prior @ design.T + noise
        gain = np.linalg.solve(total, design @ prior).T
        score = stats.multivariate_normal.logpdf(y[seen], design @ middle, total) + stats.beta.logpdf(keeps, 4.0, 2.0)
        found.append([score, *(middle + gain @ (y[seen] - design @ middle)), *np.diag(prior - gain @ design @ prior)])
    score, *moments = np.array(found).T
    weights = np.exp(score - score.max())
    evidence = np.log(weights.sum() * (grid[1] - grid[0])) + score.max()
    weights /= weights.sum()
    assert abs(result.log_evidence - evidence) < 0.02
    for name, mean, variance in (("keeps", grid, 0.0), ("gain", *moments[::2]), ("base", *moments[1::2])):
        exact = weights @ mean
        sd = np.sqrt(weights @ (variance + (mean - exact) ** 2))
        assert abs(result.mean[name] - exact) < 0.05 * sd
        assert abs(result.sd[name] / sd - 1.0) < 0.05
    drawn = result.forecast(3, inputs=INPUTS[:3], num_samples=4000)
    assert drawn.x.shape[-1] == 2
    assert np.all(drawn.x[..., 0] > 0.0)


def test_a_parameter_that_only_the_known_path_has_is_no_coefficient():
    class Push(Adverts):
        def prior(self):
            return {"push": dist.Normal(1.0, 0.5), "base": dist.Normal(5.0, 1.0), "sd": dist.HalfNormal(1.0)}

        def transition(self, p, x, u):
            return epf.Sensors(dist.Delta(0.5 * x[0] + p.push * u[0]), dist.Normal(x[1], 0.2))

        def observation(self, p, x, u):
            return dist.Normal(p.base + x[1] + jnp.tanh(x[0]), p.sd)

    described = epf.MarginalEPF().bind(Push(), jnp.ones(1)).describe()
    assert described["integrated out"] == "base, exactly"


@pytest.mark.slow
@pytest.mark.parametrize("model", [Adverts(), Counted()])
def test_a_stream_has_the_bits_of_one_call(model):
    _, y = epf.simulate(model, dict.fromkeys(model.prior(), 0.5), steps=25, seed=3, inputs=INPUTS)
    method = epf.MarginalEPF(nodes=32)
    result = epf.fit(model, y, method, inputs=INPUTS, progress=False)
    stream = epf.Stream(model, method)
    for row, u in zip(y, INPUTS, strict=True):
        stream.update(row, u)
    np.testing.assert_array_equal(stream.latest.mean[0], result.record.mean[-1])
