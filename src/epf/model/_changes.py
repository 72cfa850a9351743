"""A model whose laws changed although its class and fields did not: it reads something from outside of itself.

Compiled programs, and what was found out about a model, are known by its class and fields (decision 46). A global variable
that a law reads is in neither, so a second fit would answer with the value that the first one saw. The laws are therefore
traced before each run, which takes a few milliseconds, and all of that is forgotten if their traces differ.
"""

import hashlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpyro.distributions import Distribution

from epf.errors import warn
from epf.model._laws import log_prob
from epf.model._model import StateSpaceModel, advance, initial_law, observation_law, parameters, transition_law
from epf.model._tracing import digest
from epf.numerics._compile import is_tracing
from epf.numerics._remembered import forget_all, known_by

_MOST = 10_000  # models; of one that was forgotten, a change would not be noticed
_seen: dict[Any, bytes] = {}


def notice_changes(model: StateSpaceModel, u: Array | None) -> None:
    """Compile and read everything anew if this model's laws are no longer those that were compiled."""
    if is_tracing():
        return
    numbers, settings = eqx.partition((model, u), eqx.is_array)
    try:
        key = known_by(settings, jax.tree.map(jax.typeof, numbers))
        hash(key)
    except TypeError:  # a field that cannot be hashed: such a model cannot be compiled either
        return
    try:
        found = _traced(numbers, settings)
    except Exception:  # the checks, which come next, say what is wrong
        found = b""
    if _seen.setdefault(key, found) == found:
        while len(_seen) > _MOST:
            del _seen[next(iter(_seen))]
        return
    jax.clear_caches()
    forget_all()
    _seen.clear()
    _seen[key] = found
    warn(
        f"{type(model).__name__} reads a value from outside of itself that has changed since the last run: everything is "
        "compiled anew. Make it a field of the model (read as self.name) to save that time."
    )


def _traced(numbers: Any, settings: Any) -> bytes:
    """A digest of the model's prior and laws. Its arrays are arguments, as they are of compiled programs."""
    kinds: list[str] = []

    def told(law: Distribution) -> Any:
        kinds.append(f"{type(law)} {jax.tree.structure(law)}")
        # The arguments of a law tell all of it, if they are all known; of a user's own class they may not be.
        own = not type(law).__module__.startswith("numpyro.")
        return jax.tree.leaves(law), log_prob(law, jnp.zeros(law.event_shape)) if own else ()

    def laws(numbers: Any, theta: Array) -> Any:
        model, u = eqx.combine(numbers, settings)
        params = parameters(model)
        p = params.named(theta)
        start = initial_law(model, p)
        x = jnp.zeros(start.event_shape)
        moves = transition_law(model, p, x, u)
        x = advance(model, x, jnp.zeros(moves.event_shape))
        return [told(law) for law in (*params.priors.values(), start, moves, observation_law(model, p, x, u))], x

    model, _ = eqx.combine(numbers, settings)
    params = parameters(model)
    theta = jax.ShapeDtypeStruct((params.size,), jnp.zeros(()).dtype)
    traces = digest(laws, numbers, theta)
    return hashlib.sha256(repr((params.labels, kinds)).encode() + traces).digest()
