"""A trial of a model's laws: which have a support that moves with the parameters, which are NaN, and which lack noise."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Delta, Distribution

from epf.errors import UnsupportedModelError
from epf.model._laws import base_of, draw, has_atoms, log_prob_observed, support
from epf.model._model import (
    StateSpaceModel,
    advance,
    initial_law,
    may_lack_inputs,
    observation_law,
    parameters,
    state_shape,
    traced,
    transition_law,
)
from epf.model._parameters import Values
from epf.model._sensors import Sensors
from epf.model._tracing import depends_on
from epf.numerics._compile import compiled_once
from epf.numerics._keys import particle_keys, root_key

_STATES = 16  # simulated, at which the laws are tried

LawsAt = Callable[..., dict[str, tuple[Any, Array]]]
"""The laws at (theta, x_prev, new, x, y, u) that are to be tried, with the value of each: a module, so that equal ones are
compiled once."""


class Fault(NamedTuple):
    """What is wrong with a law, where, and at which share of the thetas."""

    what: str
    moves: bool
    """Whether its support depends on the parameters; else it is NaN."""
    at: str
    """How many thetas of how many, and the first of them."""


def faults(model: StateSpaceModel, u: Array | None, thetas: np.ndarray, laws_at: LawsAt, where: str) -> Iterator[Fault]:
    """The faults of the laws, a transition before the observation that it spoils; `where` says where the thetas are."""
    tried = _tried(model, u, jnp.asarray(thetas), laws_at)
    labels = parameters(model).labels
    for name in sorted(tried, reverse=True):
        outside, undefined = tried[name]
        for found, what, moves in (
            (np.asarray(outside) > 0.0, f"the support of {name}() depends on the parameters", True),
            (np.asarray(undefined) > 0.5, f"the log-density of {name}() is NaN", False),
        ):
            if found.any():
                first = ", ".join(f"{label} = {v:.3g}" for label, v in zip(labels, thetas[found][0], strict=True))
                yield Fault(what, moves, f"at {found.sum()} of {len(thetas)} {where}, for example at {first}")


@compiled_once
def _tried(
    model: StateSpaceModel, u: Array | None, thetas: Float[Array, "points p"], laws_at: LawsAt
) -> dict[str, tuple[Float[Array, " points"], Float[Array, " points"]]]:
    """For each law and point, the share of values drawn in the middle that it excludes, and of its own that are NaN."""

    def one(key: PRNGKeyArray) -> dict[str, tuple[Array, Array]]:
        def drawn(theta: Float[Array, " p"]) -> tuple[Array, Array, Array, Array]:
            p, (k_x, k_new, k_y) = parameters(model).named(theta), jax.random.split(key, 3)
            x_prev = draw(initial_law(model, p), k_x)
            new = draw(transition_law(model, p, x_prev, u), k_new)
            x = advance(model, x_prev, new)
            return x_prev, new, x, draw(observation_law(model, p, x, u), k_y)

        def at(theta: Float[Array, " p"]) -> dict[str, tuple[Array, Array]]:
            others, own = (laws_at(theta, *values, u) for values in (drawn(thetas[len(thetas) // 2]), drawn(theta)))
            return {
                name: (
                    jnp.any(~support(law)(value)) & jnp.all(jnp.isfinite(value)),
                    jnp.isnan(log_prob_observed(*own[name])) | jnp.any(jnp.isnan(own[name][1])),
                )
                for name, (law, value) in others.items()
            }

        return jax.vmap(at)(thetas)

    found = jax.vmap(one)(particle_keys(root_key(0), _STATES))
    return jax.tree.map(lambda flags: jnp.mean(flags, axis=0, dtype=float), found)


def refuse_atoms(model: StateSpaceModel, u: Array | None) -> None:
    """An error if a path has no density, as its states may stay where they are with some probability."""
    with may_lack_inputs(model, u):
        x = jnp.zeros(state_shape(model))
        if traced(model, lambda p: has_atoms(transition_law(model, p, x, u))):
            raise UnsupportedModelError(
                "transition() is a mixture with a point (dist.Delta), so states have no density, which this method needs: "
                "use epf.fit(model, y) without a method, or epf.MarginalEPF, which only draw from it."
            )


def require_noise(model: StateSpaceModel, u: Array | None) -> None:
    """An error if a path has no density, or if it tells a parameter exactly: given the path that would never move."""
    refuse_atoms(model, u)
    for name, where in told_by_a_path(model, u).items():
        raise UnsupportedModelError(
            f"{where}() depends on {name!r} without noise (dist.Delta), and this method draws parameters given the path of "
            "the states, so that it would never move: use epf.fit(model, y) without a method, epf.MarginalEPF or epf.PMMH."
        )


def told_by_a_path(model: StateSpaceModel, u: Array | None) -> dict[str, str]:
    """The parameters that a law of the state depends on without noise, and that law."""

    def found(p: Values) -> dict[str, str]:
        x = jnp.ones(initial_law(model, p).event_shape)
        laws = {"initial": lambda p: initial_law(model, p), "transition": lambda p: transition_law(model, p, x, u)}
        told: dict[str, str] = {}
        for where, law_of in laws.items():
            if not _points(law_of(p)):
                continue
            for name in p:

                def values(value: Array, law_of: Any = law_of, name: str = name) -> list[Array]:
                    return _points(law_of(Values({**{n: p[n] for n in p}, name: value})))

                if depends_on(values, p[name]):
                    told.setdefault(name, where)
        return told

    with may_lack_inputs(model, u):
        return traced(model, found)
    return {}


def _points(law: Distribution) -> list[Array]:
    """The values of the components that have no noise."""
    parts = law.laws if isinstance(law, Sensors) else (law,)
    return [jnp.asarray(one.v) for one in map(base_of, parts) if isinstance(one, Delta)]


class BothLaws(eqx.Module):
    """The laws of transition and observation."""

    model: StateSpaceModel

    def __call__(self, theta: Array, x_prev: Array, new: Array, x: Array, y: Array, u: Array | None) -> dict[str, Any]:
        model, p = self.model, parameters(self.model).named(theta)
        transition, observation = transition_law(model, p, x_prev, u), observation_law(model, p, x, u)
        return {"transition": (transition, new), "observation": (observation, y)}
