"""The extended parameter filter against exact posteriors: by z and by the ratio of standard deviations."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import AccuracyWarning
from epf.filters._learner import Memory
from epf.statistics._follow import Guide
from models import AR, VectorAR, exact_coefficient, grid_posterior, kalman, run
from scoring import reference, rms, scores


def test_a_coefficient_has_the_exact_posterior():
    """Over seeds, against a grid of Kalman filters; the scatter over seeds is the Monte Carlo error."""
    model, seeds = epf.fix(AR(), {"v": 0.5}), 10
    _, y = epf.simulate(model, {"a": 0.8}, steps=40, seed=6)
    mean, sd, log_evidence = exact_coefficient(y)
    found = [epf.fit(model, y, epf.EPF(300), seed=seed) for seed in range(seeds)]
    z, r = (
        np.array([part(one) for one in found])
        for part in (lambda f: (f.mean["a"] - mean) / sd, lambda f: f.sd["a"] / sd)
    )
    assert z.std(ddof=1) < 0.15
    assert abs(z.mean()) < 4.0 * z.std(ddof=1) / np.sqrt(seeds) + 0.01
    assert abs(r.mean() - 1.0) < 4.0 * r.std(ddof=1) / np.sqrt(seeds) + 0.01
    evidence = np.array([one.log_evidence for one in found])
    # The logarithm of an unbiased estimate is low by half its variance.
    low = 0.5 * evidence.var(ddof=1)
    assert evidence.mean() + low == pytest.approx(log_evidence, abs=4.0 * evidence.std(ddof=1) / np.sqrt(seeds))
    assert evidence.std(ddof=1) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("data", [1, 2, 3])
@pytest.mark.parametrize(("particles", "limit"), [(1000, 0.1), (100, 0.15)])
def test_sin_on_every_data_set(particles, limit, data):
    z, r = scores(epf.EPF(particles), "sin", data, 1000, 10)
    print(f"\nSIN {data}, {particles}: rms z {rms(z).ravel()}, mean {z.mean(0).ravel()}, r {r.mean(0).ravel()}")
    assert np.all(rms(z) <= limit), rms(z)
    assert np.all(np.abs(r.mean(axis=0) - 1.0) <= 0.05), r.mean(axis=0)


@pytest.mark.slow
def test_sin_over_twenty_thousand_steps():
    z, r = scores(epf.EPF(1000), "sin", 1, 20000, 3)
    print(f"\nSIN 1, T = 20000: rms z {rms(z).ravel()}, r {r.mean(0).ravel()}")
    assert np.all(rms(z) <= 0.15), rms(z)


@pytest.mark.slow
@pytest.mark.parametrize("data", [1, 2, 3])
def test_star(data):
    z, r = scores(epf.EPF(1000), "star", data, 1000, 3)
    print(f"\nSTAR {data}: rms z {rms(z).tolist()}, mean {z.mean(0).tolist()}, r {r.mean(0).tolist()}")
    assert np.all(rms(z)[-1] <= 0.25), rms(z)
    assert np.all(np.abs(r.mean(axis=0)[-1] - 1.0) <= 0.1), r.mean(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "particles"), [(1, 100), (2, 100), (3, 10_000)])
def test_cauchy_is_finite_and_shown(data, particles):
    """Its paths degenerate, which no polynomial mends: figures, not gates. But never NaN."""
    z, r = scores(epf.EPF(particles), "cauchy", data, 1000, 2)
    print(f"\nCauchy {data}, {particles}: z {z[:, :, 0].tolist()}, r {r[:, :, 0].tolist()}")
    assert np.isfinite(z).all()
    assert np.isfinite(r).all()


@pytest.mark.slow
def test_a_linear_model_is_learned_as_by_storvik():
    """The same Gibbs densities, so the same law of draws and of posteriors: means and sds agree over seeds."""
    model = epf.fix(AR(), {"v": 0.5})
    _, y = epf.simulate(model, {"a": 0.8}, steps=50, seed=6)
    seeds = 100

    def last(method):
        moments = jax.jit(jax.vmap(lambda seed: run(method, model, seed, y)[1][1]))(jnp.arange(seeds))
        return [np.asarray(part, float)[:, -1, 0] for part in moments]

    polynomial = epf.EPF(100, refresh=1, islands=1, approximation=epf.Chebyshev())
    for ours, storvik in zip(last(polynomial), last(epf.Storvik(100, islands=1)), strict=True):
        error = np.sqrt((ours.var() + storvik.var()) / seeds)
        assert abs(ours.mean() - storvik.mean()) < 4.0 * error
        assert ours.std() / storvik.std() == pytest.approx(1.0, abs=4.0 / np.sqrt(seeds))


class UnknownScale(AR):
    """The same AR with its noise scale unknown, under a prior that is not conjugate."""

    def prior(self):
        return {"a": dist.Normal(0.0, 1.0), "s": dist.LogNormal(-0.5, 0.5)}

    def transition(self, p, x, u):
        return dist.Normal(p.a * x, p.s)


class UnknownSensor(AR):
    """A gain and a noise scale of the sensor."""

    def prior(self):
        return {"gain": dist.Normal(1.0, 0.3), "s": dist.LogNormal(-0.7, 0.4)}

    def transition(self, p, x, u):
        return dist.Normal(0.8 * x, 0.7)

    def observation(self, p, x, u):
        return dist.Normal(p.gain * x, p.s)


CASES = {
    "noise scale": (UnknownScale(), {"a": 0.8, "s": 0.7}, lambda a, s: (a, s**2, 1.0, 0.25)),
    "sensor": (UnknownSensor(), {"gain": 1.2, "s": 0.4}, lambda gain, s: (0.8, 0.49, gain, s**2)),
}


@pytest.mark.parametrize(
    ("method", "exact"),
    [(epf.EPF(8), True), (epf.EPF(8, approximation=epf.Chebyshev(5)), False), (epf.EPF(8, discount=0.99), False)],
    ids=["default", "an approximation", "a discount"],
)
def test_a_separable_model_needs_no_polynomial(method, exact):
    """The paper's theorem 1: the EPF keeps Storvik's sums, unless an expansion or forgetting was asked for."""
    settings = method.bind(UnknownScale()).describe()
    assert ("statistic" in settings) == exact
    assert ("approximation" in settings) == (not exact)
    assert "approximation" in epf.EPF(8).bind(epf.zoo.Sin()).describe()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_unknown_scales_and_sensors(case):
    """Two parameters, one of them a scale, against a grid of Kalman filters."""
    model, truth, system = CASES[case]
    _, y = epf.simulate(model, truth, steps=60, seed=4)
    low, high = (0.0, 1.4) if "a" in truth else (0.3, 2.2), (np.log(0.1), np.log(2.5))
    first, log_s = np.linspace(*low, 41), np.linspace(*high, 41)
    log_likelihood = np.array([[kalman(*system(a, np.exp(b)), 0.0, 1.0, y)[2] for b in log_s] for a in first])
    prior = list(model.prior().values())
    log_prior = np.asarray(prior[0].log_prob(first))[:, None] + np.asarray(prior[1].log_prob(np.exp(log_s)) + log_s)
    weights, _ = grid_posterior(log_likelihood + log_prior)
    grids = np.broadcast_to(first[:, None], weights.shape), np.broadcast_to(np.exp(log_s), weights.shape)
    mean = np.array([np.sum(weights * grid) for grid in grids])
    sd = np.sqrt([np.sum(weights * (grid - m) ** 2) for grid, m in zip(grids, mean, strict=True)])
    seeds = 4
    results = [epf.fit(model, y, epf.EPF(3000), seed=seed, progress=False).posterior.moments() for seed in range(seeds)]
    z = np.array([(np.asarray(m) - mean) / sd for m, _ in results])
    r = np.array([np.asarray(s) / sd for _, s in results])
    print(f"\n{case}: z {z.tolist()}, r {r.tolist()}")
    assert np.all(rms(z) <= 0.25), z
    assert np.all(np.abs(r.mean(axis=0) - 1.0) <= 0.12), r


class Four(epf.StateSpaceModel):
    """Two parameters that enter linearly, two that do not; the state is seen almost without noise."""

    def prior(self):
        return {
            "a": dist.Normal(0.5, 0.5),
            "b": dist.Normal(0.0, 0.5),
            "w": dist.Normal(1.0, 0.3),
            "k": dist.Normal(0.5, 0.3),
        }

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x + p.b + jnp.sin(p.w * x) * 0.8 + jnp.tanh(p.k * x), 0.7)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.02)


@pytest.mark.slow
def test_four_parameters_of_which_two_are_not_linear():
    """With the state seen, p(theta | y) is p(theta | x): four-dimensional importance sampling is the reference."""
    model, truth = Four(), {"a": 0.4, "b": 0.3, "w": 1.2, "k": 0.6}
    _, y = epf.simulate(model, truth, steps=300, seed=5)
    x = np.asarray(y, float)
    rng = np.random.default_rng(1)
    prior_mean, prior_sd = np.array([0.5, 0.0, 1.0, 0.5]), np.array([0.5, 0.5, 0.3, 0.3])

    def log_posterior(theta):
        a, b, w, k = theta.T[:, :, None]
        drift = a * x[:-1] + b + 0.8 * np.sin(w * x[:-1]) + np.tanh(k * x[:-1])
        return -0.5 * np.sum(((x[1:] - drift) / 0.7) ** 2, axis=1) - 0.5 * np.sum(
            ((theta - prior_mean) / prior_sd) ** 2, 1
        )

    centre, spread = prior_mean, np.diag(prior_sd**2)
    for _ in range(12):  # adapt a Student-t proposal, then weigh
        root = np.linalg.cholesky(spread)
        t = rng.standard_normal((20000, 4)) * np.sqrt(6.0 / rng.chisquare(6.0, (20000, 1)))
        theta = centre + t @ root.T
        log_q = -5.0 * np.log1p(np.sum(t**2, axis=1) / 6.0)
        log_w = log_posterior(theta) - log_q
        tempered = np.exp(np.minimum(0.0, (log_w - log_w.max()) * min(1.0, 20.0 / log_w.std())))
        share = tempered / tempered.sum()
        centre = share @ theta
        spread = (theta - centre).T @ (share[:, None] * (theta - centre)) * 1.2 + 1e-8 * np.eye(4)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    assert 1.0 / np.sum(w**2) > 4000.0
    mean = w @ theta
    sd = np.sqrt(w @ (theta - mean) ** 2)
    results = [epf.fit(model, y, epf.EPF(1000), seed=seed, progress=False).posterior.moments() for seed in range(3)]
    z = np.array([(np.asarray(m) - mean) / sd for m, _ in results])
    r = np.array([np.asarray(s) / sd for _, s in results])
    print(f"\nfour: z {z.tolist()}, r {r.tolist()}")
    assert np.all(rms(z) <= 0.25), z
    assert np.all(np.abs(r.mean(axis=0) - 1.0) <= 0.1), r


@pytest.mark.slow
def test_the_posterior_is_one_density():
    """Moments, quantiles, density and draws of the mixture are those of one and the same law."""
    model, y = epf.zoo.Sin(), reference("sin", 1, 100)[1]
    result = epf.fit(model, y, epf.EPF(300), progress=False)
    mean, sd = result.mean["theta"], result.sd["theta"]
    grid = np.linspace(mean - 7 * sd, mean + 7 * sd, 801)
    density = result.density("theta", grid)
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1.0, abs=2e-3)
    assert (density * grid).sum() * step == pytest.approx(mean, abs=2e-3 * sd)
    assert np.sqrt((density * (grid - mean) ** 2).sum() * step) == pytest.approx(sd, rel=5e-3)
    for level in (0.05, 0.5, 0.95):
        below = grid <= result.quantile(level)["theta"]
        assert density[below].sum() * step == pytest.approx(level, abs=0.01)
    draws = result.sample(20000)["theta"]
    assert draws.mean() == pytest.approx(mean, abs=4.0 * sd / np.sqrt(300))
    assert result.history.residual.max() < 0.05
    assert result.settings["approximation"].startswith("Chebyshev; transition: drift, order 7; 15 coefficients")


@pytest.mark.slow
def test_a_series_that_does_not_converge_is_warned_of():
    model, y = epf.zoo.CauchyAR(), reference("cauchy", 1, 50)[1]
    with pytest.warns(AccuracyWarning, match="expansion: .*higher order"):
        result = epf.fit(model, y, epf.EPF(100, approximation=epf.Taylor(10, of="noise")), progress=False)
    assert np.isfinite(result.mean["a"])


@pytest.mark.slow
def test_inputs_and_a_vector_state():
    """Three parameters, found in different laws, with inputs; the first step's inputs tell what is expanded."""
    model, inputs = VectorAR(), np.sin(np.arange(60, dtype=np.float32))[:, None]
    _, y = epf.simulate(model, {"a": [0.9, 0.5], "gain": 0.7}, steps=60, seed=1, inputs=inputs)
    ours = epf.fit(model, y, epf.EPF(400), inputs=inputs, progress=False)
    storvik = epf.fit(model, y, epf.Storvik(2000), inputs=inputs, progress=False)
    z = (np.asarray(ours.posterior.moments()[0]) - np.asarray(storvik.posterior.moments()[0])) / np.asarray(
        storvik.posterior.moments()[1]
    )
    assert np.all(np.abs(z) < 0.5), z


@pytest.mark.parametrize(
    ("t", "alike", "resampled", "due"),
    [(5, False, False, True), (45, True, True, False), (50, False, False, False), (50, True, False, True),
     (50, False, True, True), (60, False, False, True)],
)  # fmt: skip
def test_theta_is_drawn_half_as_often_while_no_two_particles_have_the_same(t, alike, resampled, due):
    bound = epf.EPF(8, refresh=10).bind_island(epf.zoo.Sin(), None)
    common = Memory(jnp.asarray(t), Guide.start(), jnp.asarray(alike))
    assert bool(bound.is_due(common, jnp.asarray(resampled))) == due


@pytest.mark.parametrize(
    ("method", "alike"),
    [(epf.EPF(8, refresh=10), False), (epf.ParticleLearning(8, refresh=10), True)],
    ids=["resamples, then draws", "draws, then resamples"],
)
def test_particles_are_alike_if_they_were_resampled_after_theta_was_drawn(method, alike):
    """At t = 60, when theta is drawn whatever happened before."""
    bound, common = method.bind_island(epf.zoo.Sin(), None), Memory(jnp.asarray(60), Guide.start(), jnp.asarray(True))
    assert bool(bound.alike_after(common, jnp.asarray(True))) == alike
    assert not bool(bound.alike_after(common, jnp.asarray(False)))
