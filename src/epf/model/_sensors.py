"""Sensors of different kinds: a row of observations whose components have laws of their own."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpyro.distributions import Distribution, constraints

from epf.errors import ModelError, kind


class _Each(constraints.Constraint):
    """A constraint for each component of a vector."""

    event_dim = 1

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts

    @property
    def is_discrete(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return all(part.is_discrete for part in self.parts)

    def __call__(self, x: Float[Array, "*batch m"]) -> Bool[Array, "*batch"]:
        return jnp.all(jnp.stack([part(x[..., i]) for i, part in enumerate(self.parts)], axis=-1), axis=-1)

    def feasible_like(self, prototype: Float[Array, "*batch m"]) -> Float[Array, "*batch m"]:
        values = [part.feasible_like(prototype[..., i]) for i, part in enumerate(self.parts)]
        return jnp.stack([jnp.asarray(value, float) for value in values], axis=-1)

    def tree_flatten(self) -> Any:
        return (self.parts,), (("parts",), {})


class Sensors(Distribution):
    """The law of a row of observations of different kinds: independent given the state, each with a law of one number.

    A component that is missing (NaN) is left out, and the others count.

    Examples:
        >>> def observation(self, p, x, u):
        ...     return epf.Sensors(dist.Poisson(jnp.exp(x)), dist.LogNormal(x, p.assay_sd))
        >>> epf.Sensors(dist.Poisson(3.0), dist.Normal(0.0, 1.0)).event_shape
        (2,)
    """

    pytree_data_fields = ("laws",)

    def __init__(self, *laws: Distribution) -> None:
        if not laws:
            raise ModelError("Sensors has no law: give a distribution of one number for each sensor.")
        for i, law in enumerate(laws):
            if not isinstance(law, Distribution) or law.batch_shape or law.event_shape:
                found = kind(law) if not isinstance(law, Distribution) else f"{type(law).__name__} of several numbers"
                raise ModelError(f"Sensors: argument {i + 1} is {found}: give a distribution of one number for each.")
        self.laws = laws
        super().__init__((), (len(laws),))

    @property
    def support(self) -> Any:
        return _Each(tuple(law.support for law in self.laws))

    @property
    def mean(self) -> Float[Array, " m"]:
        return jnp.stack([jnp.asarray(law.mean, float) for law in self.laws])

    @property
    def variance(self) -> Float[Array, " m"]:
        return jnp.stack([jnp.asarray(law.variance, float) for law in self.laws])

    def sample(self, key: PRNGKeyArray | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "*shape m"]:
        assert key is not None
        keys = jax.random.split(key, len(self.laws))
        draws = [law.sample(k, sample_shape) for k, law in zip(keys, self.laws, strict=True)]
        return jnp.stack([jnp.asarray(draw, float) for draw in draws], axis=-1)

    def each(self, value: Float[Array, "*batch m"]) -> list[tuple[Distribution, Float[Array, "*batch"]]]:
        """The laws, each with its component."""
        return [(law, value[..., i]) for i, law in enumerate(self.laws)]

    def log_prob(self, value: Any, intermediates: Any = None) -> Float[Array, "*batch"]:
        is_discrete = [part.is_discrete for part in self.support.parts]
        each = zip(is_discrete, self.each(value), strict=True)
        parts = [(law, one.astype(int) if discrete else one) for discrete, (law, one) in each]
        return jnp.sum(jnp.stack([law.log_prob(one) for law, one in parts], axis=-1), axis=-1)
