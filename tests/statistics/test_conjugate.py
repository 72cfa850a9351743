"""The conjugate statistic against batch regression, against the sum of log-densities, and against quadrature."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import UnsupportedModelError
from epf.model._model import parameters
from epf.numerics._keys import particle_keys, root_key
from epf.statistics._conjugate import Conjugate, serves
from epf.statistics._regression import noise_of
from models import AR, grid_posterior


class Regression(epf.StateSpaceModel):
    """x_t = F(x_t-1)' beta + N(0, Q) with F non-linear in x, a vector state and a full known covariance."""

    def prior(self):
        return {
            "b": dist.MultivariateNormal(jnp.array([0.2, 0.0]), jnp.array([[1.0, 0.3], [0.3, 0.5]])),
            "c": dist.Normal(0.1, 0.5),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        mean = jnp.stack([p.b[0] * jnp.sin(x[1]) + p.c * x[0], p.b[1] * x[0] * jnp.exp(-(x[0] ** 2)) + 0.3 * x[1]])
        return dist.MultivariateNormal(mean, jnp.array([[0.5, 0.2], [0.2, 0.4]]))

    def observation(self, p, x, u):
        return dist.Normal(x[0], 0.3)


class Everywhere(epf.StateSpaceModel):
    """Parameters in all three laws: a start, a coefficient, a gain, and a variance for each noise."""

    def prior(self):
        return {
            "start": dist.Normal(1.0, 2.0),
            "a": dist.Normal(0.0, 1.0),
            "gain": dist.Normal(1.0, 0.5),
            "q": dist.InverseGamma(3.0, 2.0),
            "r": dist.InverseGamma(4.0, 1.0),
        }

    def initial(self, p):
        return dist.Normal(p.start, 0.7)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, jnp.sqrt(p.q))

    def observation(self, p, x, u):
        return dist.Normal(jnp.stack([p.gain * x, x]), jnp.sqrt(p.r)).to_event(1)


class Matrix(epf.StateSpaceModel):
    """An unknown covariance matrix of the transition."""

    def prior(self):
        return {
            "a": dist.Normal(0.0, 1.0).expand([2]).to_event(1),
            "S": dist.InverseWishart(6.0, jnp.array([[2.0, 0.3], [0.3, 1.0]])),
        }

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.MultivariateNormal(p.a * x, covariance_matrix=p.S)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5).to_event(1)


def path(model, values, steps, seed=0):
    """x_0 and a simulated path: x_0 is set to zero, which any of these models could have drawn."""
    x, y = epf.simulate(model, values, steps=steps, seed=seed)
    return jnp.asarray(np.concatenate([np.zeros((1, *x.shape[1:])), x])), jnp.asarray(y)


def statistic_of(model, xs, ys):
    gibbs = Conjugate.of(model)

    @jax.jit
    def accumulate(xs, ys):
        def step(statistic, at):
            before, after, y = at
            return gibbs.update(statistic, before, after, after, y, None), None

        return jax.lax.scan(step, gibbs.init(xs[0]), (xs[:-1], xs[1:], ys))[0]

    return gibbs, accumulate(xs, ys)


def densities(gibbs, statistic, thetas):
    return jax.jit(jax.vmap(lambda theta: gibbs.log_density(statistic, theta)))(thetas)


def recursion(xs, m, C, Q):
    """Equation 5 of the paper, literally, in float64."""
    for before, x in zip(np.asarray(xs[:-1], float), np.asarray(xs[1:], float), strict=True):
        F = np.array([[np.sin(before[1]), 0.0, before[0]], [0.0, before[0] * np.exp(-(before[0] ** 2)), 0.0]]).T
        D = F.T @ C @ F + Q
        gain = C @ F @ np.linalg.inv(D)
        m, C = m + gain @ (x - [0.0, 0.3 * before[1]] - F.T @ m), C - gain @ F.T @ C
    return m, C


@pytest.mark.parametrize("steps", [50, 2000])
def test_m_and_C_are_the_papers_recursion_and_the_batch_regression(steps):
    """To 1e-5 relative, in single precision."""
    model = Regression()
    xs, ys = path(model, {"b": [0.8, 2.0], "c": 0.4}, steps)
    gibbs, statistic = statistic_of(model, xs, ys)
    m, C = eqx.filter_jit(gibbs.mean_and_covariance)(statistic, jnp.zeros(3))
    Q = np.array([[0.5, 0.2], [0.2, 0.4]])
    m_0, C_0 = np.array([0.2, 0.0, 0.1]), np.array([[1.0, 0.3, 0], [0.3, 0.5, 0], [0, 0, 0.25]])
    m_t, C_t = recursion(xs, m_0, C_0, Q)
    scale = np.sqrt(np.outer(np.diag(C_t), np.diag(C_t)))
    np.testing.assert_allclose(m, m_t, rtol=1e-5, atol=1e-5 * np.abs(m_t).max())
    np.testing.assert_allclose(C / scale, C_t / scale, atol=1e-5)

    # The batch: all rows at once, by generalised least squares.
    x, before = np.asarray(xs[1:], float), np.asarray(xs[:-1], float)
    F = np.zeros((steps, 2, 3))
    F[:, 0, 0], F[:, 0, 2], F[:, 1, 1] = np.sin(before[:, 1]), before[:, 0], before[:, 0] * np.exp(-(before[:, 0] ** 2))
    z = x - np.stack([np.zeros(steps), 0.3 * before[:, 1]], 1)
    W = np.linalg.inv(Q)
    precision = np.linalg.inv(C_0) + np.einsum("tia,ij,tjb->ab", F, W, F)
    mean = np.linalg.solve(precision, np.linalg.solve(C_0, m_0) + np.einsum("tia,ij,tj->a", F, W, z))
    np.testing.assert_allclose(m, mean, rtol=1e-5, atol=1e-5 * np.abs(mean).max())
    np.testing.assert_allclose(C / scale, np.linalg.inv(precision) / scale, atol=1e-5)


def test_single_precision_is_enough_for_a_hundred_thousand_steps():
    """The statistic of 10^5 steps in float32 equals the float64 sums, where plain float32 sums are off by much more."""
    model = epf.fix(AR(), {"v": 0.5})
    xs, ys = path(model, {"a": 0.9}, 100_000)
    gibbs, statistic = statistic_of(model, xs, ys)
    m, C = eqx.filter_jit(gibbs.mean_and_covariance)(statistic, jnp.zeros(1))
    x, before = np.asarray(xs[1:], float), np.asarray(xs[:-1], float)
    precision = 1.0 + before @ before / 0.5
    assert float(m[0]) == pytest.approx(before @ x / 0.5 / precision, rel=2e-6)
    assert float(C[0, 0]) == pytest.approx(1 / precision, rel=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Everywhere(), {"start": 0.0, "a": 0.7, "gain": 1.2, "q": 0.5, "r": 0.3}),
        (Matrix(), {"a": [0.5, 0.8], "S": [[0.5, 0.1], [0.1, 0.3]]}),
    ],
    ids=["scalars", "matrix"],
)
def test_the_density_is_the_sum_of_the_models_own_log_densities(model, values):
    """log p(theta | path) from the statistic and from every law of the path differ by a constant."""
    params = parameters(model)
    xs, ys = path(model, values, 40)
    ys = ys.at[7, 0].set(jnp.nan).at[9].set(jnp.nan)
    gibbs, statistic = statistic_of(model, xs, ys)
    thetas = jax.jit(jax.vmap(lambda key: params.sample(key)))(particle_keys(root_key(1), 30))

    def direct(theta):
        p = params.named(theta)

        def step(before, x, y):
            law = model.observation(p, x, None).base_dist
            seen = jnp.where(jnp.isnan(y), 0.0, law.log_prob(jnp.nan_to_num(y)))
            return model.transition(p, before, None).log_prob(x) + jnp.sum(seen)

        steps = jax.vmap(step)(xs[:-1], xs[1:], ys)
        return params.log_prior(theta) + model.initial(p).log_prob(xs[0]) + jnp.sum(steps)

    expected = np.asarray(jax.jit(jax.vmap(direct))(thetas))
    found = np.asarray(densities(gibbs, statistic, thetas))
    gap = found - expected
    np.testing.assert_allclose(gap, gap.mean(), atol=2e-5 * np.abs(expected).max())


def test_sweeps_converge_to_the_density_by_quadrature():
    """Coefficient and variance: many chains of sweeps from the prior end in the exact two-dimensional posterior."""
    model = AR()
    params = parameters(model)
    xs, ys = path(model, {"a": 0.8, "v": 0.5}, 60)
    gibbs, statistic = statistic_of(model, xs, ys)
    chains = 20000
    theta = jax.jit(jax.vmap(lambda key: params.sample(key)))(particle_keys(root_key(1), chains))

    def sweep(theta, key):
        return jax.vmap(lambda k, t: gibbs.draw(k, statistic, t))(particle_keys(key, chains), theta), None

    theta = np.asarray(jax.jit(lambda t: jax.lax.scan(sweep, t, jax.random.split(root_key(2), 10))[0])(theta))
    a, v = np.meshgrid(np.linspace(0.0, 1.4, 301), np.linspace(0.15, 2.0, 301), indexing="ij")
    points = jnp.asarray(np.stack([a.ravel(), v.ravel()], 1), jnp.float32)
    weights, _ = grid_posterior(np.asarray(densities(gibbs, statistic, points), np.float64))
    for i, grid in enumerate((a.ravel(), v.ravel())):
        mean = weights @ grid
        sd = np.sqrt(weights @ (grid - mean) ** 2)
        assert abs(theta[:, i].mean() - mean) < 4.0 * sd / np.sqrt(chains)
        assert theta[:, i].std() == pytest.approx(sd, rel=4.0 * 2.0 / np.sqrt(chains))  # 2: tails heavier than normal


@pytest.mark.parametrize(
    ("known", "grid"), [({"v": 0.5}, np.linspace(-0.5, 1.5, 4001)), ({"a": 0.8}, np.linspace(0.05, 4.0, 4001))]
)
def test_marginals_agree_with_the_density(known, grid):
    """With one unknown the marginal is the density itself: normal for a coefficient, inverse gamma for a variance."""
    model = epf.fix(AR(), known)
    xs, ys = path(AR(), {"a": 0.8, "v": 0.5}, 30)
    gibbs, statistic = statistic_of(model, xs, ys)
    points = jnp.asarray(grid, jnp.float32)[:, None]
    log_density = densities(gibbs, statistic, points)
    weights, _ = grid_posterior(np.asarray(log_density, float))
    marginals = eqx.filter_jit(gibbs.marginals)(statistic, points[2000])
    pdf = np.asarray(jax.jit(jax.vmap(lambda point: marginals.pdf(point)))(points))[:, 0]
    np.testing.assert_allclose(pdf, weights / (grid[1] - grid[0]), rtol=1e-3, atol=1e-4)
    mean = weights @ grid
    assert float(marginals.mean[0]) == pytest.approx(mean, rel=1e-3)
    assert float(marginals.variance[0]) == pytest.approx(weights @ (grid - mean) ** 2, rel=5e-3)


def test_moments_of_a_covariance_matrix():
    """The conditional mean and variance of each element are those of its own draws."""
    model = Matrix()
    xs, ys = path(model, {"a": [0.5, 0.8], "S": [[0.5, 0.1], [0.1, 0.3]]}, 30)
    gibbs, statistic = statistic_of(model, xs, ys)
    theta = jnp.asarray([0.5, 0.8, 0.5, 0.1, 0.1, 0.3])
    (degrees, scale), draws = eqx.filter_jit(gibbs._inverse_wisharts)(statistic, theta)["S"], 40000
    own = jax.jit(jax.vmap(dist.InverseWishart(degrees, scale).sample))(jax.random.split(root_key(3), draws))
    marginals = eqx.filter_jit(gibbs.marginals)(statistic, theta)
    error = np.std(own, axis=0).ravel() / np.sqrt(draws)
    assert np.all(np.abs(np.mean(own, axis=0).ravel() - marginals.mean[2:]) < 4.5 * error)
    np.testing.assert_allclose(np.var(own, axis=0).ravel(), marginals.variance[2:], rtol=0.06)


V, Q = {"v": jnp.array(1.3)}, jnp.array([[0.5, 0.2], [0.2, 0.4]])
ROOT = jnp.linalg.cholesky(Q)


def scalar(mean, sd):
    return lambda beta, noise: dist.Normal(mean(beta), sd(noise["v"]))


def vector(covariance):
    return lambda beta, noise: dist.MultivariateNormal(beta[:2], covariance_matrix=covariance(noise["v"]))


@pytest.mark.parametrize(
    ("law", "name"),
    [
        (scalar(lambda b: b[0], jnp.sqrt), "v"),
        (scalar(lambda b: 3.0 * b[0] - b[1] / 7.0 + 1.0, lambda v: 2.0 * jnp.sqrt(v)), "v"),
        (scalar(lambda b: b @ jnp.arange(3.0), lambda v: jnp.sqrt(jnp.square(v) / v)), "v"),
        (scalar(lambda b: b[0], lambda v: v**0.5), "v"),
        (scalar(lambda b: jnp.where(Q[0, 0] > 0.0, b[0], b[1]), lambda v: 0.7), ""),
        (scalar(lambda b: 0.3, lambda v: 0.7), None),
        (lambda beta, noise: dist.Normal(beta[:2], jnp.sqrt(noise["v"])).to_event(1), "v"),
        (vector(lambda v: v * Q), "v"),
        (vector(lambda v: jnp.diag(jnp.stack([v, 2.0 * v]))), "v"),
        (vector(lambda v: ROOT @ (v * jnp.eye(2)) @ ROOT.T), "v"),
        (lambda beta, noise: dist.MultivariateNormal(beta[:2], scale_tril=jnp.sqrt(noise["v"]) * ROOT), "v"),
        (vector(lambda v: jnp.eye(2)), ""),
    ],
)
def test_what_is_conjugate_is_seen(law, name):
    assert noise_of("transition", law, jnp.array([0.1, 0.2, 0.3]), V) == name


@pytest.mark.parametrize(
    "law",
    [
        scalar(lambda b: b[0] ** 2, jnp.sqrt),
        scalar(lambda b: b[0] * b[1], jnp.sqrt),
        scalar(lambda b: jnp.abs(b[0]), jnp.sqrt),
        scalar(lambda b: jnp.where(b[0] > 0.0, b[0], 2.0 * b[0]), jnp.sqrt),
        scalar(lambda b: b[0] + jnp.floor(b[0]), jnp.sqrt),
        scalar(lambda b: b[0], lambda v: v),
        scalar(lambda b: b[0], lambda v: jnp.sqrt(v + 1.0)),
        scalar(lambda b: b[0], lambda v: jnp.exp(v)),
        scalar(lambda b: b[0], lambda v: jnp.sqrt(jnp.maximum(v, 1.0))),
        scalar(lambda b: b[0], lambda v: jnp.sqrt(jnp.where(v > 1.0, v, 2.0 * v))),
        vector(lambda v: v * Q + 1e-6 * jnp.eye(2)),
        vector(lambda v: jnp.diag(jnp.stack([v, jnp.ones(())]))),
        lambda beta, noise: dist.Normal(beta[0] + noise["v"], jnp.sqrt(noise["v"])),
        lambda beta, noise: dist.Normal(beta[0], jnp.sqrt(noise["v"]) * jnp.abs(beta[1])),
        lambda beta, noise: dist.Cauchy(beta[0], 1.0),
    ],
)
def test_what_is_not_conjugate_is_refused(law):
    with pytest.raises(UnsupportedModelError, match="not a linear regression"):
        noise_of("transition", law, jnp.array([0.1, 0.2, 0.3]), V)


class Many(epf.StateSpaceModel):
    """A state whose known covariance has more entries than the reader of models reads."""

    size: int = 150

    def prior(self):
        return {"b": dist.Normal(jnp.zeros(2), 1.0).to_event(1)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(self.size), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.MultivariateNormal(p.b[0] * x + p.b[1], 0.3 * jnp.eye(self.size) + 0.1)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.5).to_event(1)


def test_what_the_parameters_do_not_reach_need_not_be_read():
    assert serves(Many(), None)
