"""The laws of a model, read: log p(value | data, theta) of each as a sum of products of atoms."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from numpyro.distributions import Distribution, constraints

from epf.model._laws import constraint_of, is_independent, support
from epf.model._model import StateSpaceModel, first_law, newest, observation_law, parameters, transition_law
from epf.model._parameters import Parameters, Values
from epf.model._sensors import Sensors
from epf.model._shapes import shapes_of
from epf.model._tracing import depends_on
from epf.model.structure._algebra import Sum, add, number
from epf.model.structure._functions import Functions, as_array, thetas_of
from epf.model.structure._program import Step, UnreadableError, read

LAWS = ("initial", "transition", "observation")
_HOLDS = ("select", 2)


@dataclass(frozen=True)
class LawReading:
    """The log-density of one law; `problem` says why it is one atom, if it is."""

    name: str
    total: Sum
    problem: str = ""

    @property
    def thetas(self) -> frozenset[int]:
        """The parameters that reach this law."""
        return self.total.thetas

    @property
    def awkward(self) -> frozenset[int]:
        """The parameters in which this law is not separable."""
        return frozenset().union(*(atom.thetas for atom in self.total.atoms if atom.mixed))


def law_and_value(model: StateSpaceModel, name: str) -> Callable[..., tuple[Distribution, Array]]:
    """A law of the model and the value of which it is the law, as a function of the parameters by name and the data."""

    def initial(p: Values, x_0: Array) -> tuple[Distribution, Array]:
        return first_law(model, p), newest(model, x_0)

    def transition(p: Values, x: Array, new: Array, u: Array | None = None) -> tuple[Distribution, Array]:
        return transition_law(model, p, x, u), new

    def observation(p: Values, x: Array, y: Array, u: Array | None = None) -> tuple[Distribution, Array]:
        return observation_law(model, p, x, u), y

    return {"initial": initial, "transition": transition, "observation": observation}[name]


def log_density(model: StateSpaceModel, name: str) -> Callable[..., tuple[Array, Array]]:
    """The log-densities of a law's components, and whether each value is possible, as a function of theta and the data."""
    of, params = law_and_value(model, name), parameters(model)
    return lambda theta, *data, **named: _components(*of(params.named(theta), *data, **named))


def _reached(model: StateSpaceModel, name: str, data: list[Any]) -> set[int]:
    """The places in theta of the parameters that reach a law."""
    of, params = law_and_value(model, name), parameters(model)
    zeros = params.as_dict(jnp.zeros(params.size))

    def reaches(key: str) -> bool:
        def density(part: Array, others: dict[str, Array], *data: Array) -> tuple[Array, Array]:
            return _components(*of(Values({**others, key: part}), *data))

        return depends_on(density, zeros[key], zeros, *data)

    return {i for key, places in params.slices.items() if reaches(key) for i in range(places.start, places.stop)}


def has_components(law: Distribution) -> bool:
    """Whether the log-density is a sum over the components of the value."""
    return law.event_shape != () and (is_independent(law) or isinstance(law, Sensors))


def _components(law: Distribution, value: Array) -> tuple[Array, Array]:
    if isinstance(law, Sensors):
        densities, inside = zip(*(_components(*each) for each in law.each(value)), strict=True)
        return jnp.stack(densities), jnp.stack(inside)
    base: Any = law
    if has_components(law):
        base = base.base_dist
    allowed = support(base)
    plain = isinstance(constraint_of(base), type(constraints.real))
    inside = jnp.ones(value.shape if has_components(law) else (), bool) if plain else jnp.asarray(allowed(value))
    value = jnp.asarray(value).astype(int) if allowed.is_discrete else value
    return jnp.asarray(base.log_prob(value), float), inside


def inputs_of(model: StateSpaceModel, name: str, u: Array | None) -> dict[str, tuple[int, ...]]:
    """The names and shapes of what a law needs besides theta."""
    shapes = shapes_of(model, u)
    inputs = {} if u is None else {"u": u.shape}
    return {
        "initial": {"x_0": shapes.state},
        "transition": {"x": shapes.state, "new": shapes.new, **inputs},
        "observation": {"x": shapes.state, "y": shapes.observation, **inputs},
    }[name]


def theta_atoms(algebra: Functions, params: Parameters) -> np.ndarray:
    """The entries of theta; the supports of their priors tell which cannot be negative."""
    signs: list[bool] = []
    for prior in params.priors.values():
        signs.extend([_never_negative(prior)] * prod(prior.event_shape))
    return algebra.unknowns("theta", (len(signs),), theta=True, never_negative=signs)


def _never_negative(law: Distribution) -> bool:
    """Whether the support of a law is known to have no negative numbers."""
    base = constraint_of(law)
    low = getattr(base, "lower_bound", -1.0)
    return isinstance(base, type(constraints.simplex)) or (
        not isinstance(low, Tracer) and bool(np.all(np.asarray(low) >= 0.0))
    )


def read_law(algebra: Functions, model: StateSpaceModel, name: str, u: Array | None, whole: bool = False) -> LawReading:
    """The log-density of a law; with `whole`, as one atom that is not taken apart."""
    shapes = inputs_of(model, name, u)
    kind = jnp.zeros(()).dtype
    theta = theta_atoms(algebra, parameters(model))
    given = [jax.ShapeDtypeStruct(shape, kind) for shape in ((theta.size,), *shapes.values())]
    signs: list[bool] = []
    of, params = law_and_value(model, name), parameters(model)
    jax.eval_shape(lambda theta, *data: signs.append(_never_negative(of(params.named(theta), *data)[0])), *given)
    value = {"initial": "x_0", "transition": "new", "observation": "y"}[name]
    data = {
        key: algebra.unknowns(key, shape, never_negative=key == value and signs[0]) for key, shape in shapes.items()
    }
    own = log_density(model, name)
    program = jax.make_jaxpr(jax.jit(own))(*given)
    problem = "its sums do not agree with its own log-density" if whole else ""
    try:
        outputs = read(algebra, program.jaxpr, program.consts, [theta, *data.values()])
        reached = thetas_of(*outputs)
    except UnreadableError as error:
        outputs, problem = None, str(error)
        reached = _reached(model, name, given[1:])
    if whole or outputs is None:
        kept = as_array([one if i in reached else number(0) for i, one in enumerate(theta)], theta.shape)
        outputs = Step(algebra, program.eqns[0], [kept, *data.values()]).opaque()
    densities, inside = outputs
    there = algebra.unknowns("there", inside.shape) if name == "observation" else None
    total = add(*(_weighed(algebra, *parts) for parts in _parts(densities, inside, there)))
    return LawReading(name, total, problem)


def _parts(densities: np.ndarray, inside: np.ndarray, there: np.ndarray | None) -> Any:
    inside, seen = np.broadcast_to(inside, densities.shape), [None] * densities.size
    if there is not None:
        seen = list(np.broadcast_to(there, densities.shape).flat)
    return zip(densities.flat, inside.flat, seen, strict=True)


def _weighed(algebra: Functions, density: Sum | float, inside: Sum | bool, there: Sum | None) -> Sum:
    """One component: its log-density where it is possible, minus infinity elsewhere, and nothing if it is missing."""
    density = density if isinstance(density, Sum) else algebra.constant(density)
    possible = inside if isinstance(inside, Sum) else algebra.constant(inside)
    total = algebra.multiply(algebra.case((possible,), 1, _HOLDS), density)
    if possible.number is None:
        never = algebra.case((possible,), 0, _HOLDS)
        total = add(total, algebra.multiply(never, algebra.constant(-np.inf)))
    return total if there is None else algebra.multiply(algebra.case((there,), 1, _HOLDS), total)
