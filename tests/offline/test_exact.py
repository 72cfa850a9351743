"""Particle MCMC and SMC^2 against exact posteriors: Kalman filters on a grid, point masses, and the prior itself."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import epf
from epf.model._laws import draw
from epf.model._model import advance, initial_law, observation_law, parameters, transition_law
from epf.model._shapes import shapes_of
from epf.numerics._keys import particle_keys, root_key, step_key
from epf.offline._base import Series
from epf.offline._particle_gibbs import Moments, Paths
from epf.offline._path import Path, Window
from epf.offline._point_mass import PointMass, run
from epf.smc.proposals._base import Bootstrap
from models import AR, grid_posterior, kalman


def linear_gaussian():
    """x = a x + N(0, 0.5), y = x + N(0, 0.25), T = 100: the exact posterior of a, and the log-evidence."""
    model = epf.fix(AR(), {"v": 0.5})
    _, y = epf.simulate(model, {"a": 0.8}, steps=100, seed=1)
    y[20:23] = np.nan
    grid = np.linspace(-0.2, 1.6, 721)
    told = np.array([kalman(a, 0.5, 1.0, 0.25, 0.0, 1.0, y)[2] for a in grid])
    weights, _ = grid_posterior(told + dist.Normal(0.0, 1.0).log_prob(grid))
    mean = float(weights @ grid)
    log_evidence = np.log(
        np.trapezoid(np.exp(told - told.max() + np.asarray(dist.Normal(0.0, 1.0).log_prob(grid))), grid)
    )
    return model, y, "a", mean, float(np.sqrt(weights @ (grid - mean) ** 2)), float(log_evidence + told.max())


def sine():
    """SIN at T = 200: the exact posterior of theta by quadrature."""
    model = epf.zoo.Sin()
    _, y = epf.simulate(model, {"theta": 0.7}, steps=200, seed=1)
    grid = {"theta": np.linspace(-0.1, 0.95, 121)}
    posterior, info = run(PointMass(65, grid), model, jnp.asarray(y), None)
    return (
        model,
        y,
        "theta",
        posterior.mean["theta"],
        posterior.sd["theta"],
        float(np.sum(np.asarray(info.log_evidence))),
    )


@pytest.fixture(scope="module", params=[linear_gaussian, sine], ids=["linear-gaussian", "sin"])
def problem(request):
    return request.param()


@pytest.mark.slow
def test_pmmh_has_the_exact_posterior(problem):
    model, y, name, mean, sd, _ = problem
    result = epf.fit(model, y, epf.PMMH(3000, chains=4, warmup=500))
    z, r = (result.mean[name] - mean) / sd, result.sd[name] / sd
    ess = float(result.ess[name])
    print(f"PMMH {name}: z {z:.3f}, r {r:.3f}, ess {ess:.0f}, R-hat {float(result.rhat[name]):.4f}, "
          f"accepted {result.acceptance.mean():.2f}, {result.settings['particles']}")  # fmt: skip
    assert ess > 900.0  # so that 0.1 is three standard errors of the mean
    assert float(result.rhat[name]) < 1.01
    assert abs(z) <= 0.1
    assert abs(r - 1.0) <= 4.0 / np.sqrt(2.0 * ess)


@pytest.mark.slow
def test_particle_gibbs_has_the_exact_posterior(problem):
    model, y, name, mean, sd, _ = problem
    result = epf.fit(model, y, epf.ParticleGibbs(1000, chains=4, warmup=100, particles=40))
    z, r = (result.mean[name] - mean) / sd, result.sd[name] / sd
    ess = float(result.ess[name])
    print(f"ParticleGibbs {name}: z {z:.3f}, r {r:.3f}, ess {ess:.0f}, R-hat {float(result.rhat[name]):.4f}")
    assert ess > 900.0
    assert abs(z) <= 4.0 / np.sqrt(ess)
    assert abs(r - 1.0) <= 4.0 / np.sqrt(2.0 * ess)


@pytest.mark.slow
def test_smc2_has_the_exact_posterior_and_evidence(problem):
    model, y, name, mean, sd, log_evidence = problem
    result = epf.fit(model, y, epf.SMC2(1000, particles=50))
    z, r = (result.mean[name] - mean) / sd, result.sd[name] / sd
    print(f"SMC2 {name}: z {z:.3f}, r {r:.3f}, log-evidence off by {result.log_evidence - log_evidence:.3f}, "
          f"{result.settings['particles']}")  # fmt: skip
    # At least half of the thetas are effective; resampled ones that did not move are worth less, hence the factor of 2.
    error = np.sqrt(2.0 / (0.5 * 1000))
    assert abs(z) <= 4.0 * error
    assert abs(r - 1.0) <= 4.0 * error / np.sqrt(2.0)
    assert abs(result.log_evidence - log_evidence) < 0.5


@pytest.mark.slow
def test_particle_gibbs_smooths_as_kalman_does():
    """Means of the states given the whole series, against the joint Gaussian of all states."""
    _, y, _, a, _, _ = linear_gaussian()
    steps, here = 30, slice(0, 30)
    # The joint Gaussian of x_0 .. x_T for one value of a, conditioned on y; a is held nearly still for it.
    powers = np.array([[a ** (i - j) if i >= j else 0.0 for j in range(steps + 1)] for i in range(steps + 1)])
    covariance = powers @ np.diag([1.0] + [0.5] * steps) @ powers.T
    seen = ~np.isnan(y[here])
    H = np.eye(steps + 1)[1:][seen]
    gain = covariance @ H.T @ np.linalg.inv(H @ covariance @ H.T + 0.25 * np.eye(seen.sum()))
    mean = (gain @ y[here][seen])[1:]
    sd = np.sqrt(np.diagonal(covariance - gain @ H @ covariance))[1:]

    class Still(AR):
        def prior(self):
            return {"a": dist.Normal(a, 1e-4)}

        def transition(self, p, x, u):
            return dist.Normal(p.a * x, jnp.sqrt(0.5))

    result = epf.fit(Still(), y[here], epf.ParticleGibbs(1000, chains=4, warmup=50, particles=30))
    z = (result.smoothed["state_mean"].values - mean) / sd
    r = result.smoothed["state_sd"].values / sd
    print(f"smoothing: worst |z| {np.abs(z).max():.3f}, r {r.min():.3f} .. {r.max():.3f}")
    assert np.abs(z).max() < 0.12  # 4000 draws, a few of them alike: a standard error of about 0.025, the worst of 30
    assert np.abs(r - 1.0).max() < 0.08


class TwoLags(epf.StateSpaceModel):
    """x_t = a x_t-1 + b x_t-2 + N(0, s^2), y = x_t + 2 x_t-1 + N(0, 0.3^2): the observation sees a lag too, and better."""

    def prior(self):
        return {"a": dist.Normal(0.3, 0.3), "b": dist.Normal(0.2, 0.3), "s": dist.LogNormal(-0.5, 0.4)}

    def initial(self, p):
        return dist.Normal(jnp.zeros(2), 1.0).to_event(1)

    def transition(self, p, x, u):
        return dist.Normal(p.a * x[0] + p.b * x[1], p.s)

    def advance(self, x, new):
        return jnp.stack([new, x[0]])

    def observation(self, p, x, u):
        return dist.Normal(x[0] + 2.0 * x[1], 0.3)


def simulated(model, key, steps):
    """theta, a path and observations from the model's own joint law."""
    params = parameters(model)
    k_theta, k_0, k_run = jax.random.split(key, 3)
    theta = params.sample(k_theta)
    p = params.named(theta)

    def step(x, k):
        k_x, k_y = jax.random.split(k)
        new = draw(transition_law(model, p, x, None), k_x)
        x = advance(model, x, new)
        return x, (new, draw(observation_law(model, p, x, None), k_y))

    x_0 = draw(initial_law(model, p), k_0)
    _, (new, y) = jax.lax.scan(step, x_0, jax.random.split(k_run, steps))
    return theta, Path(x_0, new), y


def joint_test(model, method, steps=6, replicates=3000, rounds=25):
    """Geweke's joint-distribution test, from exact draws: theta and path, then data, in turn, must keep the joint law.

    Every replicate begins with a draw of (theta, path, y) from the model. Then in turn the method moves theta and path
    given y, and y is drawn given both. All of it is iid between replicates and has the law of the model at any round, so
    tests of Kolmogorov and Smirnov have the level they say. Few particles make a mistake show.
    """
    bound = method.bind(model)
    window = Window(jnp.zeros(parameters(model).size), jnp.ones(parameters(model).size))
    states = jnp.zeros((steps, *shapes_of(model, None).state))
    moments = Moments(jnp.zeros(()), states, states)

    def chain(key):
        k_start, k_run = jax.random.split(key)
        start = simulated(model, k_start, steps)

        def one(carry, k):
            theta, path, y = carry
            k_move, k_y = jax.random.split(k)
            chains = jax.tree.map(lambda leaf: leaf[None], (theta, path))  # one chain, which has a path already
            before = Paths(jnp.asarray(1), *chains, window, window.centre, window.width, moments)
            moved, _ = bound.step(k_move, before, Series(y, None))
            theta, path = jax.tree.map(lambda leaf: leaf[0], (moved.theta, moved.path))
            p, states = parameters(model).named(theta), path.states(model)
            y = jax.vmap(lambda x, k: draw(observation_law(model, p, x, None), k))(states, jax.random.split(k_y, steps))
            return (theta, path, y), None

        (theta, path, y), _ = jax.lax.scan(one, start, jax.random.split(k_run, rounds))
        return theta, path, y

    after = jax.jit(jax.vmap(chain))(particle_keys(root_key(1), replicates))
    fresh = jax.jit(jax.vmap(lambda key: simulated(model, key, steps)))(particle_keys(root_key(2), replicates))
    numbers = [
        np.concatenate(
            [theta, np.reshape(path.x_0, (replicates, -1)), path.new, np.asarray(y),
             np.asarray(path.new[:, 1:] * path.new[:, :-1]).mean(1, keepdims=True),
             np.asarray(y**2).mean(1, keepdims=True)], axis=1,
        )
        for theta, path, y in (after, fresh)
    ]  # fmt: skip
    return np.array([scipy.stats.ks_2samp(a, b).pvalue for a, b in zip(numbers[0].T, numbers[1].T, strict=True)])


def gibbs(**settings):
    """One chain that does not adapt, of few particles."""
    return epf.ParticleGibbs(chains=1, warmup=0, particles=5, **settings)


CASES = {
    "conjugate": (AR(), gibbs(ahead=1)),
    "slices": (epf.zoo.Sin(theta=dist.Normal(0.5, 0.5), sigma_obs=0.5), gibbs(ahead=1)),
    "bootstrap": (AR(), gibbs(ahead=1, proposal=Bootstrap())),
    "lags": (TwoLags(), gibbs(ahead=2)),
    "kept ancestors": (TwoLags(), gibbs(ahead=0)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_particle_gibbs_passes_gewekes_joint_distribution_test(name):
    p = joint_test(*CASES[name])
    print(f"Geweke {name}: {len(p)} p-values, the least {p.min():.4f}")
    assert p.min() > 0.005 / len(p)


@pytest.mark.slow
def test_the_joint_distribution_test_sees_a_lag_that_is_forgotten():
    p = joint_test(TwoLags(), gibbs(ahead=1))
    print(f"Geweke with one lag forgotten: the least p-value {p.min():.2g}")
    assert p.min() < 1e-6


class Laplace(AR):
    def transition(self, p, x, u):
        return dist.Laplace(p.a * x, 1.0)


def test_a_reference_that_nothing_was_seen_of_counts_as_much_as_others():
    """Also far out, where a proposal's own density is not that of the transition."""
    bound = epf.ParticleGibbs(particles=2, ahead=0, proposal=epf.proposals.Interpolated()).bind(Laplace())
    reference, y = Path(jnp.zeros(()), jnp.full(1, 30.0)), jnp.full(1, jnp.nan)

    def followed(key):
        path = bound.path(key, jnp.array([0.5, 1.0]), reference, jnp.asarray(True), Series(y, None))
        return path.new[0] == 30.0

    share = jnp.mean(jax.jit(jax.vmap(followed))(particle_keys(root_key(0), 2000)))
    assert share == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2000))


class Stable(AR):
    """AR with two unknowns of which no draw explodes: where it does, the posterior is a needle that no chain finds."""

    def prior(self):
        return {"a": dist.Normal(0.3, 0.2), "v": dist.LogNormal(-0.5, 0.4)}


@pytest.mark.slow
def test_pmmh_passes_simulation_based_calibration():
    """Ranks of the true theta among draws given data simulated with it are uniform (Talts et al. 2018)."""
    # Chains that are short for their autocorrelation have too many extreme ranks; draws 60 apart are nearly independent.
    model, steps, data, warmup, kept, thin = Stable(), 10, 256, 300, 31, 60
    bound = epf.PMMH(2, chains=1, warmup=warmup, particles=10).bind(model)

    def one(key):
        k_data, k_run = jax.random.split(key)
        theta, _, y = simulated(model, k_data, steps)
        series = Series(y, None)
        state = bound.init(jax.random.fold_in(k_run, 0), series)

        def step(state, i):
            return bound.step(jax.random.fold_in(k_run, i), state, series)

        _, draws = jax.lax.scan(step, state, jnp.arange(1, 1 + warmup + kept * thin))
        return jnp.sum(draws.theta[-1 : -kept * thin : -thin, 0] < theta, axis=0), draws.accepted[warmup:].mean()

    rank, accepted = jax.jit(jax.vmap(one))(jax.vmap(lambda i: step_key(root_key(7), i))(jnp.arange(data)))
    for i, name in enumerate(("a", "v")):
        counts = np.bincount(np.asarray(rank)[:, i] // 4, minlength=8)
        p = scipy.stats.chisquare(counts).pvalue
        print(f"SBC {name}: ranks in eighths {counts.tolist()}, p {p:.3f}, accepted {float(accepted.mean()):.2f}")
        assert p > 0.0025


@pytest.mark.slow
def test_smc2_has_the_evidence_after_many_doublings():
    """The mean of the estimates themselves is unbiased; that of their logarithms is low by half their variance."""
    model, y, name, mean, sd, log_evidence = linear_gaussian()
    found, seeds = [], 24
    for seed in range(seeds):
        result = epf.fit(model, y, epf.SMC2(400, particles=8, proposal=Bootstrap()), seed=seed)
        z, r = (result.mean[name] - mean) / sd, result.sd[name] / sd
        found.append((result.log_evidence - log_evidence, z, r, len(result.paused)))
    off, z, r, doublings = np.array(found).T
    ratio = np.exp(off)
    error = ratio.std(ddof=1) / np.sqrt(seeds)
    print(f"SMC2 after {doublings.mean():.1f} doublings: log-evidence off by {off.mean():.3f} +- {off.std(ddof=1):.3f}, "
          f"mean ratio {ratio.mean():.3f} +- {error:.3f}, rms z {np.sqrt(np.mean(z**2)):.3f}, r {r.mean():.3f}")  # fmt: skip
    assert doublings.min() >= 3
    assert abs(ratio.mean() - 1.0) < 4.0 * error
    assert off.std(ddof=1) < 0.3  # or the mean ratio says nothing
    assert abs(z.mean()) < 4.0 * z.std(ddof=1) / np.sqrt(seeds)
    assert abs(r.mean() - 1.0) < 4.0 * r.std(ddof=1) / np.sqrt(seeds) + 1.0 / 400.0


@pytest.mark.slow
def test_smc2_doubles_its_inner_particles_when_moves_are_refused(tmp_path):
    model, y, name, mean, sd, log_evidence = linear_gaussian()
    result = epf.fit(model, y, epf.SMC2(400, particles=8, proposal=Bootstrap()))
    z, r = (result.mean[name] - mean) / sd, result.sd[name] / sd
    print(f"SMC2 grown: {result.settings['particles']}; z {z:.3f}, r {r:.3f}, "
          f"log-evidence off by {result.log_evidence - log_evidence:.3f}")  # fmt: skip
    assert result.paused
    assert result.state.particles == 8 * 2 ** len(result.paused)
    assert abs(z) <= 4.0 * np.sqrt(2.0 / 200.0)
    # Where the state has its shape from the doublings, it is saved and gone on from as well.
    part = epf.fit(model, y[:90], epf.SMC2(400, particles=8, proposal=Bootstrap()))
    part.save(tmp_path / "part")
    loaded = epf.load(tmp_path / "part", model)
    assert loaded.paused == tuple(t for t in result.paused if t < 90)
    on = epf.fit(model, y[90:], epf.SMC2(400, particles=8, proposal=Bootstrap()), resume_from=loaded)
    np.testing.assert_array_equal(on.record.mean, result.record.mean)
    assert (on.log_evidence, on.settings) == (result.log_evidence, result.settings)
    with pytest.warns(epf.errors.EPFWarning, match="maximum of .* inner particles"):
        epf.fit(model, y, epf.SMC2(400, particles=8, most=8, proposal=Bootstrap()))
