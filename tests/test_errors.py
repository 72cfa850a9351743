"""What a careless user meets: one sentence that names the thing, the place and the remedy; and what is survived."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import epf
from epf.errors import (
    AccuracyWarning,
    DataError,
    EPFError,
    EPFWarning,
    ModelError,
    NumericalError,
    SettingError,
    UnknownParameterError,
    UnknownSettingError,
    UnsupportedModelError,
)
from epf.model._check import check_model, check_observations
from epf.model._series import check_series
from models import AR, VectorAR

N = dist.Normal
SIR = epf.SIR(particles=20, islands=1)
Y = np.array([0.1, -0.2, 0.3, 0.6, 0.2, 0.1])
AT = 3  # the row of Y that tests spoil


pytestmark = pytest.mark.usefixtures("quick_compilation")


class raises:
    """The block must raise exactly this kind of error, in one clean line that has all the words in it."""

    def __init__(self, kind, *words):
        self.kind, self.words = kind, words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        assert kind is self.kind, f"expected {self.kind.__name__}, got {error!r}"
        message = str(error)
        for word in self.words:
            assert word in message, f"{word!r} is not in {message!r}"
        assert "\n" not in message
        assert "Tracer[" not in message
        assert "Tracer(" not in message
        assert message[0].isupper() or message[0].islower()
        assert message.endswith(".")
        assert len(message) < 450
        self.error = error
        return True


def model(**parts):
    """x = a x + N(0, 1) seen with N(0, 0.5), some of its methods replaced by others."""

    class Mine(epf.StateSpaceModel):
        def prior(self):
            return {"a": N(0.0, 1.0)}

        def initial(self, p):
            return N(0.0, 1.0)

        def transition(self, p, x, u):
            return N(p.a * x, 1.0)

        def observation(self, p, x, u):
            return N(x, 0.5)

    own = {name: lambda self, *args, part=part: part(*args) for name, part in parts.items()}
    return type("Mine", (Mine,), own)()


class Fragile(epf.StateSpaceModel):
    """Its variance is learned from squares, and its input breaks it: 1 makes every particle NaN, 2 those above zero."""

    def prior(self):
        return {"v": dist.InverseGamma(3.0, 1.0)}

    def initial(self, p):
        return N(0.0, 1.0)

    def transition(self, p, x, u):
        broken = (u[0] == 1.0) | ((u[0] == 2.0) & (x > 0.0))
        return N(0.8 * x + jnp.where(broken, jnp.nan, 0.0), 1.0)

    def observation(self, p, x, u):
        return N(x, jnp.sqrt(p.v))


def fit_ar(y=Y, **settings):
    return epf.fit(AR(), y, SIR, **settings)


@pytest.fixture(scope="module")
def result():
    return fit_ar()


def raise_(error):
    raise error


# --- the observations -----------------------------------------------------------------------------------------------

BAD_OBSERVATIONS = {
    "rank": (np.zeros((3, 2, 2)), "(2, 2) at each time step", "(T,)"),
    "columns": (np.zeros((3, 2)), "(2,) at each time step", "one number"),
    "no columns": (np.zeros((3, 0)), "(0,) at each time step"),
    "ragged": ([[1.0], [1.0, 2.0]], "y cannot be read", "same length"),
    "text": (["1.0", "b"], "text ('1.0')", "time index 0", "convert it"),
    "a word": ("abc", "text ('abc')", "convert it"),
    "text in a column": ([[1.0], ["b"]], "text ('b')", "time index 1, component 0", "convert it"),
    "one text among numbers": ([1.0, None, "b"], "text ('b')", "time index 2", "convert it"),
    "complex": (Y + 1j, "complex", "time index 0", "convert it"),
    "datetime": (pd.date_range("2020-01-01", periods=3), "2020-01-01", "time index 0", "convert it"),
    "timestamps": ([pd.Timestamp("2020-01-01")], "Timestamp", "time index 0", "convert it"),
    "objects": ([0.0, object()], "object", "time index 1", "convert it"),
    "dictionary": ({"y": 1.0}, "dict", "convert it"),
    "infinity": ([0.0, np.inf], "infinite", "time index 1", "NaN"),
    "minus infinity": ([-np.inf, 0.0], "infinite", "time index 0", "NaN"),
    "beyond float32": ([0.0, 1e300], "too large for float32", "time index 1", "rescale", "jax_enable_x64"),
    "empty list": ([], "empty", "at least one"),
    "empty table": (np.zeros((0, 1)), "empty", "at least one"),
    "number": (3.0, "float", "array or a list"),
    "array without rows": (np.array(3.0), "array or a list"),
    "generator": ((v for v in Y), "generator", "array or a list"),
    "a row of all steps": (np.zeros((1, 6)), "(6,) at each time step", "transpose"),
    "nothing": (None, "None", "array or a list"),
    "model": (AR(), "AR", "array or a list"),
}


@pytest.mark.parametrize("case", BAD_OBSERVATIONS)
def test_observations_that_cannot_be_used(case):
    y, *words = BAD_OBSERVATIONS[case]
    with raises(DataError, "y ", *words):
        fit_ar(y)


def test_rows_that_follow_others_are_counted_with_them():
    with raises(DataError, "y is infinite", "time index 11"):
        check_series(AR(), [0.0, np.inf], None, first=10)


def test_the_wrong_component_of_a_row_is_named():
    spoiled = np.zeros((4, 2))
    spoiled[2, 1] = np.inf
    with raises(DataError, "time index 2, component 1"):
        epf.fit(VectorAR(), spoiled, SIR)
    for wrong in (np.zeros((4, 3)), np.zeros(4)):
        with raises(DataError, "at each time step", "(T, 2)"):
            epf.fit(VectorAR(), wrong, SIR)


@pytest.mark.parametrize(
    "same",
    [
        list(Y),
        tuple(Y),
        Y[:, None],
        jnp.asarray(Y),
        pd.Series(Y),
        pd.DataFrame({"price": Y}),
        pd.Series(Y, index=pd.date_range("2020-01-01", periods=len(Y))),
        pd.Series(Y, dtype="Float64"),
        list(map(np.float32, Y)),
    ],
    ids=lambda same: type(same).__name__,
)
def test_all_ways_to_write_the_same_series_give_the_same_answer(same, result):
    assert fit_ar(same).mean == result.mean


def test_nothing_na_and_a_mask_mean_missing():
    missing = Y.copy()
    missing[AT] = np.nan
    expected = fit_ar(missing).mean
    assert expected != fit_ar(Y).mean
    written = [None if np.isnan(v) else v for v in missing]
    with_na = pd.Series(written, dtype="Float64")
    masked = np.ma.masked_array(Y, np.isnan(missing))
    for same in (written, pd.Series(written), with_na, with_na.astype(object), masked):
        assert fit_ar(same).mean == expected


class Seen(AR):
    """A walk, seen through any law."""

    law: Any = None

    def observation(self, p, x, u):
        return self.law(p, x)


OUTSIDE = {
    "a negative count": (lambda p, x: dist.Poisson(jnp.exp(x)), -1.0, "a whole number, zero or more"),
    "half a count": (lambda p, x: dist.NegativeBinomial2(jnp.exp(x), 2.0), 1.5, "a whole number"),
    "too many of ten": (lambda p, x: dist.Binomial(10, logits=x), 11.0, "a whole number from 0 to 10"),
    "neither yes nor no": (lambda p, x: dist.Bernoulli(logits=x), 2.0, "0 or 1"),
    "a percentage": (lambda p, x: dist.Beta(2.0, jnp.exp(x)), 45.0, "between 0 and 1"),
    "a direction in degrees": (lambda p, x: dist.VonMises(x, 2.0), 270.0, "an angle from -pi to pi"),
    "a price of zero": (lambda p, x: dist.LogNormal(x, 1.0), 0.0, "positive"),
    "beyond known ends": (lambda p, x: dist.Uniform(-1.0, 5.0), 7.0, "from -1 to 5"),
    "below a threshold": (lambda p, x: dist.Pareto(0.5, 2.0), 0.25, "above 0.5"),
    "above a limit": (lambda p, x: dist.TruncatedNormal(x, 1.0, high=4.0), 7.0, "at most 4"),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_values_that_the_law_cannot_give(case):
    law, wrong, words = OUTSIDE[case]
    shapes = check_model(Seen(law=law), None)
    inside = np.where(np.arange(6) == 2, np.nan, 1.0) * (0.5 if "percentage" in case else 1.0)
    check_observations(inside, shapes)
    with raises(DataError, f"y is {wrong:g}", "time index 13", "observation()", words, "NaN"):
        check_observations(np.where(np.arange(6) == AT, wrong, inside), shapes, first=10)


def test_ends_that_move_say_nothing_of_a_value():
    """Whether it is possible depends on the state, and the filters find out."""
    shapes = check_model(Seen(law=lambda p, x: dist.Uniform(x - 1.0, x + 1.0)), None)
    assert shapes.allowed == ()
    check_observations(np.full(3, 1e6), shapes)


def test_the_component_that_its_sensor_cannot_give_is_named():
    shapes = check_model(Seen(law=lambda p, x: epf.Sensors(N(x, 1.0), dist.Poisson(jnp.exp(x)))), None)
    check_observations([[-1.0, 3.0], [np.nan, 0.0], [2.0, np.nan]], shapes)
    with raises(DataError, "y is -2", "time index 1, component 1", "a whole number"):
        check_observations([[-1.0, 3.0], [-1.0, -2.0]], shapes)
    shapes = check_model(Seen(law=lambda p, x: dist.Multinomial(5, jnp.ones(3) / 3)), None)
    check_observations([[1.0, 3.0, 1.0], [np.nan] * 3], shapes)
    with raises(DataError, "y is 1, 3, 3 at time index 1,", "a vector of whole numbers that add up to 5"):
        check_observations([[1.0, 3.0, 1.0], [1.0, 3.0, 3.0]], shapes)


def test_a_stream_stays_as_it_was_when_a_value_cannot_be():
    stream = epf.Stream(Seen(law=lambda p, x: dist.Poisson(jnp.exp(x))), SIR)
    for value in (1.0, 3.0, np.nan):
        stream.update(value)
    before = stream.posterior.mean
    with raises(DataError, "y is -1", "time index 3"):
        stream.update(-1.0)
    assert stream.num_observations == 3
    assert stream.posterior.mean == before
    stream.update(2.0)
    assert stream.num_observations == 4


class Votes(Seen):
    """So many for, of so many asked, which differ from row to row."""

    def observation(self, p, x, u):
        return dist.Binomial(u[0].astype(int), logits=x)


def test_ends_that_follow_from_inputs_are_not_those_of_the_first_row():
    votes, y, asked = Votes(law=None), np.array([3.0, 12.0, 40.0]), np.array([[5.0], [20.0], [90.0]])
    assert check_model(votes, asked[0]).allowed == ()
    epf.fit(votes, y, SIR, inputs=asked)
    stream = epf.Stream(votes, SIR)
    for value, u in zip(y, asked, strict=True):
        stream.update(value, u)
    panel = epf.Panel(votes, SIR)
    for value, u in zip(y, asked, strict=True):
        assert not panel.update({"a": value}, {"a": u}).failed


def test_a_series_of_a_panel_stays_as_it_was_when_a_value_cannot_be():
    panel = epf.Panel(Seen(law=lambda p, x: dist.Poisson(jnp.exp(x))), SIR)
    panel.update({"a": 1.0, "b": 2.0})
    with pytest.warns(epf.errors.EPFWarning, match="'a': y is -1 at time index 1, which observation"):
        updated = panel.update({"a": -1.0, "b": 3.0})
    assert updated.keys == ["b"]
    assert list(updated.failed) == ["a"]
    assert panel["a"].num_observations == 1
    assert panel.update({"a": np.nan, "b": 3.0}).keys == ["a", "b"]


def test_a_partly_missing_row_needs_a_law_that_can_weigh_the_rest():
    heavy = model(observation=lambda p, x, u: dist.MultivariateStudentT(3.0, jnp.stack([x, -x]), jnp.eye(2)))
    y = np.array([[0.1, -0.1], [np.nan, np.nan], [0.2, np.nan]])
    with raises(DataError, "time index 2, component 1", "MultivariateStudentT", "whole row", "to_event(1)"):
        epf.fit(heavy, y, SIR)
    whole = check_observations(y[:2], check_model(heavy, None))
    np.testing.assert_array_equal(whole, np.float32(y[:2]))


# --- the inputs -----------------------------------------------------------------------------------------------------

BAD_INPUTS = {
    "length": (np.zeros((3, 1)), "(3, 1)", "6 steps", "one row per step"),
    "rank": (np.zeros((6, 1, 1)), "(6, 1, 1)", "one row per step"),
    "number": (3.0, "6 steps", "one row per step"),
    "NaN": ([0.0, 0.0, np.nan, 0.0, 0.0, 0.0], "time index 2, component 0", "cannot be missing"),
    "infinity": ([0.0, 0.0, 0.0, np.inf, 0.0, 0.0], "time index 3, component 0", "cannot be missing"),
    "text": (["a"] * 6, "text ('a')", "time index 0", "convert it"),
    "ragged": ([[1.0], [1.0, 2.0]], "cannot be read", "same length"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_inputs_that_cannot_be_used(case):
    inputs, *words = BAD_INPUTS[case]
    with raises(DataError, "inputs ", *words):
        epf.fit(Fragile(), Y, SIR, inputs=inputs)
    with raises(DataError, "inputs ", *words):
        epf.simulate(Fragile(), {"v": 0.5}, steps=6, inputs=inputs)


def test_inputs_that_were_forgotten():
    with raises(ModelError, "Fragile.transition()", "u is None", "give inputs"):
        epf.fit(Fragile(), Y, SIR)


# --- what is passed for a model or a method -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: epf.fit(wrong, Y, SIR),
        lambda wrong: epf.Stream(wrong, SIR),
        lambda wrong: epf.simulate(wrong, {}, steps=3),
        lambda wrong: epf.fix(wrong, {}),
        lambda wrong: epf.proposals.choose_proposal(wrong),
    ],
    ids=["fit", "Stream", "simulate", "fix", "choose_proposal"],
)
def test_what_is_no_model(call):
    with raises(ModelError, "The model is the class AR", "AR()"):
        call(AR)
    for wrong, name in ((None, "None"), ("AR", "text"), (3, "int"), (SIR, "SIR")):
        with raises(ModelError, f"The model is {name}", "epf.StateSpaceModel"):
            call(wrong)


@pytest.mark.parametrize("call", [lambda wrong: epf.fit(AR(), Y, wrong), lambda wrong: epf.Stream(AR(), wrong)])
def test_what_is_no_method(call):
    with raises(SettingError, "The method is the class SIR", "epf.SIR()"):
        call(epf.SIR)
    for wrong, name in ((1, "int"), ("SIR", "text"), (AR(), "AR")):
        with raises(SettingError, f"The method is {name}", "epf.SIR(particles=1000)"):
            call(wrong)
    with raises(SettingError, "The method is ndarray", "inputs=..."):
        call(np.zeros((6, 2)))


# --- the prior ------------------------------------------------------------------------------------------------------

BAD_PRIORS = {
    "a list": (lambda: [N(0.0, 1.0)], "prior() returned list", "dictionary"),
    "nothing": (lambda: None, "prior() returned None", "dictionary"),
    "a number": (lambda: {"a": 0.5}, "prior() gives float for 'a'", "epf.fix"),
    "a class": (lambda: {"a": N}, "the class Normal for 'a'", "not a distribution"),
    "a batch shape": (lambda: {"a": N(jnp.zeros(2), 1.0)}, "'a'", "batch shape (2,)", ".to_event(1)"),
    "a name with a space": (lambda: {"a b": N(0.0, 1.0)}, "'a b'", "plain Python name"),
    "a name that is no text": (lambda: {1: N(0.0, 1.0)}, "1 as a name", "plain Python name"),
    "a negative scale": (lambda: {"a": N(0.0, -1.0)}, "prior()", "scale", "correct"),
    "an unchecked negative scale": (
        lambda: {"a": N(0.0, -1.0, validate_args=False)},
        "prior of 'a' has scale = -1.0",
        "must be positive",
        "correct prior()",
    ),
    "text": (lambda: {"a": N("b", 1.0)}, "prior of 'a', Normal, cannot be drawn from", "correct prior()"),
    "no sampler": (
        lambda: {"a": dist.ImproperUniform(dist.constraints.real, (), ())},
        "prior of 'a', ImproperUniform, cannot be drawn from",
    ),
    "an empty interval": (lambda: {"a": dist.Uniform(1.0, 0.0)}, "prior of 'a', Uniform", "support", "prior()"),
    "an exception": (lambda: raise_(RuntimeError("boom")), "Mine.prior()", "RuntimeError: boom", "correct"),
}


@pytest.mark.parametrize("case", BAD_PRIORS)
def test_priors_that_describe_nothing(case):
    prior, *words = BAD_PRIORS[case]
    with raises(ModelError, *words):
        epf.fit(model(prior=prior), Y, SIR)


@pytest.mark.parametrize("spread", [1.0, 0.32], ids=["often", "once in a thousand draws"])
def test_a_prior_that_lets_a_standard_deviation_be_negative(spread):
    wrong = model(prior=lambda: {"s": N(1.0, spread)}, transition=lambda p, x, u: N(x, p.s))
    with raises(ModelError, "transition()", "scale", "not positive", "s = -", "x = ", "prior", "support"):
        epf.fit(wrong, Y, SIR)


@pytest.mark.parametrize(
    "law",
    [
        lambda p, x: epf.Sensors(N(x, p.a)),
        lambda p, x: dist.MixtureGeneral(dist.Categorical(jnp.array([0.9, 0.1])), [N(x, 1.0), N(x, p.a)]),
    ],
    ids=["of a sensor", "of a component"],
)
def test_a_scale_that_is_negative_inside_of_a_law(law):
    with raises(ModelError, "observation()", "scale", "not positive", "a = -"):
        check_model(model(observation=lambda p, x, u: law(p, x)), None)


def test_a_prior_that_lets_a_logarithm_be_nan():
    wrong = model(observation=lambda p, x, u: N(x + jnp.log(p.a), 0.5))
    with raises(ModelError, "observation()", "loc", "not a finite number", "a = -", "prior", "correct observation()"):
        epf.simulate(wrong, {"a": 1.0}, steps=3)


# --- the laws -------------------------------------------------------------------------------------------------------

BAD_LAWS = {
    "a number for initial": ({"initial": lambda p: 0.0}, "Mine.initial() returned float", "dist.Normal"),
    "an array for transition": (
        {"transition": lambda p, x, u: p.a * x},
        "Mine.transition() returned an array of shape ()",
        "dist.Normal",
    ),
    "nothing for observation": (
        {"observation": lambda p, x, u: None},
        "Mine.observation() returned None",
        "return one",
    ),
    "a class for observation": ({"observation": lambda p, x, u: N}, "the class Normal", "return one"),
    "a batch in initial": ({"initial": lambda p: N(jnp.zeros(2), 1.0)}, "initial()", "shape (2,)", ".to_event(1)"),
    "a batch in transition": (
        {"transition": lambda p, x, u: N(jnp.zeros(3) + x, 1.0)},
        "Mine.transition()",
        "batch shape (3,)",
        ".to_event(1)",
    ),
    "a batch in observation": (
        {"observation": lambda p, x, u: N(jnp.zeros((2, 2)) + x, 1.0)},
        "Mine.observation()",
        "batch shape (2, 2)",
        ".to_event(2)",
    ),
    "an exception": ({"transition": lambda p, x, u: raise_(RuntimeError("boom"))}, "RuntimeError: boom", "correct"),
    "an exception without words": ({"transition": lambda p, x, u: raise_(ValueError())}, "transition()", "ValueError"),
    "too many indices": ({"transition": lambda p, x, u: N(x[0], 1.0)}, "Mine.transition()", "IndexError", "correct"),
    "shapes that do not fit": (
        {"observation": lambda p, x, u: N(jnp.zeros(2) + jnp.zeros(3), 1.0)},
        "Mine.observation()",
        "(2,), (3,)",
    ),
    "an if": ({"transition": lambda p, x, u: N(x if x > 0 else -x, 1.0)}, "Mine.transition()", "jnp.where"),
    "math": ({"transition": lambda p, x, u: N(math.sin(x), 1.0)}, "Mine.transition()", "jax.numpy"),
    "numpy": ({"observation": lambda p, x, u: N(np.sin(x), 1.0)}, "Mine.observation()", "jax.numpy"),
    "another state shape": (
        {
            "initial": lambda p: N(jnp.zeros(2), 1.0).to_event(1),
            "transition": lambda p, x, u: N(jnp.zeros(3), 1.0).to_event(1),
        },
        "initial() gives a state of shape (2,)",
        "it has shape (3,)",
        "advance()",
    ),
    "another shape in advance": (
        {"advance": lambda x, new: jnp.stack([new, x])},
        "state of shape ()",
        "it has shape (2,)",
        "same shape",
    ),
    "text in advance": ({"advance": lambda x, new: "b"}, "Mine.advance() returned text", "next state"),
    "nothing in advance": ({"advance": lambda x, new: None}, "Mine.advance() returned None", "next state"),
    "a matrix for a state": (
        {
            "initial": lambda p: N(jnp.zeros((2, 2)), 1.0).to_event(2),
            "transition": lambda p, x, u: N(x, 1.0).to_event(2),
        },
        "The state has shape (2, 2)",
        "flatten",
    ),
    "a matrix for an observation": (
        {"observation": lambda p, x, u: N(jnp.zeros((2, 2)), 1.0).to_event(2)},
        "observation() has shape (2, 2)",
        "flatten",
    ),
    "no sampler": (
        {"initial": lambda p: dist.ImproperUniform(dist.constraints.real, (), ())},
        "initial() returned ImproperUniform",
        "cannot be drawn from",
    ),
    "a constant negative scale": (
        {"observation": lambda p, x, u: N(x, -1.0)},
        "observation()",
        "scale",
        "correct",
    ),
    "a NaN mean": (
        {"transition": lambda p, x, u: N(jnp.nan * x, 1.0)},
        "transition()",
        "loc",
        "not a finite number",
        "x =",
    ),
    "a NaN state": (
        {"transition": lambda p, x, u: dist.Delta(jnp.nan * x)},
        "transition() gives a state",
        "not a finite number",
    ),
    "a NaN inside a mixture": (
        {
            "observation": lambda p, x, u: dist.MixtureSameFamily(
                dist.Categorical(jnp.array([0.5, 0.5])), N(jnp.stack([x, jnp.nan * x]), 1.0)
            )
        },
        "observation()",
        "loc",
        "not a finite number",
    ),
}


@pytest.mark.parametrize("case", BAD_LAWS)
def test_laws_that_describe_nothing(case):
    parts, *words = BAD_LAWS[case]
    with raises(ModelError, *words):
        epf.fit(model(**parts), Y, SIR)


@pytest.mark.parametrize("method", ["initial", "transition", "observation"])
def test_a_parameter_that_the_prior_does_not_name(method):
    with raises(UnknownParameterError, f"Mine.{method}()", "'gama'", "names a.", "spelling") as caught:
        epf.fit(model(**{method: lambda p, *rest: N(p.gama, 1.0)}), Y, SIR)
    assert isinstance(caught.error, KeyError | AttributeError | ModelError)


# --- values of parameters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [lambda values: epf.fix(AR(), values), lambda values: epf.simulate(AR(), {"a": 0.5, "v": 1.0} | values, steps=3)],
    ids=["fix", "simulate"],
)
def test_values_that_no_parameter_can_have(call):
    with raises(UnknownParameterError, "'gama'", "a, v", "spelling"):
        call({"gama": 1.0})
    with raises(ModelError, "'a'", "(2,)", "one number"):
        call({"a": [1.0, 2.0]})
    with raises(ModelError, "'a'", "'b'", "number"):
        call({"a": "b"})
    with raises(ModelError, "'a'", "None", "number"):
        call({"a": None})
    with raises(ModelError, "v = -1.0", "support", "InverseGamma", "inside"):
        call({"v": -1.0})
    with raises(ModelError, "a = nan", "support"):
        call({"a": np.nan})


def test_values_that_do_not_come_by_name():
    for call in (lambda v: epf.fix(AR(), v), lambda v: epf.simulate(AR(), v, steps=3)):
        for wrong, name in (([0.5, 1.0], "list"), ("a", "text"), (None, "None"), (0.5, "float")):
            with raises(ModelError, f"The values are {name}", "by name"):
                call(wrong)
    with raises(UnknownParameterError, "needed", "'v'"):
        epf.simulate(AR(), {"a": 0.5}, steps=3)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, "3", None])
def test_a_simulation_of_no_length(steps):
    with raises(SettingError, "steps", repr(steps), "whole number, 1 or more"):
        epf.simulate(AR(), {"a": 0.5, "v": 1.0}, steps=steps)


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [epf.SIR, epf.LiuWest, epf.Storvik, epf.ResampleMove, epf.OnlineEM])
@pytest.mark.parametrize("particles", [0, -1, 2.5, True, "100", None, 10.0])
def test_a_number_of_particles_that_is_none(method, particles):
    with raises(SettingError, f"{method.__name__}(particles=", repr(particles), "whole number, 1 or more"):
        method(particles=particles)


OUT_OF_RANGE = {
    "rho": (lambda v: epf.LiuWest(rho=v), [0.0, -0.1, 1.1, math.nan, "0.9", None, True], "above 0 and at most 1"),
    "discount": (lambda v: epf.LiuWest(discount=v), [0.2, 1.1, math.nan, "0.9", False], "between 1/3 and 1"),
    "threshold": (
        lambda v: epf.resampling.Systematic(threshold=v),
        [-0.1, 1.1, math.nan, "0.5", None],
        "between 0 (never) and 1",
    ),
    "threshold of another": (lambda v: epf.resampling.Multinomial(v), [-0.1, 1.1, "0.5"], "Multinomial(threshold="),
    "share": (lambda v: epf.proposals.Defensive(share=v), [0.0, 1.0, -0.1, math.nan, "0.5", None], "above 0"),
    "share of another": (lambda v: epf.proposals.Linearised(share=v), [0.0, 1.0, "0.5"], "strictly between 0 and 1"),
    "iterations": (
        lambda v: epf.proposals.Linearised(iterations=v),
        [0, 1.5, "2", None, True],
        "whole number, 1 or more",
    ),
    "extended": (lambda v: epf.Kalman(extended=v), ["yes", 1, None], "True or False"),
    "unscented": (lambda v: epf.Kalman(unscented=v), ["yes", 1, None], "True or False"),
    "both forms": (lambda v: epf.Kalman(extended=v, unscented=v), [True], "choose one of the two"),
    "capacity": (lambda v: epf.ResampleMove(capacity=v), [0, 2.5, "9", None, True], "whole number, 1 or more"),
    "moves": (lambda v: epf.ResampleMove(moves=v), [0, 1.5, None, True], "whole number, 1 or more"),
    "rate": (lambda v: epf.ResampleMove(rate=v), [0.0, -1.0, math.nan, math.inf, "1", True], "above 0"),
    "lag": (lambda v: epf.PracticalFilter(lag=v), [0, 1, 2.5, None, True], "whole number, 2 or more"),
    "sweeps": (lambda v: epf.PracticalFilter(sweeps=v), [0, 2.5, None, True], "whole number, 1 or more"),
    "exponent": (lambda v: epf.OnlineEM(exponent=v), [0.5, 0.0, 1.1, math.nan, "1", None], "above 0.5"),
    "averaging": (lambda v: epf.OnlineEM(averaging=v), [-1.0, math.nan, 1e6, "1"], "between 0"),
    "draws": (lambda v: epf.OnlineEM(draws=v), [0, 1, 2.5, None, True], "2 or more"),
    "burn_in": (lambda v: epf.OnlineEM(burn_in=v), [0, 2.5, None, True], "1 or more"),
    "approximation of OnlineEM": (lambda v: epf.OnlineEM(approximation=v), [epf.Taylor(3), None, 7], "epf.Chebyshev"),
    "proposal": (
        lambda v: epf.SIR(proposal=v),
        [epf.proposals.Bootstrap, "bootstrap", None],
        "epf.proposals.Bootstrap()",
    ),
    "resampling": (
        lambda v: epf.SIR(resampling=v),
        [epf.resampling.Systematic, "systematic", 0.5],
        "epf.resampling.Systematic(",
    ),
    "law": (lambda v: epf.proposals.Guided(v), ["law", None, N(0.0, 1.0)], "law(p, x_prev, y, u)"),
    "lags": (lambda v: epf.zoo.STAR(lags=v), [0, 1.5, "1"], "whole number, 1 or more"),
    "a of STAR": (lambda v: epf.zoo.STAR(a=v), [0.9, (0.9, 0.1), N(0.0, 1.0)], "1 coefficients"),
}


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_settings_out_of_their_range(case):
    make, wrong, *words = OUT_OF_RANGE[case]
    for value in wrong:
        with raises(SettingError, *words):
            make(value)


def test_settings_may_be_numpy_numbers():
    made = epf.SIR(np.int64(20), resampling=epf.resampling.Systematic(np.float32(0.5)), islands=np.int64(1))
    assert made == SIR
    assert type(made.particles) is int
    assert type(made.resampling.threshold) is float


def test_fields_of_the_zoo_that_are_neither_numbers_nor_priors():
    with raises(ModelError, "Sin(sigma=...) is text", "a number or an array", "distribution"):
        epf.zoo.Sin(sigma="1.0")
    with raises(ModelError, "CauchyAR(a=...) is the class Normal", "distribution"):
        epf.zoo.CauchyAR(a=N)
    square = {
        "A": np.eye(2),
        "Q": np.eye(2),
        "H": np.ones((1, 2)),
        "R": np.eye(1),
        "m_0": np.zeros(2),
        "P_0": np.eye(2),
    }
    with raises(SettingError, "LinearGaussian(A=...)", "(3, 3)", "(2, 2)"):
        epf.zoo.LinearGaussian(**{**square, "A": np.eye(3)})
    with raises(SettingError, "LinearGaussian(R=...)", "()", "(1, 1)"):
        epf.zoo.LinearGaussian(**{**square, "R": 0.5})


@pytest.mark.parametrize("levels", [[1.5], [-0.1, 0.5], [math.nan], [], None, "0.5", [[0.1, 0.9]], ["low"]])
def test_levels_that_are_no_quantiles(levels):
    for call in (lambda: fit_ar(quantile_levels=levels), lambda: epf.Stream(AR(), SIR, quantile_levels=levels)):
        with raises(SettingError, "levels", "between 0 and 1"):
            call()


@pytest.mark.parametrize("seed", ["a", 1.5, None, 2**70, True, np.zeros(2)], ids=str)
def test_seeds_that_are_no_numbers(seed, result):
    for call in (
        lambda: fit_ar(seed=seed),
        lambda: epf.Stream(AR(), SIR, seed=seed),
        lambda: epf.simulate(AR(), {"a": 0.5, "v": 1.0}, steps=3, seed=seed),
        lambda: result.sample(3, seed=seed),
    ):
        with raises(SettingError, "seed", "whole number"):
            call()


def test_going_on_needs_what_made_the_result(result):
    for changed in (
        lambda: fit_ar(resume_from=result, seed=1),
        lambda: fit_ar(resume_from=result, quantile_levels=[0.5]),
        lambda: epf.fit(AR(), Y, epf.SIR(21, islands=1), resume_from=result),
        lambda: epf.fit(epf.fix(AR(), {"a": 0.5}), Y, SIR, resume_from=result),
    ):
        with raises(SettingError, "resume_from", "model, method, seed and quantile_levels", "same"):
            changed()
    for method in (SIR, None):
        with raises(SettingError, "resume_from", "text", "Result"):
            epf.fit(AR(), Y, method, resume_from="result")


# --- what is asked of a result --------------------------------------------------------------------------------------


def test_questions_that_a_result_cannot_answer(result):
    with raises(UnknownParameterError, "'nope'", "a, v", "spelling"):
        result.density("nope", [0.0])
    for grid in (["b"], None, [math.nan], np.zeros((2, 2))):
        with raises(SettingError, "density('a'", "finite numbers"):
            result.density("a", grid)
    for level in (2, -0.1, math.nan, "0.5", None, [0.1, 0.9]):
        with raises(SettingError, "quantile(", "between 0 and 1"):
            result.quantile(level)
        with raises(SettingError, "interval(", "between 0 and 1"):
            result.interval(level)
    for count in (0, -1, 2.5, "3", None, True):
        with raises(SettingError, f"sample({count!r})", "1 or more"):
            result.sample(count)


def test_a_picture_needs_axes_and_values_that_fit(result):
    with raises(SettingError, "plot(ax=...)", "(1,)", "2 panels", "one per panel"):
        result.plot(ax=["one panel"])
    with raises(UnknownParameterError, "'gama'", "a, v"):
        result.plot(truth={"gama": 0.5}, ax=["one panel", "another"])


# --- methods that cannot serve a model ------------------------------------------------------------------------------

COUNTS = model(prior=lambda: {"k": dist.Bernoulli(0.5)}, transition=lambda p, x, u: N(p.k + x, 1.0))
STEPS = model(transition=lambda p, x, u: dist.Bernoulli(logits=p.a * x))
SPHERE = model(
    prior=lambda: {"d": dist.ProjectedNormal(jnp.array([1.0, 0.0]))}, transition=lambda p, x, u: N(p.d[0] * x, 1.0)
)
UNSUPPORTED = {
    "Storvik, not linear": (
        epf.zoo.Sin(),
        epf.Storvik(20),
        "transition()",
        "not separable in theta",
        "epf.MarginalEPF",
    ),
    "Storvik, not Gaussian": (epf.zoo.CauchyAR(), epf.Storvik(20), "transition()", "not separable in a", "epf.EPF"),
    "Storvik, discrete": (COUNTS, epf.Storvik(20), "'k'", "Bernoulli", "normal", "epf.LiuWest"),
    "Kalman, not linear": (epf.zoo.Sin(), epf.Kalman(), "transition()", "not linear", "Kalman(extended=True)"),
    "Kalman, not Gaussian": (epf.zoo.CauchyAR(), epf.Kalman(extended=True), "transition()", "Cauchy", "epf.SIR"),
    "Kalman, advance not linear": (
        model(transition=lambda p, x, u: N(0.5 * x, 1.0), advance=lambda x, new: x * new),
        epf.Kalman(),
        "advance()",
        "not linear",
        "Kalman(extended=True)",
    ),
    "Kalman, no map to the line": (SPHERE, epf.Kalman(extended=True), "'d'", "ProjectedNormal", "epf.SIR"),
    "Kalman, discrete": (COUNTS, epf.Kalman(), "'k'", "discrete", "epf.SIR"),
    "LiuWest, discrete": (COUNTS, epf.LiuWest(20), "'k'", "discrete", "epf.SIR"),
    "LiuWest, no map to the line": (SPHERE, epf.LiuWest(20), "'d'", "ProjectedNormal", "epf.SIR"),
    "unscented, not Gaussian": (
        epf.zoo.CauchyAR(),
        epf.Kalman(unscented=True),
        "transition()",
        "Cauchy",
        "epf.SIR",
    ),
    "ResampleMove, discrete": (COUNTS, epf.ResampleMove(20), "'k'", "discrete", "epf.SIR"),
    "ResampleMove, no map to the line": (SPHERE, epf.ResampleMove(20), "'d'", "ProjectedNormal", "epf.SIR"),
    "ParticleLearning, discrete": (COUNTS, epf.ParticleLearning(20), "'k'", "discrete", "epf.SIR"),
    "PracticalFilter, discrete state": (STEPS, epf.PracticalFilter(20), "transition()", "epf.ParticleLearning"),
    "NestedFilter, discrete": (COUNTS, epf.NestedFilter(20), "'k'", "discrete", "epf.SIR"),
    "NestedFilter, no map to the line": (SPHERE, epf.NestedFilter(20), "'d'", "ProjectedNormal", "epf.SIR"),
    "AssumedParameterFilter, discrete": (COUNTS, epf.AssumedParameterFilter(20), "'k'", "discrete", "epf.SIR"),
    "OnlineEM, nothing unknown": (epf.fix(AR(), {"a": 0.5, "v": 1.0}), epf.OnlineEM(20), "none unknown", "epf.SIR"),
    "OnlineEM, discrete": (COUNTS, epf.OnlineEM(20), "'k'", "discrete", "epf.SIR"),
    "Optimal, not Gaussian": (
        epf.zoo.CauchyAR(),
        epf.SIR(20, epf.proposals.Optimal()),
        "transition()",
        "Cauchy",
        "Automatic",
    ),
    "Optimal, not linear": (
        epf.zoo.StochasticVolatility(),
        epf.SIR(20, epf.proposals.Optimal()),
        "observation()",
        "Linearised",
    ),
    "Linearised": (epf.zoo.CauchyAR(), epf.SIR(20, epf.proposals.Linearised()), "transition()", "Cauchy", "Bootstrap"),
    "Linearised in MarginalEPF": (
        epf.zoo.CauchyAR(),
        epf.MarginalEPF(20, proposal=epf.proposals.Linearised()),
        "transition()",
        "Cauchy",
        "Bootstrap",
    ),
    "Optimal in PracticalFilter": (
        epf.zoo.StochasticVolatility(),
        epf.PracticalFilter(20, proposal=epf.proposals.Optimal()),
        "observation()",
        "Linearised",
    ),
    "Defensive": (STEPS, epf.SIR(20, epf.proposals.Defensive()), "transition()", "Bernoulli", "Bootstrap"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_a_method_that_cannot_serve_the_model_names_one_that_can(case):
    wrong, method, *words = UNSUPPORTED[case]
    with raises(UnsupportedModelError, *words):
        method.bind(wrong)


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (lambda p, x, y, u: 0.0, ("Your proposal returned float", "dist.Normal")),
        (lambda p, x, y, u: N(jnp.zeros(2), 1.0), ("Your proposal", "batch shape (2,)", ".to_event(1)")),
        (lambda p, x, y, u: N(jnp.zeros(2), 1.0).to_event(1), ("shape (2,)", "transition() has ()", "new part")),
        (lambda p, x, y, u: raise_(RuntimeError("boom")), ("Your proposal", "RuntimeError: boom", "correct")),
        (lambda p, x: N(x, 1.0), ("Your proposal", "TypeError", "law(p, x_prev, y, u)")),
    ],
    ids=["a number", "a batch", "another shape", "an exception", "another signature"],
)
def test_proposals_of_ones_own_that_propose_nothing(law, words):
    with raises(ModelError, *words):
        epf.fit(AR(), Y, epf.SIR(20, epf.proposals.Guided(law), islands=1))


# --- what goes wrong in the middle of a run -------------------------------------------------------------------------


def fields(result):
    """The record of a result as plain arrays by name."""
    record = result.record
    return {"mean": record.mean, "sd": record.sd, "quantiles": record.quantiles, "x": record.state_mean}


def same_history(one, other, **tolerance):
    for name, values in fields(one).items():
        np.testing.assert_allclose(values, fields(other)[name], **tolerance)


BROKEN = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])  # at row AT


def test_a_model_that_becomes_nan_keeps_what_was_learned_before():
    with raises(NumericalError, "t = 4", "row 3 of y", "NaN or infinity", "prior", "`result`") as caught:
        epf.fit(Fragile(), Y, SIR, inputs=BROKEN)
    assert (caught.error.time, caught.error.result.num_observations) == (4, AT)
    same_history(caught.error.result, epf.fit(Fragile(), Y[:AT], SIR, inputs=BROKEN[:AT]), rtol=0)
    # The result is a whole one: it can be read, and gone on from.
    assert np.isfinite(caught.error.result.quantile(0.9)["v"])
    assert len(caught.error.result.history["time"]) == AT
    rest = np.zeros(len(Y) - AT)
    further = epf.fit(Fragile(), Y[AT:], SIR, inputs=rest, resume_from=caught.error.result)
    same_history(further, epf.fit(Fragile(), Y, SIR, inputs=np.zeros(len(Y))), rtol=0)


def test_the_row_is_counted_in_the_series_that_was_given():
    begun = epf.fit(Fragile(), Y, SIR, inputs=np.zeros(len(Y)))
    with raises(NumericalError, "t = 10", "row 3 of y") as caught:
        epf.fit(Fragile(), Y, SIR, inputs=BROKEN, resume_from=begun)
    assert (caught.error.time, caught.error.result.num_observations) == (10, 9)


def test_a_model_that_becomes_nan_leaves_a_stream_as_it_was():
    stream = epf.Stream(Fragile(), SIR)
    for y in Y[:AT]:
        stream.update(y, 0.0)
    before, evidence = stream.posterior.mean, stream.log_evidence
    with raises(NumericalError, "t = 4", "this update", "as it was before") as caught:
        stream.update(Y[AT], 1.0)
    assert caught.error.time == 4
    assert (stream.num_observations, stream.posterior.mean, stream.log_evidence) == (AT, before, evidence)
    for y in Y[AT:]:
        stream.update(y, 0.0)
    assert stream.posterior.mean == epf.fit(Fragile(), Y, SIR, inputs=np.zeros(len(Y))).mean


def of_steps(caught):
    """What warnings say that are not about the accuracy of so few particles."""
    return [str(one.message) for one in caught if not issubclass(one.category, AccuracyWarning)]


@pytest.mark.parametrize("method", [SIR, epf.Storvik(20)], ids=["SIR", "Storvik"])
def test_particles_that_become_nan_are_dropped_and_counted(method):
    with pytest.warns(EPFWarning, match="At t = 4 some particles .* not finite") as caught:
        result = epf.fit(Fragile(), Y, method, inputs=2.0 * BROKEN)
    (said,) = of_steps(caught)
    assert "Correct its laws" in said
    invalid = result.history["invalid"].values
    assert 0 < invalid[AT] < 20
    assert (np.delete(invalid, AT) == 0).all()
    for values in fields(result).values():
        assert np.isfinite(values).all()
    assert np.isfinite(result.log_evidence)


def test_a_simulation_that_is_not_finite_says_when():
    with raises(NumericalError, "t = 4", "simulated state", "diverges or gives NaN") as caught:
        epf.simulate(Fragile(), {"v": 0.5}, steps=6, inputs=BROKEN)
    assert caught.error.time == 4


OUTLIER = np.where(np.arange(len(Y)) == AT, 1e30, Y)  # its squared distance is beyond float32
MISSING = np.where(np.arange(len(Y)) == AT, np.nan, Y)


class Box(epf.StateSpaceModel):
    """Bounded noise, and numpyro told not to look at bounds."""

    def prior(self):
        return {"a": N(0.0, 1.0)}

    def initial(self, p):
        return N(0.0, 1.0)

    def transition(self, p, x, u):
        return N(p.a * x, 1.0)

    def observation(self, p, x, u):
        return dist.Uniform(x - 3.0, x + 3.0, validate_args=False)


@pytest.mark.parametrize(
    ("case", "method", "inputs"),
    [
        (AR(), SIR, None),
        (Box(), epf.SIR(20, epf.proposals.Bootstrap(), islands=1), None),
        (Fragile(), epf.Storvik(20), np.zeros(len(Y))),
        (epf.fix(AR(), {"a": 0.5, "v": 0.5}), epf.Kalman(), None),
    ],
    ids=["SIR", "bounded noise", "Storvik", "Kalman"],
)
def test_an_outlier_beyond_all_weights_is_set_aside_as_if_it_were_missing(case, method, inputs):
    with pytest.warns(EPFWarning, match=r"At t = 4 every particle had likelihood zero.* Check that value") as caught:
        survived = epf.fit(case, OUTLIER, method, inputs=inputs)
    assert len(of_steps(caught)) == 1
    np.testing.assert_array_equal(survived.history["collapsed"], np.arange(len(Y)) == AT)
    without = epf.fit(case, MISSING, method, inputs=inputs)
    assert not without.history["collapsed"].any()
    # The same normal numbers drive both; a proposal adds and multiplies them in another order.
    same_history(survived, without, rtol=1e-3, atol=1e-4)
    assert survived.log_evidence == -np.inf


def test_bounds_of_the_noise_are_kept_also_where_numpyro_does_not_look():
    """With noise in (-3, 3) and y = 3.5, 3.5, ... no state below 0.5 is possible."""
    result = epf.fit(Box(), np.full(len(Y), 3.5), epf.SIR(20, epf.proposals.Bootstrap(), islands=1))
    assert (np.asarray(result.state.x)[np.asarray(result.state.log_weights) > -np.inf] > 0.5).all()


def test_a_draw_on_the_edge_of_a_support_does_not_spoil_the_others():
    """One in six draws of this prior is zero in float32, and its logarithm infinite."""
    edge = model(prior=lambda: {"g": dist.Gamma(0.02, 1.0)}, transition=lambda p, x, u: N(p.g * x, 1.0))
    method = epf.LiuWest(20, epf.proposals.Bootstrap(), islands=1, discount=0.95)
    assert (np.asarray(epf.Stream(edge, method).posterior.theta) == 0.0).any()
    result = epf.fit(edge, Y, method)
    for values in fields(result).values():
        assert np.isfinite(values).all()
    assert np.isfinite(result.density("g", [0.1, 1.0])).all()


# --- what looks odd and is fine -------------------------------------------------------------------------------------


def test_a_series_with_nothing_in_it_leaves_the_prior():
    result = fit_ar(np.full(4, np.nan))
    prior = epf.Stream(AR(), SIR).posterior
    # The same particles, summed in another order.
    assert result.mean == pytest.approx(prior.mean, rel=1e-5)
    assert result.sd == pytest.approx(prior.sd, rel=1e-5)
    assert result.log_evidence == 0.0


def test_one_observation():
    result = fit_ar(Y[:1])
    assert (result.num_observations, result.history.sizes["time"]) == (1, 1)
    assert np.isfinite(list(result.mean.values())).all()


def test_one_particle():
    result = epf.fit(AR(), Y, epf.SIR(1, islands=1))
    assert result.sd == {"a": 0.0, "v": 0.0}
    assert np.isfinite(result.log_evidence)


# --- one at a time --------------------------------------------------------------------------------------------------


def test_an_update_that_cannot_be_used_leaves_a_stream_as_it_was():
    stream = epf.Stream(AR(), SIR)
    with raises(DataError, "text ('b')", "time index 0"):
        stream.update("b")
    assert stream.num_observations == 0
    stream.update(Y[0])
    stream.update(Y[1])
    before = stream.posterior.mean
    for wrong, words in {
        "b": ("text ('b')", "time index 2", "convert it"),
        (0.1, 0.2): ("(2,) at each time step", "one number"),
        math.inf: ("infinite", "time index 2", "NaN"),
        1e300: ("too large for float32", "time index 2", "rescale"),
        1j: ("complex", "time index 2"),
    }.items():
        with raises(DataError, *words):
            stream.update(wrong)
    with raises(DataError, "1 inputs at t = 3", "0 before", "as many"):
        stream.update(0.1, 0.5)
    with raises(DataError, "inputs", "time index 2, component 0", "cannot be missing"):
        stream.update(0.1, math.nan)
    with raises(DataError, "inputs", "text", "time index 2"):
        stream.update(0.1, "b")
    assert (stream.num_observations, stream.posterior.mean) == (2, before)
    for y in (None, *Y[3:]):  # nothing is a missing value
        stream.update(y)
    assert stream.posterior.mean == fit_ar([*Y[:2], np.nan, *Y[3:]]).mean


def test_a_stream_warns_of_an_outlier_and_goes_on():
    stream = epf.Stream(AR(), SIR)
    with pytest.warns(EPFWarning, match="At t = 1 every particle had likelihood zero"):
        assert stream.update(1e30).collapsed
    assert not stream.update(0.1).collapsed
    assert np.isfinite(list(stream.posterior.mean.values())).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: epf.EPF(partices=100),
            ("EPF has no setting 'partices'", "did you mean 'particles'?", "approximation"),
        ),
        (lambda: epf.PMMH(chain=2), ("PMMH has no setting 'chain'", "did you mean 'chains'?", "warmup")),
        (lambda: epf.SIR(zzz=1), ("SIR has no setting 'zzz': it has particles,",)),
        (lambda: epf.zoo.Sin(sgima=1.0), ("Sin has no setting 'sgima'", "did you mean 'sigma'?")),
        (lambda: epf.proposals.Bootstrap(a=1), ("Bootstrap has no setting 'a'", "it has no settings")),
    ],
)
def test_a_setting_that_does_not_exist(make, words):
    with raises(UnknownSettingError, *words):
        make()


# --- the errors themselves ------------------------------------------------------------------------------------------


def test_every_error_can_be_caught_as_one_of_the_library_and_as_one_of_python():
    for kind, plain in {
        ModelError: ValueError,
        DataError: ValueError,
        SettingError: ValueError,
        UnknownParameterError: KeyError,
        UnknownSettingError: TypeError,
        UnsupportedModelError: TypeError,
        NumericalError: ArithmeticError,
    }.items():
        assert issubclass(kind, EPFError)
        assert issubclass(kind, plain)
    assert not issubclass(EPFWarning, EPFError)
