"""Particles that are Gaussians: against Kalman filters, quadratures over the state, and many plain particles."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.filters._bank import Filters
from epf.filters.marginal._exact import KalmanFilters
from epf.filters.marginal._mixture_kalman import MixtureKalmanFilters
from epf.filters.marginal._quadrature import QuadratureFilters
from epf.filters.marginal._taken_in import along_its_slope, left_beside
from epf.model._check import check_inputs
from epf.numerics._compile import compiled_once
from epf.smc.proposals._base import Bootstrap
from epf.smc.resampling import Systematic

SEEDS = 32


class Scalar(epf.StateSpaceModel):
    """An autoregression that is seen through the law named `kind`."""

    kind: str = "counts"

    def prior(self):
        return {"sd": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.9 * x, p.sd)

    def observation(self, p, x, u):
        return LAWS[self.kind](x)


class Lagged(Scalar):
    """The same with its last value as a second number of the state."""

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return super().transition(p, x[0], u)

    def advance(self, x, new):
        return jnp.stack([new, x[0]])

    def observation(self, p, x, u):
        return super().observation(p, x[0], u)


LAWS = {
    "counts": lambda e: dist.Poisson(jnp.exp(e)),
    "heavy tails": lambda e: dist.StudentT(3.0, e, 0.3),
    "volatility": lambda e: dist.Normal(0.0, jnp.exp(0.5 * e)),
    "answers": lambda e: dist.Bernoulli(logits=2.0 * e),
    "two sensors": lambda e: epf.Sensors(dist.Poisson(jnp.exp(e)), dist.StudentT(3.0, e, 1.0)),
}


class Trend(epf.StateSpaceModel):
    """A level with a slope and an effect of the input; counts and a reading with heavy tails in each row."""

    def prior(self):
        return {"level_sd": dist.HalfNormal(1.0), "effect": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(jnp.array([1.0, 0.0]), jnp.array([1.0, 0.1])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.stack([x[0] + x[1], x[1]]), jnp.stack([p.level_sd, 0.02])).to_event(1)

    def observation(self, p, x, u):
        return epf.Sensors(dist.Poisson(jnp.exp(x[0] + p.effect * u[0])), dist.StudentT(4.0, x[0] - x[1], 0.5))


@compiled_once
def series(filters, model, thetas, key, ys, us):
    def one(bank, t):
        row = None if us is None else us[t]
        bank, seen = filters.step(jax.random.fold_in(key, t), model, thetas, bank, ys[t], row)
        return bank, seen.log_likelihood

    bank, found = jax.lax.scan(one, filters.start(key, model, thetas), jnp.arange(len(ys)))
    return found.sum(0), bank.state_moments()


def estimates(filters, model, theta, ys, us=None, seeds=SEEDS):
    """Log-likelihoods of independent filters, all at the same theta, and the moments of their states."""
    thetas = jnp.broadcast_to(jnp.asarray(theta, float), (seeds, len(theta)))
    found = series(filters, model, thetas, jax.random.key(1), jnp.asarray(ys, float), us)
    return jax.tree.map(lambda leaf: np.asarray(leaf, float), found)


def gaussians(model, particles, u=None):
    filters = MixtureKalmanFilters.of(model, u, particles, Systematic(1.0), 1)
    assert filters is not None
    return filters


@pytest.mark.slow
def test_gaussian_observations_are_as_good_as_exact():
    """Hardly anything is left to chance then. With gaps, a vague start, and inputs that are large beside the noise."""

    class Linear(epf.StateSpaceModel):
        def prior(self):
            return {"sd": dist.HalfNormal(1.0)}

        def initial(self, p):
            return dist.Normal(jnp.zeros(2), jnp.array([1000.0, 10.0])).to_event(1)

        def transition(self, p, x, u):
            return dist.Normal(jnp.stack([x[0] + x[1] + u[0], 0.9 * x[1]]), jnp.stack([p.sd, 0.1])).to_event(1)

        def observation(self, p, x, u):
            return dist.Normal(jnp.stack([x[0], x[0] - x[1]]), jnp.array([0.5, 1.0])).to_event(1)

    rng = np.random.default_rng(0)
    us = jnp.asarray(check_inputs(Linear(), rng.normal(size=(25, 1)) * 50.0, 25))
    ys = np.cumsum(np.asarray(us), axis=0) + rng.normal(size=(25, 2)) + 300.0
    ys[4] = ys[7, 0] = np.nan
    found, (mean, sd) = estimates(gaussians(Linear(), 8, us[0]), Linear(), [0.7], ys, us, seeds=4)
    exact, moments = estimates(KalmanFilters((2,)), Linear(), [0.7], ys, us, seeds=1)
    # States near 1000 have four digits beside a noise of 0.5, and the skewness that these show is taken for real.
    np.testing.assert_allclose(found, exact[0], atol=0.15)
    np.testing.assert_allclose(mean, np.tile(moments[0], (4, 1)), atol=0.05 * np.max(moments[1]))
    np.testing.assert_allclose(sd, np.tile(moments[1], (4, 1)), rtol=0.05)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow][kind == "counts" :]) for kind in LAWS])
def test_likelihoods_are_those_of_a_quadrature_over_the_state(kind):
    """Estimates are unbiased but for moments beyond the fourth: less than 0.1 nats in 60 steps."""
    ys = np.asarray(epf.simulate(Scalar(kind), {"sd": 0.4}, steps=60, seed=3)[1], float)
    ys[10] = ys[30:33] = np.nan
    if kind == "two sensors":
        ys[20, 0] = np.nan
    exact, moments = estimates(QuadratureFilters.of(Scalar(kind), None, 128), Scalar(kind), [0.4], ys, seeds=2)
    found, (mean, sd) = estimates(gaussians(Lagged(kind), 64), Lagged(kind), [0.4], ys)
    ratio = np.exp(found - exact[0])
    assert ratio.std() < 0.4
    assert abs(np.log(ratio.mean())) < 4.0 * ratio.std() / np.sqrt(SEEDS) + 0.1
    error = 4.0 * mean[:, 0].std() / np.sqrt(SEEDS)
    assert abs(mean[:, 0].mean() - moments[0][0]) < error + 0.02 * moments[1][0]
    np.testing.assert_allclose(np.sqrt(np.mean(sd[:, 0] ** 2) + mean[:, 0].var()), moments[1][0], rtol=0.05)


@pytest.mark.slow
def test_two_numbers_of_the_state_and_parts_of_y_of_different_kinds():
    """Against plain filters of 2000 particles."""
    rng = np.random.default_rng(5)
    us = jnp.asarray(check_inputs(Trend(), rng.normal(size=(30, 1)), 30))
    level = 1.0 + np.cumsum(0.2 * rng.normal(size=30))
    ys = np.stack(
        [rng.poisson(np.exp(level + 0.5 * np.asarray(us)[:, 0])), level + rng.standard_t(4.0, size=30)], axis=1
    )
    ys[5, 0], ys[6], ys[9, 1] = np.nan, np.nan, 40.0
    theta = [0.2, 0.5]
    plain = estimates(Filters(2000, Bootstrap(), Systematic(1.0)), Trend(), theta, ys, us, seeds=64)[0]
    found = estimates(gaussians(Trend(), 48, us[0]), Trend(), theta, ys, us)[0]
    ratios = np.exp(plain - found.mean()), np.exp(found - found.mean())
    error = np.sqrt(sum(ratio.var() / len(ratio) for ratio in ratios))
    assert abs(ratios[0].mean() - ratios[1].mean()) < 4.0 * error + 0.05


@pytest.mark.slow
def test_states_that_hardly_move_keep_their_spread():
    """Draws of nearly constant coefficients soon have few ancestors left; Gaussians keep the spread in themselves."""

    class Slow(epf.StateSpaceModel):
        def prior(self):
            return {"sd": dist.HalfNormal(0.1)}

        def initial(self, p):
            return dist.Normal(jnp.zeros(4), 1.0).to_event(1)

        def transition(self, p, x, u):
            return dist.Normal(x, p.sd).to_event(1)

        def observation(self, p, x, u):
            return dist.Poisson(jnp.exp(x @ u))

    rng = np.random.default_rng(1)
    us = np.concatenate([np.ones((80, 1)), 0.5 * rng.normal(size=(80, 3))], axis=1)
    ys = rng.poisson(np.exp(us @ [1.0, -0.5, 0.5, 1.0])).astype(float)
    us = jnp.asarray(check_inputs(Slow(), us, 80))
    found = estimates(gaussians(Slow(), 32, us[0]), Slow(), [0.01], ys, us)[0]
    plain = estimates(Filters(256, Bootstrap(), Systematic(1.0)), Slow(), [0.01], ys, us)[0]
    assert found.std() < 0.3 * plain.std()
    assert found.mean() > plain.mean() + 1.0  # the logarithm of an estimate is low by half its variance


@pytest.mark.slow
def test_the_posterior_is_that_of_quadratures():
    """Over the parameter, and over the state of the same model with one number."""
    y = epf.simulate(Scalar(), {"sd": 0.5}, steps=60, seed=7)[1]
    found = epf.fit(Lagged(), y, epf.MarginalEPF(128, nodes=64), progress=False)
    assert found.settings["filters"].startswith("mixture Kalman")
    grid = np.linspace(0.005, 2.0, 400)
    filters = QuadratureFilters.of(Scalar(), None, 64)
    logs = series(filters, Scalar(), jnp.tile(jnp.asarray(grid), 2)[:, None], jax.random.key(1), jnp.asarray(y), None)[
        0
    ]
    logs = np.asarray(logs, float).reshape(2, -1).mean(axis=0) - 0.5 * grid**2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert abs(found.mean["sd"] - mean) < 0.1 * sd
    assert 0.93 < found.sd["sd"] / sd < 1.07


def changed(**laws):
    """`Lagged` with other laws."""
    return type("Changed", (Lagged,), laws)()


SEVERAL = {
    "a distance": changed(observation=lambda self, p, x, u: dist.Normal(jnp.sqrt(jnp.sum(x**2) + 1e-3), 0.1)),
    "mean and spread": changed(observation=lambda self, p, x, u: dist.StudentT(4.0, x[0], jnp.exp(x[1]))),
    "a joint law": changed(
        observation=lambda self, p, x, u: dist.MultivariateStudentT(
            4.0, jnp.sin(x), jnp.array([[1.0, 0.0], [0.3, 1.0]])
        )
    ),
}
OTHERS = {
    "a threshold elsewhere": changed(
        observation=lambda self, p, x, u: dist.Poisson(jnp.exp(x[0]) * jnp.where(x[1] > 0.0, 2.0, 1.0))
    ),
    "a curved transition": changed(transition=lambda self, p, x, u: dist.Normal(jnp.sin(x[0]), p.sd)),
    "a noise that grows": changed(transition=lambda self, p, x, u: dist.Normal(x[0], p.sd * jnp.exp(x[1]))),
    "heavy steps": changed(transition=lambda self, p, x, u: dist.StudentT(3.0, x[0], p.sd)),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_parts_that_depend_on_several_numbers_are_known(name):
    assert gaussians(SEVERAL[name], 16).parts == (False,)


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_not_taken(name):
    assert MixtureKalmanFilters.of(OTHERS[name], None, 16, Systematic(1.0), 1) is None


def test_inputs_that_are_zero_at_first_may_bring_in_another_number():
    def observation(self, p, x, u):
        return dist.Poisson(jnp.exp(x[0] + u[0] * x[1] ** 2))

    row = jnp.zeros(1)
    assert MixtureKalmanFilters.of(changed(observation=observation), row, 16, Systematic(1.0), 1) is None


def test_a_second_number_that_matters_far_away_only_is_doubted():
    """No trial before the data can find it; two states that should be alike, and are not, do."""

    class Late(Lagged):
        def transition(self, p, x, u):
            return dist.Normal(jnp.stack([0.9 * x[0], x[1] + 5.0]), jnp.stack([p.sd, 0.1])).to_event(1)

        def advance(self, x, new):
            return new

        def observation(self, p, x, u):
            return dist.Poisson(jnp.exp(x[0]) * jnp.where(x[1] + x[0] > 100.0, 20.0, 1.0))

    y = np.tile([1.0, 0.0, 2.0, 1.0], 10)
    stream = epf.Stream(Late(), epf.MarginalEPF(32, nodes=32, regrid=False))
    stream.update_many(y[:15])
    assert stream.error.parts["numbers"].max() < 1e-3
    stream.update_many(y[15:])
    assert stream.error.parts["numbers"].max() > 1.0
    assert stream.verdict.level > 0


CURVED = {
    "a distance": (lambda x: -0.5 * jnp.square((jnp.hypot(x[0], x[1]) - 9.0) / 0.5), 0.02),
    "a bearing": (lambda x: -0.5 * jnp.square((jnp.arctan2(x[1], x[0]) - 0.3) / 0.1), 0.02),
    "a distance that is nearly known": (lambda x: -0.5 * jnp.square((jnp.hypot(x[0], x[1]) - 9.0) / 0.05), 0.1),
    "a spread": (lambda x: -0.5 * jnp.square(x[0] - 9.0) * jnp.exp(-x[1]) - 0.5 * x[1], 0.05),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow][n == "a distance" :]) for n in CURVED])
def test_one_gaussian_given_a_part_of_several_numbers(name):
    """Evidence, mean and covariance of the mixture that comes of it, against sums over a grid."""
    log_likelihood, tolerance = CURVED[name]
    mean, root = jnp.array([8.0, 2.0]), jnp.array([[1.0, 0.5], [0.0, 1.5]])
    many = 4096
    chance, away = jax.random.uniform(jax.random.key(1), (many,)), jax.random.normal(jax.random.key(2), (many,))
    alike = jnp.tile(mean[:, None], many), jnp.tile(root[..., None], many)
    means, roots, found = jax.jit(lambda *parts: along_its_slope(log_likelihood, *parts))(
        *alike, jnp.asarray(0.3), chance, away
    )
    weights = np.asarray(jax.nn.softmax(found), float)
    means, covariances = np.asarray(means, float), np.asarray(jnp.einsum("ijp,kjp->ikp", roots, roots), float)
    a = np.stack(np.meshgrid(*[np.linspace(-6.0, 6.0, 601)] * 2), axis=0).reshape(2, -1)
    x = np.asarray(mean)[:, None] + np.asarray(root) @ a
    logs = np.asarray(jax.vmap(log_likelihood, -1)(jnp.asarray(x)), float) - 0.5 * np.sum(a**2, axis=0)
    exact = np.exp(logs - logs.max())
    evidence = np.log(exact.sum() * 0.02**2 / (2.0 * np.pi)) + logs.max()
    exact /= exact.sum()
    assert abs(np.log(np.mean(np.exp(np.asarray(found, float)))) - evidence) < tolerance
    middle = x @ exact
    spread = (x - middle[:, None]) * exact @ (x - middle[:, None]).T
    sds = np.sqrt(np.diag(spread))
    away = means - (means @ weights)[:, None]
    mixed = covariances @ weights + away * weights @ away.T
    np.testing.assert_allclose(means @ weights, middle, atol=(tolerance + 4.0 / np.sqrt(many)) * sds.max())
    np.testing.assert_allclose(mixed, spread, atol=2.0 * (tolerance + 4.0 / np.sqrt(many)) * sds.max() ** 2)


class Radar(epf.StateSpaceModel):
    """Bearing and distance of a target."""

    def prior(self):
        return {"acceleration": dist.HalfNormal(0.5), "noise": dist.HalfNormal(2.0)}

    def initial(self, p):
        return dist.Normal(jnp.array([50.0, 30.0, -1.0, 0.5]), jnp.array([5.0, 5.0, 1.0, 1.0])).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(jnp.zeros(2), p.acceleration).to_event(1)

    def advance(self, x, new):
        return jnp.concatenate([x[:2] + x[2:] + 0.5 * new, x[2:] + new])

    def observation(self, p, x, u):
        seen = jnp.stack([jnp.arctan2(x[1], x[0]), jnp.sqrt(x[0] ** 2 + x[1] ** 2)])
        return dist.Normal(seen, jnp.stack([jnp.asarray(0.02), p.noise])).to_event(1)


@pytest.mark.slow
def test_a_radar_has_hardly_any_noise():
    """Against plain filters of 20 000 particles; 24 Gaussians vary a hundred times less than 256 draws."""
    theta = [0.3, 1.0]
    y = epf.simulate(Radar(), dict(zip(Radar().prior(), theta, strict=True)), steps=40, seed=2)[1]
    found = estimates(gaussians(Radar(), 24), Radar(), theta, y)[0]
    plain = estimates(Filters(20_000, Bootstrap(), Systematic(1.0)), Radar(), theta, y, seeds=8)[0]
    few = estimates(Filters(256, Bootstrap(), Systematic(1.0)), Radar(), theta, y)[0]
    ratio = np.exp(plain - plain.mean())
    error = np.hypot(ratio.std() / ratio.mean() / np.sqrt(8), found.std() / np.sqrt(SEEDS))
    assert abs(np.log(ratio.mean()) + plain.mean() - found.mean()) < 4.0 * error + 0.1
    assert found.var() < 0.01 * few.var()


def test_what_is_left_out_is_what_the_lines_do_not_take_in():
    """Squares in one direction beside the line are taken in where y may depend on several numbers, and nowhere else."""
    a = jnp.array([0.5, 1.5, -1.0])

    def left(log_likelihood, one_number):
        return float(jax.jit(lambda: left_beside(log_likelihood, jnp.zeros(3), jnp.eye(3), a, one_number))())

    assert left(lambda x: jnp.exp(x[0]), one_number=True) == pytest.approx(0.0, abs=1e-5)
    assert left(lambda x: x[0] - 0.2 * x[1] ** 2, one_number=True) == pytest.approx(-0.45, abs=1e-5)
    assert left(lambda x: x[0] - 0.2 * x[1] ** 2, one_number=False) == pytest.approx(0.0, abs=1e-5)
    assert left(lambda x: x[0] - 0.2 * x[1] ** 2 + 0.1 * x[2] ** 2, one_number=False) == pytest.approx(0.1, abs=1e-3)
    assert left(lambda x: x[0] + 0.1 * x[1] ** 3, one_number=False) == pytest.approx(0.3375, abs=1e-5)


@pytest.mark.slow
def test_an_input_that_turns_its_sign_may_bring_in_another_number():
    """No trial has inputs of the other sign; what the state says there is not all taken in, and that is noticed."""
    law = changed(observation=lambda self, p, x, u: dist.Normal(x[0] + jnp.where(u[0] < 0.0, x[1] ** 2, 0.0), 0.5))
    filters, thetas, y = gaussians(law, 16, jnp.ones(1)), jnp.full((64, 1), 0.5), jnp.asarray(1.0)
    assert filters.parts == (True,)
    bank = filters.start(jax.random.key(0), law, thetas)
    rounding = [
        float(jnp.mean(filters.step(jax.random.key(1), law, thetas, bank, y, sign * jnp.ones(1))[1].rounding))
        for sign in (1.0, -1.0)
    ]
    assert rounding[0] < 1e-6
    assert rounding[1] > 1e-3
