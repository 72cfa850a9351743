"""The parts of a certificate: how they add up, and what a small change of a log-density does to mean and sd."""

import jax.numpy as jnp
import numpy as np
import pytest

from epf.posterior._posterior import ErrorEstimate, sensitivities, shifts, student

RNG = np.random.default_rng(2)


def moments(theta, log_density):
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ theta
    return weights, mean, np.sqrt(weights @ (theta - mean) ** 2)


def test_shifts_are_derivatives_of_mean_and_sd(float64):
    """By central differences: of the mean over the sd, and of log sd; several changes at once."""
    theta, log_density, changes = RNG.standard_normal((80, 2)), RNG.standard_normal(80), RNG.standard_normal((3, 80))
    weights, mean, sd = moments(theta, log_density)
    both = sensitivities(jnp.asarray((theta - mean) / sd))
    found = np.asarray(shifts(both, jnp.asarray(weights), jnp.asarray(changes)))
    assert found.shape == (3, 2, 2)
    small = 1e-5
    for change, told in zip(changes, found, strict=True):
        (_, low, low_sd), (_, high, high_sd) = (moments(theta, log_density + sign * small * change) for sign in (-1, 1))
        np.testing.assert_allclose(told[0], (high - low) / (2 * small) / sd, atol=1e-8)
        np.testing.assert_allclose(told[1], np.log(high_sd / low_sd) / (2 * small), atol=1e-8)


def test_a_change_that_is_constant_shifts_nothing():
    both = sensitivities(jnp.asarray(RNG.standard_normal((20, 1)), float))
    np.testing.assert_allclose(shifts(both, jnp.full(20, 0.05), jnp.full(20, 3.0)), 0.0, atol=1e-5)


def test_random_parts_add_up_as_independent_errors_and_systematic_ones_as_they_are():
    parts = [np.full((2, 1), value) for value in (3.0, 0.1, 4.0, 0.2, 0.3)]
    np.testing.assert_allclose(ErrorEstimate(*map(jnp.asarray, parts)).total, 5.6, rtol=1e-6)
    assert np.all(np.asarray(ErrorEstimate.none(2).total) == 0.0)
    assert np.all(np.isnan(ErrorEstimate.unknown(2).total))


@pytest.mark.parametrize("answers", [2, 3, 4, 5, 8])
def test_so_few_answers_are_believed_as_students_law_says(answers):
    """Twice the standard error, raised by the factor, covers 95% of errors of a mean of normal answers."""
    draws = np.random.default_rng(answers).standard_normal((40_000, answers))
    error = student(answers) * draws.std(axis=1, ddof=1) / np.sqrt(answers)
    assert np.mean(np.abs(draws.mean(axis=1)) < 2.0 * error) == pytest.approx(0.95, abs=0.005)
