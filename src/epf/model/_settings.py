"""Settings that are checked where they are declared.

A class of settings derives from `Settings` and declares each field with one of the functions below:

    class Walk(Settings):
        steps: int = count(20, least=1)                              # a whole number
        scale: float | None = number(None, above=0.0, optional=True) # a finite number, or None
        adapt: bool = flag(True)
        order: str = one_of("random", "random", "fixed")
        proposal: Proposal = instance(Bootstrap(), Proposal, example="epf.proposals.Bootstrap()")

        def check_together(self) -> None:                            # only for rules that join several settings
            if self.adapt and self.scale is not None: raise SettingError(...)

`Walk(steps=0)` then raises `SettingError: Walk(steps=0): must be a whole number, 1 or more.` The message names the class
that the user called, so a subclass needs nothing of its own. Without a default (`count(least=1)`) a setting is required.
`words` replaces the text after "must be"; `static` is that of `eqx.field`. NumPy scalars and arrays without axes
become plain Python numbers, so that the setting is known when a filter is compiled.

`require_count` and `require_number` check the arguments of functions in the same words.
"""

import dataclasses
import difflib
import inspect
import math
import os
from collections.abc import Callable
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeGuard

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from epf.errors import SettingError, UnknownSettingError

REQUIRED: Any = dataclasses.MISSING
_TOO_MANY = 2**31  # particles and draws are numbered by 32 bits


class Rule(NamedTuple):
    """What a value must satisfy, and the same in words, to follow "must be"."""

    holds: Callable[[Any], bool]
    words: str
    below: int | None = None
    """What a count must be below; said only of one that is not."""


class Settings(eqx.Module):
    """Base class of everything that a user configures: checks each declared field, then `check_together`."""

    def __new__(cls, *_: Any, **given: Any) -> Any:
        known = _names(cls)
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}? It" if near else "it"
                raise UnknownSettingError(f"{cls.__name__} has no setting {name!r}: {hint} has {', '.join(known)}.")
        return super().__new__(cls)

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            rule, value = field.metadata.get("rule"), getattr(self, field.name)
            if rule is not None:
                _require(rule, f"{type(self).__name__}({field.name}={value!r})", value)
        self.check_together()

    def check_together(self) -> None:
        """Check what joins several settings; each of them has passed its own check before."""
        return

    def __repr__(self) -> str:
        """What differs from the defaults. Equinox would also show defaults that are equal and not the same object, as those
        of a method that was read from a file."""
        given = [(field, getattr(self, field.name)) for field in dataclasses.fields(self)]
        shown = [(field.name, value) for field, value in given if not eqx.tree_equal(value, field.default)]
        words = [f"{k}={v!r}" if isinstance(v, Settings) else f"{k}={eqx.tree_pformat(v)}" for k, v in shown]
        return f"{type(self).__name__}({', '.join(words)})"


@lru_cache(maxsize=256)
def _names(cls: type[Settings]) -> tuple[str, ...]:
    """The names that a class can be called with."""
    arguments = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return tuple(one.name for one in arguments) or ("no settings",)


def count(default: Any = REQUIRED, *, least: int = 1, optional: bool = False, words: str = "", static: bool = False):
    """A whole number, `least` or more."""
    return setting(default, _count_rule(least), optional=optional, words=words, static=static)


def number(default: Any = REQUIRED, *, optional: bool = False, words: str = "", **bounds: float):
    """A finite number in [low, high] or (above, below); the two kinds of bounds may be mixed."""
    return setting(default, _number_rule(**bounds), optional=optional, words=words)


def flag(default: Any = REQUIRED):
    """True or False."""
    return setting(default, Rule(lambda value: isinstance(value, bool), "True or False"))


def one_of(default: Any, *choices: Any):
    """One of a few values."""
    kinds = tuple({type(choice) for choice in choices})  # an array is not compared with them
    rule = Rule(lambda value: isinstance(value, kinds) and value in choices, f"one of {', '.join(map(repr, choices))}")
    return setting(default, rule)


def instance(default: Any = REQUIRED, *kinds: type, example: str, optional: bool = False):
    """An instance of one of the classes `kinds`; `example` shows the user how to make one."""
    article = "an" if kinds[0].__name__[0] in "AEIO" else "a"
    rule = Rule(lambda value: isinstance(value, kinds), f"{article} {kinds[0].__name__.lower()} such as {example}")
    return setting(default, rule, optional=optional)


def setting(
    default: Any,
    rule: Rule,
    *,
    optional: bool = False,
    words: str = "",
    static: bool = False,
    converter: Callable[[Any], Any] | None = None,
) -> Any:
    """A field with a rule of its own; `optional` allows None, `converter` replaces `plain`."""
    said = words or (f"{rule.words}, or None" if optional else rule.words)
    checked = Rule(lambda value: (optional and value is None) or rule.holds(value), said, rule.below)
    return eqx.field(default=default, converter=converter or plain, static=static, metadata={"rule": checked})


def require_count(function: str, argument: str, value: object, least: int = 1) -> int:
    """The argument of a function as a whole number, `least` or more."""
    _require(_count_rule(least), f"{function}({argument}={value!r})", value)
    return int(value)  # pyright: ignore[reportArgumentType]  the rule has seen that it is a number


def require_number(function: str, argument: str, value: object, **bounds: float) -> float:
    """The argument of a function as a finite number between bounds, as in `number`."""
    _require(_number_rule(**bounds), f"{function}({argument}={value!r})", value)
    return float(value)  # pyright: ignore[reportArgumentType]  the rule has seen that it is a number


def require_memory(place: str, numbers: int, remedy: str) -> None:
    """Refuse so many floats at once if the machine has no room for them, before anything is compiled."""
    needed, there = numbers * np.dtype(jax.numpy.zeros(()).dtype).itemsize, _memory()
    if needed > there:
        raise SettingError(
            f"{place} needs about {needed / 1e9:.3g} GB of memory, and there are {there / 1e9:.3g} GB: {remedy}."
        )


def _memory() -> float:
    """The bytes of the device, or of the machine; infinite where nobody says."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def check_seed(seed: object) -> int:
    """The seed as a Python integer that fits into a key."""
    if not is_whole(seed) or not -(2**63) <= seed < 2**63:
        raise SettingError(f"seed={seed!r}: must be a whole number of at most 63 bits.")
    return int(seed)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number: not text, not a truth value, not an array."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number of an integer type."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Whether a number is finite, and as a float too."""
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def plain(value: Any) -> Any:
    """A NumPy scalar or an array without axes as a Python number; anything else as it is."""
    scalar = isinstance(value, np.ndarray | jax.Array) and not isinstance(value, Tracer) and value.ndim == 0
    return value.item() if scalar or isinstance(value, np.generic) else value


def _require(rule: Rule, place: str, value: object) -> None:
    if not rule.holds(value):
        too_large = rule.below is not None and is_whole(value) and value >= rule.below
        place = place if len(place) < 200 else f"{place[:200]} ..."
        raise SettingError(f"{place}: must be {f'below {rule.below}' if too_large else rule.words}.")


def _count_rule(least: int) -> Rule:
    words = f"a whole number, {least} or more"
    return Rule(lambda value: is_whole(value) and least <= value < _TOO_MANY, words, _TOO_MANY)


def _number_rule(
    low: float | None = None, high: float | None = None, above: float | None = None, below: float | None = None
) -> Rule:
    def holds(value: object) -> bool:
        return (
            is_number(value)
            and is_finite(value)
            and (low is None or value >= low)
            and (high is None or value <= high)
            and (above is None or value > above)
            and (below is None or value < below)
        )

    if low is not None and high is not None:
        return Rule(holds, f"a number between {low:g} and {high:g}")
    if above is not None and below is not None:
        return Rule(holds, f"a number strictly between {above:g} and {below:g}")
    bounds = {"at least": low, "above": above, "at most": high, "below": below}
    said = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
    return Rule(holds, f"a number {said}".rstrip() if said else "a finite number")
