"""Posteriors with images under symmetries, against sums over a fine grid."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf

YS = np.array([0.9, 1.6, 0.4, 1.9, 2.2, 1.2, -0.3, 0.8, 1.5, 2.6, 1.1, 0.2])


class Loading(epf.StateSpaceModel):
    """The sign of the loading comes from its prior alone."""

    prior_mean: float = 0.4

    def prior(self):
        return {"loading": dist.Normal(self.prior_mean, 1.0)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(0.9 * x, 0.5)

    def observation(self, p, x, u):
        return dist.Normal(p.loading * x, 0.3)


class Labels(epf.StateSpaceModel):
    """Two regimes whose labels come from the priors alone."""

    def prior(self):
        return {"low": dist.Normal(0.0, 2.0), "high": dist.Normal(0.5, 1.0)}

    def initial(self, p):
        return dist.Bernoulli(0.5)

    def transition(self, p, x, u):
        return dist.Bernoulli(jnp.where(x > 0.5, 0.8, 0.2))

    def observation(self, p, x, u):
        return dist.Normal(jnp.where(x > 0.5, p.high, p.low), 0.4)


def by_grid(model, axes, recursion):
    """Evidence, means and sds of theta and of the last state, summed over a grid of parameters."""
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    names = list(model.prior())
    log_prior = sum(np.asarray(prior.log_prob(grid[:, i])) for i, prior in enumerate(model.prior().values()))
    likelihood, state, variance = recursion(dict(zip(names, grid.T, strict=True)))
    log_joint = log_prior + likelihood
    weights = np.exp(log_joint - log_joint.max())
    evidence = np.log(weights.sum() * cell) + log_joint.max()
    weights /= weights.sum()
    mean = weights @ grid
    x = weights @ state
    return (
        evidence,
        mean,
        np.sqrt(weights @ (grid - mean) ** 2),
        x,
        np.sqrt(weights @ (variance + (state - x) ** 2)),
    )


def kalman(theta):
    a = theta["loading"]
    m, v, total = np.zeros_like(a), np.ones_like(a), np.zeros_like(a)
    for y in YS:
        m, v = 0.9 * m, 0.81 * v + 0.25
        s = a * a * v + 0.09
        total += -0.5 * (np.log(2 * np.pi * s) + (y - a * m) ** 2 / s)
        m, v = m + v * a / s * (y - a * m), v - (v * a) ** 2 / s
    return total, m, v


def forward(theta):
    one, total = np.full_like(theta["low"], 0.5), np.zeros_like(theta["low"])
    for y in YS:
        one = 0.8 * one + 0.2 * (1.0 - one)
        densities = [np.exp(-0.5 * ((y - theta[k]) / 0.4) ** 2) / (0.4 * np.sqrt(2 * np.pi)) for k in ("low", "high")]
        p = (1.0 - one) * densities[0] + one * densities[1]
        one, total = one * densities[1] / p, total + np.log(p)
    return total, one, one * (1.0 - one)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "axes", "recursion"),
    [(Loading(), [np.linspace(-6, 6, 2001)], kalman), (Labels(), [np.linspace(-4, 5, 301)] * 2, forward)],
    ids=["signs", "labels"],
)
def test_modes_that_priors_alone_weigh(model, axes, recursion):
    evidence, mean, sd, x, x_sd = by_grid(model, axes, recursion)
    result = epf.fit(model, YS, epf.MarginalEPF(nodes=512), progress=False)
    found_mean, found_sd = (np.array(list(part.values())) for part in (result.mean, result.sd))
    assert result.error.worst < 0.15
    np.testing.assert_allclose((found_mean - mean) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(found_sd / sd, 1.0, atol=0.1)
    assert (
        abs(result.log_evidence - evidence) < 0.15
    )  # of the nodes' own weights; one mode alone would lack 0.3 or more
    assert abs(result.posterior.state_mean - x) < 0.1 * x_sd
    assert abs(result.posterior.state_sd / x_sd - 1.0) < 0.1


@pytest.mark.slow
def test_draws_of_the_state_go_with_their_image():
    """Loading times state is what is seen, whatever the signs."""
    result = epf.fit(Loading(), YS, epf.MarginalEPF(), progress=False)
    theta, x = result.posterior.pairs(jax.random.key(0), 4000)
    _, mean, sd, _, _ = by_grid(Loading(), [np.linspace(-6, 6, 2001)], kalman)
    size = np.hypot(mean[0], sd[0])  # the modes are at about +-size
    assert abs(np.mean(np.asarray(theta) < 0.0) - 0.5 * (1.0 - mean[0] / size)) < 0.05
    together = np.asarray(theta)[:, 0] * np.asarray(x)
    assert abs(together.mean() - YS[-1]) < 0.3
    assert together.std() < 0.4


@pytest.mark.slow
def test_a_density_has_both_modes():
    result = epf.fit(Loading(), YS, epf.MarginalEPF(), progress=False)
    at = np.linspace(-6.0, 6.0, 2001)
    density = result.posterior.density("loading", at)
    _, mean, sd, _, _ = by_grid(Loading(), [at], kalman)
    cell = at[1] - at[0]
    assert abs(density.sum() * cell - 1.0) < 0.01
    assert abs((density * at).sum() * cell - mean[0]) < 0.05 * sd[0]
    peaks = at[1:-1][(density[1:-1] > density[:-2]) & (density[1:-1] > density[2:]) & (density[1:-1] > 0.02)]
    assert len(peaks) == 2
    assert peaks[0] < 0.0 < peaks[1]
