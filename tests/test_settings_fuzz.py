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
from epf.filters._base import Filter
from epf.model._check import shapes_of
from epf.offline._base import Offline
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


@st.composite
def cases(draw):
    cls = draw(st.sampled_from(CLASSES))
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    return cls, draw(st.dictionaries(st.sampled_from([*names, "unknown"]) if draw(st.booleans()) and names else
                                     st.sampled_from(names or ["unknown"]), VALUES, max_size=3))  # fmt: skip


def refused_or_accepted(case):
    """Whether the settings are accepted; the sentence, if they are refused."""
    cls, given_settings = case
    names = {field.name for field in dataclasses.fields(cls) if field.init}
    if not given_settings.keys() <= names or (cls is epf.proposals.Guided and "law" not in given_settings):
        with pytest.raises(TypeError, match=r"unexpected keyword argument|missing"):  # Python's own words
            cls(**given_settings)
        return ""
    try:
        made = cls(**given_settings)
        if cls not in PARTS:
            check_method(made, Filter, Offline)
            check_memory(made, MODEL, SHAPES)
            if isinstance(made, Filter):
                check_capacity(made, 10)
    except EPFError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("count", [600, pytest.param(100_000, marks=pytest.mark.slow)])
def test_any_settings_are_accepted_or_refused_in_a_sentence(count):
    found = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def one(case):
        found.append(case[0])
        sentence = refused_or_accepted(case)
        assert not sentence or (sentence.endswith(".") and len(sentence) < 600)

    one()
    assert len(found) >= count
    assert set(found) == set(CLASSES)
