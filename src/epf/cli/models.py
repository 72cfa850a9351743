"""Models by name: `sin`, `star --lags 2`, or `path/to/file.py:ClassName`, with their fields as options.

A field is a number, a comma-separated list of numbers, or a prior such as `normal(0,0.2)`. Text is never evaluated.
"""

import dataclasses
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist

from epf import zoo
from epf.errors import ModelError, SettingError, reason
from epf.model._model import StateSpaceModel, fix, parameters

_ZOO = {
    "sin": zoo.Sin,
    "cauchyar": zoo.CauchyAR,
    "star": zoo.STAR,
    "locallevel": zoo.LocalLevel,
    "stochasticvolatility": zoo.StochasticVolatility,
}
NAMES = ("sin", "cauchy-ar", "star", "local-level", "stochastic-volatility", "linear-gaussian")
# Default parameters for simulating the models of the zoo; the paper's values for its three models.
TRUTHS: dict[type, dict[str, float]] = {
    zoo.Sin: {"theta": 0.7},
    zoo.CauchyAR: {"a": 0.7},
    zoo.STAR: {"gamma": 1.0, "c": 3.0},
    zoo.LocalLevel: {"level_variance": 0.5, "noise_variance": 0.5},
    zoo.StochasticVolatility: {"mu": 0.0, "phi": 0.95},
}
_PRIORS: dict[str, tuple[Any, int]] = {
    "normal": (dist.Normal, 2),
    "gamma": (dist.Gamma, 2),
    "inversegamma": (dist.InverseGamma, 2),
    "beta": (dist.Beta, 2),
    "uniform": (dist.Uniform, 2),
    "lognormal": (dist.LogNormal, 2),
    "cauchy": (dist.Cauchy, 2),
    "halfnormal": (dist.HalfNormal, 1),
    "exponential": (dist.Exponential, 1),
}


def split(arguments: list[str], count: int, what: str) -> tuple[list[str], dict[str, str]]:
    """Positional arguments and options: `sin --sigma 2 y.csv` has two of the former and one of the latter."""
    plain: list[str] = []
    options: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            plain.append(argument)
            continue
        name, equals, value = argument[2:].partition("=")
        if not equals:
            value = next(rest, None)
        if value is None:
            raise SettingError(f"The option --{name} has no value: write --{name} VALUE.")
        options[name.replace("-", "_")] = value
    if len(plain) != count:
        raise SettingError(f"Expected {what} ({count} arguments), got {len(plain)}: see the example in --help.")
    return plain, options


def find_model(name: str, options: dict[str, str]) -> tuple[StateSpaceModel, dict[str, Any]]:
    """The model with its fields set, and the options that give values of its unknown parameters."""
    made = _class_from_file(name) if ".py" in name else _class_from_zoo(name)
    values = {key: _value(key, text) for key, text in options.items()}
    if made is zoo.LinearGaussian:
        known = {"d": int, "sensors": int, "radius": float, "angle": float}
        _refuse_unknown(name, values, tuple(known))
        return zoo.LinearGaussian.rotation(**{key: known[key](value) for key, value in values.items()}), {}
    fields = [field.name for field in dataclasses.fields(made)]
    if made is zoo.STAR and values.get("lags", 1) != 1:
        # The default coefficients are for one lag; with more lags they are learned, unless given.
        prior = dist.Normal(0.0, 0.5).expand([int(values["lags"])]).to_event(1)
        values = {"a": prior, "b": prior, **values}
    try:
        model = made(**{key: value for key, value in values.items() if key in fields})
    except TypeError as error:
        raise ModelError(
            f"{name} cannot be made ({reason(error)}): give its fields as options, --FIELD VALUE."
        ) from None
    rest = {key: value for key, value in values.items() if key not in fields}
    _refuse_unknown(name, rest, (*fields, *parameters(model).names))
    return model, rest


def known_model(name: str, options: dict[str, str]) -> StateSpaceModel:
    """The model with its fields set, and with those parameters fixed that were given a value."""
    model, given = find_model(name, options)
    return fix(model, given) if given else model


def _refuse_unknown(name: str, values: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in values:
        if key not in known:
            raise SettingError(
                f"--{key.replace('_', '-')} is neither an option of this command nor a field of {name}, whose fields are "
                f"{', '.join(dict.fromkeys(known)) or 'none'}: check the spelling."
            )


def _class_from_zoo(name: str) -> Any:
    plain = re.sub(r"[-_ ]", "", name.lower())
    if plain == "lineargaussian":
        return zoo.LinearGaussian
    if plain not in _ZOO:
        raise ModelError(f"There is no model {name!r}: use one of {', '.join(NAMES)}, or path/to/file.py:ClassName.")
    return _ZOO[plain]


def _class_from_file(name: str) -> Any:
    path, _, wanted = name.rpartition(":")
    if not path:
        raise ModelError(f"{name!r} does not name a class: write path/to/file.py:ClassName.")
    if not Path(path).is_file():
        raise ModelError(f"There is no file {path}: check the path of the model.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} is not a Python file: check the path of the model.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"{path} cannot be run ({reason(error)}): correct it.") from error
    made = getattr(module, wanted, None)
    if not (isinstance(made, type) and issubclass(made, StateSpaceModel)):
        classes = [k for k, v in vars(module).items() if isinstance(v, type) and issubclass(v, StateSpaceModel)]
        found = ", ".join(k for k in classes if k != "StateSpaceModel") or "none"
        raise ModelError(f"{path} has no epf.StateSpaceModel called {wanted!r}: it has {found}.")
    return made


def _value(name: str, text: str) -> Any:
    """A number, an array of numbers, or a prior."""
    call = re.fullmatch(r"\s*([A-Za-z_]+)\((.*)\)\s*", text)
    try:
        if call:
            law, count = _PRIORS[call[1].lower().replace("_", "")]
            arguments = [float(part) for part in call[2].split(",")]
            if len(arguments) != count:
                raise ValueError
            return law(*arguments)
        if re.fullmatch(r"\s*[-+]?\d+\s*", text):
            return int(text)
        return jnp.asarray([float(part) for part in text.split(",")]) if "," in text else float(text)
    except (KeyError, ValueError):
        raise SettingError(
            f"--{name} {text[:40]}: give a number, a comma-separated list of numbers, or a prior such as normal(0,1); the "
            f"priors are {', '.join(_PRIORS)}."
        ) from None
