"""What a user can get wrong: one exception a kind, each message says what was wrong, where, and what to do."""

from typing import Any

import jax


class EPFError(Exception):
    """Base of every error the library raises on purpose."""


class ModelError(EPFError, ValueError):
    """The model, as written, does not describe a state-space model."""


class UnknownParameterError(ModelError, AttributeError, KeyError):
    """A parameter was asked for by a name that the prior does not have."""

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0])


class DataError(EPFError, ValueError):
    """The observations or the inputs cannot be used as they are."""


class SettingError(EPFError, ValueError):
    """A setting of a method is out of its range."""


class UnavailableError(SettingError, AttributeError):
    """This kind of result does not have the attribute: `hasattr` is False, and the message says what to use."""


class UnsupportedModelError(EPFError, TypeError):
    """The method cannot serve this model; the message names one that can."""


class NumericalError(EPFError, ArithmeticError):
    """The filter produced no usable number at one time step.

    `time` is the step (1 for the first observation). `result` holds what was learned before it, where there is a
    result to hold: nothing already learned is lost.
    """

    def __init__(self, message: str, time: int, result: object = None):
        super().__init__(message)
        self.time = time
        self.result = result


class CheckpointError(EPFError, ValueError):
    """A file of a stream or of a result cannot be written, or is not what it should be."""


class EPFWarning(UserWarning):
    """Something the reader of a result should know."""


def kind(value: Any) -> str:
    """What a value is, in words for a message."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, jax.Array):
        return f"an array of shape {value.shape}"
    return "text" if isinstance(value, str) else type(value).__name__


def reason(error: Exception) -> str:
    """An exception of another library in a few words: its kind and its first line."""
    first = str(error).strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
