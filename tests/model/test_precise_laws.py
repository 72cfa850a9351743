"""Log-densities that keep their digits where NumPyro's lose them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import gammaln

import epf
from epf.model._laws import log_prob
from epf.model._precise_laws import precise

SIZES = 1e-3, 0.1, 1.0, 3.9, 4.1, 30.0, 1e3, 1e5, 1e7


def single(value):
    """The number that single precision has for this one, in double precision."""
    return np.float64(np.float32(value))


def poisson():
    for m in SIZES:
        for away in (0.0, -3.0, 3.0):
            k = max(0.0, np.round(m + away * np.sqrt(m)))
            yield dist.Poisson(m), k, stats.poisson.logpmf(k, single(m))


def negative_binomial():
    for a in SIZES:
        for m in SIZES:
            rate, a_ = single(np.float32(a) / np.float32(m)), single(a)
            for away in (0.0, -1.0, 2.0):
                k = max(0.0, np.round(m + away * np.sqrt(m + m * m / a)))
                log_choose = gammaln(a_ + k) - gammaln(a_) - gammaln(k + 1.0)
                yield dist.NegativeBinomial2(m, a), k, log_choose - a_ * np.log1p(1.0 / rate) - k * np.log1p(rate)


def binomial():
    for n in (0, 1, 5, 1000, 10**6):
        for p in (0.01, 0.5, 0.99):
            for k in {0, n, int(n * p), min(n, int(n * p + 2.0 * np.sqrt(n * p)) + 1)}:
                logits = np.float32(np.log(p / (1.0 - p)))
                yield dist.Binomial(n, p), float(k), stats.binom.logpmf(k, n, single(p))
                yield (
                    dist.Binomial(n, logits=logits),
                    float(k),
                    stats.binom.logpmf(k, n, 1.0 / (1.0 + np.exp(-single(logits)))),
                )


def beta_binomial():
    for a in SIZES[1:]:
        for b in SIZES[1:]:
            for n in (0, 3, 100, 10**5):
                k = float(round(n * a / (a + b)))
                yield dist.BetaBinomial(a, b, n), k, stats.betabinom.logpmf(k, n, single(a), single(b))


def gamma():
    for a in SIZES:
        for share in (0.1, 0.5, 0.9):
            x = np.float32(max(stats.gamma.ppf(share, a) / 2.5, 1e-30))
            yield dist.Gamma(a, 2.5), x, stats.gamma.logpdf(np.float64(x), single(a), scale=1.0 / 2.5)


def beta():
    for a in SIZES:
        for b in SIZES:
            for share in (0.1, 0.5, 0.9):
                x = np.float32(np.clip(stats.beta.ppf(share, a, b), 1e-30, 1.0 - 1e-7))
                yield dist.Beta(a, b), x, stats.beta.logpdf(np.float64(x), single(a), single(b))


def student():
    for df in SIZES:
        for t in (0.0, 1.0, 5.0, 40.0):
            yield dist.StudentT(df, 0.5, 2.0), 0.5 + 2.0 * t, stats.t.logpdf(t, single(df)) - np.log(2.0)


# Of NumPyro's own some are off by 1 to 36 nats. What is left is what single precision makes of a value and its slope.
@pytest.mark.parametrize("cases", [poisson, negative_binomial, binomial, beta_binomial, gamma, beta, student])
def test_log_densities_keep_their_digits(cases):
    laws, values, expected = zip(*cases(), strict=True)
    found = [float(log_prob(law, jnp.asarray(value))) for law, value in zip(laws, values, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-3)
    own = [float(law.log_prob(jnp.asarray(value))) for law, value in zip(laws, values, strict=True)]
    assert np.max(np.abs(np.array(own) - expected)) > 1.0


def test_vectors_of_shares_and_of_counts():
    a, x = jnp.array([1.0, 2.0, 1e5]), jnp.array([1e-5, 2e-5, 1.0 - 3e-5])
    expected = stats.dirichlet.logpdf([1e-5, 2e-5, 1.0 - 3e-5], np.asarray(a, float))
    assert log_prob(dist.Dirichlet(a), x) == pytest.approx(expected, abs=5e-3)  # 1e5 times the rounding of x
    k, p = np.array([400_000.0, 0.0, 600_000.0]), np.array([0.4, 1e-7, 0.6 - 1e-7])
    expected = stats.multinomial.logpmf(k, 10**6, p)
    for law in (dist.Multinomial(10**6, jnp.asarray(p)), dist.Multinomial(10**6, logits=jnp.log(p))):
        assert log_prob(law, jnp.asarray(k)) == pytest.approx(expected, abs=0.02)
    k, a = np.array([3.0, 0.0, 10.0]), np.array([0.2, 1.0, 0.7])
    expected = stats.dirichlet_multinomial.logpmf(k.astype(int), a, 13)
    assert log_prob(dist.DirichletMultinomial(jnp.asarray(a), 13), jnp.asarray(k)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("law", "value"),
    [
        (dist.ZeroInflatedDistribution(dist.NegativeBinomial2(3.0, 5.0), gate=0.2), 0.0),
        (dist.ZeroInflatedDistribution(dist.NegativeBinomial2(3.0, 5.0), gate=0.2), 4.0),
        (dist.InverseGamma(3.0, 2.0), 0.7),
        (dist.StudentT(3.0, jnp.zeros(2), 1.0).to_event(1), jnp.ones(2)),
        (dist.Poisson(jnp.array([0.0, 2.0])).to_event(1), jnp.array([0.0, 3.0])),
        (dist.Poisson(2.0).expand([3]).to_event(1), jnp.arange(3.0)),
        (dist.Chi2(3.0), 2.0),
        (dist.BetaProportion(0.3, 8.0), 0.4),
        (dist.Mixture(dist.Categorical(jnp.array([0.3, 0.7])), [dist.Gamma(2.0, 1.0), dist.Exponential(1.0)]), 0.7),
        (dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), dist.Gamma(jnp.array([2.0, 50.0]), 1.0)), 0.7),
        (dist.LeftTruncatedDistribution(dist.StudentT(4.0, 0.0, 1.0), low=0.5), 1.0),
        (epf.Sensors(dist.Poisson(2.0), dist.Normal(0.0, 1.0)), jnp.array([3.0, 0.5])),
        (dist.Beta(1.0, 1.0), 0.0),
        (dist.Beta(1.0, 3.0), 0.0),
        (dist.Beta(2.0, 1.0), 1.0),
        (dist.Beta(2.0, 2.0), 0.0),
        (dist.Beta(0.5, 1.0), 0.0),
    ],
)
def test_laws_made_of_such_laws_and_ends_of_a_range(law, value):
    """Where digits are not in question, the density is NumPyro's own."""
    value = jnp.asarray(value)
    taken = value.astype(int) if law.support.is_discrete else value
    found = log_prob(law, value)
    own = jnp.sum(jnp.stack([one.log_prob(v) for one, v in law.each(value)])) if isinstance(law, epf.Sensors) else None
    assert found == pytest.approx(float(law.log_prob(taken) if own is None else own), abs=1e-5)


def test_the_law_itself_stays_as_it_is():
    inside = dist.Gamma(2.0, 1.0)
    law = dist.InverseGamma(3.0, 2.0).to_event(0)
    before = law.base_dist
    assert precise(law) is not law
    assert law.base_dist is before
    assert "log_prob" not in vars(inside)
    assert precise(dist.Normal(0.0, 1.0)).log_prob(0.0) == dist.Normal(0.0, 1.0).log_prob(0.0)


class OwnGamma(dist.Gamma):
    def log_prob(self, value):
        return super().log_prob(value) - 1.0


def test_a_law_with_a_density_of_its_own_keeps_it():
    assert log_prob(OwnGamma(2.0, 1.0), jnp.asarray(0.7)) == pytest.approx(
        float(dist.Gamma(2.0, 1.0).log_prob(0.7)) - 1.0, abs=1e-6
    )


@pytest.mark.parametrize("law", [lambda a: dist.Gamma(a, 1.0), lambda a: dist.Beta(a, 2.0)])
def test_a_concentration_of_zero_is_impossible_and_no_lack_of_a_number(law):
    """A shape that is a rate times hours, when no hour has passed. (In a program NumPyro does not refuse it.)"""
    assert jax.jit(lambda a: log_prob(law(a), jnp.asarray(0.3)))(0.0) == -np.inf


def test_slopes_where_a_rate_has_underflown():
    """No event, where none was possible."""
    slope = jax.grad(lambda rate: log_prob(dist.Poisson(rate), jnp.asarray(0.0)))
    assert float(slope(jnp.asarray(0.0))) == -1.0
    assert float(jax.grad(lambda x: log_prob(dist.Poisson(jnp.exp(x)), jnp.asarray(0.0)))(-200.0)) == 0.0


@pytest.mark.parametrize("k", [0.0, 7.0])
def test_slopes_are_numbers(k):
    """Laplace proposals and expansions need them."""

    def of(z):
        rate, size = jnp.exp(z[0]), jnp.exp(z[1])
        share = jax.nn.sigmoid(z[0])
        laws = (
            dist.Poisson(rate),
            dist.NegativeBinomial2(rate, size),
            dist.BetaBinomial(size, rate, 10),
            dist.Binomial(10, share),
        )
        return sum(log_prob(law, jnp.asarray(k)) for law in laws)

    at = jnp.array([0.3, -0.4])
    step = 1e-2
    slope = [(of(at + step * e) - of(at - step * e)) / (2.0 * step) for e in jnp.eye(2)]
    np.testing.assert_allclose(jax.grad(of)(at), slope, rtol=5e-3, atol=2e-3)
    assert np.all(np.isfinite(jax.hessian(of)(at)))
