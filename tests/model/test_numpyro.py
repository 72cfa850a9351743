"""Programs of NumPyro as state-space models: the same joint density, site by site; and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density

import epf
from epf.errors import ModelError
from epf.filters.marginal._exact import KalmanFilters
from epf.filters.marginal._finite import FiniteFilters
from epf.model._model import advance, initial_law, observation_law, parameters, transition_law

Y = np.array([0.3, -0.2, 0.9, 1.4, 0.8], np.float32)
DOSE = np.array([0.0, 1.0, 0.0, 2.0, 1.0], np.float32)
COUNTS = np.array([0, 3, 1, 4, 2])


def level(y):
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))
    first = numpyro.sample("first", dist.Normal(0.0, 2.0 * sd))

    def step(x, value):
        x = numpyro.sample("x", dist.Normal(x, sd))
        numpyro.sample("y", dist.Normal(x, 0.5), obs=value)
        return x, x

    numpyro.deterministic("path", scan(step, first, y)[1])


def lags(y, dose):
    a = numpyro.sample("a", dist.Normal(jnp.zeros(2), 0.5))
    effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))

    def step(carry, row):
        value, u = row
        x = numpyro.sample("x", dist.Normal(a[0] * carry[0] + a[1] * carry[1] + effect * u, 0.5))
        numpyro.sample("y", dist.Normal(x, 0.3), obs=value)
        return jnp.stack([x, carry[0]]), None

    scan(step, jnp.zeros(2), (y, dose))


def of_the_old_carry(y):
    """The observation uses the state before the step as well, and the carry is a tree."""
    rate = numpyro.sample("rate", dist.Beta(2.0, 2.0))

    def step(carry, value):
        x = numpyro.sample("x", dist.Normal(rate * carry["x"], 1.0))
        numpyro.sample("y", dist.Poisson(jnp.exp(x - carry["x"]) + 0.1 * carry["n"]), obs=value)
        return {"n": carry["n"] + 1, "x": x}, None

    scan(step, {"n": 0, "x": 0.5}, y)


def without_noise(y):
    """Nothing is drawn in a step: the state moves by itself."""
    rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.3))
    first = numpyro.sample("first", dist.LogNormal(1.0, 0.3))

    def step(x, value):
        x = x * jnp.exp(-0.3 * rate)
        numpyro.sample("y", dist.Poisson(x), obs=value)
        return x, None

    scan(step, first, y)


def on_or_off(y):
    stay = numpyro.sample("stay", dist.Beta(8.0, 2.0).expand([2]).to_event(1))

    def step(x, value):
        x = numpyro.sample("x", dist.Categorical(jnp.where(x == 1, jnp.stack([1 - stay[1], stay[1]]), 0.5)))
        numpyro.sample("y", dist.Normal(1.5 * x, 0.6), obs=value)
        return x, None

    scan(step, 0, y)


def joint_density(model, y, inputs, theta, drawn):
    """log p(theta) + sum of log p(x_t | x_t-1) + log p(y_t | x_t), by the model's laws."""
    params = parameters(model)
    p = params.named(jnp.concatenate([jnp.ravel(jnp.asarray(theta[name], float)) for name in model.prior()]))
    total = sum(law.log_prob(theta[name]) for name, law in model.prior().items())
    first = initial_law(model, p)
    x = (
        jnp.asarray(theta["first"])
        if "first" not in model.prior() and "first" in theta
        else first.sample(jax.random.key(0))
    )
    total += first.log_prob(x)
    for t, value in enumerate(y):
        u = None if inputs is None else jnp.asarray(inputs[t])
        law = transition_law(model, p, x, u)
        new = law.v if isinstance(law, dist.Delta) else jnp.asarray(drawn[t])
        total += law.log_prob(new)
        x = advance(model, x, new)
        total += observation_law(model, p, x, u).log_prob(value)
    return total


@pytest.mark.parametrize(
    ("program", "args", "inputs"),
    [
        (level, (Y,), None),
        (lags, (Y, DOSE), DOSE[:, None]),
        (of_the_old_carry, (COUNTS,), None),
        (without_noise, (COUNTS,), None),
        (on_or_off, (Y,), None),
    ],
)
def test_the_joint_density_is_that_of_the_program(program, args, inputs):
    model = epf.from_numpyro(program, *args)

    @jax.jit
    def both(seed):
        drawn = handlers.trace(handlers.seed(program, seed)).get_trace(*args)
        sites = [site for site in drawn.values() if site["type"] == "sample" and not site["is_observed"]]
        values = {site["name"]: site["value"] for site in sites}
        expected = log_density(program, args, {}, values)[0]
        return joint_density(model, args[0], inputs, values, values.pop("x", None)), expected

    for seed in range(3):
        found, expected = both(jax.random.PRNGKey(seed))
        assert found == pytest.approx(float(expected), abs=2e-4)


def test_a_first_state_is_no_parameter_and_exact_filters_are_found():
    model = epf.from_numpyro(level, Y)
    assert set(model.prior()) == {"sd"}
    assert KalmanFilters.of(model, None) is not None
    still = epf.from_numpyro(without_noise, COUNTS)
    assert set(still.prior()) == {
        "rate",
        "first",
    }  # its observations use the state before the step, which starts nowhere
    assert FiniteFilters.of(epf.from_numpyro(on_or_off, Y), None) is not None


@pytest.mark.slow
def test_a_program_is_filtered_as_its_translation_by_hand():
    class Lags(epf.StateSpaceModel):
        def prior(self):
            return {"a": dist.Normal(jnp.zeros(2), 0.5).to_event(1), "effect": dist.Normal(0.0, 1.0)}

        def initial(self, p):
            return dist.Delta(jnp.zeros(2), event_dim=1)

        def transition(self, p, x, u):
            return dist.Normal(p.a[0] * x[0] + p.a[1] * x[1] + p.effect * u[0], 0.5)

        def observation(self, p, x, u):
            return dist.Normal(x[0], 0.3)

        def advance(self, x, new):
            return jnp.stack([new, x[0]])

    known = {"a": [0.4, -0.2], "effect": 0.7}
    by_hand, read = (
        epf.fit(epf.fix(model, known), Y, epf.Kalman(), inputs=DOSE[:, None], progress=False)
        for model in (Lags(), epf.from_numpyro(lags, Y, DOSE))
    )
    assert read.log_evidence == pytest.approx(by_hand.log_evidence, abs=1e-4)
    assert read.history["state_mean"][:, 0].to_numpy() == pytest.approx(
        by_hand.history["state_mean"][:, 0].to_numpy(), abs=1e-5
    )


def noise_added(y):
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))

    def step(x, value):
        x = x + sd * numpyro.sample("noise", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 0.5), obs=value)
        return x, None

    scan(step, 0.0, y)


def variant(**sites):
    """The level with something changed."""

    def program(y):
        if "hierarchy" in sites:
            numpyro.sample("deep", dist.Normal(numpyro.sample("top", dist.Normal(0.0, 1.0)), 1.0))
        sd = numpyro.sample("sd", dist.HalfNormal(1.0))

        def step(carry, value):
            x, last = carry
            x = numpyro.sample("x", dist.Normal(x + (0.1 * last if "earlier" in sites else 0.0), sd))
            if "two" in sites:
                numpyro.sample("z", dist.Normal(x, 1.0))
            shown = jnp.log(value**2) if "transformed" in sites else value
            masked = handlers.mask(mask=value > 0) if "mask" in sites else handlers.block(hide=[])
            with masked, numpyro.plate("plate", 1) if "plate" in sites else handlers.block(hide=[]):
                numpyro.sample("y", dist.Normal(x + (y[2] if "peek" in sites else 0.0), 0.5), obs=shown)
            return (x, value if "earlier" in sites else last), None

        last, _ = scan(step, (0.0, 0.0), y)
        if "twice" in sites:
            scan(step, (0.0, 0.0), y)
        if "after" in sites:
            numpyro.sample("after", dist.Normal(last[0], 1.0))
        if "factor" in sites:
            numpyro.factor("factor", -sd)

    return program


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (noise_added, "new carry uses 'sd'"),
        (variant(hierarchy=1), "prior of 'deep' uses 'top'"),
        (variant(earlier=1), "a law uses the observation"),
        (variant(two=1), "2 latent and 1 observed sites"),
        (variant(transformed=1), "not an entry of the xs"),
        (variant(mask=1), "masked"),
        (variant(peek=1), "reads the series of observations"),
        (variant(plate=1), "in a plate"),
        (variant(twice=1), "more than one scan"),
        (variant(after=1), "prior of 'after' uses values drawn in the scan"),
        (variant(factor=1), "observed outside of the scan"),
        (lambda y: numpyro.sample("sd", dist.HalfNormal(1.0)), "no numpyro.contrib.control_flow.scan"),
    ],
)
def test_what_is_no_state_space_model_is_refused(program, words):
    with pytest.raises(ModelError, match=words):
        epf.from_numpyro(program, Y)


def test_missing_inputs_are_asked_for():
    model = epf.from_numpyro(lags, Y, DOSE)
    with pytest.raises(ModelError, match=r"inputs of shape \(T, 1\)"):
        epf.fit(model, Y, epf.SIR(16), progress=False)
