"""What a user can get wrong: one exception a kind, each message says what was wrong, where, and what to do."""


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


class EPFWarning(UserWarning):
    """Something the reader of a result should know."""
