"""Parameters that Kalman filters learn at the nodes: against generalised least squares in double precision."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp
from scipy.stats import halfnorm, norm

import epf
from epf.model._check import check_inputs
from epf.run._default import choose

STEPS, DECAY = 60, 0.8


class Regression(epf.StateSpaceModel):
    """A level that is left slowly, an intercept, and the effects of two inputs; two scales are unknown."""

    spread: float = 1.0

    def prior(self):
        return {
            "noise": dist.HalfNormal(1.0),
            "effects": dist.MultivariateNormal(jnp.zeros(2), self.spread**2 * jnp.array([[1.0, 0.3], [0.3, 0.5]])),
            "sd": dist.HalfNormal(1.0),
            "level": dist.Normal(1.0, 3.0 * self.spread),
        }

    def initial(self, p):
        return dist.Normal(p.level, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(DECAY * x + (1.0 - DECAY) * p.level, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x + p.effects @ u, p.noise)


def design(u):
    """What y is of effects and level on average."""
    return np.concatenate([u, np.ones((len(u), 1))], axis=1)


def covariance(sd, steps):
    """Of the state without its level, from x_0 ~ N(0, 1) on."""
    t = np.arange(1, steps + 1)
    own = DECAY ** (2 * t) + sd**2 * (1 - DECAY ** (2 * t)) / (1 - DECAY**2)
    return DECAY ** np.abs(t[:, None] - t) * own[np.minimum.outer(t, t) - 1]


def oracle(y, u, spread, points=48):
    """Mean, sd and quantiles by sums over a grid of the two scales; given these all is Gaussian. And the log-evidence."""
    X, prior_mean = design(u), np.array([0.0, 0.0, 1.0])
    prior = np.zeros((3, 3))
    prior[:2, :2], prior[2, 2] = spread**2 * np.array([[1.0, 0.3], [0.3, 0.5]]), 9.0 * spread**2
    grid = np.exp(np.linspace(np.log(0.003), np.log(2.5), points))
    logs, means, sds = np.zeros((points, points)), np.zeros((points, points, 3)), np.zeros((points, points, 3))
    there = ~np.isnan(y)
    for j, sd in enumerate(grid):
        state = covariance(sd, len(y))[there][:, there]
        for i, noise in enumerate(grid):
            alone = cho_factor(state + noise**2 * np.eye(there.sum()), lower=True)
            Z, residual = X[there], (y - X @ prior_mean)[there]
            precision = np.linalg.inv(prior) + Z.T @ cho_solve(alone, Z)
            pull = Z.T @ cho_solve(alone, residual)
            after = np.linalg.inv(precision)
            gain = after @ pull
            determinant = 2 * np.log(np.diag(alone[0])).sum() + np.linalg.slogdet(prior @ precision)[1]
            square = residual @ cho_solve(alone, residual) - pull @ gain
            logs[i, j] = -0.5 * (square + determinant + there.sum() * np.log(2 * np.pi))
            means[i, j], sds[i, j] = prior_mean + gain, np.sqrt(np.diag(after))
    step = np.log(grid[1] / grid[0]) * grid
    logs += np.log(step[:, None] * step) + halfnorm.logpdf(grid)[:, None] + halfnorm.logpdf(grid)
    evidence, w = logsumexp(logs), np.exp(logs - logsumexp(logs))
    mean = np.einsum("ij,ijk->k", w, means)
    sd = np.sqrt(np.einsum("ij,ijk->k", w, sds**2 + (means - mean) ** 2))
    scales = [(p @ grid, np.sqrt(p @ grid**2 - (p @ grid) ** 2)) for p in (w.sum(axis=1), w.sum(axis=0))]

    def below(k, at):
        return np.sum(w * norm.cdf(at, means[..., k], sds[..., k]))

    order = [scales[0], (mean[0], sd[0]), (mean[1], sd[1]), scales[1], (mean[2], sd[2])]
    return np.array(order), below, evidence


def data(scale=1.0, spread=1.0):
    u = np.random.default_rng(3).normal(size=(STEPS, 2)) * scale
    truth = {"noise": 0.5, "effects": np.array([0.7, -0.4]), "sd": 0.3, "level": 2.0}
    y = epf.simulate(Regression(spread), truth, steps=STEPS, inputs=u, seed=5)[1].astype(float)
    y[[7, 20]] = np.nan
    return y, u


@pytest.fixture(scope="module")
def fitted():
    y, u = data()
    return epf.fit(Regression(), y, epf.MarginalEPF(nodes=256), inputs=u), oracle(y, u, 1.0)


def flat(values):
    return np.concatenate([np.ravel(values[name]) for name in ("noise", "effects", "sd", "level")])


@pytest.mark.slow
def test_moments_and_evidence_are_those_of_least_squares(fitted):
    result, (exact, _, evidence) = fitted
    assert result.settings["integrated out"] == "effects, level, exactly"
    z = (flat(result.mean) - exact[:, 0]) / exact[:, 1]
    r = flat(result.sd) / exact[:, 1]
    assert z == pytest.approx(0.0, abs=0.06)
    assert r == pytest.approx(1.0, abs=0.05)
    # What the filters learn has hardly any error.
    assert z[[1, 2, 4]] == pytest.approx(0.0, abs=0.02)
    assert r[[1, 2, 4]] == pytest.approx(1.0, abs=0.02)
    assert result.log_evidence == pytest.approx(evidence, abs=0.1)
    error = result.error.total
    assert np.all(np.abs(z) < 2.0 * error[0] + 1e-3)
    assert np.all(np.abs(np.log(r)) < 2.0 * error[1] + 2e-3)
    assert np.max(error) < 0.1
    assert str(result.verdict).startswith("good")


@pytest.mark.slow
def test_quantiles_densities_and_draws_are_of_the_same_mixture(fitted):
    result, (exact, below, _) = fitted
    for k, label in enumerate(("effects[0]", "effects[1]", "level")):
        mean, sd = exact[[1, 2, 4][k]]
        for level in (0.05, 0.5, 0.95):
            found = flat(result.quantile(level))[[1, 2, 4][k]]
            assert below(k, found) == pytest.approx(level, abs=0.01)
        at = mean + sd * np.array([-1.0, 0.0, 1.5])
        slope = [(below(k, x + 1e-3 * sd) - below(k, x - 1e-3 * sd)) / (2e-3 * sd) for x in at]
        assert result.density(label, at) == pytest.approx(slope, rel=0.03)
    draws = result.sample(4000, seed=2)
    assert np.mean(draws["effects"], axis=0) == pytest.approx(exact[1:3, 0], abs=0.07 * exact[1, 1])
    assert np.std(draws["level"]) == pytest.approx(exact[4, 1], rel=0.05)
    # Draws have the correlations: of a level and its inputs' effects hardly any, of the two effects the regression's.
    X = design(data()[1])
    expected = np.linalg.inv(X.T @ X)
    together = np.corrcoef(draws["effects"].T)[0, 1]
    assert together == pytest.approx(expected[0, 1] / np.sqrt(expected[0, 0] * expected[1, 1]), abs=0.12)
    history = result.history
    assert history["mean"].sel(parameter="level").values[-1] == pytest.approx(result.mean["level"], rel=1e-5)
    ordered = np.diff(history["quantile"].values, axis=1)
    assert np.all(ordered > 0.0)


@pytest.mark.slow
def test_forecasts_know_the_coefficients(fitted):
    """The spread of the next observation is more than that of the noise, by what is not known of the coefficients."""
    result, (exact, _, _) = fitted
    far = np.array([[30.0, 0.0]])
    forecast = result.forecast(1, inputs=far)
    spread = 30.0 * exact[1, 1]
    assert np.asarray(forecast.sd).ravel()[0] == pytest.approx(np.hypot(spread, 0.6), rel=0.1)


@pytest.mark.slow
def test_wide_priors_and_large_inputs_in_single_precision():
    """Variances of 1e10 and 1e-7 in one matrix are more than float32 holds; their roots are not."""
    y, u = data(scale=300.0, spread=300.0)
    # So many nodes that their own error is small, and rounding would show.
    result, (exact, _, evidence) = (
        epf.fit(Regression(300.0), y, epf.MarginalEPF(nodes=512), inputs=u),
        oracle(y, u, 300.0),
    )
    z = (flat(result.mean) - exact[:, 0]) / exact[:, 1]
    assert z == pytest.approx(0.0, abs=0.1)
    assert flat(result.sd) / exact[:, 1] == pytest.approx(1.0, abs=0.06)
    assert result.log_evidence == pytest.approx(evidence, abs=0.2)


class Choices(epf.StateSpaceModel):
    """Parameters of every kind: see the test."""

    def prior(self):
        normal = dist.Normal(0.0, 1.0)
        return dict.fromkeys(("a", "shift", "b", "c", "flip", "start"), normal) | {
            "heavy": dist.StudentT(3.0),
            "log_sd": normal,
            "vector": normal.expand([2]).to_event(1),
        }

    def initial(self, p):
        return dist.Normal(p.start, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x + p.shift + 2.0 * p.heavy, jnp.exp(p.log_sd))

    def observation(self, p, x, u):
        return dist.Normal(x + p.b * p.c + p.flip**2 + p.vector @ jnp.array([1.0, 2.0]), 1.0)


def learnt(model, **settings):
    return epf.MarginalEPF(**settings).bind(model).filters.names


def test_a_coefficient_is_linear_and_gaussian_and_unchanged_by_symmetries():
    """`a` multiplies the state, `b` and `c` each other and change signs together, `heavy` is not Gaussian."""
    assert learnt(Choices()) == ("shift", "start", "vector")
    assert learnt(Choices(), discount=0.99) == ()
    assert not hasattr(epf.MarginalEPF(8, exact=False).bind(Choices()).filters, "names")


class Product(Choices):
    """Two factors without a symmetry: one of them can be learnt, given the other."""

    def prior(self):
        return {"b": dist.Normal(0.0, 1.0), "c": dist.Normal(2.0, 1.0), "sd": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.5 * x + p.b, p.sd)

    def observation(self, p, x, u):
        return dist.Normal(x + p.b * p.c, 1.0)


def test_of_two_that_multiply_each_other_one_is_learnt():
    assert learnt(Product()) == ("b",)


def test_nodes_keep_the_symmetries_of_their_own_parameters():
    """The signs of two loads and of the state change together; the intercept does not, and is learnt by the filters."""

    class Loads(Choices):
        def prior(self):
            return {
                "loads": dist.Normal(jnp.zeros(2), 1.0).to_event(1),
                "mu": dist.Normal(0.0, 3.0),
                "sd": dist.HalfNormal(1.0),
            }

        def initial(self, p):
            return dist.Normal(0.0, 1.0)

        def transition(self, p, x, u):
            return dist.Normal(0.7 * x, p.sd)

        def observation(self, p, x, u):
            return dist.Normal(p.mu + p.loads * x, 0.5).to_event(1)

    bound = epf.MarginalEPF().bind(Loads())
    assert bound.filters.names == ("mu",)
    assert bound.symmetries.images == 2
    assert bound.symmetries.order.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert bound.symmetries.sign.tolist() == [[1, 1, 1], [-1, -1, 1]]


def test_a_model_without_other_parameters_has_one_exact_filter():
    class Known(Regression):
        def prior(self):
            return {name: prior for name, prior in super().prior().items() if name not in ("sd", "noise")}

        def transition(self, p, x, u):
            return dist.Normal(DECAY * x + (1.0 - DECAY) * p.level, 0.3)

        def observation(self, p, x, u):
            return dist.Normal(x + p.effects @ u, 0.5)

    row = check_inputs(Known(), np.ones((1, 2)), 1)[0]
    assert choose(Known(), row) == epf.Kalman()
    assert epf.MarginalEPF().bind(Known(), row).describe() == {"method": "Kalman", "form": "exact"}


def test_the_exact_filter_refuses_a_prior_that_is_not_gaussian():
    class Heavy(epf.StateSpaceModel):
        def prior(self):
            return {"b": dist.Laplace(0.0, 1.0)}

        def initial(self, p):
            return dist.Normal(0.0, 1.0)

        def transition(self, p, x, u):
            return dist.Normal(0.5 * x, 1.0)

        def observation(self, p, x, u):
            return dist.Normal(x + p.b, 1.0)

    with pytest.raises(epf.errors.UnsupportedModelError, match="the prior of 'b' is Laplace"):
        epf.Kalman().bind(Heavy())
