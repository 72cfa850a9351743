"""Declared settings: what is refused, in which words, and what reaches the field."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from epf.errors import SettingError
from epf.model._settings import Settings, count, flag, instance, number, one_of, require_count, require_number


class Walk(Settings):
    steps: int = count(20, least=2)
    scale: float | None = number(None, above=0.0, optional=True)
    share: float = number(0.5, above=0.0, high=1.0)
    adapt: bool = flag(True)
    order: str = one_of("random", "random", "fixed")
    inner: Settings | None = instance(None, Settings, example="Walk()", optional=True)

    def check_together(self) -> None:
        if self.steps > 100 and not self.adapt:
            raise SettingError("Walk(steps, adapt): a long walk must adapt.")


class LongWalk(Walk):
    steps: int = count(1000, least=500, words="long: 500 steps or more")


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("steps", [1, 2.0, True, "3", None], "a whole number, 2 or more"),
        ("scale", [0.0, -1, math.nan, math.inf, "1", True], "a number above 0, or None"),
        ("share", [0.0, 1.1, None], "a number above 0 and at most 1"),
        ("adapt", [1, None, "yes"], "True or False"),
        ("order", ["alphabetical", None], "one of 'random', 'fixed'"),
        ("inner", [Walk, 3], "a settings such as Walk(), or None"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_class(name, wrong, words):
    for value in wrong:
        with pytest.raises(SettingError) as caught:
            Walk(**{name: value})
        assert str(caught.value) == f"Walk({name}={value!r}): must be {words}."


def test_a_subclass_is_named_and_keeps_the_rules_it_inherits():
    with pytest.raises(SettingError, match=r"^LongWalk\(steps=20\): must be long: 500 steps or more\.$"):
        LongWalk(steps=20)
    with pytest.raises(SettingError, match=r"^LongWalk\(adapt=0\): must be True or False\.$"):
        LongWalk(adapt=0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SettingError, match="a long walk must adapt"):
        LongWalk(adapt=False)


def test_joint_rules_see_values_that_passed_their_own():
    with pytest.raises(SettingError, match=r"Walk\(steps='many'\)"):
        Walk(steps="many", adapt=False)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_scalars_of_array_libraries_become_plain_numbers(make):
    made = Walk(steps=make(4), scale=make(0.5), adapt=make(True))
    assert (type(made.steps), type(made.scale), type(made.adapt)) == (int, float, bool)
    assert made == Walk(4, 0.5)
    assert Walk(np.int64(4)) == Walk(4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SettingError, match="whole number"):
        Walk(steps=make([4]))


def test_arguments_of_functions_are_checked_in_the_same_words():
    assert require_count("simulate", "steps", np.int32(3)) == 3
    with pytest.raises(SettingError, match=r"^simulate\(steps=0\): must be a whole number, 1 or more\.$"):
        require_count("simulate", "steps", 0)
    assert require_number("interval", "mass", 1, low=0.0, high=1.0) == 1.0
    with pytest.raises(SettingError, match=r"^interval\(mass=1.5\): must be a number between 0 and 1\.$"):
        require_number("interval", "mass", 1.5, low=0.0, high=1.0)
