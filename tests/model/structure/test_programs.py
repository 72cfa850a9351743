"""What the reader says about programs: what is there is found, and nothing is claimed that is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.model.structure._functions import Functions
from epf.model.structure._program import read
from epf.model.structure._reading import LawReading
from epf.model.structure._structure import Structure

pytestmark = pytest.mark.usefixtures("float64")
P, D, POINTS = 3, 3, 20
T0, T1, T2 = ({i} for i in range(3))
RNG = np.random.default_rng(0)
# All are positive: programs with logarithms and powers are defined at every pair of points.
THETAS, DATA = RNG.uniform(0.3, 3.0, (POINTS, P)), RNG.uniform(0.3, 3.0, (POINTS, D))
A = np.arange(1.0, 5.0).reshape(2, 2)


def structure(function, positive=True):
    """The structure of a function of theta and x, whose outputs are added up."""
    algebra = Functions()
    inputs = [algebra.unknowns("theta", (P,), theta=True, never_negative=positive), algebra.unknowns("x", (D,))]
    program = jax.make_jaxpr(lambda t, x: jnp.sum(jnp.asarray(function(t, x), float)))(jnp.zeros(P), jnp.zeros(D))
    (total,) = read(algebra, program.jaxpr, program.consts, inputs)
    total = total.item() if total.dtype == object else algebra.constant(total)
    return Structure(None, {"law": LawReading("law", total)}, algebra)


def values(functions):
    """Of each function for all pairs of points: [functions, thetas, data]."""

    def one(t, x):
        return jnp.stack([jnp.sum(jnp.asarray(function(t, x), float)) for function in functions])

    table = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(THETAS, DATA)
    return np.moveaxis(np.asarray(table), -1, 0)


def claimed(found):
    """What the sums say for all pairs of points, and the size of the largest numbers added."""
    with np.errstate(all="ignore"):
        terms, c = found.terms_at("law", THETAS.T[:, :, None], {"x": DATA.T[:, None, :]})
    return terms.sum(axis=0) + c, 1.0 + np.abs(c) + np.abs(terms).sum(axis=0)


def rank(table):
    """How many terms s_k(x) h_k(theta) the table needs, besides c(x)."""
    singular = np.linalg.svd(table - table[:1], compute_uv=False)
    return int(np.sum(singular > 1e-9 * max(singular[0], 1e-3)))


def loop(t, x):
    return jax.lax.fori_loop(0, 3, lambda i, c: c + t[0] * x[i] ** 2, 0.0)


def opposite(t, x):
    """One term would do: that a condition of theta and its opposite add up to 1 is not used."""
    return ((x[0] > 1.0) ^ (t[0] > 1.0)) * x[1]


# The number of terms by hand, and the parameters that are not separable.
FOUND = [
    (lambda t, x: 3.0 * x[0], 0, set()),
    (lambda t, x: t[0] * x[0], 1, set()),
    (lambda t, x: t[0] + t[1] - t[0], 1, set()),
    (lambda t, x: (t[0] - t[0]) * jnp.sin(t[1] * x[0]), 0, set()),
    (lambda t, x: t[0] * x[0] + t[1] * x[0], 1, set()),  # t0 + t1 times x0
    (lambda t, x: t[0] * x[0] + 2.0 * t[0] * x[1], 1, set()),
    (lambda t, x: (x[0] - t[0]) ** 2, 2, set()),  # t0 x0 and t0^2
    (lambda t, x: (x[1] - t[0] * x[0]) ** 2 / t[1] ** 2, 3, set()),
    (lambda t, x: (x[1] - t[0] - t[1] * (x[0] - t[0])) ** 2 / t[2], 6, set()),  # 1, x0, x1 and their three products
    (lambda t, x: (t[0] * x[0] + t[1]) ** 3, 4, set()),
    (lambda t, x: jnp.exp(t[0] + x[0]), 1, set()),
    (lambda t, x: jnp.exp(t[0]) * jnp.exp(-2.0 * t[0] + x[0]) * jnp.exp(t[0]), 0, set()),
    (lambda t, x: jnp.log(t[0] * jnp.exp(x[0])) * x[1], 1, set()),
    (lambda t, x: jnp.log(t[0] * x[0] ** 2 * t[1]) * x[1], 1, set()),
    (lambda t, x: jnp.sqrt(t[0] * x[0]) * jnp.sqrt(t[0]), 1, set()),
    (lambda t, x: jnp.log((1.0 + t[0] ** 2) * (1.0 + x[0] ** 2)), 1, set()),  # multiplied out and put together again
    (lambda t, x: 1.0 / ((1.0 + t[0]) * (x[1] + x[0] ** 2)), 1, set()),
    (lambda t, x: jnp.abs(t[0] * (x[0] - 1.0)), 1, set()),
    (lambda t, x: jnp.sin(t[0] + x[0]), 2, set()),
    (lambda t, x: jnp.cos(t[0] * t[1] - 2.0 * x[0]), 2, set()),
    (lambda t, x: jnp.tanh(t[0]) * x[0] + jax.nn.softplus(t[1]) * x[1], 2, set()),
    (lambda t, x: jnp.where(x[0] > 1.0, t[0], t[1]) * x[1], 2, set()),
    (lambda t, x: jnp.where(t[0] > 1.0, t[1] * x[0], t[1] * x[1]), 2, set()),
    (lambda t, x: jnp.log(jnp.where(x[0] > 1.0, t[0] * x[1], t[1])), 2, set()),
    (lambda t, x: jax.lax.cond(x[0] > 1.0, lambda: t[0] * x[1], lambda: t[1] ** 2), 2, set()),
    (lambda t, x: t[jnp.floor(x[0]).astype(int)], 3, set()),  # one of three
    (lambda t, x: jnp.log(jnp.stack([t[0], 1.0 + t[1]])[jnp.where(x[0] > 1.0, 1, 0)]), 2, set()),
    (lambda t, x: jax.lax.dynamic_slice(t, (jnp.floor(x[0]).astype(int),), (2,))[0], 2, set()),  # starts at 0 or 1
    # Places before and after the array, which are moved to its ends.
    (lambda t, x: jnp.take(t, jnp.floor(2.0 * x[0] - 1.6).astype(int), mode="clip"), 3, set()),
    (lambda t, x: jax.lax.dynamic_slice(t, (jnp.floor(2.0 * x[0] - 1.6).astype(int),), (1,)), 3, set()),
    (lambda t, x: jnp.take(t, jnp.floor(2.0 * x[0] - 1.6).astype(int), mode="fill", fill_value=2.0), 3, set()),
    (lambda t, x: t.at[1].set(x[0] * t[2]) @ x, 2, set()),
    (lambda t, x: jnp.zeros(3).at[jnp.array([0, 0, 1])].set(t)[::-1] @ x, 2, set()),
    (lambda t, x: jnp.concatenate([t[:1], x[:1]]) @ jnp.stack([x[1], t[1]]), 2, set()),
    (lambda t, x: (A @ t[:2]) @ x[:2], 2, set()),
    (lambda t, x: jnp.outer(t, x).T.reshape(-1)[jnp.array([0, 4, 8])].sum(), 3, set()),
    (lambda t, x: jnp.cumsum(t * x)[::2], 3, set()),
    (lambda t, x: jnp.prod(t) * jnp.prod(x), 1, set()),
    (lambda t, x: jnp.linalg.solve(A, t[:2] * x[0]) @ x[:2], 2, set()),
    (lambda t, x: jax.scipy.linalg.solve_triangular(jnp.diag(t[:2]) + jnp.tril(A, -1), x[:2], lower=True)[1], 2, set()),
    (lambda t, x: jnp.sum(jnp.linalg.cholesky(t[0] * (A @ A.T)) @ x[:2]), 1, set()),
    (loop, 1, set()),
    (lambda t, x: jax.lax.scan(lambda c, r: (c * t[0], c * r), 1.0, x)[1].sum(), 2, set()),
    (lambda t, x: (t[0] > 1.0) * x[0] + (t[0].astype(int) + jnp.floor(t[1])) * x[1], 2, set()),
    (lambda t, x: jax.scipy.special.xlogy(jnp.round(x[0]), t[0]), 1, set()),
    (opposite, 2, set()),
    (lambda t, x: jax.lax.stop_gradient(t[0]) * x[0], 1, set()),
    (lambda t, x: x[0] ** 2.0 * t[0] ** -1.5 + (x[0] * t[0]) ** 0.5, 2, set()),
    (lambda t, x: jnp.exp(t[0] * jnp.log(t[1])) * x[0], 1, set()),
    # From here on there is something that cannot be separated; the other parameters still are.
    (lambda t, x: jnp.sin(t[0] * x[0]), 1, T0),
    (lambda t, x: t[1] * jnp.sin(t[0] * x[0]) + t[2] * x[1], 2, T0),
    (lambda t, x: (x[1] - t[1] * jnp.sin(t[0] * x[0])) ** 2 / t[2] ** 2, 3, T0),
    (lambda t, x: x[0] ** t[0] * t[1], 1, T0),
    (lambda t, x: t[0] ** x[0], 1, T0),
    (lambda t, x: jnp.log(t[0] + t[1] * x[0]), 1, T0 | T1),
    (lambda t, x: jnp.log(t[0] * t[1] + t[1] * x[0]), 1, T0 | T1),
    (lambda t, x: 1.0 / (t[0] + x[0]), 1, T0),
    (lambda t, x: jnp.exp(t[0] * x[0] + t[1]), 1, T0),
    (lambda t, x: jnp.maximum(t[0], x[0]), 1, T0),
    (lambda t, x: jnp.abs(t[0] - x[0]), 1, T0),
    (lambda t, x: jnp.where(x[0] > t[0], t[1] * x[1], t[2]), 2, T0),
    (lambda t, x: jnp.floor(t[0] * x[0]), 1, T0),
    (lambda t, x: (t[0] * x[0]).astype(int) * 1.0, 1, T0),
    (lambda t, x: jnp.round(4.0 * t[0] + x[0]), 1, T0),
    (lambda t, x: x[jnp.floor(t[0] * x[1] / 3.1).astype(int)], 1, T0),
    (lambda t, x: jnp.sort(jnp.stack([t[0], x[0]]))[0], 1, T0),
    (lambda t, x: (lambda by: jax.lax.while_loop(lambda c: c < 5.0, lambda c: c + by, 0.0))(t[0] * x[0]), 1, T0),
    (lambda t, x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c * t[0]), x[0]), 1, T0),
    (lambda t, x: jax.lax.cond(x[0] > t[0], lambda: 1.0, lambda: t[1]), 2, T0),
    (lambda t, x: jnp.linalg.eigvalsh(jnp.diag(t) + jnp.outer(x, x))[2], 1, T0 | T1 | T2),
    (lambda t, x: jax.nn.sigmoid(t[0] * (x[0] - t[1])) * t[2], 1, T0 | T1),
    (lambda t, x: jax.nn.logsumexp(jnp.stack([t[0], x[0]])), 1, T0),
    (lambda t, x: jax.scipy.special.gammaln(t[0] + x[0]), 1, T0),
    (lambda t, x: jnp.cbrt(t[0] - x[0]), 1, T0),
    (lambda t, x: jnp.arctan2(t[0], x[0]) * t[1], 1, T0),
]  # fmt: skip


@pytest.fixture(scope="module")
def table():
    """The values of all programs, compiled at once."""
    with jax.enable_x64(True):
        return values([function for function, _, _ in FOUND])


@pytest.mark.parametrize("i", range(len(FOUND)))
def test_what_is_there_is_found(i):
    function, terms, awkward = FOUND[i]
    found = structure(function)
    assert set(found.awkward) == awkward
    assert found.size == terms


@pytest.mark.parametrize("i", range(len(FOUND)))
def test_the_sums_are_the_program(i, table):
    value, size = claimed(structure(FOUND[i][0]))
    assert np.max(np.abs(value - table[i]) / size) < 1e-12


@pytest.mark.parametrize("i", [i for i, (_, _, awkward) in enumerate(FOUND) if not awkward])
def test_no_fewer_terms_would_do(i, table):
    """By values alone: the rank of f(theta_i, x_j), without what depends on x alone."""
    assert rank(table[i]) == FOUND[i][1] - (FOUND[i][0] is opposite)


@pytest.mark.parametrize("i", [i for i, (_, _, awkward) in enumerate(FOUND) if awkward])
def test_what_is_not_separated_cannot_be(i, table):
    """By values alone: no small number of terms is enough."""
    assert rank(table[i]) > 6


def test_signs_are_not_taken_for_granted():
    """log(t x) = log t + log x only if one of them is known to be positive; (t^2)^(1/2) is |t|."""
    assert structure(lambda t, x: jnp.log(t[0] * x[0]), positive=False).awkward == (0,)
    assert structure(lambda t, x: jnp.log(t[0] * jnp.exp(x[0])), positive=False).separable
    assert structure(lambda t, x: jnp.log(t[0] ** 2 * x[0]), positive=False).separable
    for function in (lambda t, x: jnp.sqrt(t[0] ** 2) * x[0], lambda t, x: jnp.log(t[0] ** 2) * x[0]):
        found = structure(function, positive=False)
        theta, x = np.array([-0.7, 1.0, 1.0]), np.array([1.5, 0.0, 0.0])
        terms, c = found.terms_at("law", theta, {"x": x})
        np.testing.assert_allclose(terms.sum() + c, function(theta, x), rtol=1e-12)


def test_what_python_computes_is_not_looked_into():
    def outside(t, x):
        return jax.pure_callback(np.hypot, jax.ShapeDtypeStruct((), float), t[0], x[0]) + t[1] * x[0]

    assert structure(outside).awkward == (0,)


def random_program(rng, depth):
    """A random expression in theta and x: sums, products, powers, functions, choices, loops and moved entries."""
    if depth == 0:
        i, c = int(rng.integers(3)), float(np.round(rng.uniform(0.2, 2.0), 1))
        return [lambda t, x: t[i], lambda t, x: x[i], lambda t, x: x[i], lambda t, x: c + 0.0 * t[0]][rng.integers(4)]
    f, g = random_program(rng, depth - 1), random_program(rng, depth - int(rng.integers(1, depth + 1)))
    e = int(rng.integers(2, 4))
    return [
        lambda t, x: f(t, x) + g(t, x),
        lambda t, x: f(t, x) * g(t, x),
        lambda t, x: f(t, x) - 0.5 * g(t, x),
        lambda t, x: f(t, x) / (1.0 + g(t, x) ** 2),
        lambda t, x: f(t, x) ** e,
        lambda t, x: jnp.exp(-jnp.abs(f(t, x))) + g(t, x),
        lambda t, x: jnp.log(jnp.abs(f(t, x)) + 0.1) * g(t, x),
        lambda t, x: jnp.sqrt(jnp.abs(f(t, x) * g(t, x))),
        lambda t, x: jnp.sin(f(t, x)),
        lambda t, x: jnp.where(f(t, x) > g(t, x), f(t, x), 0.3),
        lambda t, x: jnp.maximum(f(t, x), 0.5) - jnp.floor(g(t, x)),
        lambda t, x: jnp.stack([f(t, x), g(t, x), x[0]])[jnp.clip(f(t, x).astype(int), 0, 2)],
        lambda t, x: jax.lax.fori_loop(0, e, lambda i, c: 0.5 * c + f(t, x), g(t, x)),
        lambda t, x: jnp.linalg.norm(jnp.stack([f(t, x), g(t, x)])),
    ][rng.integers(14)]


def test_random_programs_are_what_their_sums_say():
    rng = np.random.default_rng(1)
    programs = [random_program(rng, int(rng.integers(2, 5))) for _ in range(60)]
    found = [structure(program) for program in programs]
    for program, one, table in zip(programs, found, values(programs), strict=True):
        value, size = claimed(one)
        usable = np.isfinite(table) & np.isfinite(size)
        assert usable.mean() > 0.9
        assert np.max(np.abs(value - table) / size, where=usable, initial=0.0) < 1e-9, program
        if one.separable and one.size < 12:
            assert rank(table) <= one.size
    assert 10 < sum(one.separable and one.size > 0 for one in found) < 50  # otherwise nothing was tested
