"""Taylor coefficients against series that are known, and against Cauchy's integral formula in the complex plane."""

from fractions import Fraction
from itertools import pairwise
from math import comb, factorial, prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as special
from bases import squared, tensor
from jax.scipy.stats import multivariate_normal

from epf.errors import UnsupportedModelError
from epf.numerics._sums import Compensated
from epf.polynomial._basis import Chebyshev, Monomial
from epf.polynomial._indices import total_degree
from epf.polynomial.taylor import _expand as taylor

ORDER = 20


def series(function, order=ORDER, centre=0.0):
    """The coefficients of a function of one number."""
    basis = Monomial(total_degree(1, order), [centre])
    return np.asarray(jax.jit(lambda: taylor.expand(lambda theta: function(theta[0]), basis))())


def collocate(function, basis):
    return basis.expand(function)


def bernoulli(n):
    """B_0 .. B_n, exactly."""
    numbers = [Fraction(1)]
    for m in range(1, n + 1):
        numbers.append(-sum(comb(m + 1, j) * numbers[j] for j in range(m)) / (m + 1))
    return numbers


def sin_series(x):
    return [0.0 if k % 2 == 0 else (-1) ** (k // 2) * x**k / factorial(k) for k in range(ORDER + 1)]


def logistic_series():
    """1/2 + z/4 - z^3/48 + ..: (2^2n - 1) B_2n / (2n)! in front of z^(2n - 1)."""
    numbers = bernoulli(ORDER + 1)
    odd = {2 * n - 1: (4**n - 1) * numbers[2 * n] / factorial(2 * n) for n in range(1, ORDER // 2 + 1)}
    return [0.5, *(float(odd.get(k, 0)) for k in range(1, ORDER + 1))]


def log_series():
    """v^2 - v^4 / 2 + v^6 / 3 - .."""
    return [0.0 if k % 2 or k == 0 else -((-1) ** (k // 2)) * 2.0 / k for k in range(ORDER + 1)]


KNOWN = [
    (lambda t: jnp.sin(1.5 * t), sin_series(1.5)),
    (jax.nn.sigmoid, logistic_series()),
    (lambda t: 1.0 / (1.0 + jnp.exp(-t)), logistic_series()),
    (lambda t: jnp.log(1.0 + t**2), log_series()),
    (lambda t: jnp.log1p(jnp.square(t)), log_series()),
    (jnp.exp, [1.0 / factorial(k) for k in range(ORDER + 1)]),
    (lambda t: 1.0 / (1.0 - t), [1.0] * (ORDER + 1)),
    (lambda t: jnp.sqrt(1.0 + t), [float(special.binom(0.5, k)) for k in range(ORDER + 1)]),
    (lambda t: (1.0 + t) ** -1.5, [float(special.binom(-1.5, k)) for k in range(ORDER + 1)]),
]


@pytest.mark.parametrize(("function", "known"), KNOWN)
@pytest.mark.parametrize("precision", ["single", "double"])
def test_series_that_are_known(function, known, precision):
    """To order 20. Every coefficient comes from those before it by a sum of at most k products that hardly cancel, so
    k roundings of its own size and that of its neighbours (where it is zero itself) bound the error."""
    with jax.enable_x64(precision == "double"):
        found = series(function)
    epsilon = np.finfo(found.dtype).eps
    size = np.abs(known)
    neighbours = np.maximum(size, np.maximum(np.append(size[1:], 0.0), np.append(0.0, size[:-1])))
    assert found.dtype == (np.float64 if precision == "double" else np.float32)
    assert (np.abs(found - known) <= (1 + np.arange(ORDER + 1)) * epsilon * neighbours).all()


def cauchy(function, centre, radius, order=ORDER, points=256):
    """f^(k) / k! by Cauchy's integral on a circle, and the size of a rounding error in it."""
    circle = np.exp(2j * np.pi * np.arange(points) / points)
    values = np.array([function(centre + radius * point) for point in circle])
    scale = radius ** -np.arange(order + 1.0)
    return np.fft.fft(values).real[: order + 1] / points * scale, 1e-15 * np.abs(values).max() * scale


A, B, V = np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([[1.0, 0.2], [0.2, 0.5]]), np.array([1.0, -0.5])


def determinant(matrix):
    return matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0]


def gaussian(z):
    """log N(V; (z, 0), A + z B) for a complex z."""
    covariance, residual = A + z * B, V - np.array([z, 0.0])
    adjugate = np.array([[covariance[1, 1], -covariance[0, 1]], [-covariance[1, 0], covariance[0, 0]]])
    square = residual @ adjugate @ residual / determinant(covariance)
    return -0.5 * (square + np.log(determinant(covariance))) - np.log(2 * np.pi)


def euler(z, sin):
    state = z
    for i in range(4):
        state = state + 0.1 * sin(z * state) * i
    return state


CASES = {
    "tanh": (jnp.tanh, np.tanh, 0.4, 1.2),
    "tan": (jnp.tan, np.tan, 0.3, 1.0),
    "cos of exp": (lambda t: jnp.cos(jnp.exp(t)), lambda z: np.cos(np.exp(z)), 0.2, 1.0),
    "expm1": (jnp.expm1, np.expm1, 0.5, 2.0),
    "log": (jnp.log, np.log, 1.3, 1.0),
    "log1p": (jnp.log1p, np.log1p, 0.4, 1.0),
    "power": (lambda t: t**1.7, lambda z: z**1.7, 1.2, 0.9),
    "power of two": (lambda t: t**2.0, lambda z: z**2, 0.0, 1.0),  # written as a float, at a zero
    "power of itself": (lambda t: t**t, lambda z: z**z, 1.5, 1.0),
    "base to the power": (lambda t: 2.0**t, lambda z: 2.0**z, 0.5, 2.0),
    "negative power": (lambda t: t**-3, lambda z: z**-3.0, 1.5, 1.0),
    "reciprocal root": (jax.lax.rsqrt, lambda z: z**-0.5, 1.5, 1.0),
    "cube root": (jnp.cbrt, lambda z: z ** (1 / 3), 1.5, 1.0),
    "division": (lambda t: jnp.sin(t) / (2.0 + jnp.cos(t)), lambda z: np.sin(z) / (2 + np.cos(z)), 0.1, 1.0),
    "arctan": (jnp.arctan, np.arctan, 0.2, 0.9),
    "arcsin": (jnp.arcsin, np.arcsin, 0.1, 0.8),
    "erf": (jax.scipy.special.erf, special.erf, 0.3, 1.5),
    "normal distribution": (jax.scipy.special.ndtr, lambda z: 0.5 * (1 + special.erf(z / np.sqrt(2))), 0.3, 1.5),
    "lgamma": (jax.scipy.special.gammaln, special.loggamma, 1.5, 1.2),
    "softplus at 0": (jax.nn.softplus, lambda z: np.log1p(np.exp(z)), 0.0, 2.5),
    "log-sum-exp": (
        lambda t: jax.nn.logsumexp(jnp.stack([t, 0.0, 2.0 * t])),
        lambda z: np.log(np.exp(z) + 1 + np.exp(2 * z)),
        0.1,
        1.0,
    ),
    "absolute value": (lambda t: jnp.abs(t) ** 1.5, lambda z: (-z) ** 1.5, -1.5, 1.0),
    "condition that is not theta's": (lambda t: jnp.where(V > 0, jnp.sin(t), t)[1], lambda z: z, 0.3, 1.0),
    "branch of theta's": (lambda t: jnp.where(t > 0, jnp.sin(t), t), np.sin, 0.3, 1.0),
    "dot product": (
        lambda t: jnp.dot(V * t, jnp.stack([jnp.sin(t), t])),
        lambda z: z * np.sin(z) - 0.5 * z * z,
        0.4,
        1.0,
    ),
    "indexing": (
        lambda t: (jnp.zeros(4).at[jnp.array([1, 3])].set(jnp.exp(t)) * t)[3],
        lambda z: z * np.exp(z),
        0.3,
        1.0,
    ),
    "Cholesky's factor": (
        lambda t: jnp.linalg.cholesky(A + t * B)[1, 1],
        lambda z: np.sqrt(1 + 0.5 * z - (0.3 + 0.2 * z) ** 2 / (2 + z)),
        0.2,
        1.0,
    ),
    "Gaussian density": (
        lambda t: multivariate_normal.logpdf(V, jnp.array([1.0, 0.0]) * t, A + t * B),
        gaussian,
        0.2,
        1.0,
    ),
    "linear equations": (
        lambda t: jnp.linalg.solve(A + t * B, V * t)[0],
        lambda z: z * ((1 + 0.5 * z) * V[0] - (0.3 + 0.2 * z) * V[1]) / determinant(A + z * B),
        0.2,
        1.0,
    ),
    "scan": (
        lambda t: jax.lax.scan(lambda s, i: (s + 0.1 * jnp.sin(t * s) * i, s), t, jnp.arange(4.0))[0],
        lambda z: euler(z, np.sin),
        0.5,
        1.0,
    ),
    "reversed scan": (
        lambda t: jax.lax.scan(
            lambda s, i: (s + 0.1 * jnp.sin(t * s) * i, s), t, jnp.arange(3.0, -1.0, -1.0), reverse=True
        )[0],
        lambda z: euler(z, np.sin),
        0.5,
        1.0,
    ),
    "rows of a scan": (
        lambda t: jax.lax.scan(lambda s, x: (s + x, s * x), 0.0, jnp.stack([jnp.sin(t), t, 2.0 * t]))[1][2],
        lambda z: 2.0 * z * (np.sin(z) + z),
        0.5,
        1.0,
    ),
    "cond": (lambda t: jax.lax.cond(t < 1.0, jnp.sin, jnp.cos, t), np.sin, 0.3, 1.0),
    "checkpoint": (lambda t: jax.checkpoint(jnp.sin)(t) * t, lambda z: z * np.sin(z), 0.3, 1.0),
}


LARGE = {
    "Cholesky's factor",
    "Gaussian density",
    "linear equations",
    "power of itself",
    "scan",
    "reversed scan",
}  # programs that take long to compile


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
def test_operations_against_cauchys_integral(name):
    function, complex_function, centre, radius = CASES[name]
    order = 6 if name in LARGE else ORDER
    expected, rounding = cauchy(complex_function, centre, radius, order)
    found = series(function, order, centre)
    assert (np.abs(found - expected) <= 3 * rounding).all()


@pytest.mark.usefixtures("float64")
def test_a_derivative_of_ones_own_is_used():
    @jax.custom_jvp
    def sine(t):
        return jnp.sin(t)

    sine.defjvp(lambda primals, tangents: (sine(*primals), 2.0 * jnp.cos(primals[0]) * tangents[0]))
    found, plain = series(sine, order=6, centre=0.3), series(jnp.sin, order=6, centre=0.3)
    np.testing.assert_allclose(found[0], plain[0])
    np.testing.assert_allclose(found[1:], 2.0 * plain[1:], rtol=1e-13)


def test_what_has_no_derivative_is_refused_with_a_remedy():
    def outside(t):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), t)

    with pytest.raises(UnsupportedModelError, match=r"pure_callback.*collocation"):
        series(outside, order=2)
    loops = (
        lambda t: jax.lax.while_loop(lambda s: s < 4.0, lambda s: s + t * s, t),
        lambda t: jax.lax.fori_loop(0, 100, lambda _, s: s + t * s, t),
    )
    for loop in loops:
        with pytest.raises(UnsupportedModelError, match=r"a loop of more than 64 turns.*collocation"):
            series(loop, order=2)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("indices", [total_degree(2, 8), tensor(3, 5), total_degree(3, 5)])
def test_several_parameters(indices):
    """exp(a . theta) has a^k / k!; a product of functions of one parameter each has the products of coefficients."""
    p = indices.parameters
    a, centre = np.array([0.7, -1.2, 0.4])[:p], np.array([0.3, -0.5, 0.8])[:p]
    basis = Monomial(indices, centre)

    def function(theta):
        product = jnp.sin(theta[0]) * jax.nn.sigmoid(theta[-1]) * jnp.exp(theta[p // 2] / 2)
        return {"joint": jnp.exp(a @ theta), "product": product}

    found = jax.jit(lambda: taylor.expand(function, basis))()
    exponents = np.array(indices.exponents)
    factorials = np.array([prod(map(factorial, k)) for k in indices.exponents])
    np.testing.assert_allclose(
        found["joint"], np.exp(a @ centre) * np.prod(a**exponents, axis=1) / factorials, rtol=1e-13
    )
    order = max(indices.orders)
    parts = [np.eye(1, order + 1)[0] for _ in range(p)]  # the series of 1
    for i, one in ((0, jnp.sin), (p - 1, jax.nn.sigmoid), (p // 2, lambda t: jnp.exp(t / 2))):
        parts[i] = np.convolve(parts[i], series(one, order, centre[i]))[: order + 1]
    expected = np.prod([parts[i][exponents[:, i]] for i in range(p)], axis=0)
    np.testing.assert_allclose(found["product"], expected, rtol=1e-12, atol=1e-16)


@pytest.mark.usefixtures("float64")
def test_star_in_two_parameters_against_nested_derivatives():
    """The paper's logistic transition, gamma (x - c) in the logistic, to third order about gamma = 0.4, c = 1.1."""

    def drift(theta):
        return 0.2 + 0.5 * 2.3 - (0.4 + 0.1 * 2.3) * jax.nn.sigmoid(theta[0] * (2.3 - theta[1]))

    basis = Monomial(total_degree(2, 3), [0.4, 1.1])
    coefficients = jax.jit(lambda: taylor.expand(drift, basis))()
    found = dict(zip(basis.indices.exponents, coefficients.tolist(), strict=True))
    nested = [drift]
    for _ in range(3):
        nested.append(jax.jacfwd(nested[-1]))
    derivatives = [np.asarray(value) for value in jax.jit(lambda at: [d(at) for d in nested])(basis.centre)]
    for (i, j), value in found.items():
        assert value == pytest.approx(
            float(derivatives[i + j][(0,) * i + (1,) * j]) / factorial(i) / factorial(j), rel=1e-12
        )


@pytest.mark.usefixtures("float64")
def test_arrays_come_back_with_their_shape():
    x = np.arange(6.0).reshape(2, 3)
    basis = Monomial(total_degree(1, 5), [0.2])
    found = jax.jit(lambda: taylor.expand(lambda theta: {"a": jnp.sin(theta[0] * x), "b": 3.0}, basis))()
    assert found["a"].shape == (6, 2, 3)
    one = jax.jit(lambda x: taylor.expand(lambda theta: jnp.sin(theta[0] * x), basis))
    for i in range(2):
        for j in range(3):
            np.testing.assert_allclose(found["a"][:, i, j], one(x[i, j]), rtol=1e-14)
    assert found["b"].tolist() == [3.0, 0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.usefixtures("float64")
def test_under_jit_vmap_and_grad():
    """Coefficients of sin(theta x) about c are smooth functions of x and c, whose values and slopes are known."""
    indices = total_degree(1, 4)

    def third(x, centre):
        return taylor.expand(lambda theta: jnp.sin(theta[0] * x), Monomial(indices, centre[None]))[3]

    xs, centres = jnp.linspace(-2.0, 2.0, 7), jnp.linspace(0.1, 0.7, 7)
    np.testing.assert_allclose(jax.jit(jax.vmap(third))(xs, centres), -(xs**3) * jnp.cos(xs * centres) / 6, rtol=1e-13)
    slopes = jax.jit(jax.vmap(jax.grad(third, argnums=1)))(xs, centres)
    np.testing.assert_allclose(slopes, xs**4 * jnp.sin(xs * centres) / 6, rtol=1e-12, atol=1e-15)


def equations(function, order):
    """How many operations the expansion's own program has."""
    basis = Monomial(total_degree(1, order), [0.3])

    def count(jaxpr):
        inner = (v for e in jaxpr.eqns for v in e.params.values() if hasattr(v, "jaxpr"))
        return len(jaxpr.eqns) + sum(count(v.jaxpr) for v in inner)

    program = jax.make_jaxpr(lambda x: taylor.expand(lambda theta: function(theta[0], x), basis))(1.3)
    return count(program.jaxpr)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, x: jnp.exp(jnp.sin(t * x)),
        lambda t, x: jnp.tanh(t * x) / (1.0 + t * t * x),
        lambda t, x: jnp.sqrt(1.0 + jax.nn.softplus(t * x)),
    ],
)
def test_the_work_grows_no_faster_than_the_square_of_the_order(function):
    """From order M to 2M at most fourfold; nested derivatives would double it with every single order."""
    counts = [equations(function, order) for order in (5, 10, 20, 40)]
    assert all(later <= 4 * earlier for earlier, later in pairwise(counts))
    assert counts[2] < 5000


def test_a_function_of_a_linear_argument_costs_as_much_as_its_order():
    """The paper's own case, sin(theta x): for each further order the same few operations."""
    counts = [equations(lambda t, x: jnp.sin(t * x), order) for order in (5, 10, 20, 40)]
    steps = np.diff(counts) / np.array([5, 10, 20])
    assert (steps == steps[0]).all()
    assert steps[0] <= 6.0


def divergence(exact, approximate, weights):
    """KL(p | q) of the densities proportional to exp(exact) and exp(approximate), by quadrature, also where it is tiny.

    With e the deviation of exact - approximate from its mean under p, it is log E exp(-e) = log(1 + E(exp(-e) - 1 + e)).
    """
    p = np.exp(exact - exact.max())
    p /= (weights * p).sum()
    e = exact - approximate
    e = e - (weights * p * e).sum()
    small = np.abs(e) < 1e-3
    excess = np.where(small, e**2 / 2 - e**3 / 6 + e**4 / 24, np.expm1(-e) + e)
    return np.log1p((weights * p * excess).sum())


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("expand", "basis", "orders"),
    [
        (taylor.expand, lambda indices: Monomial(indices, [0.0]), range(8, 26, 2)),
        (collocate, lambda indices: Chebyshev(indices, [-2.0], [2.0]), range(2, 20, 2)),
    ],
)
def test_theorem_2(expand, basis, orders):
    """exp(P_M) approaches exp(S) super-exponentially: every two orders gain more digits than the two before them.

    S(x) = -x^2 + 5 sin^2 x is the paper's example, on [-2, 2], where the integrals exist for every order. Taylor's begins
    where its divergence has become small, at order 8.
    """

    def log_density(theta):
        return -(theta[0] ** 2) + 5.0 * jnp.sin(theta[0]) ** 2

    nodes, weights = np.polynomial.legendre.leggauss(200)
    nodes, weights = jnp.asarray(2.0 * nodes)[:, None], 2.0 * weights
    exact = np.asarray(jax.vmap(log_density)(nodes))
    logs = []
    for order in orders:
        here = basis(total_degree(1, order))
        approximate = jax.jit(lambda here=here: here.design(nodes) @ expand(log_density, here))()
        logs.append(np.log(divergence(exact, np.asarray(approximate), weights)))
    gains = -np.diff(logs)
    assert logs[-1] < -45.0  # 20 digits: the quadrature has seen the whole of it
    assert (np.diff(gains) > 0.0).all()


def path(steps, seed=0):
    rng = np.random.default_rng(seed)
    x = [rng.normal()]
    for _ in range(steps):
        x.append(np.sin(0.7 * x[-1]) + rng.normal())
    return np.array(x)


def increments(basis, expand, x_before, x_after):
    """Theorem 3's eta for every step: x H - J / 2, with H the drift's coefficients and J those of its square."""
    drift = jax.vmap(lambda x: expand(lambda theta: jnp.sin(theta[0] * x), basis))(x_before)
    square = jax.vmap(basis.multiply)(drift, drift)
    linear = jax.vmap(lambda h: basis.indices.embed(h, squared(basis).indices))(drift)
    return drift, x_after[:, None] * linear - 0.5 * square


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("expand", "basis"),
    [
        (taylor.expand, lambda indices: Monomial(indices, [0.0])),
        (collocate, lambda indices: Chebyshev(indices, [-0.5], [1.5])),
    ],
)
def test_theorem_3(expand, basis):
    """Accumulated over a path, the statistics are the coefficients of the summed log-density with the drift expanded."""
    basis = basis(total_degree(1, 7))
    x = jnp.asarray(path(200))
    drift, terms = jax.jit(lambda: increments(basis, expand, x[:-1], x[1:]))()
    statistic, size = terms.sum(axis=0), np.abs(terms).sum(axis=0)

    def log_density(theta):
        residual = x[1:] - jax.vmap(lambda h: basis.evaluate(h, theta))(drift)
        return -0.5 * jnp.sum(residual**2 - x[1:] ** 2)  # but for a constant

    direct = jax.jit(lambda: expand(log_density, squared(basis)))()
    # Chebyshev coefficients are all found from the same values, and share the largest one's rounding error.
    scale = size if isinstance(basis, Monomial) else size.max()
    assert (np.abs(statistic - direct) <= 200 * np.finfo(np.float64).eps * scale).all()


def test_theorem_3_in_single_precision_over_many_steps():
    """Compensated sums of 20 000 float32 increments stay within a few roundings of the increments themselves."""
    x = path(20_000, seed=1)
    basis = Monomial(total_degree(1, 7), [0.0])
    single = jnp.asarray(x, jnp.float32)
    _, terms = jax.jit(lambda x: increments(basis, taylor.expand, x[:-1], x[1:]))(single)
    zero = Compensated.zero((squared(basis).indices.size,))
    total = jax.lax.scan(lambda total, term: (total.add(term), None), zero, terms)[0].value
    with jax.enable_x64(True):
        double = Monomial(total_degree(1, 7), np.zeros(1))
        exact = jax.jit(lambda x: increments(double, taylor.expand, x[:-1], x[1:])[1].sum(axis=0))(
            jnp.asarray(single, float)
        )
    # x^k has k roundings, the square's coefficients twice as many, and errors of either sign.
    size = np.abs(np.asarray(terms, np.float64)).sum(axis=0)
    assert (np.abs(np.asarray(total, np.float64) - np.asarray(exact)) <= 16 * 2.0**-24 * size).all()
