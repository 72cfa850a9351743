"""Random numbers: step keys depend on seed and time alone, and particle_keys behave as independent streams.

Statistical bounds: a z-score beyond 5 has probability 6e-7 under independence, and a few hundred are looked at.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from epf.model._laws import draw
from epf.numerics._keys import EVEN, beside, even_keys, particle_keys, root_key, step_key, threefry_key

KINDS = {
    "step": lambda: step_key(root_key(3), 7),
    "threefry": lambda: jax.random.key(3, impl="threefry2x32"),
    "rbg": lambda: jax.random.key(3, impl="rbg"),
    "legacy": lambda: jax.random.PRNGKey(4),
    "lane": lambda: particle_keys(step_key(root_key(3), 7), 5)[3],
    "child of a lane": lambda: jax.random.split(particle_keys(step_key(root_key(3), 7), 5)[3])[1],
}
LANES, WORDS, STEPS = 4096, 6, 4

_normals = jax.jit(lambda key: jax.vmap(lambda k: jax.random.normal(k, (WORDS,)))(particle_keys(key, LANES)))


def _data(keys):
    return np.asarray(jax.random.key_data(keys)).reshape(-1, 3)


def _distinct(data):
    return len({tuple(row) for row in data.tolist()}) == len(data)


def _correlation_z(a, b):
    """The z-score of the mean product of standard normals."""
    return np.sqrt(a.size) * np.mean(a * b)


def test_a_step_key_depends_on_seed_and_time_only():
    compiled = jax.jit(lambda seed, times: jax.vmap(lambda t: step_key(root_key(seed), t))(times))
    keys = np.stack([_data(compiled(seed, np.arange(50))) for seed in (0, 1, 2)])
    assert _distinct(keys.reshape(-1, 3))
    np.testing.assert_array_equal(keys[1, 30:], _data(compiled(1, np.arange(30, 80)))[:20])  # a run cut at 30
    np.testing.assert_array_equal(keys[2, 17], _data(step_key(root_key(2), 17))[0])
    with jax.default_prng_impl("rbg"):  # a user's choice of generator does not matter
        np.testing.assert_array_equal(keys[2, 17], _data(step_key(root_key(2), 17))[0])


@pytest.mark.parametrize("kind", KINDS)
def test_lanes_of_every_kind_of_key_are_independent_normals(kind):
    keys = jax.jit(particle_keys, static_argnums=1)(KINDS[kind](), LANES)
    assert keys.shape == (LANES,)
    assert _distinct(_data(keys))
    z = np.asarray(_normals(KINDS[kind]()), np.float64)
    scores = [np.sqrt(z.size) * z.mean(), np.sqrt(z.size / 2.0) * (np.mean(z**2) - 1.0)]
    scores += [_correlation_z(z[lag:], z[:-lag]) for lag in (1, 2, 3, 16, 64, 1024)]  # between particle_keys
    scores += [_correlation_z(z[:, lag:], z[:, :-lag]) for lag in range(1, WORDS)]  # between words of a lane
    assert np.abs(scores).max() < 5.0
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-4


def test_lanes_of_different_keys_share_no_stream():
    data = np.concatenate([_data(particle_keys(make(), 200)) for make in KINDS.values()])
    assert _distinct(data)
    first = np.concatenate([np.asarray(_normals(make()))[:, 0] for make in KINDS.values()])
    # 24 576 draws of 23 random bits: 36 pairs are expected to be equal, with a standard deviation of 6.
    assert len(first) - len(np.unique(first)) < 36 + 5 * 6


def test_the_same_lane_at_different_steps_is_uncorrelated():
    keys = jax.vmap(lambda t: step_key(root_key(0), t))(np.arange(STEPS))
    z = np.asarray(jax.jit(jax.vmap(_normals))(keys), np.float64)
    pairs = [(s, t) for s in range(STEPS) for t in range(s)]
    assert np.abs([_correlation_z(z[s], z[t]) for s, t in pairs]).max() < 5.0
    assert np.abs([_correlation_z(z[s, 1:], z[t, :-1]) for s, t in pairs]).max() < 5.0
    assert np.abs(np.sqrt(z[0].size) * z.mean(axis=(1, 2))).max() < 5.0


def test_children_of_a_lane_are_distinct_and_independent_of_it():
    key = particle_keys(step_key(root_key(1), 2), 9)[4]

    def family(key):
        folded = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(100))
        split = jax.random.split(key, (10, 10)).reshape(-1)
        own = particle_keys(key, 100)
        return jnp.concatenate([key[None], folded, split, own, jax.random.split(split[0], 100)])

    keys = jax.jit(family)(key)
    assert _distinct(_data(keys))
    words = np.asarray(jax.jit(jax.vmap(lambda k: jax.random.bits(k, (4,))))(keys))
    assert len(np.unique(words)) == words.size  # 1604 words of 32 bits: equal ones once in 3000 seeds

    def parent_and_children(key):
        return jnp.stack([jax.random.normal(k) for k in (key, *jax.random.split(key), jax.random.fold_in(key, 0))])

    z = np.asarray(jax.jit(jax.vmap(parent_and_children))(particle_keys(key, LANES)), np.float64)
    correlations = np.sqrt(LANES) * (z.T @ z / LANES - np.eye(4))
    np.fill_diagonal(correlations, np.diag(correlations) / np.sqrt(2.0))
    assert np.abs(correlations).max() < 5.0


def test_uniforms_are_uniform_across_lanes_and_within_one():
    key = step_key(root_key(5), 1)
    across = jax.jit(jax.vmap(jax.random.uniform))(particle_keys(key, 20_000))
    within = jax.jit(lambda k: jax.random.uniform(k, (20_000,)))(particle_keys(key, 3)[2])
    for values in (across, within):
        assert stats.kstest(np.asarray(values, np.float64), "uniform").pvalue > 1e-4
        assert values.min() >= 0.0
        assert values.max() < 1.0


def test_every_bit_of_a_word_is_a_fair_coin():
    count = 20_000
    keys = particle_keys(step_key(root_key(6), 1), count)
    for width in (8, 16, 32):
        words = np.asarray(jax.jit(jax.vmap(lambda k, w=width: jax.random.bits(k, (), f"uint{w}")))(keys))
        ones = np.array([((words >> bit) & 1).mean() for bit in range(width)])
        assert np.abs(2.0 * np.sqrt(count) * (ones - 0.5)).max() < 5.0


def test_double_precision_uniforms_fill_their_mantissa(float64):
    count = 20_000
    for keys, shape in (
        (particle_keys(step_key(root_key(7), 1), count), ()),
        (particle_keys(step_key(root_key(7), 2), 1), (count,)),
    ):
        values = np.asarray(jax.jit(jax.vmap(lambda k, s=shape: jax.random.uniform(k, s)))(keys)).ravel()
        assert values.dtype == np.float64
        whole = (values * 2.0**52).astype(np.int64)
        assert (whole / 2.0**52 == values).all()  # JAX makes a uniform of 52 bits
        bits = (whole[:, None] >> np.arange(52)) & 1
        scores = 2.0 * np.sqrt(count) * (bits.mean(axis=0) - 0.5)
        assert np.abs(scores).max() < 5.0
        # The two halves are made of different words: low bits do not repeat high ones.
        signs = 2.0 * bits - 1.0
        products = np.sqrt(count) * (signs.T @ signs / count - np.eye(52))
        assert np.abs(products).max() < 5.5  # 1326 pairs
        assert stats.kstest(values, "uniform").pvalue > 1e-4


def test_lane_keys_serve_numpyro_distributions():
    count = 5000
    covariance = jnp.array([[1.0, 0.6], [0.6, 2.0]])
    laws = {
        "normal": dist.Normal(1.0, 2.0),
        "gamma": dist.Gamma(0.7, 2.0),
        "beta": dist.Beta(2.0, 3.0),
        "mvn": dist.MultivariateNormal(jnp.array([1.0, -1.0]), covariance),
        "category": dist.Categorical(jnp.array([0.2, 0.5, 0.3])),
    }

    def draw(key):
        keys = (*jax.random.split(key, 3), jax.random.fold_in(key, 0), jax.random.fold_in(key, 1))
        return {name: law.sample(k) for (name, law), k in zip(laws.items(), keys, strict=True)}

    found = {
        name: np.asarray(value, np.float64)
        for name, value in jax.jit(jax.vmap(draw))(particle_keys(step_key(root_key(8), 1), count)).items()
    }
    assert stats.kstest(found["normal"], stats.norm(1.0, 2.0).cdf).pvalue > 1e-4
    assert stats.kstest(found["gamma"], stats.gamma(0.7, scale=0.5).cdf).pvalue > 1e-4
    assert stats.kstest(found["beta"], stats.beta(2.0, 3.0).cdf).pvalue > 1e-4
    white = np.linalg.solve(np.linalg.cholesky(np.asarray(covariance, np.float64)), (found["mvn"] - [1.0, -1.0]).T)
    assert np.abs(np.sqrt(count) * white.mean(axis=1)).max() < 5.0
    assert np.abs(np.sqrt(count / 2.0) * (white @ white.T / count - np.eye(2))).max() < 5.0
    frequencies = np.bincount(found["category"].astype(int), minlength=3)
    assert stats.chisquare(frequencies, count * np.array([0.2, 0.5, 0.3])).pvalue > 1e-4
    assert abs(stats.spearmanr(found["normal"], found["gamma"]).statistic) * np.sqrt(count) < 5.0


def test_a_lane_has_one_threefry_key_of_its_own():
    """Some samplers of JAX take no other kind of key; the children of different particle_keys must differ."""
    keys = jax.jit(jax.vmap(threefry_key))(particle_keys(step_key(root_key(9), 1), 1000))
    data = np.asarray(jax.random.key_data(keys))
    assert data.shape == (1000, 2)
    assert _distinct(data)
    z = np.asarray(jax.vmap(jax.random.normal)(keys), np.float64)
    assert stats.kstest(z, "norm").pvalue > 1e-4
    own = jax.random.key(4)
    np.testing.assert_array_equal(jax.random.key_data(threefry_key(own)), jax.random.key_data(own))


FEW, TIMES = 32, 2000


@pytest.fixture(scope="module")
def even():
    """Uniform numbers of a few lanes, and of the two keys of their splits, at many steps: (TIMES, FEW, 3, 2)."""

    @jax.jit
    @jax.vmap
    def many(t):
        def one(key):
            first, second = jax.random.split(key)
            return jnp.stack([jax.random.uniform(k, (2,)) for k in (key, first, second)])

        return jax.vmap(one)(even_keys(step_key(root_key(5), t), FEW))

    return np.asarray(many(np.arange(TIMES)), np.float64)


def test_each_even_lane_draws_from_the_law_that_it_should(even):
    for column in np.moveaxis(even, 0, -1).reshape(-1, TIMES):
        assert stats.kstest(column, "uniform").pvalue > 1e-5
    # The numbers of one lane are independent of each other, also of those after a split.
    z = np.sqrt(12.0) * (even.reshape(TIMES, FEW, 6) - 0.5)
    scores = [_correlation_z(z[..., i], z[..., j]) for i in range(6) for j in range(i)]
    lanes = [_correlation_z(z[:, lane, i], z[:, lane, j]) for lane in range(FEW) for i in range(6) for j in range(i)]
    # Lanes share their shift, so a mean over them all varies by up to that of one lane.
    assert np.abs(scores).max() < 5.0 * np.sqrt(FEW)
    assert np.abs(lanes).max() < 5.0


def test_even_draws_have_one_point_in_each_cell_and_splits_do_not(even):
    cells = np.sort(np.floor(FEW * even[:, :, 0]), axis=1)
    np.testing.assert_array_equal(cells, np.broadcast_to(np.arange(FEW)[:, None], cells.shape))
    by_chance = TIMES * FEW * np.var(even[:, :, 1:].mean(axis=1), axis=0) * 12.0 / TIMES
    np.testing.assert_allclose(by_chance, 1.0, atol=5.0 * np.sqrt(2.0 / TIMES))


def test_a_key_beside_another_is_as_even_and_independent_of_it():
    @jax.jit
    @jax.vmap
    def many(t):
        keys = even_keys(step_key(root_key(8), t), FEW)
        return jax.vmap(lambda k: jnp.stack([jax.random.uniform(k, ()), jax.random.uniform(beside(k), (EVEN,))[-1]]))(
            keys
        )

    found = np.asarray(many(np.arange(TIMES)), np.float64)
    cells = np.sort(np.floor(FEW * found), axis=1)
    np.testing.assert_array_equal(cells, np.broadcast_to(np.arange(FEW)[:, None], cells.shape))
    z = np.sqrt(12.0) * (found - 0.5)
    assert max(abs(_correlation_z(z[:, lane, 0], z[:, lane, 1])) for lane in range(FEW)) < 5.0
    both = np.sum(z[..., 0] * z[..., 1], axis=1) / np.sqrt(FEW)  # of one step, over the lanes: even together
    assert both.var() < 0.5
    plain = step_key(root_key(0), 1), jax.random.key(0)
    assert all(jax.random.uniform(beside(key)) != jax.random.uniform(key) for key in plain)


LAWS = {
    "normal": (dist.Normal(1.0, 2.0), stats.norm(1.0, 2.0)),
    "gamma": (dist.Gamma(0.7, 2.0), stats.gamma(0.7, scale=0.5)),
    "inverse gamma": (dist.InverseGamma(5.0, 2.0), stats.invgamma(5.0, scale=2.0)),
    "Student": (dist.StudentT(5.0, 1.0, 2.0), stats.t(5.0, 1.0, 2.0)),
    "Cauchy": (dist.Cauchy(1.0, 2.0), stats.cauchy(1.0, 2.0)),
    "beta": (dist.Beta(2.0, 3.0), stats.beta(2.0, 3.0)),
    "two gammas": (dist.Gamma(jnp.array([2.0, 3.0]), 1.0).to_event(1), stats.gamma(2.0)),
}


@pytest.mark.parametrize("name", LAWS)
def test_draws_with_even_keys_follow_the_law_and_most_are_even(name):
    law, exact = LAWS[name]
    draws = jax.jit(jax.vmap(lambda t: jax.vmap(lambda k: draw(law, k))(even_keys(step_key(root_key(6), t), FEW))))
    found = np.asarray(draws(np.arange(TIMES)), np.float64).reshape(TIMES, FEW, -1)[..., 0]
    shares = exact.cdf(found)
    for lane in range(FEW):
        assert stats.kstest(shares[:, lane], "uniform").pvalue > 1e-5
    over_chance = 12.0 * FEW * np.var(shares.mean(axis=1))
    assert over_chance < 0.2 or name == "beta"  # which NumPyro draws by rejection


class Doubled(dist.Gamma):
    """A law with draws of its own."""

    def sample(self, key, sample_shape=()):
        return 2.0 * super().sample(key, sample_shape)


def test_a_subclass_with_draws_of_its_own_keeps_them():
    law, key = Doubled(3.0, 1.0), step_key(root_key(0), 1)
    assert draw(law, key) == law.sample(key)
    pair = law.expand((2,)).to_event(1)
    np.testing.assert_array_equal(draw(pair, key), pair.sample(key))


def test_even_draws_in_double_precision_use_all_bits():
    with jax.enable_x64(True):
        found = np.asarray(jax.vmap(lambda k: jax.random.uniform(k, ()))(even_keys(root_key(0), 8)))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(np.sort(np.floor(8 * found)), np.arange(8))
    assert ((found * 2.0**40) % 1.0 != 0.0).all()
