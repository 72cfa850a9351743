"""Quantiles by Newton's method against scipy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from epf.numerics._sums import quantile_of


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.99])
def test_several_numbers_at_once_from_a_poor_start(level):
    means, sds = jnp.array([0.0, 5.0, -3.0]), jnp.array([1.0, 0.01, 20.0])

    def distribution(point):
        z = (point - means) / sds
        return jax.scipy.special.ndtr(z), jnp.exp(-0.5 * z**2) / sds / jnp.sqrt(2.0 * jnp.pi)

    low, high = means - 9.0 * sds, means + 9.0 * sds
    found = quantile_of(distribution, jnp.asarray(level), high - 0.1 * sds, low, high)
    assert stats.norm.cdf(np.asarray(found, float), means, sds) == pytest.approx(level, abs=2e-4)
