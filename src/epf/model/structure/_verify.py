"""Every claim is also tried: the sums against the model's own log-densities, at scattered points of their supports."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from epf.model._model import StateSpaceModel, parameters
from epf.model.structure._functions import Functions
from epf.model.structure._points import normal_numbers, scattered_data, scattered_theta
from epf.model.structure._reading import LAWS, log_density
from epf.model.structure._structure import Structure, read_model
from epf.numerics._compile import evaluated, options
from epf.numerics._remembered import remembered

POINTS = 6
_TOLERANCE = 1000.0  # roundings


@remembered
def structure_of(model: StateSpaceModel, u: Array | None = None) -> Structure:
    """What the programs of a model's laws say about its parameters; `u` is a row of its inputs, if it has any.

    A law whose sums disagree with its own log-density is not taken apart: all of its parameters are awkward then.
    """
    if not parameters(model).size:
        return Structure(parameters(model), {}, Functions())
    found = read_model(model, u)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((model, u))):
        return found  # its numbers are not known yet, so there is nothing to compare
    apart = disagreements(model, found, u)
    wrong = frozenset(law for law in LAWS if not apart[law] <= _TOLERANCE)
    return read_model(model, u, whole=wrong) if wrong else found


def disagreements(model: StateSpaceModel, structure: Structure, u: Array | None) -> dict[str, float]:
    """Per law, the largest difference between its log-density and its sums, in roundings of the numbers added.

    Every theta is tried with every state and observation. Points where the law itself has no finite density do not count.
    Infinity if the sums have no value where the law has one, at more than half of the points: they are of no use then.
    """
    trial, unit = Trial.of(model, u), float(jnp.finfo(jnp.zeros(()).dtype).eps)
    worst = {}
    for law in LAWS:
        with np.errstate(all="ignore"):
            terms, c = structure.terms_at(law, trial.thetas, trial.data[law])
            claimed, size = c + terms.sum(axis=0), np.abs(c) + np.abs(terms).sum(axis=0)
            density = np.asarray(trial.own[law], float)
            apart = np.abs(density - claimed) / (unit * (1.0 + size + np.abs(density)))
        finite = np.isfinite(density)
        usable = finite & np.isfinite(claimed)
        enough = 2 * usable.sum() >= finite.sum()
        worst[law] = float(np.max(apart, where=usable, initial=0.0)) if enough else float("inf")
    return worst


class Trial(NamedTuple):
    """What `tried` gives, as `Structure.terms_at` takes it: entries first, then thetas, then states and observations."""

    thetas: Float[np.ndarray, "p points 1"]
    data: dict[str, dict[str, np.ndarray]]
    own: dict[str, Array]

    @classmethod
    @remembered
    def of(cls, model: StateSpaceModel, u: Array | None) -> "Trial":
        with evaluated():  # a filter may be bound inside a compiled program
            thetas, data, own = jax.jit(lambda: tried(model, u, POINTS), compiler_options=options(once=True))()
        inputs = {} if u is None else {"u": np.asarray(u, float)}
        given = {
            law: {name: np.asarray(value, float).reshape(POINTS, -1).T[:, None] for name, value in of.items()} | inputs
            for law, of in data.items()
        }
        return cls(np.asarray(thetas, float).T[:, :, None], given, own)


def tried(model: StateSpaceModel, u: Array | None, points: int) -> tuple[Array, dict[str, Any], dict[str, Array]]:
    """Values of theta and of the data, and the log-densities of every law for all pairs of them."""
    params = parameters(model)
    rng = np.random.default_rng(0)
    inputs = {} if u is None else {"u": u}

    thetas = jax.vmap(lambda free: scattered_theta(params, free))(normal_numbers(rng, points, len(params.priors)))
    data = jax.vmap(lambda theta, free: scattered_data(model, theta, u, free))(thetas, normal_numbers(rng, points, 3))
    own = {}
    for name in LAWS:
        extra = {} if name == "initial" else inputs
        law = log_density(model, name)

        def one(theta: Array, data: dict[str, Array], law: Any = law, extra: Any = extra) -> Array:
            densities, inside = law(theta, **data, **extra)
            return jnp.sum(jnp.where(inside, densities, -jnp.inf))

        own[name] = jax.vmap(jax.vmap(one, (None, 0)), (0, None))(thetas, data[name])
    return thetas, data, own
