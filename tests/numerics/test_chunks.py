"""Work in chunks gives the same as work on all particles at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from epf.numerics._chunks import chunk_size, in_chunks


@pytest.mark.parametrize(
    ("particles", "most", "size"),
    [
        (1, 9, 1),
        (1000, 1024, 1000),
        (2048, 1024, 1024),
        (3000, 1024, 1000),
        (1000, 60, 50),
        (4099, 1024, 4099),
        (5, 0, 5),
    ],
)
def test_chunks_are_all_of_one_size(particles, most, size):
    """A number of particles without a useful divisor (4099 is a prime) is left whole."""
    assert chunk_size(particles, most) == size
    assert particles % size == 0


def test_every_particle_is_changed_once():
    rng = np.random.default_rng(1)
    table, row, given = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((3, 3000), (3000,), (2, 3000)))

    def function(changed, given):
        table, row = changed
        return table + given[:1] * row, row + jnp.sum(given, axis=0)

    found = jax.jit(lambda: in_chunks(function, (table, row), given))()
    for ours, expected in zip(found, function((table, row), given), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)
