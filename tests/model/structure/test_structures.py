"""The structure of models, derived by hand: how many sums each law needs, and which parameters are not separable."""

from inspect import unwrap
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf import zoo
from epf.model._model import parameters, transition_law
from epf.model.structure._functions import Functions
from epf.model.structure._reading import LAWS
from epf.model.structure._structure import read_model
from epf.model.structure._units import is_smooth
from epf.model.structure._verify import disagreements, structure_of, tried
from epf.numerics._sums import Compensated
from models import AR, VectorAR

POINTS = 24
NORMAL, POSITIVE, UNIT = dist.Normal(0.0, 1.0), dist.LogNormal(0.0, 0.5), dist.Beta(2.0, 2.0)
TWO = dist.Normal(0.0, 1.0).expand([2]).to_event(1)
R = jnp.array([[1.0, 0.3], [0.3, 0.5]])


class Written(epf.StateSpaceModel):
    """A model in one line: a random walk observed with known noise, unless it is said otherwise."""

    priors: dict[str, Any]
    transition_: Any = eqx.field(static=True, default=lambda p, x, u: dist.Normal(x, 1.0))
    observation_: Any = eqx.field(static=True, default=lambda p, x, u: dist.Normal(x, 0.5))
    initial_: Any = eqx.field(static=True, default=lambda p: dist.Normal(0.0, 1.0))

    def prior(self):
        return self.priors

    def initial(self, p):
        return self.initial_(p)

    def transition(self, p, x, u):
        return self.transition_(p, x, u)

    def observation(self, p, x, u):
        return self.observation_(p, x, u)


def moves(law, **priors):
    return Written(priors, transition_=law)


def observes(law, **priors):
    return Written(priors, observation_=law)


def plane(law, **priors):
    return Written(
        priors, law, lambda p, x, u: dist.Normal(x[0], 0.5), lambda p: dist.Normal(jnp.zeros(2), 1.0).to_event(1)
    )


def hidden(**priors):
    """Two regimes, each with its own chance to stay, mean and sd of the observation."""
    return Written(
        priors,
        lambda p, x, u: dist.Categorical(
            jnp.stack([jnp.stack([p.a, 1.0 - p.a]), jnp.stack([1.0 - p.b, p.b])])[x.astype(int)]
        ),
        lambda p, x, u: dist.Normal(p.m[x.astype(int)], p.s),
        lambda p: dist.Categorical(jnp.ones(2) / 2.0),
    )


def turn(p):
    return p.r * (jnp.eye(2) * jnp.cos(p.w) + jnp.array([[0.0, -1.0], [1.0, 0.0]]) * jnp.sin(p.w))


def euler(p, x, u):
    """Four steps of an ordinary differential equation x' = -r x + k."""
    return dist.Normal(jax.lax.fori_loop(0, 4, lambda i, x: x + 0.1 * (p.k - p.r * x), x), p.s)


U1, U2 = jnp.array([0.7]), jnp.array([0.7, -1.2])
UNKNOWN_MATRIX = zoo.LinearGaussian(
    TWO.expand([2]).to_event(1), 0.2 * R, jnp.eye(2), 0.5 * jnp.eye(2), jnp.zeros(2), jnp.eye(2)
)

# name: model, inputs, terms of initial, transition and observation, sums in all, parameters that are not separable.
# Comments name what is summed (functions of the data) or what it is multiplied with (functions of theta).
CASES: dict[str, tuple[Any, Any, tuple[int, int, int], int, set[str]]] = {
    # The zoo.
    "Sin": (zoo.Sin(), None, (0, 1, 0), 1, {"theta"}),
    "Sin with scales": (zoo.Sin(sigma=POSITIVE, sigma_obs=POSITIVE), None, (0, 2, 2), 4, {"theta"}),
    "CauchyAR": (zoo.CauchyAR(), None, (0, 1, 0), 1, {"a"}),
    "CauchyAR with scales": (zoo.CauchyAR(gamma=POSITIVE, sigma_obs=POSITIVE), None, (0, 2, 2), 4, {"a", "gamma"}),
    "STAR": (zoo.STAR(), None, (0, 1, 0), 1, {"gamma", "c"}),
    # a_i, b_i: 4; a_i a_j and b_i b_j: 6; a_i b_j, where a_0 b_1 and a_1 b_0 go together: 3; log s and s^-2.
    "STAR(2, 1)": (zoo.STAR(a=TWO, b=TWO, sigma=POSITIVE, lags=2), None, (0, 15, 0), 15, {"gamma", "c"}),
    "LocalLevel": (zoo.LocalLevel(), None, (0, 2, 2), 4, set()),
    # new^2, x^2, new x, new, x, 1; the start needs x^2, x, 1, of which x^2 and x are sums of the others.
    "StochasticVolatility": (zoo.StochasticVolatility(sigma=POSITIVE), None, (3, 6, 0), 7, set()),
    "StochasticVolatility, sigma known": (zoo.StochasticVolatility(), None, (3, 5, 0), 6, set()),
    "LinearGaussian": (zoo.LinearGaussian.rotation(), None, (0, 0, 0), 0, set()),
    # A: new_i x_j (4), x_i x_j (3).
    "LinearGaussian, A unknown": (UNKNOWN_MATRIX, None, (0, 7, 0), 7, set()),
    # Models as people write them.
    "AR": (AR(), None, (0, 4, 0), 4, set()),
    "VectorAR with an input": (VectorAR(), U1, (0, 4, 2), 6, set()),
    "AR reparametrised": (
        moves(lambda p, x, u: dist.Normal(jnp.tanh(p.a) * x, jnp.exp(p.k)), a=NORMAL, k=NORMAL),
        None,
        (0, 4, 0),
        4,
        set(),
    ),
    # (new - x)^2, new - x, e^x (new - x), e^x, e^2x, 1.
    "Ricker": (
        moves(lambda p, x, u: dist.Normal(x + p.r - jnp.exp(p.k + x), p.s), r=NORMAL, k=NORMAL, s=POSITIVE),
        None,
        (0, 6, 0),
        6,
        set(),
    ),
    # The same without the scale: r, e^k, r^2, r e^k, e^2k.
    "Ricker, noise known": (
        moves(lambda p, x, u: dist.Normal(x + p.r - jnp.exp(p.k + x), 0.3), r=NORMAL, k=NORMAL),
        None,
        (0, 5, 0),
        5,
        set(),
    ),
    # 3 slopes, 6 products of slopes, s^-2, log s.
    "Growth": (
        moves(
            lambda p, x, u: dist.Normal(p.a * x + p.b * x / (1.0 + x**2) + p.c * u[0], p.s),
            a=NORMAL,
            b=NORMAL,
            c=NORMAL,
            s=POSITIVE,
        ),
        U1,
        (0, 11, 0),
        11,
        set(),
    ),
    "Theta-logistic": (
        moves(
            lambda p, x, u: dist.Normal(x + p.r * (1.0 - (jnp.exp(x) / p.c) ** p.k), p.s),
            r=POSITIVE,
            c=POSITIVE,
            k=POSITIVE,
            s=POSITIVE,
        ),
        None,
        (0, 6, 0),
        6,
        {"k"},
    ),
    "Beverton-Holt": (
        moves(
            lambda p, x, u: dist.Normal(x + p.r - jnp.log1p(jnp.exp(x) / p.k), p.s), r=NORMAL, k=POSITIVE, s=POSITIVE
        ),
        None,
        (0, 3, 0),
        3,
        {"k"},
    ),
    "Threshold": (
        moves(
            lambda p, x, u: dist.Normal(jnp.where(x > p.c, p.a, p.b) * x, p.s), a=NORMAL, b=NORMAL, c=NORMAL, s=POSITIVE
        ),
        None,
        (0, 6, 0),
        6,
        {"c"},
    ),
    # |new|^2, new . x, new cross x, |x|^2, 1.
    "Oscillator": (
        plane(lambda p, x, u: dist.Normal(turn(p) @ x, p.s).to_event(1), r=UNIT, w=NORMAL, s=POSITIVE),
        None,
        (0, 5, 0),
        5,
        set(),
    ),
    "Irregular times": (
        moves(lambda p, x, u: dist.Normal(x * jnp.exp(-p.r * u[0]), p.s), r=POSITIVE, s=POSITIVE),
        U1,
        (0, 2, 0),
        2,
        {"r"},
    ),
    # Four steps make a polynomial in r and k: new x, new, x^2, x, 1 with (1 - r/10)^4 and so on, new^2, 1.
    "Differential equation": (moves(euler, k=NORMAL, r=POSITIVE, s=POSITIVE), None, (0, 6, 0), 6, set()),
    "Spread that grows with the state": (
        moves(lambda p, x, u: dist.Normal(p.a * x, p.s * (1.0 + x**2)), a=NORMAL, s=POSITIVE),
        None,
        (0, 4, 0),
        4,
        set(),
    ),
    "Two sources of spread": (
        moves(lambda p, x, u: dist.Normal(x, p.s + p.v * jnp.abs(x)), s=POSITIVE, v=POSITIVE),
        None,
        (0, 1, 0),
        1,
        {"s", "v"},
    ),
    "Student steps": (moves(lambda p, x, u: dist.StudentT(3.0, x, p.s), s=POSITIVE), None, (0, 2, 0), 2, {"s"}),
    "Student with unknown tails": (
        moves(lambda p, x, u: dist.StudentT(p.df, p.a * x, 1.0), a=NORMAL, df=POSITIVE),
        None,
        (0, 2, 0),
        2,
        {"a", "df"},
    ),
    "Laplace steps": (moves(lambda p, x, u: dist.Laplace(0.5 * x, p.b), b=POSITIVE), None, (0, 2, 0), 2, set()),
    "Laplace with unknown place": (
        moves(lambda p, x, u: dist.Laplace(p.a * x, p.b), a=NORMAL, b=POSITIVE),
        None,
        (0, 2, 0),
        2,
        {"a"},
    ),
    "Covariance of known shape": (
        plane(lambda p, x, u: dist.MultivariateNormal(x, p.v * R), v=POSITIVE),
        None,
        (0, 2, 0),
        2,
        set(),
    ),
    # new new', and the determinant.
    "Unknown covariance": (
        plane(
            lambda p, x, u: dist.MultivariateNormal(
                0.5 * x, jnp.array([[p.a**2, p.r * p.a * p.b], [p.r * p.a * p.b, p.b**2]])
            ),
            a=POSITIVE,
            b=POSITIVE,
            r=UNIT,
        ),
        None,
        (0, 4, 0),
        4,
        set(),
    ),
    "Start": (
        Written({"m": NORMAL, "s": POSITIVE}, initial_=lambda p: dist.Normal(p.m, p.s)),
        None,
        (3, 0, 0),
        3,
        set(),
    ),
    "Start at a point": (
        Written({"m": NORMAL, "s": POSITIVE}, lambda p, x, u: dist.Normal(x, p.s), initial_=lambda p: dist.Delta(p.m)),
        None,
        (1, 2, 0),
        3,
        {"m"},
    ),
    "Lagged": (epf.Lagged(AR(), 2), None, (0, 4, 0), 4, set()),
    # The chances to stay and to leave in two regimes; means, squares of means, s^-2, log s.
    "Hidden Markov": (hidden(a=UNIT, b=UNIT, m=TWO, s=POSITIVE), None, (0, 4, 6), 10, set()),
    # Observations.
    "Regression": (observes(lambda p, x, u: dist.Normal(x + p.b @ u, p.s), b=TWO, s=POSITIVE), U2, (0, 0, 7), 7, set()),
    "Seasonal with unknown phase": (
        observes(lambda p, x, u: dist.Normal(x + p.a * jnp.sin(u[0] + p.f), 1.0), a=NORMAL, f=NORMAL),
        U1,
        (0, 0, 5),
        5,
        set(),
    ),
    "Seasonal with unknown frequency": (
        observes(lambda p, x, u: dist.Normal(x + p.a * jnp.sin(p.f * u[0]), 1.0), a=NORMAL, f=NORMAL),
        U1,
        (0, 0, 2),
        2,
        {"f"},
    ),
    "Two sensors": (
        observes(
            lambda p, x, u: dist.Normal(jnp.stack([x, p.g * x + p.o]), p.s).to_event(1),
            g=NORMAL,
            o=NORMAL,
            s=POSITIVE.expand([2]).to_event(1),
        ),
        None,
        (0, 0, 8),
        8,
        set(),
    ),
    "Counts": (observes(lambda p, x, u: dist.Poisson(jnp.exp(p.b + x)), b=NORMAL), None, (0, 0, 2), 2, set()),
    "Counts, overdispersed": (
        observes(lambda p, x, u: dist.NegativeBinomial2(jnp.exp(p.b), p.k), b=NORMAL, k=POSITIVE),
        None,
        (0, 0, 3),
        3,
        {"k"},
    ),
    "Waiting times": (
        observes(lambda p, x, u: dist.Exponential(p.r * jnp.exp(x)), r=POSITIVE),
        None,
        (0, 0, 2),
        2,
        set(),
    ),
    # k (log y - x - y e^-x), k log k - log Gamma(k).
    "Durations": (observes(lambda p, x, u: dist.Gamma(p.k, p.k / jnp.exp(x)), k=POSITIVE), None, (0, 0, 2), 2, set()),
    "Inverse gamma": (
        observes(lambda p, x, u: dist.InverseGamma(p.a, p.b), a=POSITIVE, b=POSITIVE),
        None,
        (0, 0, 3),
        3,
        set(),
    ),
    "Log-normal": (
        observes(lambda p, x, u: dist.LogNormal(x + p.m, p.s), m=NORMAL, s=POSITIVE),
        None,
        (0, 0, 3),
        3,
        set(),
    ),
    "Weibull": (observes(lambda p, x, u: dist.Weibull(p.l * jnp.exp(x), 2.0), l=POSITIVE), None, (0, 0, 2), 2, set()),
    "Weibull with unknown shape": (
        observes(lambda p, x, u: dist.Weibull(p.l, p.k), l=POSITIVE, k=POSITIVE),
        None,
        (0, 0, 3),
        3,
        {"k"},
    ),
    "Pareto": (observes(lambda p, x, u: dist.Pareto(1.0, p.a), a=POSITIVE), None, (0, 0, 2), 2, set()),
    "Pareto with unknown bound": (
        observes(lambda p, x, u: dist.Pareto(p.b, p.a), b=POSITIVE, a=POSITIVE),
        None,
        (0, 0, 3),
        3,
        {"b"},
    ),
    "Uniform": (observes(lambda p, x, u: dist.Uniform(0.0, p.b), b=POSITIVE), None, (0, 0, 2), 2, {"b"}),
    # a, b and the norm; NumPyro has another formula for observations of exactly 0 or 1, which adds three.
    "Proportions": (observes(lambda p, x, u: dist.Beta(p.a, p.b), a=POSITIVE, b=POSITIVE), None, (0, 0, 6), 6, set()),
    "Coins": (observes(lambda p, x, u: dist.Bernoulli(p.q), q=UNIT), None, (0, 0, 2), 2, set()),
    "Coins by logits": (observes(lambda p, x, u: dist.Bernoulli(logits=p.q), q=NORMAL), None, (0, 0, 2), 2, set()),
    "Coins that see the state": (
        observes(lambda p, x, u: dist.Bernoulli(logits=p.q + x), q=NORMAL),
        None,
        (0, 0, 2),
        2,
        {"q"},
    ),
    "Ten coins": (observes(lambda p, x, u: dist.Binomial(10, p.q), q=UNIT), None, (0, 0, 2), 2, set()),
    "Choices": (
        observes(lambda p, x, u: dist.Categorical(p.q), q=dist.Dirichlet(jnp.ones(3))),
        None,
        (0, 0, 3),
        3,
        set(),
    ),
    "Zero-inflated counts": (
        observes(lambda p, x, u: dist.ZeroInflatedPoisson(p.z, jnp.exp(x)), z=UNIT),
        None,
        (0, 0, 2),
        2,
        {"z"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_structure_is_the_true_one(name):
    model, u, terms, total, awkward = CASES[name]
    found = read_model(model, u)
    assert {found.parameters.labels[i] for i in found.awkward} == awkward
    assert tuple(map(found.terms_of, LAWS)) == terms
    assert found.size == total
    assert not any(law.problem for law in found.laws.values())


def test_a_mixture_is_not_separable():
    def law(p, x, u):
        chances = dist.Categorical(jnp.stack([p.q, 1.0 - p.q]))
        return dist.MixtureSameFamily(chances, dist.Normal(x, jnp.array([0.5, 3.0])))

    found = read_model(observes(law, q=UNIT))
    assert found.awkward == (0,)
    assert disagreements(observes(law, q=UNIT), found, None)["observation"] < 30.0


def test_atoms_that_many_others_share_are_looked_at_once():
    algebra = Functions()
    one = algebra.single(algebra.atom("theta", (), 0, thetas=(0,)))
    for _ in range(60):
        one = algebra.call("atan2", [one, one])
    (atom,) = one.atoms
    assert is_smooth(atom)
    (stepped,) = algebra.call("atan2", [algebra.call("floor", [one]), one]).atoms
    assert not is_smooth(stepped)


# By the points of the test: inputs are one row, so functions of them are constants; no component is missing; no observation
# is at the edge of its support. That the cases of an index add up to 1 is not used.
FEWER_AT_THE_POINTS = {
    "Regression",
    "Growth",
    "Seasonal with unknown phase",
    "Proportions",
    "Two sensors",
    "Hidden Markov",
}


def rank(table):
    """How many terms s_k h_k a law needs besides c, by its log-densities at pairs of points."""
    singular = np.linalg.svd(table - table[:1], compute_uv=False)
    return int(np.sum(singular > 1e-10 * max(singular[0], 1e-3)))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", CASES)
def test_the_sums_are_the_log_densities_and_no_fewer_would_do(name):
    """In double precision, at 24 x 24 pairs of points; where a law is separable, K is the rank of its table."""
    model, u, terms, _, _ = CASES[name]
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf, float) if eqx.is_inexact_array(leaf) else leaf, model)
    found = read_model(model, None if u is None else jnp.asarray(u, float))
    thetas, data, own = jax.jit(lambda: tried(model, u, POINTS))()
    for law, count in zip(LAWS, terms, strict=True):
        given = {key: np.asarray(value).reshape(POINTS, -1).T[:, None] for key, value in data[law].items()}
        given |= {} if u is None else {"u": np.asarray(u, float)[:, None, None]}
        with np.errstate(all="ignore"):
            parts, c = found.terms_at(law, np.asarray(thetas).T[:, :, None], given)
        table, size = np.asarray(own[law]), 1.0 + np.abs(c) + np.abs(parts).sum(axis=0)
        usable = np.isfinite(table)
        assert usable.mean() > 0.4 or law != "observation"
        apart = np.where(usable, table, 0.0) - np.where(usable, c + parts.sum(axis=0), 0.0)
        assert np.max(np.abs(apart) / size, where=usable, initial=0.0) < 1e-12
        if not found.laws[law].awkward and usable.all() and name not in FEWER_AT_THE_POINTS:
            assert rank(table) == count


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_ten_thousand_steps_add_up_to_the_log_density_of_the_path(precision, tolerance):
    """Compensated sums of s_k, against the model's own log-densities, added in double precision by numpy."""
    with jax.enable_x64(precision == "float64"):
        model, rng, path = CASES["StochasticVolatility"][0], np.random.default_rng(1), [0.0]
        for shock in rng.normal(size=10_000):
            path.append(-0.03 + 0.97 * path[-1] + 0.2 * shock)
        before, new = jnp.asarray(path[:-1]), jnp.asarray(path[1:])
        found, params = read_model(model), parameters(model)
        theta = jnp.array([-1.1, 0.96, 0.21])

        def step(before, new):
            law = transition_law(model, params.named(theta), before, None)
            s, c = sums(found, "transition", theta, x=before, new=new)
            return s, law.log_prob(new) - c

        def run():
            s, own = jax.vmap(step)(before, new)
            return jax.lax.scan(lambda total, s: (total.add(s), None), Compensated.zero((found.size,)), s)[0], own

        total, own = jax.jit(run)()
        terms = np.asarray(total.value, float) * np.asarray(jax.jit(lambda: found.h(theta, found.terms[0]))(), float)
        exact = np.sum(np.asarray(own, float))
        assert abs(exact) > 1000.0
        assert abs(terms.sum() - exact) < tolerance * abs(exact)


def sums(found, law, theta, **data):
    """s_k and c of one step."""
    wanted = [*found.terms[1][law], found._constant(law)]
    values = found.of_data(law, theta, data, lambda at: at.vector(wanted))
    return values[:-1], values[-1]


def test_missing_components_add_nothing():
    """Two sensors: with one missing, the terms are those of the other alone; with both missing there are none."""
    model = CASES["Two sensors"][0]
    found, theta, x = read_model(model), jnp.array([0.4, -0.3, 0.8, 1.3]), jnp.asarray(0.7)

    def log_density(y):
        s, c = sums(found, "observation", theta, x=x, y=y)
        return s @ found.h(theta, found.terms[0]) + c

    y = jnp.array([0.2, 1.1])
    means, sds = np.array([0.7, 0.4 * 0.7 - 0.3]), np.array([0.8, 1.3])
    both = dist.Normal(means, sds).log_prob(y)
    np.testing.assert_allclose(log_density(y), both.sum(), rtol=1e-5)
    np.testing.assert_allclose(log_density(y.at[0].set(jnp.nan)), both[1], rtol=1e-5)
    assert log_density(jnp.full(2, jnp.nan)) == 0.0
    assert np.all(sums(found, "observation", theta, x=x, y=jnp.full(2, jnp.nan))[0] == 0.0)


def test_a_multivariate_normal_cannot_do_without_a_component():
    model = Written({"v": POSITIVE}, observation_=lambda p, x, u: dist.MultivariateNormal(x * jnp.ones(2), p.v * R))
    found, theta = read_model(model), jnp.array([0.7])
    assert np.all(sums(found, "observation", theta, x=jnp.asarray(0.0), y=jnp.full(2, jnp.nan))[0] == 0.0)
    assert np.all(np.isnan(sums(found, "observation", theta, x=jnp.asarray(0.0), y=jnp.array([1.0, jnp.nan]))[0]))


def test_a_claim_that_fails_its_check_is_withdrawn(monkeypatch):
    """A reader that takes sin(theta x) for theta x claims too much; the check at bind notices."""
    assert structure_of(zoo.Sin(sigma=POSITIVE)).laws["transition"].problem == ""
    monkeypatch.setattr(Functions, "wave", lambda self, name, one: one)
    found = unwrap(structure_of)(zoo.Sin(sigma=POSITIVE))  # what was found before is remembered
    assert found.awkward == (0, 1)
    assert "do not agree" in found.laws["transition"].problem
    # What is not taken apart is still evaluated, as the model itself does.
    theta, x, new = jnp.array([0.7, 1.2]), jnp.asarray(0.3), jnp.asarray(-0.4)
    own = dist.Normal(jnp.sin(0.7 * 0.3), 1.2).log_prob(-0.4)
    np.testing.assert_allclose(
        sums(found, "transition", theta, x=x, new=new)[0] @ found.h(theta, found.terms[0]), own, rtol=1e-5
    )


def test_a_program_that_is_too_large_is_not_separable():
    def law(p, x, u):
        return dist.Normal(p.a * jnp.sum(jnp.sin(x * jnp.arange(30_000.0))), p.s)

    found = read_model(moves(law, a=NORMAL, b=NORMAL, s=POSITIVE))
    assert found.awkward == (0, 2)
    assert "more than" in found.laws["transition"].problem
