"""Parameters: named values for the user, one flat vector for the filters, and the maps between the two."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from epf.errors import ModelError, UnknownParameterError, UnsupportedModelError, kind
from epf.model._laws import constraint_of, draw, log_prob, support, to_support


@jax.tree_util.register_pytree_with_keys_class
class Values:
    """Parameter values by name: `p.theta`. This is the `p` that a model's methods receive."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]):
        object.__setattr__(self, "_values", dict(values))

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise UnknownParameterError(unknown_parameter(name, self._values)) from None

    def __getitem__(self, name: str) -> Any:
        return self.__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"p.{name} cannot be set: parameters are read-only inside a model.")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"Values({', '.join(f'{name}={value}' for name, value in self._values.items())})"

    def __reduce__(self) -> tuple[type["Values"], tuple[dict[str, Any]]]:
        return Values, (self._values,)  # copying and pickling must not ask __getattr__ for what is not there yet

    def tree_flatten_with_keys(self):
        names = tuple(self._values)
        return [(jax.tree_util.GetAttrKey(name), self._values[name]) for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], values: Any) -> "Values":
        return cls(dict(zip(names, values, strict=True)))


def unknown_parameter(name: str, known: Any) -> str:
    """The error message for a name that the prior does not have."""
    known = ", ".join(known) or "none"
    return f"There is no parameter {name!r}: the model's prior names {known}. Check the spelling, or add it to prior()."


class Parameters(eqx.Module):
    """The unknown parameters of a model: their priors, and their places in a flat vector of length `size`."""

    # JAX sorts the keys of a plain dictionary; the flat vector's order must survive a compiled function.
    priors: dict[str, Distribution] = eqx.field(converter=OrderedDict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.priors)

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return len(self.labels)

    @property
    def slices(self) -> Mapping[str, slice]:
        """Where each entry lies in the flat vector."""
        return self._layout.slices

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each element of the flat vector: `theta`, `b[0]`, `b[1]`, `A[0,1]`."""
        return self._layout.labels

    @property
    def _layout(self) -> "_Layout":
        return _layout(tuple((name, tuple(prior.event_shape)) for name, prior in self.priors.items()))

    def index(self, label: str) -> int:
        """The position of a label in the flat vector; a vector of length one may go without its index."""
        if label in self.labels:
            return self.labels.index(label)
        if label in self.priors:
            part = self.slices[label]
            if part.stop - part.start == 1:
                return part.start
            first = self.labels[part.start]
            raise UnknownParameterError(
                f"{label!r} has {part.stop - part.start} elements: name one, such as {first!r}."
            )
        raise UnknownParameterError(unknown_parameter(label, self.labels))

    def named(self, vector: Float[Array, " p"]) -> Values:
        """The values by name, each in its own shape, as a model receives them."""
        return Values(self.as_dict(vector))

    def as_dict(self, vector: Any) -> dict[str, Any]:
        """The values by name of an array `(*lead, p)`."""
        slices, lead = self.slices, vector.shape[:-1]
        return {
            name: vector[..., slices[name]].reshape((*lead, *prior.event_shape)) for name, prior in self.priors.items()
        }

    def vector(self, values: Mapping[str, Any]) -> Float[Array, " p"]:
        """The flat vector of named values; each parameter must be given, with its shape, inside its support."""
        for name in by_name(values):
            if name not in self.priors:
                raise UnknownParameterError(unknown_parameter(name, self.names))
        parts = [jnp.zeros(0)]
        for name, prior in self.priors.items():
            if name not in values:
                raise UnknownParameterError(f"A value is needed for parameter {name!r}: the model's prior names it.")
            parts.append(jnp.ravel(as_parameter(name, values[name], prior)))
        return jnp.concatenate(parts)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " p"]:
        """One draw from the prior."""
        keys = jax.random.split(key, max(len(self.priors), 1))
        parts = [jnp.ravel(draw(prior, k)) for k, prior in zip(keys, self.priors.values(), strict=False)]
        return jnp.concatenate([jnp.zeros(0), *parts])

    def log_prior(self, vector: Float[Array, " p"]) -> Float[Array, ""]:
        """log p(theta)."""
        values = self.as_dict(vector)
        return sum((log_prob(prior, values[name]) for name, prior in self.priors.items()), start=jnp.zeros(()))

    @property
    def without_variance(self) -> tuple[str, ...]:
        """The labels of elements whose prior has no variance: Cauchy's, Student's with two degrees of freedom or fewer."""
        found = {name: _variance(prior) for name, prior in self.priors.items()}
        lost = np.concatenate([np.zeros(0), *(~np.isfinite(np.ravel(variance)) for variance in found.values())])
        return tuple(label for label, one in zip(self.labels, lost, strict=True) if one)

    @property
    def discrete(self) -> tuple[str, ...]:
        """The names of the parameters with a discrete prior."""
        return tuple(name for name, prior in self.priors.items() if support(prior).is_discrete)

    @property
    def is_discrete(self) -> tuple[bool, ...]:
        """Per element of the flat vector, whether it belongs to a parameter with a discrete prior."""
        return tuple(support(p).is_discrete for p in self.priors.values() for _ in range(int(np.prod(p.event_shape))))

    def require_unbounded(self, method: str) -> None:
        """Raise an error for a parameter that is discrete, or whose support has no map to unbounded coordinates."""
        if self.discrete:
            raise UnsupportedModelError(
                f"{method} moves parameters on the real line, and {self.discrete[0]!r} is discrete: use epf.SIR, "
                "epf.MultipleModel, which runs a filter for each of its values, or epf.fix to make it known."
            )
        for name, prior in self.priors.items():
            _bijection(name, prior)

    def to_real(self, index: int) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
        """The map from one element to the real line; the identity for an element that has no map of its own."""
        if not self.elementwise[index]:
            return lambda value: value
        name = next(name for name, part in self.slices.items() if part.start <= index < part.stop)
        prior, position = self.priors[name], index - self.slices[name].start
        # The map acts element by element, so the values of the other elements do not matter.
        return lambda value: jnp.ravel(to_support(prior).inv(jnp.broadcast_to(value, prior.event_shape)))[position]

    def unconstrain(self, vector: Float[Array, " p"]) -> Float[Array, " q"]:
        """Map parameters to unbounded coordinates; the identity where the support is the real line."""
        values = self.as_dict(vector)
        parts = [jnp.ravel(_bijection(name, prior).inv(values[name])) for name, prior in self.priors.items()]
        return jnp.concatenate([jnp.zeros(0), *parts])

    def constrain(self, free: Float[Array, " q"]) -> Float[Array, " p"]:
        """The inverse of `unconstrain`: any real vector becomes parameters inside their supports."""
        return jnp.concatenate(
            [jnp.zeros(0), *(jnp.ravel(bijection(part)) for bijection, part in self._free_parts(free))]
        )

    @property
    def free_size(self) -> int:
        """The number of unbounded coordinates: a simplex has one fewer than parameters."""
        shapes = [_bijection(name, p).inverse_shape(p.event_shape) for name, p in self.priors.items()]
        return sum(int(np.prod(shape)) for shape in shapes)

    def log_prior_free(self, free: Float[Array, " q"]) -> Float[Array, ""]:
        """The log prior density of unbounded coordinates: log p(constrain(free)) + log |Jacobian of constrain|."""
        total = self.log_prior(self.constrain(free))
        for bijection, part in self._free_parts(free):
            total += jnp.sum(bijection.log_abs_det_jacobian(part, bijection(part)))
        return total

    def _free_parts(self, free: Float[Array, " q"]) -> Iterator[tuple[Any, Array]]:
        """For each parameter, the map from its unbounded coordinates, and these."""
        start = 0
        for name, prior in self.priors.items():
            bijection = _bijection(name, prior)
            shape = bijection.inverse_shape(prior.event_shape)
            size = int(np.prod(shape))
            yield bijection, free[start : start + size].reshape(shape)
            start += size

    @property
    def elementwise(self) -> tuple[bool, ...]:
        """Per element of the flat vector, whether `unconstrain` maps it separately (all but simplexes and matrices)."""
        flags: list[bool] = []
        for prior in self.priors.values():
            base = constraint_of(prior)
            flags.extend([not base.is_discrete and base.event_dim == 0] * int(np.prod(prior.event_shape)))
        return tuple(flags)


class _Layout(NamedTuple):
    """How a flat vector is divided among the parameters."""

    slices: Mapping[str, slice]
    labels: tuple[str, ...]


@lru_cache(maxsize=256)
def _layout(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> _Layout:
    slices: dict[str, slice] = {}
    labels: list[str] = []
    for name, shape in shapes:
        start = len(labels)
        labels.extend(f"{name}[{','.join(map(str, index))}]" if shape else name for index in np.ndindex(*shape))
        slices[name] = slice(start, len(labels))
    return _Layout(MappingProxyType(slices), tuple(labels))


def parameters_of(priors: object) -> Parameters:
    """The parameters that a model's `prior()` describes, checked."""
    if not isinstance(priors, Mapping):
        raise ModelError(
            f"prior() returned {kind(priors)}: return a dictionary of names to distributions, "
            'for example {"theta": dist.Normal(0.0, 1.0)}.'
        )
    for name, prior in priors.items():
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise ModelError(f"prior() uses {name!r} as a name: a parameter's name must be a plain Python name.")
        if not isinstance(prior, Distribution):
            raise ModelError(
                f"prior() gives {kind(prior)} for {name!r}, not a distribution: use one of "
                "numpyro.distributions, or epf.fix(model, {...}) for a known value."
            )
        if prior.batch_shape != ():
            raise ModelError(
                f"prior() gives {name!r} a distribution with batch shape {tuple(prior.batch_shape)}: add "
                f".to_event({len(prior.batch_shape)}) to make it the joint prior of one vector."
            )
    return Parameters(dict(priors))


def by_name(values: Any) -> Mapping[str, Any]:
    """The user's parameter values, if they are given by name; a ModelError otherwise."""
    if not isinstance(values, Mapping):
        raise ModelError(f'The values are {kind(values)}: give them by name, for example {{"theta": 0.7}}.')
    return values


def as_floats(value: Any) -> Array:
    """Numbers as an array of floats; a TypeError or ValueError for anything else, such as text."""
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{array.dtype} is not a kind of number")
    return jnp.asarray(array, float)


def as_parameter(name: str, value: Any, prior: Distribution) -> Array:
    """The user's value of one parameter as an array, checked against the shape and the support of its prior."""
    try:
        array = as_floats(value)
    except (TypeError, ValueError):
        raise ModelError(f"The value of {name!r} is {value!r}: it must be a number or an array of numbers.") from None
    if array.shape != prior.event_shape:
        raise ModelError(
            f"The value of {name!r} has shape {array.shape}, but its prior has shape {tuple(prior.event_shape)}: "
            "give one number for each element."
        )
    if not isinstance(array, Tracer) and not _allowed(array, prior):
        raise ModelError(
            f"{name} = {value} is outside the support of its prior ({type(prior).__name__} on {support(prior)}): "
            "choose a value inside it, or another prior."
        )
    return array


def _allowed(value: Array, prior: Distribution) -> Bool[Array, ""]:
    return jnp.all(support(prior)(value)) & jnp.all(jnp.isfinite(value))  # numpyro accepts infinity as positive


def _bijection(name: str, prior: Distribution) -> Any:
    """The map from the real line (or space) to the support of a prior."""
    try:
        return to_support(prior)
    except NotImplementedError:
        raise UnsupportedModelError(
            f"This method needs unbounded coordinates, and the support of {name!r} ({type(prior).__name__}) has no map to "
            "them: use epf.SIR, or epf.fix to make it known."
        ) from None


def _variance(prior: Distribution) -> np.ndarray:
    """The variance of each element; zero where it is not known."""
    try:
        found = np.asarray(prior.variance, float)
    except ZeroDivisionError:  # NumPyro's inverse gamma of shape 1
        found = np.asarray(np.inf)
    except Exception:  # a law may have no formula, or one that fails, and its variance is only for a hint
        found = np.asarray(0.0)
    return np.broadcast_to(0.0 if support(prior).is_discrete else found, prior.event_shape)
