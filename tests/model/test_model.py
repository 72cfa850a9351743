"""The model's side: what `p`, `fix` and `simulate` mean, and every zoo model against its equations."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import epf
from epf.errors import ModelError
from epf.model._check import check_model
from epf.model._model import observation_law, parameters, traced, transition_law
from epf.model._parameters import Values
from epf.model._shapes import shapes_of
from models import AR

QUIET = 1e-6  # a noise so small that a path can be checked by plain arithmetic


def density(law, value):
    return np.exp(np.asarray(law.log_prob(jnp.asarray(value, float)), float))


class Counter(epf.StateSpaceModel):
    """x_0 = m, x grows by b and by the first input, y is h times x plus the second input; next to no noise."""

    def prior(self):
        return {"m": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0), "h": dist.HalfNormal(1.0)}

    def initial(self, p):
        return dist.Normal(p.m, QUIET)

    def transition(self, p, x, u):
        return dist.Normal(x + p.b + (0.0 if u is None else u[0]), QUIET)

    def observation(self, p, x, u):
        return dist.Normal(p.h * x + (0.0 if u is None else u[1]), QUIET)


COUNTER = {"m": 5.0, "b": 1.0, "h": 2.0}


def test_the_first_state_is_one_step_after_the_initial_law_and_the_first_observation_sees_it():
    x, y = epf.simulate(Counter(), COUNTER, steps=4, seed=3)
    np.testing.assert_allclose(x, [6.0, 7.0, 8.0, 9.0], atol=1e-4)
    np.testing.assert_allclose(y, [12.0, 14.0, 16.0, 18.0], atol=1e-4)


def test_each_step_gets_its_own_row_of_inputs_in_the_transition_and_in_the_observation():
    u = np.array([[0.0, 0.5], [10.0, 0.0], [-20.0, 0.25]])
    x, y = epf.simulate(Counter(), COUNTER, steps=3, seed=3, inputs=u)
    np.testing.assert_allclose(x, [6.0, 17.0, -2.0], atol=1e-4)
    np.testing.assert_allclose(y, [12.5, 34.0, -3.75], atol=1e-4)


@pytest.fixture(scope="module")
def long_path():
    return epf.simulate(AR(), {"a": 0.5, "v": 2.0}, steps=4000, seed=1)


def test_a_simulation_depends_on_its_seed_alone_and_a_longer_one_begins_the_same(long_path):
    values = {"a": 0.5, "v": 2.0}
    x, y = epf.simulate(AR(), values, steps=6, seed=1)
    again = epf.simulate(AR(), values, steps=6, seed=1)
    other = epf.simulate(AR(), values, steps=6, seed=2)
    np.testing.assert_array_equal(x, again[0])
    np.testing.assert_array_equal(y, again[1])
    assert not np.any(x == other[0])
    assert not np.any(y == other[1])
    np.testing.assert_allclose(x, long_path[0][:6], rtol=1e-6)
    np.testing.assert_allclose(y, long_path[1][:6], rtol=1e-6)


def test_simulated_noise_has_the_variances_of_the_laws(long_path):
    x, y = long_path
    shocks, noise = x[1:] - 0.5 * x[:-1], y - x
    # The variance of n normal values has a relative standard error sqrt(2 / n); five of them.
    assert abs(np.var(shocks) / 2.0 - 1.0) < 5 * np.sqrt(2 / 3999)
    assert abs(np.var(noise) / 0.25 - 1.0) < 5 * np.sqrt(2 / 4000)
    # A correlation of independent values has standard error 1 / sqrt(n).
    assert abs(np.corrcoef(shocks, noise[1:])[0, 1]) < 5 / np.sqrt(3999)
    assert abs(np.corrcoef(shocks[1:], shocks[:-1])[0, 1]) < 5 / np.sqrt(3998)


def test_a_fixed_model_is_the_model_with_the_value_put_in():
    fixed = epf.fix(AR(), {"a": 0.5})
    assert parameters(fixed).names == ("v",)
    assert parameters(epf.fix(fixed, {"v": 1.0})).names == ()
    full = epf.simulate(AR(), {"a": 0.5, "v": 1.0}, steps=6, seed=1)
    for model, rest in ((fixed, {"v": 1.0}), (epf.fix(fixed, {"v": 1.0}), {})):
        for expected, got in zip(full, epf.simulate(model, rest, steps=6, seed=1), strict=True):
            np.testing.assert_array_equal(expected, got)


def test_fix_reaches_the_initial_law_a_vector_and_advance():
    fixed = epf.fix(Counter(), {"m": 3.0})
    assert float(fixed.initial(Values({"b": 0.0, "h": 1.0})).mean) == 3.0
    star = epf.zoo.STAR(a=dist.Normal(0.0, 1.0).expand([2]).to_event(1), b=(0.1, 0.2), lags=2)
    known = epf.fix(star, {"a": [0.7, 0.3]})
    assert parameters(known).names == ("gamma", "c")
    law = known.transition(Values({"gamma": jnp.array(1.0), "c": jnp.array(1e3)}), jnp.array([2.0, 1.0]), None)
    assert float(law.mean) == pytest.approx(0.7 * 2.0 + 0.3 * 1.0)  # far below c: the first regime alone
    np.testing.assert_array_equal(known.advance(jnp.array([2.0, 1.0]), jnp.array(9.0)), [9.0, 2.0])


def test_parameters_come_by_name_and_cannot_be_changed():
    p = Values({"a": 1.0, "b": 2.0})
    assert (p.a, p["b"], list(p), "a" in p, "c" in p) == (1.0, 2.0, ["a", "b"], True, False)
    with pytest.raises(AttributeError, match="read-only"):
        p.a = 3.0


# Every zoo model: its laws against scipy, written from the equations in the paper (sections 5.1 to 5.3) and in the file.


def test_sin():
    model, p = epf.zoo.Sin(sigma=0.8, sigma_obs=0.3), Values({"theta": 0.7})
    assert density(model.initial(p), 0.4) == pytest.approx(stats.norm(0.0, 1.0).pdf(0.4), rel=1e-5)
    assert density(model.transition(p, 2.0, None), 0.4) == pytest.approx(
        stats.norm(np.sin(0.7 * 2.0), 0.8).pdf(0.4), rel=1e-5
    )
    assert density(model.observation(p, 2.0, None), 2.5) == pytest.approx(stats.norm(2.0, 0.3).pdf(2.5), rel=1e-5)


def test_sin_has_the_papers_setting_by_default():
    model = epf.zoo.Sin()
    prior = parameters(model).priors["theta"]
    assert (float(prior.mean), float(prior.variance)) == (0.0, pytest.approx(0.04))
    assert (model.sigma, model.sigma_obs) == (1.0, 0.1)


def test_cauchy_ar():
    model, p = epf.zoo.CauchyAR(gamma=1.5, sigma_obs=3.0), Values({"a": 0.7})
    assert density(model.initial(p), 0.4) == pytest.approx(stats.norm(0.0, 1.0).pdf(0.4), rel=1e-5)
    assert density(model.transition(p, 2.0, None), -4.0) == pytest.approx(
        stats.cauchy(0.7 * 2.0, 1.5).pdf(-4.0), rel=1e-5
    )
    assert density(model.observation(p, 2.0, None), 2.5) == pytest.approx(stats.norm(2.0, 3.0).pdf(2.5), rel=1e-5)


def test_cauchy_ar_has_the_papers_setting_by_default():
    model = epf.zoo.CauchyAR()
    prior = parameters(model).priors["a"]
    assert (float(prior.mean), float(prior.variance)) == (0.0, pytest.approx(0.04))
    assert (model.gamma, model.sigma_obs) == (1.0, 10.0)


def star_mean(a, b, gamma, c, delay, x):
    """The paper's equation, term by term; x[0] is the newest value."""
    G = 1.0 / (1.0 + np.exp(-gamma * (x[delay - 1] - c)))
    return sum(a[i] * x[i] for i in range(len(a))) * (1.0 - G) + sum(b[i] * x[i] for i in range(len(b))) * G


@pytest.mark.parametrize(("lags", "delay"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_star_of_any_lags_and_delay(lags, delay):
    a, b, gamma, c = (0.9, -0.4, 0.2)[:lags], (0.1, 0.3, -0.5)[:lags], 1.5, 0.3
    size = max(lags, delay)
    model = epf.zoo.STAR(a=a, b=b, sigma=0.6, sigma_obs=0.2, lags=lags, delay=delay)
    p, x = Values({"gamma": gamma, "c": c}), jnp.array([1.2, -0.7, 0.5])[:size]
    law = model.transition(p, x, None)
    expected = stats.norm(star_mean(a, b, gamma, c, delay, np.asarray(x)), 0.6)
    assert density(law, 0.1) == pytest.approx(expected.pdf(0.1), rel=1e-5)
    assert model.initial(p).event_shape == (size,)
    np.testing.assert_array_equal(model.advance(x, jnp.array(7.0)), [7.0, *np.asarray(x)[:-1]])
    assert density(model.observation(p, x, None), 1.0) == pytest.approx(stats.norm(x[0], 0.2).pdf(1.0), rel=1e-5)


def test_star_has_the_papers_setting_by_default():
    model = epf.zoo.STAR()
    assert (model.a, model.b, model.lags, model.delay) == ((0.9,), (0.1,), 1, 1)
    assert parameters(model).names == ("gamma", "c")


@pytest.mark.parametrize(("lags", "delay"), [(2, 1), (1, 3)])
def test_a_star_path_follows_its_recursion(lags, delay):
    a, b = (1.1, -0.4)[:lags], (0.4, 0.5)[:lags]
    model = epf.zoo.STAR(a=a, b=b, sigma=QUIET, sigma_obs=QUIET, lags=lags, delay=delay)
    x, y = epf.simulate(model, {"gamma": 2.0, "c": 0.1}, steps=8, seed=2)
    assert x.shape == (8, max(lags, delay))
    np.testing.assert_array_equal(x[1:, 1:], x[:-1, :-1])  # yesterday's values, moved back by one
    steps = [star_mean(a, b, 2.0, 0.1, delay, before) for before in x[:-1]]
    np.testing.assert_allclose(x[1:, 0], steps, atol=1e-4)
    np.testing.assert_allclose(y, x[:, 0], atol=1e-4)


def test_local_level():
    model = epf.zoo.LocalLevel(start_mean=2.0, start_sd=3.0)
    p = Values({"level_variance": 0.25, "noise_variance": 4.0})
    assert density(model.initial(p), 0.4) == pytest.approx(stats.norm(2.0, 3.0).pdf(0.4), rel=1e-5)
    assert density(model.transition(p, 1.0, None), 1.2) == pytest.approx(stats.norm(1.0, 0.5).pdf(1.2), rel=1e-5)
    assert density(model.observation(p, 1.0, None), 1.2) == pytest.approx(stats.norm(1.0, 2.0).pdf(1.2), rel=1e-5)


def test_stochastic_volatility():
    model, p = epf.zoo.StochasticVolatility(sigma=0.3), Values({"mu": -1.0, "phi": 0.9})
    start = stats.norm(-1.0, np.sqrt(0.3**2 / (1.0 - 0.9**2)))
    assert density(model.initial(p), 0.4) == pytest.approx(start.pdf(0.4), rel=1e-5)
    assert density(model.transition(p, 2.0, None), 1.5) == pytest.approx(
        stats.norm(-1.0 + 0.9 * 3.0, 0.3).pdf(1.5), rel=1e-5
    )
    assert density(model.observation(p, 2.0, None), 1.5) == pytest.approx(
        stats.norm(0.0, np.sqrt(np.exp(2.0))).pdf(1.5), rel=1e-5
    )


def test_the_persistence_of_volatility_is_a_priori_inside_the_unit_interval():
    prior = parameters(epf.zoo.StochasticVolatility()).priors["phi"]
    inside = np.asarray(prior.support(jnp.array([-1.1, -0.9, 0.9, 1.1])))
    np.testing.assert_array_equal(inside, [False, True, True, False])


MATRICES = {
    "A": np.array([[0.5, 0.1], [-0.2, 0.8]]),
    "Q": np.array([[0.3, 0.1], [0.1, 0.4]]),
    "H": np.array([[1.0, 0.5]]),
    "R": np.array([[0.2]]),
    "m_0": np.array([1.0, -1.0]),
    "P_0": np.array([[2.0, 0.3], [0.3, 1.0]]),
}


def test_linear_gaussian():
    model, p, x, z = epf.zoo.LinearGaussian(**MATRICES), Values({}), np.array([0.3, -0.4]), np.array([0.1, 0.2])
    A, Q, H, R, m_0, P_0 = MATRICES.values()
    expected = stats.multivariate_normal
    assert density(model.initial(p), z) == pytest.approx(expected(m_0, P_0).pdf(z), rel=1e-4)
    assert density(model.transition(p, x, None), z) == pytest.approx(expected(A @ x, Q).pdf(z), rel=1e-4)
    assert density(model.observation(p, x, None), [0.7]) == pytest.approx(expected(H @ x, R).pdf(0.7), rel=1e-4)


def test_the_example_of_a_rotation_has_the_stated_radius_and_angle():
    model = epf.zoo.LinearGaussian.rotation(d=3, sensors=2, radius=0.8, angle=0.5)
    values = np.linalg.eigvals(np.asarray(model.A, float))
    np.testing.assert_allclose(np.abs(values), 0.8, rtol=1e-5)
    assert np.angle(values).max() == pytest.approx(0.5, rel=1e-5)
    assert (np.shape(model.H), np.shape(model.R), np.shape(model.m_0)) == ((2, 3), (2, 2), (3,))


NUMBERS = {
    epf.zoo.Sin: {"theta": 0.7, "sigma": 0.5, "sigma_obs": 0.2},
    epf.zoo.CauchyAR: {"a": 0.7, "gamma": 0.5, "sigma_obs": 2.0},
    epf.zoo.STAR: {"a": (0.9,), "b": (0.1,), "gamma": 1.0, "c": 3.0, "sigma": 0.5, "sigma_obs": 0.2},
    epf.zoo.LocalLevel: {"level_variance": 0.3, "noise_variance": 0.2, "start_mean": 1.0, "start_sd": 2.0},
    epf.zoo.StochasticVolatility: {"mu": -1.0, "phi": 0.9, "sigma": 0.3},
    epf.zoo.LinearGaussian: MATRICES,
}
FIELDS = [(kind, name) for kind, numbers in NUMBERS.items() for name in numbers]


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=[f"{kind.__name__}-{name}" for kind, name in FIELDS])
def test_a_field_of_the_zoo_is_a_known_value_or_a_prior(kind, name):
    """Learned at the same value, a field gives the very laws that it gives when known."""
    numbers = NUMBERS[kind]
    shape = np.shape(numbers[name])
    prior = dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
    known, learned = kind(**numbers), kind(**{**numbers, name: prior})
    assert parameters(known).names == ()
    assert parameters(learned).names == (name,)
    nothing, p = Values({}), Values({name: jnp.asarray(numbers[name])})
    x = jnp.full(known.initial(nothing).event_shape, 0.4)
    laws = [(known.initial(nothing), learned.initial(p))]
    laws += [(known.transition(nothing, x, None), learned.transition(p, x, None))]
    laws += [(known.observation(nothing, x, None), learned.observation(p, x, None))]
    for one, other in laws:
        assert bool(eqx.tree_equal(one, other))


@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.__name__)
def test_a_zoo_model_simulates_in_its_shapes(kind):
    shapes = shapes_of(kind(**NUMBERS[kind]), None)
    x, y = epf.simulate(kind(**NUMBERS[kind]), {}, steps=5, seed=1)
    assert (x.shape, y.shape) == ((5, *shapes.state), (5, *shapes.observation))
    assert np.isfinite(x).all()
    assert np.isfinite(y).all()
    assert len(np.unique(y)) == 5


@pytest.mark.parametrize("kind", [kind for kind in NUMBERS if kind is not epf.zoo.LinearGaussian])
def test_a_zoo_model_with_its_default_priors_passes_the_checks_at_the_door(kind):
    assert len(check_model(kind(), None).observation) == 0
    assert len(parameters(kind()).names) >= 1


class Branching(epf.StateSpaceModel):
    """Its transition asks Python for the sign of a parameter, and its observation multiplies shapes that do not fit."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        if p["a"] > 0:
            return dist.Normal(x, 1.0)
        return dist.Normal(-x, 1.0)

    def observation(self, p, x, u):
        return dist.Normal(jnp.zeros(2) @ jnp.zeros(3), 1.0)


@pytest.mark.parametrize(
    ("law", "said"),
    [
        (transition_law, r"Branching.transition\(\), line \d+, `if p\[\"a\"\] > 0:`, uses a parameter"),
        (
            observation_law,
            r"Branching.observation\(\), line \d+, `return dist.Normal\(jnp.zeros\(2\) @ .*`, failed \(TypeError",
        ),
    ],
)
def test_an_error_names_the_line_of_the_model(law, said):
    model = Branching()
    with pytest.raises(ModelError, match=said):
        traced(model, lambda p: law(model, p, jnp.zeros(()), None))
