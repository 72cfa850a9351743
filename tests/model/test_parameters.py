"""Parameters: names and the flat vector correspond, supports are kept, and every refusal says what to do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from epf.errors import ModelError, UnknownParameterError
from epf.model._parameters import Values, parameters_of
from epf.numerics._keys import particle_keys, root_key, step_key

# Out of alphabetical order: JAX sorts the keys of a dictionary, and the flat vector must not follow it.
PRIOR = {
    "v": dist.InverseGamma(3.0, 2.0),
    "rho": dist.Uniform(-1.0, 1.0),
    "b": dist.Normal(0.0, 2.0).expand([2]).to_event(1),
    "A": dist.Normal(jnp.zeros((2, 2)), 1.0).to_event(2),
    "mix": dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
    "S": dist.InverseWishart(6.0, jnp.eye(2)),
    "one": dist.Normal(0.0, 1.0).expand([1]).to_event(1),
}
PARAMETERS = parameters_of(PRIOR)
VALUES = {
    "v": 0.5,
    "rho": -0.25,
    "b": [1.0, 2.0],
    "A": [[3.0, 4.0], [5.0, 6.0]],
    "mix": [0.25, 0.25, 0.5],
    "S": [[2.0, 0.5], [0.5, 1.0]],
    "one": [7.0],
}
FLAT = [0.5, -0.25, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.25, 0.25, 0.5, 2.0, 0.5, 0.5, 1.0, 7.0]


def _inside(vector):
    values = PARAMETERS.as_dict(vector)
    return jnp.all(jnp.array([jnp.all(prior.support(values[name])) for name, prior in PRIOR.items()]))


@pytest.fixture(scope="module")
def draws():
    return jax.jit(jax.vmap(PARAMETERS.sample))(particle_keys(step_key(root_key(0), 0), 5000))


def test_names_labels_and_places():
    assert PARAMETERS.names == tuple(PRIOR)
    assert PARAMETERS.size == 16
    b, matrix = ("b[0]", "b[1]"), ("A[0,0]", "A[0,1]", "A[1,0]", "A[1,1]")
    mix, square = ("mix[0]", "mix[1]", "mix[2]"), ("S[0,0]", "S[0,1]", "S[1,0]", "S[1,1]")
    assert PARAMETERS.labels == ("v", "rho", *b, *matrix, *mix, *square, "one[0]")
    assert PARAMETERS.slices["A"] == slice(4, 8)
    assert [PARAMETERS.index(label) for label in PARAMETERS.labels] == list(range(16))
    assert PARAMETERS.index("one") == 15
    assert PARAMETERS.index("rho") == 1


def test_named_values_and_the_flat_vector_are_the_same_numbers():
    vector = PARAMETERS.vector(VALUES)
    np.testing.assert_array_equal(vector, np.array(FLAT, np.float32))
    p = jax.jit(lambda vector: PARAMETERS.named(vector))(vector)
    for name, value in VALUES.items():
        np.testing.assert_array_equal(p[name], np.asarray(value, np.float32))
        assert getattr(p, name).shape == PRIOR[name].event_shape
    shuffled = {name: VALUES[name] for name in sorted(VALUES)}
    np.testing.assert_array_equal(PARAMETERS.vector(shuffled), vector)
    table = PARAMETERS.as_dict(np.stack([FLAT, FLAT]))
    assert table["A"].shape == (2, 2, 2)
    np.testing.assert_array_equal(table["A"][1], VALUES["A"])


def test_the_order_of_names_survives_a_compiled_function():
    returned = eqx.filter_jit(lambda parameters: parameters)(PARAMETERS)
    assert returned.names == PARAMETERS.names
    assert returned.slices == PARAMETERS.slices
    inside = eqx.filter_jit(lambda parameters, vector: parameters.named(vector).rho)(PARAMETERS, jnp.array(FLAT))
    assert float(inside) == -0.25


def test_prior_draws_follow_the_prior(draws):
    assert draws.shape == (5000, 16)
    columns = dict(zip(PARAMETERS.labels, np.asarray(draws, np.float64).T, strict=True))
    laws = {
        "v": stats.invgamma(3.0, scale=2.0),
        "rho": stats.uniform(-1.0, 2.0),
        "b[0]": stats.norm(0.0, 2.0),
        "b[1]": stats.norm(0.0, 2.0),
        "A[1,0]": stats.norm(0.0, 1.0),
        "mix[2]": stats.beta(3.0, 3.0),
        "S[1,1]": stats.invgamma(2.5, scale=0.5),
    }
    for label, law in laws.items():
        assert stats.kstest(columns[label], law.cdf).pvalue > 1e-4, label
    for one, other in [("v", "rho"), ("b[0]", "b[1]"), ("b[0]", "one[0]")]:  # independent, each with a key of its own
        assert abs(stats.spearmanr(columns[one], columns[other]).statistic) * np.sqrt(5000) < 5.0
    assert bool(jax.jit(jax.vmap(_inside))(draws).all())


def test_log_prior_is_the_sum_of_log_densities():
    expected = (
        stats.invgamma(3.0, scale=2.0).logpdf(0.5)
        + stats.uniform(-1.0, 2.0).logpdf(-0.25)
        + stats.norm(0.0, 2.0).logpdf([1.0, 2.0]).sum()
        + stats.norm(0.0, 1.0).logpdf([3.0, 4.0, 5.0, 6.0, 7.0]).sum()
        + stats.dirichlet([1.0, 2.0, 3.0]).logpdf([0.25, 0.25, 0.5])
        + stats.invwishart(6, np.eye(2)).logpdf(VALUES["S"])
    )
    assert float(jax.jit(lambda vector: PARAMETERS.log_prior(vector))(jnp.array(FLAT))) == pytest.approx(
        expected, rel=1e-5
    )


def test_constrain_and_unconstrain_are_inverse(float64):
    free = np.random.default_rng(0).normal(
        size=(1000, 14)
    )  # a simplex of 3 has 2 free numbers, a covariance of 2 has 3

    def there_and_back(free):
        vector = PARAMETERS.constrain(free)
        return vector, _inside(vector), PARAMETERS.unconstrain(vector)

    vector, inside, back = jax.jit(jax.vmap(there_and_back))(free)
    assert vector.shape == (1000, 16)
    assert bool(inside.all())
    # In double precision, what the maps lose near the edges of the supports is far below 1e-6.
    np.testing.assert_allclose(back, free, rtol=1e-6, atol=1e-6)
    columns = dict(zip(PARAMETERS.labels, np.asarray(vector).T, strict=True))
    np.testing.assert_array_equal(columns["b[1]"], free[:, 3])  # the real line is left alone
    np.testing.assert_allclose(np.log(columns["v"]), free[:, 0], rtol=1e-6, atol=1e-6)


def test_where_the_support_is_the_real_line_nothing_is_moved():
    real = parameters_of({"b": PRIOR["b"], "A": PRIOR["A"]})
    vector = jnp.arange(6.0)
    np.testing.assert_array_equal(real.unconstrain(vector), vector)
    np.testing.assert_array_equal(real.constrain(vector), vector)


def test_maps_of_single_numbers_rise():
    """Quantiles of coordinates are those of values, also below a bound, where NumPyro's own map falls."""
    below = dist.TruncatedNormal(0.0, 1.0, high=2.0)
    prior = {"one": below, "several": below.expand([2]).to_event(1), "v": PRIOR["v"], "rho": PRIOR["rho"]}
    params = parameters_of(prior)
    z = jnp.array([-1.0, 0.5, 2.0])

    @jax.jit
    def moved(z):
        lines = jax.vmap(params.constrain)(jnp.broadcast_to(z[:, None], (3, params.size)))
        return (
            lines,
            jax.vmap(params.unconstrain)(lines),
            jax.vmap(parameters_of({"one": below}).log_prior_free)(z[:, None]),
        )

    lines, back, alone = moved(z)
    assert bool(jnp.all(jnp.diff(lines, axis=0) > 0.0))
    np.testing.assert_allclose(lines[:, 0], 2.0 - np.exp(-z), rtol=1e-6)
    np.testing.assert_allclose(back, np.stack([z] * params.size, 1), rtol=1e-5)
    # log N(theta; 0, 1) over P(theta < 2), and d theta / dz = exp(-z)
    expected = stats.norm.logpdf(lines[:, 0]) - stats.norm.logcdf(2.0) - z
    np.testing.assert_allclose(alone, expected, rtol=1e-5)


def test_one_element_is_mapped_as_in_the_vector(draws):
    flags = dict(zip(PARAMETERS.labels, PARAMETERS.elementwise, strict=True))
    assert [label for label, alone in flags.items() if not alone] == [
        *("mix[0]", "mix[1]", "mix[2]", "S[0,0]", "S[0,1]", "S[1,0]", "S[1,1]")
    ]

    def both_ways(one):
        alone = jnp.stack([PARAMETERS.to_real(index)(one[index]) for index in range(10)])
        return alone, PARAMETERS.unconstrain(one)

    alone, free = jax.jit(both_ways)(draws[0])
    np.testing.assert_allclose(alone[:8], free[:8], rtol=1e-6)  # before the simplex, both vectors have the same places
    np.testing.assert_array_equal(alone[8:], draws[0, 8:10])


def test_a_model_without_unknowns_has_an_empty_vector():
    nothing = parameters_of({})
    assert nothing.size == 0
    assert nothing.labels == nothing.names == ()
    assert (
        nothing.vector({}).shape == nothing.sample(root_key(0)).shape == nothing.constrain(jnp.zeros(0)).shape == (0,)
    )
    assert float(nothing.log_prior(jnp.zeros(0))) == 0.0


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"theta": 1.0}, UnknownParameterError, "no parameter 'theta': .*v, rho, b, A, mix, S, one.*spelling"),
        ({"v": None}, ModelError, "'v' .*must be a number"),
        ({"v": "large"}, ModelError, "'v' .*'large'.*must be a number"),
        ({"b": 1.0}, ModelError, r"'b' has shape \(\).*shape \(2,\).*each element"),
        ({"b": [1.0, 2.0, 3.0]}, ModelError, r"'b' has shape \(3,\)"),
        ({"b": [[1.0], [2.0, 3.0]]}, ModelError, "'b' .*must be a number or an array"),
        ({"A": [1.0, 2.0, 3.0, 4.0]}, ModelError, r"'A' has shape \(4,\).*\(2, 2\)"),
        ({"v": -1.0}, ModelError, "v = -1.0 is outside the support of its prior .InverseGamma"),
        ({"v": float("nan")}, ModelError, "v = nan is outside the support"),
        ({"v": float("inf")}, ModelError, "v = inf is outside the support"),
        ({"rho": 1.5}, ModelError, "rho = 1.5 is outside the support of its prior .Uniform"),
        ({"mix": [0.5, 0.5, 0.5]}, ModelError, "mix = .*outside the support.*Dirichlet"),
        ({"S": [[1.0, 2.0], [2.0, 1.0]]}, ModelError, "S = .*outside the support"),
    ],
)
def test_values_that_cannot_be_used_are_refused(change, error, sentence):
    with pytest.raises(error, match=sentence):
        PARAMETERS.vector({**VALUES, **change})


def test_a_missing_value_is_asked_for():
    with pytest.raises(UnknownParameterError, match="value is needed for parameter 'rho'"):
        PARAMETERS.vector({name: value for name, value in VALUES.items() if name != "rho"})


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ("theta", "no parameter 'theta'"),
        ("b", "'b' has 2 elements: name one, such as 'b.0.'"),
        ("b[7]", r"no parameter"),
    ],
)
def test_a_label_that_names_no_element_is_refused(label, sentence):
    with pytest.raises(UnknownParameterError, match=sentence):
        PARAMETERS.index(label)


@pytest.mark.parametrize(
    ("priors", "sentence"),
    [
        (None, r"prior\(\) returned None.*return a dictionary"),
        ([dist.Normal(0.0, 1.0)], "returned list.*return a dictionary"),
        (dist.Normal(0.0, 1.0), "returned Normal.*return a dictionary"),
        ({"a": 1.0}, "gives float for 'a', not a distribution.*epf.fix"),
        ({"a": dist.Normal}, "for 'a', not a distribution"),
        ({"a": dist.Normal(jnp.zeros(3), 1.0)}, r"'a' a distribution with batch shape \(3,\): add \.to_event\(1\)"),
        ({"a": dist.Normal(jnp.zeros((3, 2)), 1.0)}, r"\.to_event\(2\)"),
        ({"two words": dist.Normal(0.0, 1.0)}, "'two words' as a name.*plain Python name"),
        ({"_a": dist.Normal(0.0, 1.0)}, "'_a' as a name"),
        ({"": dist.Normal(0.0, 1.0)}, "'' as a name"),
        ({3: dist.Normal(0.0, 1.0)}, "3 as a name"),
        ({"2a": dist.Normal(0.0, 1.0)}, "'2a' as a name"),
    ],
)
def test_priors_that_cannot_be_used_are_refused(priors, sentence):
    with pytest.raises(ModelError, match=sentence):
        parameters_of(priors)


def test_values_are_read_by_name_and_only_read():
    p = Values({"theta": 1.0, "a": 2.0})
    assert p.theta == p["theta"] == 1.0
    assert "a" in p
    assert "b" not in p
    assert list(p) == ["theta", "a"]
    assert repr(p) == "Values(theta=1.0, a=2.0)"
    with pytest.raises(AttributeError, match="read-only"):
        p.theta = 3.0


def test_an_unknown_value_is_an_attribute_a_key_and_a_model_error():
    p = Values({"theta": 1.0})
    for kind in (UnknownParameterError, AttributeError, KeyError, ModelError):
        with pytest.raises(kind):
            p.thetta  # noqa: B018
    with pytest.raises(UnknownParameterError) as caught:
        p["thetta"]
    assert str(caught.value).startswith("There is no parameter 'thetta': the model's prior names theta.")
    assert not hasattr(p, "thetta")


def test_values_pass_through_transformations_in_order():
    p = Values({"theta": jnp.array([1.0, 2.0]), "a": jnp.array([3.0, 4.0])})
    doubled = jax.jit(jax.vmap(lambda q: jax.tree.map(lambda leaf: 2.0 * leaf, q)))(p)
    assert list(doubled) == ["theta", "a"]
    np.testing.assert_array_equal(doubled.a, [6.0, 8.0])
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(p)]
    assert paths == [".theta", ".a"]


def test_values_can_be_copied_and_pickled():
    import copy
    import pickle

    values = Values({"a": 1.0, "b": 2.0})
    for twin in (copy.copy(values), copy.deepcopy(values), pickle.loads(pickle.dumps(values))):
        assert (twin.a, twin.b) == (1.0, 2.0)
