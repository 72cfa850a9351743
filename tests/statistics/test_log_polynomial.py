"""The polynomial statistic against exact log-densities of given paths: theorems 1, 2 and 3, boxes, and long sums."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import EPFError, SettingError
from epf.filters import _particle as particle
from epf.filters._particle import Piece
from epf.model._model import parameters
from epf.numerics._keys import particle_keys, root_key, step_key
from epf.polynomial._basis import Chebyshev as ChebyshevBasis
from epf.polynomial._basis import Monomial
from epf.polynomial._indices import total_degree
from epf.polynomial.taylor._expand import expand as taylor_expand
from epf.posterior._chart import Chart, prior_box
from epf.posterior.samplers._inverse_cdf import InverseCDF
from epf.results import diagnostics
from epf.statistics._base import Gibbs
from epf.statistics._conjugate import Conjugate
from epf.statistics._log_polynomial import LogPolynomial
from models import AR, VectorAR

FIXED = epf.Chebyshev(follow="no")


def gibbs_of(model, approximation, u=None, discount=1.0):
    return LogPolynomial.of(model, approximation, InverseCDF(), discount, u)


def along(gibbs, x_0, pieces):
    """The statistic of a whole path, in one compiled loop."""

    @jax.jit
    def run(x_0, pieces):
        start = gibbs.init(x_0)
        return jax.lax.scan(lambda s, piece: (gibbs.update(s, *piece), None), start, pieces)[0]

    return run(x_0, pieces)


def path_of(model, values, steps, seed, inputs=None):
    x, y = epf.simulate(model, values, steps=steps + 1, seed=seed, inputs=inputs)
    us = None if inputs is None else jnp.asarray(inputs[1:])
    return jnp.asarray(x[0]), Piece(jnp.asarray(x[:-1]), jnp.asarray(x[1:]), jnp.asarray(x[1:]), jnp.asarray(y[1:]), us)


def differences(gibbs, statistic, thetas):
    """Log-densities less their first: what is left does not depend on the constant."""
    values = jax.jit(jax.vmap(lambda theta: gibbs.log_density(statistic, theta)))(jnp.asarray(thetas))
    return np.asarray(values - values[0])


@pytest.mark.parametrize(
    "approximation", [epf.Taylor(1), epf.Taylor(3), FIXED], ids=["Taylor 1", "Taylor 3", "Chebyshev"]
)
@pytest.mark.parametrize("name", ["scalar", "vector"])
def test_a_linear_model_has_storviks_statistic(approximation, name):
    """Order 1 is enough and more changes nothing: the log-density is that of m_t and C_t, missing values included."""
    rng = np.random.default_rng(1)
    if name == "scalar":
        model, values, inputs = epf.fix(AR(), {"v": 0.5}), {"a": 0.8}, None
    else:
        model, values, inputs = VectorAR(), {"a": [0.9, 0.5], "gain": 0.7}, rng.normal(size=(31, 1)).astype(np.float32)
    x_0, pieces = path_of(model, values, 30, 2, inputs)
    pieces = pieces._replace(y=pieces.y.at[3].set(jnp.nan))
    ours = gibbs_of(model, approximation, None if pieces.u is None else pieces.u[0])
    storvik = Conjugate.of(model)
    thetas = rng.normal(0.6, 0.3, size=(8, parameters(model).size)).astype(np.float32)
    expected = differences(storvik, along(storvik, x_0, pieces), thetas)
    found = differences(ours, along(ours, x_0, pieces), thetas)
    np.testing.assert_allclose(found, expected, atol=2e-4 * (1.0 + np.abs(expected).max()))
    assert ours.indices.size == (3 if name == "scalar" else 8)  # gain is met in no law together with a


def test_theorem_3_accumulated_coefficients_are_those_of_the_sum(float64):
    model, theta = epf.zoo.Sin(), 0.7
    x_0, pieces = path_of(model, {"theta": theta}, 8, 3)
    pieces = jax.tree.map(lambda leaf: leaf.astype(float), pieces)

    def total(z):
        return sum(-0.5 * (b - jnp.sin(z[0] * a)) ** 2 for a, b in zip(pieces.x_prev, pieces.new, strict=True))

    chebyshev = gibbs_of(model, epf.Chebyshev(9, of="density", follow="no"))
    low, high = prior_box(Chart(parameters(model)))
    direct = jax.jit(lambda: ChebyshevBasis(total_degree(1, 18), low, high).expand(total))()
    found = along(chebyshev, x_0, pieces).coefficients.value
    np.testing.assert_allclose(found[1:], direct[1:], atol=1e-11 * np.abs(direct).max())

    taylor = gibbs_of(model, epf.Taylor(5, of="density"))
    direct = jax.jit(lambda: taylor_expand(total, Monomial(total_degree(1, 10), jnp.zeros(1))))()
    found = along(taylor, x_0, pieces).coefficients.value
    np.testing.assert_allclose(found[1:], direct[1:], rtol=1e-9, atol=1e-9)


def test_the_papers_recursion_for_sin(float64):
    """Equations 11 and 12: H is Taylor's series of sin(theta x), and -1/2 (x' - H theta^i)^2 has every cross term."""
    model = epf.zoo.Sin()
    x_0, pieces = path_of(model, {"theta": 0.7}, 5, 4)
    pieces = jax.tree.map(lambda leaf: leaf.astype(float), pieces)
    expected = np.zeros(15)
    for before, after in zip(np.asarray(pieces.x_prev), np.asarray(pieces.new), strict=True):
        H = np.array([0.0, before, 0.0, -(before**3) / 6, 0.0, before**5 / 120, 0.0, -(before**7) / 5040])
        residual = -H
        residual[0] += after
        expected += -0.5 * np.convolve(residual, residual)
    found = along(gibbs_of(model, epf.Taylor(7)), x_0.astype(float), pieces).coefficients.value
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-10, atol=1e-12)


class QuarticNoise(dist.Distribution):
    """log p(v) = -v^2 / 2 - v^4 / 10 up to a constant: theorem 1's noise of higher order."""

    arg_constraints = {"loc": dist.constraints.real}  # noqa: RUF012
    support = dist.constraints.real
    pytree_data_fields = ("loc",)

    def __init__(self, loc, *, validate_args=None):
        self.loc = jnp.asarray(loc)
        super().__init__(batch_shape=jnp.shape(self.loc), validate_args=validate_args)

    def sample(self, key, sample_shape=()):
        return self.loc + 0.8 * jax.random.normal(key, sample_shape)

    def log_prob(self, value):
        v = value - self.loc
        return -0.5 * v**2 - 0.1 * v**4


class Quartic(AR):
    def prior(self):
        return {"a": dist.Normal(0.0, 1.0)}

    def transition(self, p, x, u):
        return QuarticNoise(p.a * x)


@pytest.mark.parametrize(
    "approximation",
    [epf.Taylor(4, of="noise"), epf.Taylor(2, of="density"), epf.Chebyshev(2, of="density", follow="no")],
)
def test_noise_of_higher_order_is_exact(approximation):
    """A log-density that is a polynomial of degree 4 in v, v linear in theta: nothing is lost in any form."""
    model = Quartic()
    x_0, pieces = path_of(model, {"a": 0.5}, 20, 5)
    gibbs = gibbs_of(model, approximation)
    assert gibbs.indices.size == 5
    thetas = np.linspace(-1.0, 1.5, 7, dtype=np.float32)[:, None]
    v = np.asarray(pieces.new)[:, None] - np.asarray(pieces.x_prev)[:, None] * thetas.T
    expected = np.sum(-0.5 * v**2 - 0.1 * v**4, axis=0) - 0.5 * thetas[:, 0] ** 2
    found = differences(gibbs, along(gibbs, x_0, pieces), thetas)
    np.testing.assert_allclose(found, expected - expected[0], atol=1e-4 * np.abs(expected).max())


def test_the_literal_cauchy_series_is_the_papers(float64):
    """log(1 + v^2) about v = 0 to order 6, v = x' - a x: -(v^2 - v^4/2 + v^6/3)."""
    model = epf.zoo.CauchyAR()
    gibbs = gibbs_of(model, epf.Taylor(6, of="noise"))
    x_prev, new, a = 0.8, 0.5, np.linspace(-0.5, 0.9, 6)
    start = jax.jit(lambda *path: gibbs.update(gibbs.init(jnp.zeros(())), *path, None))
    statistic = start(*map(jnp.asarray, (x_prev, new, new, new)))
    v = new - a * x_prev
    expected = -(v**2 - v**4 / 2 + v**6 / 3) - 0.5 * (a / 0.2) ** 2
    found = differences(gibbs, statistic, a[:, None])
    np.testing.assert_allclose(found, expected - expected[0], rtol=1e-9, atol=1e-10)


class Sensor(epf.StateSpaceModel):
    """Unknown: a noise scale, a sensor's gain and offset, and the start."""

    def prior(self):
        return {"s": dist.LogNormal(0.0, 0.5), "gain": dist.Normal(1.0, 0.3), "start": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(p.start, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.8 * x, p.s)

    def observation(self, p, x, u):
        return dist.Normal(jnp.tanh(p.gain * x), 0.3)


def test_parameters_in_every_law():
    """Each law's own form, in its own parameters; on a small box the sum is the exact log-density."""
    box = {"s": (0.6, 0.9), "gain": (0.9, 1.2), "start": (-1.0, 1.0)}
    model, approximation = Sensor(), epf.Chebyshev(4, box=box, follow="no")
    gibbs = gibbs_of(model, approximation)
    x_0, pieces = path_of(model, {"s": 0.7, "gain": 1.0, "start": 0.0}, 25, 6)
    statistic = along(gibbs, x_0, pieces)
    rng = np.random.default_rng(2)
    thetas = rng.uniform([0.61, 0.91, -0.9], [0.89, 1.19, 0.9], size=(10, 3))
    x = np.concatenate([[np.asarray(x_0)], np.asarray(pieces.x)]).astype(float)
    y = np.asarray(pieces.y, float)
    expected = []
    for s, gain, start in thetas:
        total = np.sum(-np.log(s) - 0.5 * ((x[1:] - 0.8 * x[:-1]) / s) ** 2) - 0.5 * (x[0] - start) ** 2
        total += np.sum(-0.5 * ((y - np.tanh(gain * x[1:])) / 0.3) ** 2)
        prior = -np.log(s) - 0.5 * (np.log(s) / 0.5) ** 2 - 0.5 * ((gain - 1.0) / 0.3) ** 2 - 0.5 * start**2
        expected.append(total + prior)
    found = differences(gibbs, statistic, thetas.astype(np.float32))
    np.testing.assert_allclose(found, np.array(expected) - expected[0], atol=5e-3)
    together = {tuple(np.flatnonzero(k)) for k in gibbs.indices.exponents}
    assert together == {(), (0,), (1,), (2,)}  # the log-density is a sum over parameters, and no term mixes two


def test_the_prior_is_exact_and_needs_no_term():
    model = epf.zoo.STAR()
    gibbs = gibbs_of(model, FIXED)
    statistic = eqx.filter_jit(gibbs.init)(jnp.zeros(()))
    thetas = np.array([[0.5, 1.0], [1.5, -2.0], [3.0, 5.0]], np.float32)
    prior = jax.jit(jax.vmap(parameters(model).log_prior))(jnp.asarray(thetas))
    np.testing.assert_allclose(differences(gibbs, statistic, thetas), prior - prior[0], atol=1e-5)
    outside = eqx.filter_jit(gibbs.log_density)(statistic, jnp.array([0.5, 100.0]))
    assert outside == -jnp.inf


@pytest.mark.slow
@pytest.mark.parametrize("approximation", [epf.Taylor(7), FIXED], ids=["Taylor", "Chebyshev"])
def test_float32_over_a_hundred_thousand_steps(approximation):
    """The running sum in float32 against the same sum in float64, where the density is."""
    model, steps = epf.zoo.Sin(), 100_000
    x, _ = epf.simulate(model, {"theta": 0.7}, steps=steps + 1, seed=7)
    thetas = np.linspace(0.68, 0.72, 9)[:, None]  # about 5 posterior standard deviations to each side

    def found():
        states = jnp.asarray(x, float)
        pieces = Piece(states[:-1], states[1:], states[1:], states[1:], None)
        gibbs = gibbs_of(model, approximation)
        return differences(gibbs, along(gibbs, states[0], pieces), thetas)

    single = found()
    with jax.enable_x64(True):
        double = found()
    assert np.abs(double).max() > 5.0
    np.testing.assert_allclose(single, double, atol=0.05)


def test_moving_and_recentring_change_nothing(float64):
    model = epf.zoo.Sin()
    x_0, pieces = path_of(model, {"theta": 0.7}, 50, 8)
    pieces = jax.tree.map(lambda leaf: leaf.astype(float), pieces)
    thetas = np.linspace(0.35, 0.75, 9)[:, None]
    gibbs = gibbs_of(model, epf.Chebyshev())
    statistic = along(gibbs, x_0.astype(float), pieces)
    moved = gibbs.move(statistic, jnp.array([0.3]), jnp.array([0.8]))
    np.testing.assert_allclose(differences(gibbs, moved, thetas), differences(gibbs, statistic, thetas), atol=1e-9)
    taylor = gibbs_of(model, epf.Taylor(7, follow=True))
    statistic = along(taylor, x_0.astype(float), pieces)
    np.testing.assert_allclose(
        differences(taylor, taylor.recentre(statistic, jnp.array([0.6])), thetas),
        differences(taylor, statistic, thetas),
        atol=1e-7,
    )


def test_a_discount_forgets_the_past_and_keeps_the_prior():
    model = epf.fix(AR(), {"v": 0.5})
    x_0, pieces = path_of(model, {"a": 0.8}, 20, 9)
    gibbs = gibbs_of(model, epf.Chebyshev(), discount=0.9)
    assert gibbs.follow_mode == "no"
    thetas = np.linspace(0.0, 1.0, 5, dtype=np.float32)[:, None]
    ages = 0.9 ** np.arange(19, -1, -1)[:, None]
    v = np.asarray(pieces.new)[:, None] - np.asarray(pieces.x_prev)[:, None] * thetas.T
    expected = np.sum(ages * -0.5 * v**2 / 0.5, axis=0) - 0.5 * thetas[:, 0] ** 2
    found = differences(gibbs, along(gibbs, x_0, pieces), thetas)
    np.testing.assert_allclose(found, expected - expected[0], atol=1e-3)


@pytest.mark.slow
def test_the_box_follows_without_cutting_or_blurring():
    """KL from the exact density of a path, by quadrature: a shrinking posterior, and a Cauchy shock of size 1000."""
    sin = epf.zoo.Sin()
    x, _ = epf.simulate(sin, {"theta": 0.7}, steps=513, seed=1)
    assert diagnostics.kl(sin, x) < 1e-4
    cauchy, found = epf.zoo.CauchyAR(), []
    for seed in range(3):
        path, shocks = [0.5], np.random.default_rng(seed).standard_cauchy(60)
        shocks[30] = 1000.0
        for shock in shocks:
            path.append(0.7 * path[-1] + shock)
        found.append(diagnostics.path_density(cauchy, np.array(path)))
    assert np.mean([density.kl for density in found]) < 0.3
    assert max(density.outside for density in found) < 0.01
    blurred = diagnostics.kl(cauchy, np.array(path), epf.EPF(approximation=epf.Chebyshev(10, follow="no")))
    assert blurred > 1.0  # what a box that stays makes of it


@pytest.mark.slow
def test_recentring_keeps_a_low_order_right():
    """Theorem 4: order 2 about a centre that follows the posterior, against order 2 about the prior's."""
    model = epf.zoo.Sin()
    x, _ = epf.simulate(model, {"theta": 0.7}, steps=513, seed=1)
    fixed = diagnostics.kl(model, x, epf.EPF(approximation=epf.Taylor(2)))
    following = diagnostics.kl(model, x, epf.EPF(approximation=epf.Taylor(2, follow=True)))
    assert following < 0.02 < fixed


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: epf.Chebyshev(0), "whole number, 1 or more"),
        (lambda: epf.Taylor(-2), "whole number, 1 or more"),
        (lambda: epf.Taylor(2.5), "whole number, 1 or more"),
        (lambda: epf.Chebyshev(box=(1.0, 1.0)), "low < high"),
        (lambda: epf.Chebyshev(box={"theta": (2.0, 1.0)}), "low < high"),
        (lambda: epf.Chebyshev(of="noise"), "Taylor"),
        (lambda: epf.Chebyshev(of="mean"), "must be one of"),
        (lambda: epf.Chebyshev(follow="yes"), "must be one of"),
        (lambda: epf.Taylor(centre="middle"), "must be a number"),
        (lambda: epf.EPF(approximation=7), "epf.Chebyshev"),
        (lambda: epf.EPF(sampler="slice"), "sampler"),
        (lambda: epf.EPF(refresh=0), "1 or more"),
        (lambda: epf.EPF(discount=1.5), "at most 1"),
    ],
)
def test_settings_are_refused_with_a_sentence(make, words):
    with pytest.raises(SettingError, match=words):
        make()


class Rooted(AR):
    """Not defined for a below 0."""

    def prior(self):
        return {"a": dist.Normal(1.0, 0.2)}

    def transition(self, p, x, u):
        return dist.Normal(jnp.sqrt(p.a) * x, 1.0)


@pytest.mark.parametrize(
    ("model", "approximation", "words"),
    [
        (epf.zoo.Sin(), epf.Chebyshev(box={"phi": (0.0, 1.0)}), "no parameter 'phi'"),
        (epf.zoo.Sin(), epf.Taylor(3, centre={"phi": 0.0}), "no parameter 'phi'"),
        (epf.zoo.STAR(), epf.Taylor(3, centre={"gamma": -1.0}), "outside the support"),
        (epf.zoo.Sin(), epf.Chebyshev(box=(50.0, 60.0)), "no mass"),
        (epf.zoo.STAR(), epf.Chebyshev(25), "order=\\d+ fits"),
        (Rooted(), epf.Chebyshev(), "NaN"),
        (epf.zoo.CauchyAR(), epf.Taylor(3, of="drift"), "of='density'"),
    ],
    ids=["box", "centre", "support", "mass", "terms", "undefined", "form"],
)
def test_models_and_settings_that_do_not_fit(model, approximation, words):
    with pytest.raises(EPFError, match=words):
        gibbs_of(model, approximation).check(None)


@pytest.mark.parametrize("approximation", [epf.Chebyshev(), epf.Taylor(3, follow=True)], ids=["Chebyshev", "Taylor"])
def test_statistics_do_not_grow(approximation):
    gibbs, number = gibbs_of(epf.zoo.Sin(), approximation), jnp.zeros(())
    before = jax.eval_shape(gibbs.init, number)
    after = jax.eval_shape(lambda s: gibbs.update(s, number, number, number, number, None), before)
    assert jax.tree.map(lambda leaf: leaf.shape, after) == jax.tree.map(lambda leaf: leaf.shape, before)


def test_a_statistic_is_an_argument_that_compiles_once():
    traced = []

    @eqx.filter_jit
    def start(gibbs, x_0):
        traced.append(gibbs)
        return gibbs.init(x_0)

    made = [start(gibbs_of(epf.zoo.Sin(), FIXED), jnp.zeros(())) for _ in range(2)]
    inside = eqx.filter_jit(lambda model: gibbs_of(model, FIXED).init(jnp.zeros(())))(epf.zoo.Sin())
    assert len(traced) == 1
    assert eqx.tree_equal(*made, inside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "steps"),
    [(epf.zoo.Sin(), 3), (epf.zoo.STAR(), 2), (VectorAR(), 2)],
    ids=["one parameter", "two", "vector"],
)
def test_all_particles_at_once_have_the_sums_of_each(model, steps):
    """On a shared box the nodes are taken for all at once; particle by particle is the same but for rounding."""
    n, rng = 5, np.random.default_rng(2)
    u = jnp.asarray([0.4]) if isinstance(model, VectorAR) else None
    gibbs = gibbs_of(model, epf.Chebyshev(follow="shared"), u)
    theta = jax.vmap(parameters(model).sample, out_axes=-1)(jax.random.split(jax.random.key(1), n))
    x_0 = particle.start(particle_keys(jax.random.key(2), n), model, gibbs.parameters, theta)
    at_once = each = jax.vmap(lambda x: gibbs.init(x), -1, -1)(x_0)
    y = jnp.where(jnp.arange(x_0[..., 0].size) == 1, jnp.nan, 0.3).reshape(x_0.shape[:-1])
    for _ in range(steps):
        x = x_0 + jnp.asarray(rng.normal(size=x_0.shape), jnp.float32)
        piece = Piece(x_0, x, x, y, u)
        at_once, each, x_0 = gibbs.update_all(at_once, piece), Gibbs.update_all(gibbs, each, piece), x
    scale = np.abs(each.coefficients.value).max()
    assert scale > 0.1
    np.testing.assert_allclose(at_once.coefficients.value, each.coefficients.value, atol=1e-5 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("model", [epf.zoo.Sin(), epf.zoo.STAR()], ids=["one parameter", "two"])
@pytest.mark.parametrize("sharp", [1.0, 30.0], ids=["resolved", "not resolved by the grid for all"])
def test_draws_on_one_grid_for_all_are_those_of_each(model, sharp):
    """The same random numbers: where the grid sees all of a part it is one computation, elsewhere it is done for each."""
    n, rng, p = 120, np.random.default_rng(4), parameters(model).size
    gibbs = gibbs_of(model, epf.Chebyshev())
    start = jax.vmap(lambda x: gibbs.init(x), -1, -1)(jnp.zeros(n))
    coefficients = np.zeros((gibbs.indices.size, n), np.float32)
    for i in range(p):  # peaks a fifth of the box wide, one of them narrower
        ahead, peaked = (tuple(degree * (j == i) for j in range(p)) for degree in (1, 2))
        coefficients[gibbs.indices.exponents.index(ahead)] = rng.normal(scale=5.0, size=n)
        coefficients[gibbs.indices.exponents.index(peaked)] = -12.0
    coefficients[:, 7] *= sharp
    low, high = jnp.full((p, n), 0.5), jnp.full((p, n), 0.9)
    statistic = eqx.tree_at(
        lambda s: (s.coefficients.total, s.low, s.high), start, (jnp.asarray(coefficients), low, high)
    )
    theta = jnp.full((p, n), 0.7)
    key = step_key(root_key(1), 3)
    found = jax.jit(lambda key: gibbs.draw_all(key, statistic, theta))(key)
    expected = jax.jit(lambda key: Gibbs.draw_all(gibbs, key, statistic, theta))(key)
    assert np.std(found, axis=1).min() > 0.03
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.slow
def test_a_polynomial_that_is_not_finite_counts_for_nothing():
    """A law may be zero at a node for one particle's state. The posterior is that of the others; the next step drops it."""
    bound = epf.EPF(50, approximation=epf.Chebyshev(order=3), islands=1).bind_island(epf.zoo.Sin(), None)

    def one(key):
        return bound.step(key, bound.init(key), jnp.asarray(0.3), None)[0]

    cloud = jax.jit(one)(root_key(1))
    total = cloud.statistic.coefficients.total
    spoiled = eqx.tree_at(lambda c: c.statistic.coefficients.total, cloud, total.at[:, 7].set(-jnp.inf))
    weights = cloud.weights.at[7].set(0.0)
    moments = jax.jit(lambda c: bound.posterior(c).moments())
    gibbs = bound.gibbs.posterior(cloud.theta, weights / jnp.sum(weights), cloud.x, cloud.statistic)
    np.testing.assert_allclose(moments(spoiled), gibbs.moments(), rtol=1e-4)
