"""Log-polynomials on the cube with known distribution functions, by quadrature in double precision."""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from epf.numerics._keys import particle_keys, root_key, step_key

CELLS = {1: 20_000, 2: 600, 3: 100}
# The powers in use: up to the second in all, and some more. A small design compiles sooner.
MORE = {
    1: tuple((k,) for k in range(3, 7)),
    2: ((3, 0), (2, 1), (4, 0), (0, 4)),
    3: ((3, 0, 0), (1, 1, 1), (4, 0, 0)),
}


@cache
def exponents(p):
    """The powers of u in the design, one for each column."""
    return *(k for k in product(range(3), repeat=p) if sum(k) <= 2), *MORE.get(p, ())


def design(points, xp=jnp):
    """The powers of the points, (points, terms): in jax for the sampler, in numpy for the oracle."""
    p = points.shape[1]
    powers = [xp.ones_like(points)]
    for _ in range(max(max(k) for k in exponents(p))):
        powers.append(powers[-1] * points)
    columns = [xp.ones_like(points[:, 0])] * len(exponents(p))
    for n, k in enumerate(exponents(p)):
        for i, power in enumerate(k):
            if power:
                columns[n] = columns[n] * powers[power][:, i]
    return xp.stack(columns, axis=1)


def gaussian(mean, sd, rho=0.0):
    """The log-density of a Gaussian with equal correlations, as a dictionary from powers to coefficients."""
    mean, sd = np.atleast_1d(mean).astype(float), np.atleast_1d(sd).astype(float)
    p = len(mean)
    precision = np.linalg.inv(np.outer(sd, sd) * (rho + (1.0 - rho) * np.eye(p)))
    unit = np.eye(p, dtype=int)
    terms = {(0,) * p: -0.5 * mean @ precision @ mean}
    for i in range(p):
        terms[tuple(unit[i])] = (precision @ mean)[i]
        for j in range(p):
            k = tuple(unit[i] + unit[j])
            terms[k] = terms.get(k, 0.0) - 0.5 * precision[i, j]
    return terms


def plus(*many):
    """The sum of such dictionaries."""
    return {k: sum(terms.get(k, 0.0) for terms in many) for k in {k for terms in many for k in terms}}


@dataclass(frozen=True)
class Density:
    """exp of a polynomial; all of its mass, but for less than 1e-9, is in the box from `low` to `high`."""

    name: str
    terms: tuple
    low: tuple
    high: tuple

    @property
    def p(self):
        return len(self.low)

    @cached_property
    def coefficients(self):
        terms = dict(self.terms)
        assert set(terms) <= set(exponents(self.p))
        return np.array([terms.get(k, 0.0) for k in exponents(self.p)], np.float32)

    def log(self, points):
        return design(np.asarray(points, np.float64), np) @ self.coefficients.astype(np.float64)

    @cached_property
    def edges(self):
        return [np.linspace(a, b, CELLS[self.p] + 1) for a, b in zip(self.low, self.high, strict=True)]

    @cached_property
    def table(self):
        """The probability of each cell of a fine grid, by the midpoint rule."""
        middles = [0.5 * (e[1:] + e[:-1]) for e in self.edges]
        points = np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, self.p)
        values = np.concatenate([self.log(part) for part in np.array_split(points, 50)])
        values = np.exp(values - values.max()).reshape([len(m) for m in middles])
        return values / values.sum()

    def cdf(self, i):
        """The marginal distribution function of u_i."""
        mass = self.table.sum(axis=tuple(j for j in range(self.p) if j != i))
        below = np.concatenate([[0.0], np.cumsum(mass)])
        return lambda x: np.interp(x, self.edges[i], below)

    def moments(self):
        """Means and standard deviations."""
        found = []
        for i in range(self.p):
            mass = self.table.sum(axis=tuple(j for j in range(self.p) if j != i))
            middle = 0.5 * (self.edges[i][1:] + self.edges[i][:-1])
            mean = mass @ middle
            found.append((mean, np.sqrt(mass @ (middle - mean) ** 2)))
        return np.array(found).T

    def conditional(self, points):
        """P(u_2 <= its value | u_1), for points (count, 2): uniform if and only if u_2 is right given u_1."""
        nodes, weights = np.polynomial.legendre.leggauss(64)

        def below(top):
            half = 0.5 * (top - self.low[1])
            u_2 = self.low[1] + half[:, None] * (1.0 + nodes)
            values = self.log(np.stack([np.repeat(points[:, 0], 64), u_2.ravel()], axis=1)).reshape(u_2.shape)
            return half * (np.exp(values - level) @ weights)

        level = self.log(points)[:, None]
        return below(points[:, 1]) / below(np.full(len(points), self.high[1]))

    @cache  # noqa: B019  the cases live as long as the tests, and each has several samplers
    def sample(self, seed, count):
        """Exact draws, (count, p): a cell of the table, a point in it, and rejection for how the density varies there."""
        rng = np.random.default_rng(seed)
        below = np.cumsum(self.table.ravel())
        kept, missing, bound = [], count, 1.5
        while missing > 0:
            index = np.searchsorted(below, rng.uniform(size=3 * missing) * below[-1], side="right")
            corner = np.unravel_index(np.minimum(index, below.size - 1), self.table.shape)
            lower = np.stack([e[c] for e, c in zip(self.edges, corner, strict=True)], axis=1)
            upper = np.stack([e[c + 1] for e, c in zip(self.edges, corner, strict=True)], axis=1)
            points = lower + (upper - lower) * rng.uniform(size=lower.shape)
            ratio = np.exp(self.log(points) - self.log(0.5 * (lower + upper)))
            good = points[rng.uniform(size=len(points)) * bound < ratio]
            kept.append(good[:missing])
            missing -= len(kept[-1])
        return np.concatenate(kept)


@cache
def runner(sampler):
    """One compiled function a sampler and a shape: (key, coefficients, end, u) with the particles last.

    The support is u_1 > `end`.
    """

    def draw(key, coefficients, end, u):
        def log_density(points):
            values = jnp.matmul(design(points), coefficients, precision="highest")
            return jnp.where(points[:, 0] > end, values, -jnp.inf)

        return sampler.draw(key, log_density, u)

    @jax.jit
    def run(key, coefficients, end, u):
        return jax.vmap(draw, in_axes=(0, None, None, -1), out_axes=-1)(
            particle_keys(key, u.shape[-1]), coefficients, end, u
        )

    return run


def is_setting(sampler):
    """Whether a sampler is all plain values, and not one that has learned from a density."""
    return not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(sampler))


def draws(sampler, coefficients, u, end=-2.0, seed=1, moves=1):
    """Where `moves` moves take the particles, u and the result being (count, p)."""
    moved = jnp.asarray(u, jnp.float32).T
    for move in range(moves):
        key = step_key(root_key(seed), move)
        run = runner(sampler) if is_setting(sampler) else runner.__wrapped__(sampler)
        moved = run(key, jnp.asarray(coefficients, jnp.float32), jnp.asarray(end, jnp.float32), moved)
    return np.asarray(moved).T.astype(np.float64)


def _case(name, terms, low, high):
    p = len(next(iter(terms)))
    box = [tuple(float(x) for x in np.broadcast_to(end, p)) for end in (low, high)]
    return Density(name, tuple(sorted(terms.items())), *box)


ONE = [
    _case("unimodal", gaussian(0.2, 0.15), -1, 1),
    _case("seven sd", gaussian(0.0, 1 / 7), -1, 1),
    _case("skewed", {(1,): 6.0, (2,): -24.0, (3,): -20.0, (4,): 4.0, (6,): -6.0}, -1, 1),
    _case("bimodal", {(1,): 0.6, (2,): 24.0, (4,): -40.0}, -1, 1),
    _case("truncated", {(1,): 9.0, (2,): -2.0}, -1, 1),
    _case("flat", {(1,): 0.1, (3,): 0.05}, -1, 1),
    _case("peaked", gaussian(0.137, 1e-3), 0.129, 0.145),
    _case("peaked at the edge", {(1,): -5000.0}, -1, -0.99),
]
TWO = [
    _case("unimodal", gaussian([0.1, -0.1], [0.15, 0.12], 0.8), -1, 1),
    _case("skewed", plus(gaussian([0.2, 0.0], [0.25, 0.3]), {(3, 0): -5.0, (2, 1): -6.0, (0, 4): -5.0}), -1, 1),
    _case("bimodal", {(2, 0): 15.0, (4, 0): -30.0, (1, 1): 10.0, (0, 2): -12.0, (0, 1): 0.5}, -1, 1),
    _case("truncated", plus(gaussian([0.9, -1.5], [0.4, 0.5], -0.5)), -1, 1),
    _case("flat", {(1, 0): 0.1, (1, 1): 0.2}, -1, 1),
    _case("peaked", gaussian([0.137, -0.21], [2e-3, 4e-3], 0.6), (0.121, -0.242), (0.153, -0.178)),
]
THREE = [
    _case("unimodal", gaussian([0.1, -0.1, 0.0], [0.15, 0.12, 0.15], 0.5), -1, 1),
    _case("skewed", plus(gaussian([0.2, 0.0, 0.1], [0.3, 0.3, 0.3]), {(3, 0, 0): -4.0, (1, 1, 1): 5.0}), -1, 1),
    _case("bimodal", {(2, 0, 0): 15.0, (4, 0, 0): -30.0, (1, 1, 0): 8.0, (0, 2, 0): -8.0, (0, 0, 2): -6.0}, -1, 1),
    _case("truncated", gaussian([0.9, -1.3, 0.0], [0.5, 0.5, 0.5], 0.5), -1, 1),
    _case("flat", {(1, 0, 0): 0.1, (1, 1, 1): 0.3}, -1, 1),
    _case("peaked", gaussian([0.137, -0.21, 0.5], [0.02, 0.03, 0.02], 0.6), (-0.023, -0.45, 0.34), (0.297, 0.03, 0.66)),
]
CORRELATED = _case("correlated", gaussian([0.1, 0.0, -0.1], [0.15, 0.15, 0.15], 0.9), -1, 1)
