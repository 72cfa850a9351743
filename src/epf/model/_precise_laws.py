"""NumPyro's laws with log-densities that keep their digits.

NumPyro's own are sums of Gamma functions. In single precision they lose digits where a concentration or a count is large: a
negative binomial law with a concentration of 1e8 has probabilities far above one, and nodes would go there.
"""

import copy
from collections.abc import Callable
from functools import partial
from math import log, pi
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import xlogy
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.numerics._stirling import crest, crest_of_count, deviance, half_step

_HALF_LOG_2_PI = 0.5 * log(2.0 * pi)


def precise(law: Distribution) -> Distribution:
    """The same law, or one that is made of such, with a log-density that keeps its digits."""
    inner = {name: found for name, value in vars(law).items() if (found := _inside(value)) is not value}
    density = _DENSITIES.get(type(law).log_prob)
    if not inner and density is None:
        return law
    found = copy.copy(law)
    vars(found).update(inner)
    if density is not None:
        vars(found)["log_prob"] = partial(_of_floats, density, law)
    return found


def _inside(value: Any) -> Any:
    """A law, or laws, among what a law is made of."""
    if isinstance(value, Distribution):
        return precise(value)
    if isinstance(value, list | tuple) and any(isinstance(one, Distribution) for one in value):
        found = [_inside(one) for one in value]
        same = all(one is other for one, other in zip(found, value, strict=True))
        return value if same else type(value)(found)
    return value


def _of_floats(density: Callable[[Any, Array], Array], law: Any, value: Any, intermediates: Any = None) -> Array:
    return density(law, _float(value))


def _float(value: Any) -> Array:
    """Whatever a law was given, as an array of floats."""
    return jnp.asarray(value, float)


def _poisson(law: Any, k: Array) -> Float[Array, "*batch"]:
    return crest_of_count(k) - deviance(k, _float(law.rate))


def _negative_binomial(law: Any, k: Array) -> Float[Array, "*batch"]:
    a, rate = _float(law.concentration), _float(law.rate)
    both = a + k
    apart = deviance(a, both / (1.0 + 1.0 / rate)) + deviance(k, both / (1.0 + rate))
    return crest(a) + crest_of_count(k) - crest(both) - apart


def _binomial_of_probs(law: Any, k: Array) -> Float[Array, "*batch"]:
    yes = _float(law.probs)
    return _binomial(_float(law.total_count), yes, 1.0 - yes, k)


def _binomial_of_logits(law: Any, k: Array) -> Float[Array, "*batch"]:
    logits = _float(law.logits)
    return _binomial(_float(law.total_count), jax.nn.sigmoid(logits), jax.nn.sigmoid(-logits), k)


def _binomial(n: Array, yes: Array, no: Array, k: Array) -> Float[Array, "*batch"]:
    apart = deviance(k, n * yes) + deviance(n - k, n * no)
    return crest_of_count(k) + crest_of_count(n - k) - crest_of_count(n) - apart


def _multinomial(law: Any, k: Array) -> Float[Array, "*batch"]:
    n = _float(law.total_count)
    return jnp.sum(crest_of_count(k) - deviance(k, n[..., None] * _float(law.probs)), axis=-1) - crest_of_count(n)


def _dirichlet_multinomial(law: Any, k: Array) -> Float[Array, "*batch"]:
    a, n = _float(law.concentration), _float(law.total_count)
    total = jnp.sum(a, axis=-1)
    each = _cell(a, k, total[..., None], n[..., None])
    return jnp.sum(each, axis=-1) + crest(n + total) - crest(total) - crest_of_count(n)


def _beta_binomial(law: Any, k: Array) -> Float[Array, "*batch"]:
    a, b, n = _float(law.concentration1), _float(law.concentration0), _float(law.total_count)
    total = a + b
    both = _cell(a, k, total, n) + _cell(b, n - k, total, n)
    return both + crest(n + total) - crest(total) - crest_of_count(n)


def _cell(a: Array, k: Array, total: Array, n: Array) -> Array:
    """What k of n counts add, whose share has the concentration a of a total: both deviate from what they are together."""
    share = (a + k) / (n + total)
    return crest(a) + crest_of_count(k) - crest(a + k) - deviance(k, n * share) - deviance(a, total * share)


def _gamma(law: Any, x: Array) -> Float[Array, "*batch"]:
    a = _float(law.concentration)
    return crest(a) - deviance(a, law.rate * x) - jnp.log(x)


def _beta(law: Any, x: Array) -> Float[Array, "*batch"]:
    a, b = _float(law.concentration1), _float(law.concentration0)
    total = a + b
    return _side(a, total, x) + _side(b, total, 1.0 - x) - crest(total)


def _dirichlet(law: Any, x: Array) -> Float[Array, "*batch"]:
    a = _float(law.concentration)
    total = jnp.sum(a, axis=-1)
    return jnp.sum(_side(a, total[..., None], x), axis=-1) - crest(total)


def _side(a: Float[Array, "*#any"], total: Float[Array, "*#any"], x: Float[Array, "*#any"]) -> Float[Array, "..."]:
    """What one share adds, also where it is zero."""
    inside = x > 0.0
    some = jnp.where(inside, x, 1.0)
    at_end = xlogy(a - 1.0, x) + a * jnp.log(total / a) + a
    return crest(a) + jnp.where(inside, -deviance(a, total * some) - jnp.log(some), at_end)


def _student(law: Any, x: Array) -> Float[Array, "*batch"]:
    df = _float(law.df)
    square = jnp.square((x - law.loc) / law.scale)
    constant = half_step(0.5 * df) - _HALF_LOG_2_PI - jnp.log(law.scale)
    return constant - 0.5 * (df + 1.0) * jnp.log1p(square / df)


# By the way in which a law has its density: one with a density of its own keeps that.
_DENSITIES: dict[Any, Callable[[Any, Array], Array]] = {
    dist.Poisson.log_prob: _poisson,
    dist.GammaPoisson.log_prob: _negative_binomial,
    dist.BinomialProbs.log_prob: _binomial_of_probs,
    dist.BinomialLogits.log_prob: _binomial_of_logits,
    dist.MultinomialProbs.log_prob: _multinomial,
    dist.MultinomialLogits.log_prob: _multinomial,
    dist.DirichletMultinomial.log_prob: _dirichlet_multinomial,
    dist.BetaBinomial.log_prob: _beta_binomial,
    dist.Gamma.log_prob: _gamma,
    dist.Beta.log_prob: _beta,
    dist.Dirichlet.log_prob: _dirichlet,
    dist.StudentT.log_prob: _student,
}
