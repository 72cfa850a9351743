"""The Kalman filter against the textbook recursion, and its extended form where that is exact too."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import epf
from epf.errors import DataError, UnsupportedModelError
from models import kalman, run
from scoring import scores

MODEL = epf.zoo.LinearGaussian.rotation(3, 2)


class Drift(epf.StateSpaceModel):
    """A random walk with unknown drift and an unknown sensor offset: linear in state and parameters together."""

    def prior(self):
        return {"drift": dist.Normal(0.1, 0.2), "offset": dist.Normal(0.0, 1.0)}

    def initial(self, p):
        return dist.Normal(p.offset, 0.5)

    def transition(self, p, x, u):
        return dist.Normal(x + p.drift, 0.3)

    def observation(self, p, x, u):
        return dist.Normal(x + 2.0 * p.offset, 0.4)


@pytest.mark.parametrize("form", [{}, {"extended": True}, {"unscented": True}], ids=["exact", "extended", "unscented"])
def test_filter_and_evidence_are_the_textbooks(form, float64):
    _, y = epf.simulate(MODEL, {}, steps=60, seed=2)
    y[3, 0] = y[10] = y[20, 1] = np.nan
    means, covariances, log_evidence = kalman(MODEL.A, MODEL.Q, MODEL.H, MODEL.R, MODEL.m_0, MODEL.P_0, y)
    result = epf.fit(MODEL, y, epf.Kalman(**form))
    # The model's matrices were made in single precision; the recursion runs in double.
    np.testing.assert_allclose(result.history["state_mean"], means, rtol=1e-6, atol=1e-7)
    sds = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
    np.testing.assert_allclose(result.history["state_sd"], sds, rtol=1e-6)
    assert result.log_evidence == pytest.approx(log_evidence, rel=1e-8)


class PartlyKnown(epf.StateSpaceModel):
    """A place that follows from its past, driven by a noisy speed; three laws have components without noise."""

    start: object = dist.Delta(jnp.zeros(2), event_dim=1)
    seen: tuple = (0.5, 0.0)

    def prior(self):
        return {"push": dist.HalfNormal(1.0)}

    def initial(self, p):
        return self.start

    def transition(self, p, x, u):
        return epf.Sensors(dist.Delta(0.6 * x[0] + x[1]), dist.Normal(0.9 * x[1], p.push))

    def observation(self, p, x, u):
        laws = [dist.Normal(x[i], sd) if sd > 0.0 else dist.Delta(x[i]) for i, sd in enumerate(self.seen)]
        return epf.Sensors(*laws)


@pytest.mark.parametrize("start_sd", [0.0, 1.0])
@pytest.mark.parametrize("seen", [(0.5, 0.4), (0.5, 0.0)])
def test_components_without_noise(seen, start_sd, float64):
    """As a Gaussian whose covariance is singular."""
    start = dist.Normal(jnp.zeros(2), start_sd).to_event(1) if start_sd else PartlyKnown.start
    model = epf.fix(PartlyKnown(start, seen), {"push": 0.7})
    _, y = epf.simulate(model, {}, steps=40, seed=3)
    y[5, 0] = y[9] = np.nan
    A, Q, R = np.array([[0.6, 1.0], [0.0, 0.9]]), np.diag([0.0, 0.49]), np.diag(np.square(seen))
    means, _, log_evidence = kalman(A, Q, np.eye(2), R, np.zeros(2), start_sd**2 * np.eye(2), y)
    result = epf.fit(model, y, epf.Kalman())
    np.testing.assert_allclose(result.history["state_mean"], means, rtol=1e-6, atol=1e-7)
    assert result.log_evidence == pytest.approx(log_evidence, rel=1e-8)
    assert epf.MarginalEPF().bind(PartlyKnown(start, seen)).describe()["filters"].startswith("Kalman, exact")


class Multiplied(Drift):
    """The same walk, seen with errors that multiply: y is the exponential of what `Drift` observes, or its logistic."""

    scale: str = "log"

    def observation(self, p, x, u):
        if self.scale == "log":
            return dist.LogNormal(x + 2.0 * p.offset, 0.4)
        return dist.TransformedDistribution(super().observation(p, x, u), dist.transforms.SigmoidTransform())


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["log", "logit"])
def test_observations_that_are_a_function_of_gaussian_ones(scale, float64):
    """As exact as on the Gaussian scale; the evidence has the derivative of the function."""
    _, seen = epf.simulate(Drift(), {"drift": 0.3, "offset": -0.5}, steps=30, seed=4)
    seen[7] = np.nan
    y = np.exp(seen) if scale == "log" else 1.0 / (1.0 + np.exp(-seen))
    slope = seen if scale == "log" else np.log(y) + np.log1p(-y)
    expected, result = epf.fit(Drift(), seen, epf.Kalman()), epf.fit(Multiplied(scale), y, epf.Kalman())
    np.testing.assert_allclose(result.history["state_mean"], expected.history["state_mean"], rtol=1e-8)
    assert result.sd["offset"] == pytest.approx(expected.sd["offset"], rel=1e-8)
    assert result.log_evidence == pytest.approx(expected.log_evidence - np.nansum(slope), rel=1e-8)


def test_a_value_that_no_gaussian_gives_is_refused():
    y = np.exp(epf.simulate(Drift(), {"drift": 0.3, "offset": -0.5}, steps=30, seed=4)[1])
    y[11] = -1.0
    with pytest.raises(DataError, match="y is -1 at time index 11"):
        epf.fit(Multiplied(), y, epf.Kalman())


@pytest.mark.parametrize("unscented", [False, True])
def test_parameters_that_enter_linearly_are_learned_exactly(unscented):
    """The same answer as a textbook filter on (x, drift, offset), whose start is correlated with the offset."""
    _, y = epf.simulate(Drift(), {"drift": 0.3, "offset": -0.5}, steps=50, seed=4)
    A, H = [[1, 1, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 2]]
    P = [[0.25 + 1.0, 0, 1.0], [0, 0.04, 0], [1.0, 0, 1.0]]
    means, covariances, log_evidence = kalman(A, np.diag([0.09, 0, 0]), H, [[0.16]], [0, 0.1, 0], P, y)
    result = epf.fit(Drift(), y, epf.Kalman(unscented=unscented))
    assert result.mean["drift"] == pytest.approx(means[-1, 1], abs=1e-4)
    assert result.mean["offset"] == pytest.approx(means[-1, 2], abs=1e-4)
    assert result.sd["drift"] == pytest.approx(np.sqrt(covariances[-1, 1, 1]), rel=1e-3)
    assert result.log_evidence == pytest.approx(log_evidence, abs=1e-2)
    low, high = result.quantile(0.05)["drift"], result.quantile(0.95)["drift"]
    assert high - low == pytest.approx(2 * 1.6448536 * np.sqrt(covariances[-1, 1, 1]), rel=1e-3)
    grid = np.linspace(-1, 1, 2001)
    density = result.density("drift", grid)
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    assert grid[np.argmax(density)] == pytest.approx(means[-1, 1], abs=2e-3)
    assert (result.error.worst < 0.01) == (not unscented)  # of sigma points it is not measured; rounding is left
    assert result.verdict.word == ("doubtful" if unscented else "good")


def test_a_positive_parameter_stays_positive_in_the_extended_form():
    model = epf.zoo.Sin(theta=0.7, sigma=dist.LogNormal(0.0, 0.5))
    _, y = epf.simulate(model, {"sigma": 1.0}, steps=100, seed=3)
    result = epf.fit(model, y, epf.Kalman(extended=True))
    assert result.quantile(0.001)["sigma"] > 0.0
    assert np.all(result.sample(500)["sigma"] > 0.0)


def test_sigma_points_give_the_moments_of_a_quadratic():
    """y = x^2 with x ~ N(m, s^2): mean, covariance with x and variance of y are those of the textbook."""

    class Square(epf.StateSpaceModel):
        def prior(self):
            return {}

        def initial(self, p):
            return dist.Normal(1.0, 0.5)

        def transition(self, p, x, u):
            return dist.Normal(x, 1e-6)

        def observation(self, p, x, u):
            return dist.Normal(x**2, 0.3)

    m, v = 1.0, 0.25
    mean, variance, cross = m**2 + v, 4 * m**2 * v + 2 * v**2 + 0.09, 2 * m * v
    y = np.array([2.0], np.float32)
    _, (info, _, (x, sd)) = jax.jit(lambda: run(epf.Kalman(unscented=True), Square(), 0, y))()
    assert x[0] == pytest.approx(m + cross / variance * (2.0 - mean), rel=1e-5)
    assert sd[0] == pytest.approx(np.sqrt(v - cross**2 / variance), rel=1e-5)
    assert info.log_evidence[0] == pytest.approx(-0.5 * (np.log(2 * np.pi * variance) + (2 - mean) ** 2 / variance))


# The largest |z|, and the least and the largest r: the error that docs/measurements.md states.
STATED = {"extended": (0.32, 0.82, 1.17), "unscented": (0.40, 0.84, 1.21)}


@pytest.mark.slow
@pytest.mark.parametrize("form", STATED)
def test_sin_is_learned_as_well_as_stated_and_no_better(form):
    """Both put a Gaussian where the posterior is none. Nothing is random here, so what is measured is that error itself.

    An exact method would have z = 0 and r = 1; and where the posterior shrinks faster than the error, z grows with t.
    """
    found = [scores(epf.Kalman(**{form: True}), "sin", data, 1000, 1) for data in (1, 2, 3)]
    z, r = (np.array([score[i][0, :, 0] for score in found]) for i in (0, 1))
    print(f"\n{form}, SIN by data set and time: z {z.round(2).tolist()}, r {r.round(2).tolist()}")
    assert (np.abs(z).max(), r.min(), r.max()) == pytest.approx(STATED[form], abs=0.02)


def test_storvik_in_parameter_space():
    """Appendix A of the paper: a Kalman filter whose state is theta, with identity transition and no noise.

    Its mean and covariance after each observation are the batch regression's.
    """

    class Parameters(epf.StateSpaceModel):
        def prior(self):
            return {}

        def initial(self, p):
            return dist.Normal(jnp.zeros(2), jnp.array([1.0, 2.0])).to_event(1)

        def transition(self, p, x, u):
            return dist.Normal(x, 1e-12).to_event(1)

        def observation(self, p, x, u):
            return dist.Normal(u @ x, 0.7)

    rng = np.random.default_rng(3)
    F = rng.normal(size=(80, 2))
    z = F @ [0.4, -1.0] + 0.7 * rng.normal(size=80)
    ys, us = z.astype(np.float32), jnp.asarray(F, jnp.float32)
    state, _ = jax.jit(lambda: run(epf.Kalman(), Parameters(), 0, ys, us))()
    precision = np.diag([1.0, 0.25]) + F.T @ F / 0.49
    np.testing.assert_allclose(state.mean, np.linalg.solve(precision, F.T @ z / 0.49), rtol=1e-5)
    np.testing.assert_allclose(state.covariance, np.linalg.inv(precision), rtol=1e-4, atol=1e-7)


def test_what_it_cannot_serve_is_refused_with_a_way_out():
    _, y = epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=5)
    with pytest.raises(UnsupportedModelError, match=r"not linear.*extended=True"):
        epf.fit(epf.zoo.Sin(), y, epf.Kalman())
    with pytest.raises(UnsupportedModelError, match="Gaussian transition"):
        epf.fit(epf.zoo.CauchyAR(), y, epf.Kalman(extended=True))
