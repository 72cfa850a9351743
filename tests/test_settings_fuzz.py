"""Any settings are accepted or refused in a sentence: nothing but an EPFError is ever raised.

Each case makes one method with some of its settings replaced by values of any kind. If it is accepted, what `fit` and
`Stream` check before they compile is checked as well: its memory, its capacity, its description in a file.
"""

import dataclasses
import enum
import fractions
import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import epf
from epf.errors import EPFError
from epf.filters._base import Filter, Method
from epf.model._shapes import shapes_of
from epf.run._checks import check_capacity, check_memory, check_method
from epf.storage._methods import METHODS, load
from models import AR


class Colour(enum.Enum):
    RED = 1


PARTS = (
    epf.Chebyshev, epf.Taylor, epf.resampling.Systematic, epf.resampling.Multinomial, epf.proposals.Bootstrap,
    epf.proposals.Guided, epf.samplers.InverseCDF, epf.samplers.Metropolis, epf.samplers.Slice, epf.samplers.Laplace,
)  # fmt: skip
CLASSES = (*dict.fromkeys(load(entry) for entry in METHODS.values()), *PARTS)
MODEL = AR()
SHAPES = shapes_of(MODEL, None)

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-3, 70),
    st.sampled_from([2**31 - 1, 2**31, 2**63, 2**64, 10**400, -(10**400)]),
    st.floats(),
    st.floats(0.0, 1.0),
    st.booleans(),
    st.fractions(),
    st.complex_numbers(),
    st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_]).flatmap(
        lambda kind: st.integers(0, 100).map(kind)
    ),
    st.sampled_from([np.float32("nan"), np.float64("inf"), np.array(3), np.array([2.0]), np.zeros(0), jnp.asarray(2)]),
)
OTHERS = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from(["automatic", "drift", "noise", "density", "each", "shared", "no", "random"]),
    st.sampled_from([object(), Colour.RED, math.sin, dict, {}, [], (), set(), range(3), epf.SIR, AR(), slice(1, 2)]),
    st.sampled_from([cls() for cls in CLASSES if cls is not epf.proposals.Guided]),
    st.lists(st.floats() | st.integers() | st.text(max_size=2), max_size=3),
    st.tuples(st.floats(), st.floats()),
    st.dictionaries(
        st.sampled_from(["a", "v", "", "theta"]), st.floats() | st.tuples(st.floats(), st.floats()), max_size=2
    ),
    st.builds(fractions.Fraction, st.integers(-5, 5)),
)
VALUES = NUMBERS | OTHERS


PLACES = [(cls, field.name) for cls in CLASSES for field in dataclasses.fields(cls) if field.init]


def sentence_of(cls, given_settings):
    """The sentence by which the settings are refused; empty if they are accepted."""
    try:
        made = cls(**given_settings)
        if cls not in PARTS:
            check_method(made, Method)
            check_memory(made, MODEL, SHAPES)
            if isinstance(made, Filter):
                check_capacity(made, 10)
    except EPFError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("examples", [4, pytest.param(100_000 // len(PLACES) + 1, marks=pytest.mark.slow)])
def test_any_settings_are_accepted_or_refused_in_a_sentence(examples):
    """Each example tries its values at every setting of every class, every other time together with a second one."""
    counts = {"accepted": 0, "refused": 0}

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(VALUES, min_size=7, max_size=7))
    def one(values):
        for i, (cls, name) in enumerate(PLACES):
            given_settings = {name: values[i % 7]}
            other, second = PLACES[(i + 1 + i // 7) % len(PLACES)]
            if i % 2 and other is cls:
                given_settings[second] = values[(i + 3) % 7]
            sentence = sentence_of(cls, given_settings)
            assert not sentence or (sentence.endswith(".") and len(sentence) < 600), (cls, given_settings)
            counts["refused" if sentence else "accepted"] += 1

    one()
    assert sum(counts.values()) >= examples * len(PLACES)
    assert min(counts.values()) > 0.02 * sum(counts.values()), counts
    print(counts)
