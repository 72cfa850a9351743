"""Filters at the nodes for a state of categories and numbers: regimes that numbers move by.

Where the numbers are linear and Gaussian once the path of the categories is known, a particle is a draw of the categories
with a Kalman filter of the numbers, as in `_rao_blackwell.py`. The category of a particle looks at the next observation
before it is drawn (`smc/proposals/_enumerated.py`).
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray
from numpyro.distributions import Delta, Distribution

from epf.filters.marginal._rao_blackwell import Particle, RaoBlackwellised, Rest
from epf.model._laws import (
    draw,
    gaussian_moments,
    gaussian_of,
    is_gaussian,
    is_gaussian_or_point,
    log_prob,
    number_of_values,
)
from epf.model._model import StateSpaceModel, initial_law, is_new, observation_law, state_shape, traced, transition_law
from epf.model._parameters import Values
from epf.model._sensors import Sensors
from epf.model._tracing import depends_on, is_affine
from epf.model.structure._linear_part import LinearPart
from epf.numerics._keys import particle_keys
from epf.numerics._remembered import remembered


class Regimes(Rest):
    """The categories of the state as a model of its own."""

    @staticmethod
    def first(law: Distribution, part: LinearPart, key: PRNGKeyArray) -> Particle:
        if isinstance(law, Delta):
            return Rest.first(law, part, key)
        categories, numbers = _laws(law, part)
        keys = particle_keys(key, len(part.others))
        drawn = [jnp.asarray(draw(one, k), float) for one, k in zip(categories, keys, strict=True)]
        return Particle(jnp.stack(drawn), *gaussian_moments(numbers))

    def transition(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        categories, _ = self._moves(x)
        return categories[0] if len(categories) == 1 else Sensors(*categories)

    def advance(self, x: Any, new: Any) -> Any:
        before = self._particle(x)

        def numbers(b: Array) -> tuple[Array, tuple[Array, Array]]:
            found = gaussian_moments(self._moves(before._replace(mean=b).flat())[1])
            return found[0], found

        slope, (mean, noise) = jax.jacfwd(numbers, has_aux=True)(before.mean)
        return Particle(jnp.ravel(new), mean, slope @ before.covariance @ slope.T + noise).flat()

    def _moves(self, x: Array) -> tuple[tuple[Distribution, ...], Sensors]:
        particle = self._particle(x)
        law = transition_law(self.model, self.p, self.part.joined(particle.mean, particle.rest), self.u)
        return _laws(law, self.part)


class SwitchingFilters(RaoBlackwellised):
    """How the filters of a bank work."""

    rest: ClassVar[type[Rest]] = Regimes

    @staticmethod
    def part_of(model: StateSpaceModel, u: Array | None) -> LinearPart | None:
        return switching_part(model, u)


@remembered
def switching_part(model: StateSpaceModel, u: Array | None) -> LinearPart | None:
    """The numbers of a state whose other components are categories, if they are linear and Gaussian given those."""
    shape = state_shape(model)

    def found(p: Values) -> LinearPart | None:
        first, law = initial_law(model, p), transition_law(model, p, jnp.zeros(shape), u)
        if not isinstance(law, Sensors) or law.event_shape != shape or not is_new(model, shape):
            return None
        few = [number_of_values(one) > 0 for one in law.laws]
        alike = isinstance(first, Delta) or (
            isinstance(first, Sensors) and [number_of_values(one) > 0 for one in first.laws] == few
        )
        gaussian = [is_gaussian_or_point(one) for one in (*law.laws, *getattr(first, "laws", ()))]
        if not alike or not any(few) or all(few) or not all(map(any, zip(few * 2, gaussian, strict=False))):
            return None
        part = LinearPart(
            tuple(i for i, one in enumerate(few) if not one),
            tuple(i for i, one in enumerate(few) if one),
            len(few) - sum(few),
        )
        return part if _is_linear(model, p, part, u) else None

    return traced(model, found)


def _is_linear(model: StateSpaceModel, p: Values, part: LinearPart, u: Array | None) -> bool:
    """Whether the numbers move, and are seen, by lines with Gaussian noise, and leave the categories alone."""
    at = jnp.zeros(len(part.entries)), jnp.zeros(len(part.others))

    def moves(b: Array, a: Array) -> tuple[tuple[Distribution, ...], Sensors]:
        return _laws(transition_law(model, p, part.joined(b, a), u), part)

    def chances(b: Array, a: Array) -> list[Array]:
        laws = moves(b, a)[0]
        return [jax.vmap(lambda v, one=one: log_prob(one, v))(one.enumerate_support(expand=False)) for one in laws]

    def seen(b: Array, a: Array) -> Distribution:
        return gaussian_of(observation_law(model, p, part.joined(b, a), u))[0]

    if not is_gaussian(seen(*at)) or depends_on(chances, *at):
        return False
    return all(
        is_affine(lambda b, a, law=law: gaussian_moments(law(b, a))[0], *at)
        and not depends_on(lambda b, a, law=law: gaussian_moments(law(b, a))[1], *at)
        for law in (lambda b, a: moves(b, a)[1], seen)
    )


def _laws(law: Any, part: LinearPart) -> tuple[tuple[Distribution, ...], Sensors]:
    """The laws of the categories, and the law of the numbers."""
    return tuple(law.laws[i] for i in part.others), Sensors(*(law.laws[i] for i in part.entries))
