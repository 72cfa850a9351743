"""Exceptions: one per kind of mistake. Each message says what was wrong, where, and what to do."""

import sys
import sysconfig
import traceback
import warnings
from pathlib import Path
from typing import Any

__all__ = [
    "AccuracyWarning",
    "CheckpointError",
    "DataError",
    "EPFError",
    "EPFWarning",
    "ModelError",
    "NumericalError",
    "SettingError",
    "UnavailableError",
    "UnknownParameterError",
    "UnknownSettingError",
    "UnsupportedModelError",
]

_PACKAGE = str(Path(__file__).parent)
_LIBRARIES = (_PACKAGE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))


class EPFError(Exception):
    """Base class of all errors that the library raises.

    Examples:
        >>> issubclass(epf.errors.DataError, epf.errors.EPFError)
        True
    """


class ModelError(EPFError, ValueError):
    """The model, as written, is not a valid state-space model.

    Examples:
        >>> try:
        ...     epf.fit(epf.zoo.Sin(sigma=None), y)
        ... except epf.errors.ModelError as error:
        ...     print(error)
        Sin(sigma=...) is None: give a number or an array if it is known, ...
    """


class UnknownParameterError(ModelError, AttributeError, KeyError):
    """The prior has no parameter of the given name.

    Examples:
        >>> try:
        ...     result.density("phi", [0.0])
        ... except epf.errors.UnknownParameterError as error:
        ...     print(error)
        There is no parameter 'phi': the model's prior names level_variance, noise_variance. ...
    """

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0])


class DataError(EPFError, ValueError):
    """The observations or the inputs are invalid.

    Examples:
        >>> try:
        ...     epf.fit(model, ["a"], epf.SIR(400))
        ... except epf.errors.DataError as error:
        ...     print(error)
        y holds text ('a') at time index 0: convert it to a number.
    """


class SettingError(EPFError, ValueError):
    """A setting or an argument is out of range.

    Examples:
        >>> try:
        ...     epf.SIR(particles=-1)
        ... except epf.errors.SettingError as error:
        ...     print(error)
        SIR(particles=-1): must be a whole number, 1 or more.
    """


class UnknownSettingError(SettingError, TypeError):
    """A method, or a part of one, has no setting of the given name.

    Examples:
        >>> try:
        ...     epf.SIR(partices=100)
        ... except epf.errors.UnknownSettingError as error:
        ...     print(error)
        SIR has no setting 'partices': did you mean 'particles'? It has particles, ...
    """


class UnavailableError(SettingError, AttributeError):
    """This kind of result does not have the attribute: `hasattr` is False, and the message says what to use.

    Examples:
        >>> try:
        ...     chains.history
        ... except epf.errors.UnavailableError as error:
        ...     print(error)
        PMMH has no history over time: use epf.SMC2 or a filter, or fit a part of the series.
    """


class UnsupportedModelError(EPFError, TypeError):
    """The method does not support this model; the message names one that does.

    Examples:
        >>> try:
        ...     epf.fit(model, y, epf.Kalman())
        ... except epf.errors.UnsupportedModelError as error:
        ...     print(error)
        Kalman is exact for linear Gaussian models only, and transition() has a variance that depends on ... unknown ...
    """


class NumericalError(EPFError, ArithmeticError):
    """The filter produced no finite numbers at one time step.

    `time` is the step (1 for the first observation). `result` is the result up to the step before, if there is one.

    Examples:
        >>> error = epf.errors.NumericalError("At t = 7 ...", time=7, result=result)
        >>> error.time, error.result.num_observations
        (7, 20)
    """

    def __init__(self, message: str, time: int, result: object = None):
        super().__init__(message)
        self.time = time
        self.result = result


class CheckpointError(EPFError, ValueError):
    """A file of a stream or of a result cannot be written, or is not valid.

    Examples:
        >>> try:
        ...     epf.load("nowhere")
        ... except epf.errors.CheckpointError as error:
        ...     print(error)
        There is no file nowhere: check the path.
    """


class EPFWarning(UserWarning):
    """A reason to doubt a result. Where warnings are turned into errors, `result` has what was learned.

    Examples:
        >>> issubclass(epf.errors.AccuracyWarning, epf.errors.EPFWarning)
        True
    """

    result: object = None


class AccuracyWarning(EPFWarning):
    """The certificate of a result is above its limit: the posterior may be off by more than it should.

    Examples:
        >>> warnings.simplefilter("error", epf.errors.AccuracyWarning)  # to stop a script there
    """


def warn(message: str, category: type[EPFWarning] = EPFWarning, result: object = None) -> None:
    """Warn at the line outside of the library that led here, and keep the result for whoever makes it an error."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    said = category(message)
    said.result = result
    warnings.warn(said, stacklevel=level)


def kind(value: Any) -> str:
    """What a value is, in words, for error messages."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    import jax  # late: `import epf` and the start of the command stay quick

    if isinstance(value, jax.Array):
        return f"an array of shape {value.shape}"
    return "text" if isinstance(value, str) else type(value).__name__


def line_of(error: Exception) -> str:
    """The last line of the user's own code on the way to an error, for a message; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.line and not frame.filename.startswith(_LIBRARIES)]
    return f", line {own[-1].lineno}, `{own[-1].line}`," if own else ""


def reason(error: Exception) -> str:
    """An exception of another library in a few words: its class and the first line of its message."""
    first = str(error).strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
