"""Discrete parameters against exact answers: sums over their values of likelihoods that are known."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

import epf
from epf.filters._base import Evidence, Filter, Info, ReplayingFilter, strong
from epf.model._model import parameters
from epf.model._parameters import Parameters
from epf.numerics._keys import root_key, step_key
from epf.posterior._posterior import ParticlePosterior, student
from methods import assert_same
from models import stepper

pytestmark = pytest.mark.usefixtures("quick_compilation")

PRIOR, COEFFICIENTS = np.array([0.2, 0.3, 0.5]), np.array([0.2, 0.5, 0.8])


class Regime(epf.StateSpaceModel):
    """An AR(1) about a level, with one of three coefficients; the level may be unknown."""

    level: float | None = None

    def prior(self):
        unknown = {"level": dist.Normal(0.0, 1.0)} if self.level is None else {}
        return {"k": dist.Categorical(probs=jnp.asarray(PRIOR)), **unknown}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        level = p.level if self.level is None else self.level
        return dist.Normal(jnp.asarray(COEFFICIENTS)[p.k.astype(int)] * x + level, 0.5)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.7)


class Disguised(Regime):
    """The same, with a normal prior that no filter recognises, so that the level has nodes."""

    def prior(self):
        moved = dist.transforms.AffineTransform(0.0, 1.0)
        return {**super().prior(), "level": dist.TransformedDistribution(dist.Normal(0.0, 1.0), moved)}


class Sine(epf.StateSpaceModel):
    """A state that moves by a sine, or by the line that touches it at 0."""

    def prior(self):
        return {"bends": dist.Bernoulli(0.3)}

    def initial(self, p):
        return dist.Normal(0.0, 1.0)

    def transition(self, p, x, u):
        return dist.Normal(jnp.where(p.bends > 0.0, jnp.sin(x), x), 0.5)

    def observation(self, p, x, u):
        return dist.Normal(x, 0.7)


def series():
    return epf.simulate(Regime(), {"k": 1, "level": 0.3}, steps=24, seed=3)[1]


def kalman(y, coefficient, level):
    """log p(y), for an array of levels."""
    mean, variance, total = np.zeros_like(level), 1.0, np.zeros_like(level)
    for value in y.astype(float):
        mean, variance = coefficient * mean + level, coefficient**2 * variance + 0.25
        scale = variance + 0.49
        total = total + norm.logpdf(value, mean, np.sqrt(scale))
        mean, variance = mean + variance / scale * (value - mean), variance * 0.49 / scale
    return total


def joint(y):
    """The posterior of k and the level on a grid, and the log-evidence."""
    grid = np.linspace(-3.0, 3.0, 4001)
    log = np.stack(
        [np.log(p) + kalman(y, c, grid) + norm.logpdf(grid) for p, c in zip(PRIOR, COEFFICIENTS, strict=True)]
    )
    mass = np.exp(log - log.max()) * (grid[1] - grid[0])
    return grid, mass / mass.sum(), np.log(mass.sum()) + log.max()


def test_probabilities_are_exact_where_nothing_else_is_unknown(tmp_path):
    y = series()
    log = np.log(PRIOR) + [float(kalman(y, c, np.array(0.3))) for c in COEFFICIENTS]
    exact = np.exp(log - np.logaddexp.reduce(log))
    result = epf.fit(Regime(level=0.3), y)
    assert isinstance(result.method, epf.MultipleModel)
    assert list(result.posterior.probabilities["k"].values()) == pytest.approx(exact, abs=1e-4)
    assert result.log_evidence == pytest.approx(np.logaddexp.reduce(log), abs=1e-3)
    mean = exact @ np.arange(3)
    assert result.mean["k"] == pytest.approx(mean, abs=1e-4)
    assert result.sd["k"] == pytest.approx(np.sqrt(exact @ (np.arange(3) - mean) ** 2), abs=1e-4)
    assert result.error.worst < 1e-3
    assert result.verdict.word == "good"
    table = result.summary()
    assert table.loc["k = 2", "mean"] == pytest.approx(exact[2], abs=1e-4)
    assert result.density("k", [0.0, 0.5, 2.0]) == pytest.approx([exact[0], 0.0, exact[2]], abs=1e-4)
    drawn = result.sample(1000)["k"]
    assert [np.mean(drawn == k) for k in range(3)] == pytest.approx(exact, abs=0.01)

    result.save(tmp_path / "saved")
    table = epf.load(tmp_path / "saved").summary()
    assert table.loc["k = 2", "mean"] == pytest.approx(exact[2], abs=1e-3)
    loaded = epf.load(tmp_path / "saved", Regime(level=0.3))
    assert_same(loaded.posterior, result.posterior)


def answers(method, model, y):
    """What a filter says after the last observation, as a function of the seed; without a history, which takes longer."""
    bound, step = stepper(method, model, jnp.asarray(y))

    def answer(seed):
        root = root_key(seed)
        state = strong(bound.init(step_key(root, 0)))
        state = jax.lax.fori_loop(0, len(y), lambda i, s: step(root, s, i + 1, jnp.asarray(y)[i])[0], state)
        posterior = bound.posterior(state)
        return posterior.moments(), posterior.error().total, posterior.weights, posterior.evidence

    return answer


@pytest.fixture(scope="module")
def with_level():
    return epf.fit(Regime(), series(), epf.MultipleModel(epf.Kalman()))


def test_other_parameters_are_the_mixture_of_the_banks(with_level):
    result, (grid, mass, log_evidence) = with_level, joint(series())
    of_level = mass.sum(axis=0)
    mean = of_level @ grid
    assert list(result.posterior.probabilities["k"].values()) == pytest.approx(mass.sum(axis=1), abs=1e-4)
    assert result.log_evidence == pytest.approx(log_evidence, abs=1e-3)
    assert result.mean["level"] == pytest.approx(mean, abs=1e-4)
    assert result.sd["level"] == pytest.approx(np.sqrt(of_level @ (grid - mean) ** 2), rel=1e-3)
    for level in (0.01, 0.05, 0.5, 0.95):
        exact = grid[np.searchsorted(np.cumsum(of_level), level)]
        assert result.quantile(level)["level"] == pytest.approx(exact, abs=0.03 * result.sd["level"])
    at = grid[1800:2600:200]
    density = of_level[1800:2600:200] / (grid[1] - grid[0])
    assert result.density("level", at) == pytest.approx(density, rel=1e-3)
    draws = result.sample(4000)
    assert np.mean(draws["level"]) == pytest.approx(mean, abs=4.0 * result.sd["level"] / np.sqrt(4000))
    # The two are drawn together.
    given = mass[2] @ grid / mass[2].sum()
    assert np.mean(draws["level"][draws["k"] == 2]) == pytest.approx(given, abs=0.03)


@pytest.mark.slow
def test_nodes_find_the_same(with_level):
    """The evidence of MarginalEPF is that of the function through its nodes: their own sum is off by a tenth."""
    mass, answer = (
        joint(series())[1],
        answers(epf.MultipleModel(epf.MarginalEPF(nodes=64, regrid=False)), Disguised(), series()),
    )
    (mean, sd), error, weights, evidence = jax.jit(answer)(0)
    assert np.asarray(weights) == pytest.approx(mass.sum(axis=1), abs=0.01)
    assert np.abs(np.asarray(evidence.correction)).max() > 0.02
    exact, unit = (np.array([of["k"], of["level"]]) for of in (with_level.mean, with_level.sd))
    assert (np.asarray(mean) - exact) / unit == pytest.approx(0.0, abs=0.03)
    assert np.asarray(sd) == pytest.approx(unit, rel=0.03)
    assert np.all(np.abs(mean - exact) / unit < 2.0 * error[0])
    assert np.all(error < 0.1)


@pytest.mark.slow
def test_a_state_that_is_not_gaussian():
    """Particles against sums over a fine grid of the state: the answers of many seeds, and their certificates."""
    y = epf.simulate(Sine(), {"bends": 1}, steps=24, seed=1)[1].astype(float)
    grid, log = np.linspace(-8.0, 8.0, 1001), np.log([0.7, 0.3])
    for bends in (0, 1):
        moved = norm.pdf(grid[:, None], np.sin(grid) if bends else grid, 0.5) * (grid[1] - grid[0])
        density = norm.pdf(grid)
        for value in y:
            density = (moved @ density) * norm.pdf(value, grid, 0.7)
            whole = density.sum() * (grid[1] - grid[0])
            log[bends], density = log[bends] + np.log(whole), density / whole
    exact = float(np.exp(log[1] - np.logaddexp.reduce(log)))
    assert 0.05 < exact < 0.95
    answer = answers(epf.MultipleModel(epf.MarginalEPF(64, exact=False)), Sine(), y)
    (mean, sd), error, *_ = jax.jit(jax.vmap(answer))(jnp.arange(50))
    mean, sd, error = (np.asarray(part) for part in (mean[:, 0], sd[:, 0], error[:, 0, 0]))
    off = np.abs(mean - exact) / sd
    assert np.mean(mean) == pytest.approx(exact, abs=3.0 * np.std(mean) / np.sqrt(50))
    assert np.mean(off < 2.0 * error) >= 0.85
    assert np.sqrt(np.mean(error**2)) < 2.0 * np.sqrt(np.mean(off**2))

    # Where the state is one number, the default has a quadrature in place of particles.
    nearly = epf.MultipleModel().bind(Sine())
    state = nearly.init(root_key(0))
    shapes = jax.eval_shape(lambda state: nearly.step(root_key(0), state, jnp.zeros(()), None)[0], state)
    assert jax.tree.structure(shapes) == jax.tree.structure(state)


class Replayed(ReplayingFilter):
    """Adds up old observations, times 1 + k, each bank at a pace of its own."""

    model: epf.StateSpaceModel
    parameters: Parameters
    k: jax.Array
    quick: bool = eqx.field(static=True)
    """Banks with another setting have another program."""
    replays: int = eqx.field(static=True, default=3)

    def init(self, key):
        return {"t": jnp.asarray(0), "next": jnp.asarray(0), "total": jnp.zeros(())}

    def next_replayed(self, state):
        return state["next"]

    def step(self, key, state, y, u, past=None):
        numbers = [state["next"] + i for i in range(3)]
        rows = [jnp.where(number <= state["t"], past.row(number)[0], 0.0) for number in numbers]
        found = state["total"] + (1.0 + self.k) * sum(rows)
        no = jnp.asarray(False)
        # The first bank stays, the second goes on at every other step, the last at every step.
        onward = self.quick or (self.k > 0.0) & (state["t"] % 2 == 0)
        after = {"t": state["t"] + 1, "next": state["next"] + onward, "total": found}
        return after, Info(0.1 * found, jnp.asarray(jnp.nan), no, no, jnp.asarray(0), no)

    def posterior(self, state):
        theta = jnp.zeros((self.parameters.size, 1))
        return ParticlePosterior(self.parameters, theta, jnp.ones(1), state["total"][None])

    def describe(self):
        return {"method": "Replays"}


class Replays(Filter):
    def bind(self, model, u=None):
        return Replayed(model, parameters(model), model.known["k"], bool(model.known["k"] == 2))


def test_each_bank_replays_old_observations_of_its_own():
    """The banks of a stream have windows of their own, and those of a fit the whole past: the bits are the same."""
    y = np.arange(1.0, 13.0, dtype=np.float32)
    whole = epf.fit(Regime(level=0.3), y, epf.MultipleModel(Replays()))
    stream = epf.Stream(Regime(level=0.3), epf.MultipleModel(Replays()))
    for value in y:
        stream.update(value)
    assert_same(
        (stream.posterior, stream.latest.info.log_evidence), (whole.posterior, whole.record.info.log_evidence[-1:])
    )
    assert [group.count for group in whole.bound.groups] == [2, 1]
    totals = np.concatenate([group.x[:, 0] for group in whole.posterior.groups])
    # At step t they have passed no row, (t + 1) / 2 of them, and t.
    sums = [sum(y[first : min(first + 3, t + 1)].sum() for t, first in enumerate(firsts))
            for firsts in (12 * [0], [(t + 1) // 2 for t in range(12)], range(12))]  # fmt: skip
    assert totals == pytest.approx([sums[0], 2.0 * sums[1], 3.0 * sums[2]])
    resumed = epf.fit(
        Regime(level=0.3), y[5:], whole.method, resume_from=epf.fit(Regime(level=0.3), y[:5], whole.method)
    )
    assert_same(resumed.state, whole.state)


def test_errors_of_the_evidence_are_errors_of_the_answer(with_level):
    posterior, banks = with_level.posterior, 3

    @jax.jit
    def of(evidence, levels):
        return dataclasses.replace(posterior, evidence=evidence, levels=levels).error()

    def error(apart, bias=0.0, expansion=0.0, levels=posterior.levels):
        return of(Evidence(jnp.zeros(banks), apart, jnp.full(banks, bias), jnp.full(banks, expansion)), levels)

    exact = error(np.zeros((banks, 2)))
    np.testing.assert_array_equal(exact.total, 0.0)
    # Two streams that differ in the evidence of the last bank by 0.2 nats each way.
    apart = np.zeros((banks, 2))
    apart[2] = 0.2, -0.2
    means = []
    for change in apart.T:
        weights = jax.nn.softmax(posterior.levels + change)
        means.append(float(weights @ jnp.arange(3.0)))
    spread = student(2) * np.std(means, ddof=1) / np.sqrt(2.0) / float(posterior.moments()[1][0])
    assert error(apart).monte_carlo[0, 0] == pytest.approx(spread, rel=1e-4)
    # An error that all banks share is none: the streams have the same random numbers.
    np.testing.assert_allclose(error(np.tile([0.5, -0.5], (banks, 1))).monte_carlo, 0.0, atol=1e-5)
    assert np.all(np.asarray(error(np.zeros((banks, 2)), expansion=0.3).expansion) > 0.01)
    assert np.all(np.asarray(error(np.zeros((banks, 2)), bias=0.3).bias) > 0.01)
    assert np.isnan(error(np.full((banks, 2), np.nan)).total).all()
    # A value that is nearly certain has an sd near zero, and an error of its share of that is no error.
    certain = error(apart, levels=jnp.array([0.0, -20.0, -20.0]))
    assert np.all(np.asarray(certain.total)[:, 0] < 1e-3)


class Die(epf.StateSpaceModel):
    """A number up to an unknown number of faces, and a coin that does not matter."""

    def prior(self):
        return {"faces": dist.DiscreteUniform(1, 4)}

    def initial(self, p):
        return dist.Bernoulli(0.5)

    def transition(self, p, x, u):
        return dist.Bernoulli(0.5)

    def observation(self, p, x, u):
        return dist.Uniform(0.0, p.faces)


def test_a_value_that_the_data_exclude_has_no_probability():
    result = epf.fit(Die(), [0.5, np.nan, 2.5, 0.1])
    weights = np.array([0.0, 0.0, 3.0**-3, 4.0**-3])
    assert list(result.posterior.probabilities["faces"].values()) == pytest.approx(weights / weights.sum(), abs=1e-5)
    assert result.verdict.word == "good"


def priors(**given):
    class Other(Regime):
        def prior(self):
            return {"k": dist.Bernoulli(0.5), "level": dist.Normal(0.0, 1.0), **given}

    return Other()


@pytest.mark.slow
def test_what_can_be_listed():
    model = priors(
        k=dist.Categorical(probs=jnp.array([0.5, 0.0, 0.5])),  # one of them is impossible
        n=dist.Binomial(2, 0.5),
        flags=dist.Bernoulli(jnp.full(2, 0.5)).to_event(1),
    )
    bound = epf.MultipleModel(epf.Kalman()).bind(model)
    assert bound.values.shape == (2 * 3 * 4, 4)
    assert np.exp(bound.log_prior).sum() == pytest.approx(1.0)
    assert bound.describe()["banks"] == "24"
    words = str(epf.explain(Disguised()))
    assert "k      discrete   one of 3 values, with a filter for each" in words
    assert "epf.MultipleModel, 64 nodes for each value" in words
    assert "epf.MultipleModel, Kalman for each value" in str(epf.explain(Regime()))


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"k": dist.Poisson(1.0)}, "'k' is discrete, and the values of its prior .Poisson. have no end"),
        ({"n": dist.DiscreteUniform(0, 40)}, "k and n have 82 values together"),
        ({"n": dist.Multinomial(2, jnp.full(3, 1 / 3))}, "'n' is discrete.*cannot be listed"),
        ({"n": dist.Bernoulli(jnp.full(9, 0.5)).to_event(1)}, "at most 64 for a vector"),
    ],
)
def test_what_cannot(prior, words):
    with pytest.raises(epf.errors.UnsupportedModelError, match=words):
        epf.MultipleModel().bind(priors(**prior))


def test_banks_within_banks():
    with pytest.raises(epf.errors.SettingError, match="one of them serves all"):
        epf.MultipleModel(epf.MultipleModel())
