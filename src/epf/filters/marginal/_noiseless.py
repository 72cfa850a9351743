"""Filters at the nodes for a state of which a part has no noise: given theta, that part has one path.

The drug in the gut, the carry-over of an advertisement, or a sensor's lagged temperature: `initial` and `transition` return
`dist.Delta` for such components, and nothing random reaches them. Each filter carries their values. The rest of the state is
then a model of its own, `Noisy`, in which these values are parameters, and it has the filters of any other model: Kalman's
where it is linear and Gaussian given them, a quadrature where it is one number.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpyro.distributions import Delta, Distribution

from epf.filters._bank import Seen
from epf.filters.marginal._coefficients import Coefficients, without
from epf.filters.marginal._exact import KalmanBank, KalmanFilters
from epf.model._model import StateSpaceModel, Wrapper, forward, initial_law, is_new, parameters, traced, transition_law
from epf.model._parameters import Values
from epf.model._sensors import Sensors
from epf.model._tracing import depends_on
from epf.model.structure._linear_part import Parts
from epf.numerics._remembered import remembered

# Parameters of the noisy part: what the other components were before the step, and what they are after it.
_BEFORE, _AFTER = "noiseless_before_epf", "noiseless_after_epf"


@remembered
def noiseless_part(model: StateSpaceModel, u: Array | None) -> Parts | None:
    """The components without noise as `entries`, beside `others` that have some; None if there are not both."""
    return traced(model, lambda p: _noiseless(model, p, u))


def _noiseless(model: StateSpaceModel, p: Values, u: Array | None) -> Parts | None:
    first = initial_law(model, p)
    shape = tuple(first.event_shape)
    law = transition_law(model, p, jnp.ones(shape), u)
    if not isinstance(law, Sensors) or law.event_shape != shape or not is_new(model, shape):
        return None
    starts = [True] * shape[0] if isinstance(first, Delta) else [isinstance(one, Delta) for one in _laws(first)]
    entries = [
        i for i, (one, known) in enumerate(zip(law.laws, starts, strict=False)) if known and isinstance(one, Delta)
    ]
    while entries:
        part = Parts(tuple(entries), tuple(i for i in range(shape[0]) if i not in entries))

        def moved(noisy: Array, noiseless: Array, part: Parts = part) -> list[Array]:
            law: Any = transition_law(model, p, part.joined(noiseless, noisy), u)
            return [law.laws[i].v for i in part.entries]

        at = jnp.ones(len(part.others)), jnp.ones(len(part.entries))
        reached = [depends_on(lambda b, a, i=i: moved(b, a)[i], *at) for i in range(len(entries))]
        if not any(reached):
            return part if part.others else None
        entries = [i for i, noisy in zip(entries, reached, strict=True) if not noisy]
    return None


def _laws(law: Distribution) -> tuple[Distribution, ...]:
    return law.laws if isinstance(law, Sensors) else ()


class Noisy(Wrapper):
    """The noisy part of a state as a model of its own, whose further parameters are the values of the other part."""

    model: StateSpaceModel
    part: Parts

    def prior(self) -> dict[str, Distribution]:
        some = dist.Normal(0.0, 1.0).expand([len(self.part.entries)]).to_event(1)  # their law is never asked for
        return {**self.model.prior(), _BEFORE: some, _AFTER: some}

    def initial(self, p: Any) -> Distribution:
        law = self.model.initial(p)
        if not isinstance(law, Delta):
            return self._of(law)
        others = jnp.asarray(law.v)[np.array(self.part.others)]
        return Delta(others[0]) if len(others) == 1 else Delta(others, event_dim=1)

    def transition(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        return self._of(forward(self.model, "transition", p, self._joined(p[_BEFORE], x), u, t))

    def observation(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        return forward(self.model, "observation", p, self._joined(p[_AFTER], x), u, t)

    def _joined(self, noiseless: Array, x: Array) -> Array:
        return self.part.joined(noiseless, jnp.reshape(x, len(self.part.others)))

    def _of(self, law: Any) -> Distribution:
        laws = [law.laws[i] for i in self.part.others]
        return laws[0] if len(laws) == 1 else Sensors(*laws)


class NoiselessBank(eqx.Module):
    """The values of the noiseless part in all filters, and their bank of the noisy part."""

    values: Float[Array, "filters a"]
    bank: Any
    part: Parts

    @property
    def ess(self) -> Float[Array, " filters"]:
        return self.bank.ess

    def drawn(self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]) -> Float[Array, "chosen state"]:
        """A state from each of these filters."""
        return self._joined(self.values[nodes], self.bank.drawn(key, nodes))

    def drawn_jointly(
        self, key: PRNGKeyArray, nodes: Int[Array, " chosen"]
    ) -> tuple[Float[Array, "chosen state"], Float[Array, "chosen k"]]:
        """A draw of the state and of the coefficients, where the filters of the noisy part learn any."""
        noisy, learnt = self.bank.drawn_jointly(key, nodes)
        return self._joined(self.values[nodes], noisy), learnt

    def coefficients(self) -> Coefficients | None:
        """What every filter knows of the coefficients."""
        return self.bank.coefficients() if isinstance(self.bank, KalmanBank) else None

    def state_moments(self) -> tuple[Float[Array, "filters state"], Float[Array, "filters state"]]:
        """Mean and standard deviation of the state in every filter."""
        mean, sd = self.bank.state_moments()
        return self._joined(self.values, mean), self._joined(jnp.zeros_like(self.values), sd)

    def _joined(self, values: Float[Array, "many a"], noisy: Float[Array, "many *b"]) -> Float[Array, "many state"]:
        return jax.vmap(self.part.joined)(values, noisy.reshape(len(noisy), len(self.part.others)))


class NoiselessFilters(eqx.Module):
    """How the filters of a bank work: a path of the noiseless part each, and filters of the noisy one."""

    part: Parts
    inner: Any

    @property
    def streams(self) -> int:
        return self.inner.streams

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that the filters learn; nodes have values of the others."""
        return getattr(self.inner, "names", ())

    def learning(self, model: StateSpaceModel, u: Array | None, names: tuple[str, ...]) -> "NoiselessFilters":
        """The filters that learn those of these parameters that they can, and that no noiseless component depends on."""
        if not isinstance(self.inner, KalmanFilters):
            return self
        able = traced(model, lambda p: tuple(n for n in names if not self._depends_on(model, p, n, u)))
        inner = self.inner.learning(Noisy(model, self.part), u, able)
        is_all = len(inner.names) == len(parameters(model).priors)  # then there would be no nodes
        return self if is_all else NoiselessFilters(self.part, inner)

    def start(self, key: PRNGKeyArray, model: StateSpaceModel, thetas: Float[Array, "filters q"]) -> NoiselessBank:
        """Filters before the first observation."""
        values = jax.vmap(lambda theta: self._first(model, self._named(model, theta)))(thetas)
        bank = self.inner.start(key, Noisy(model, self.part), jnp.concatenate([thetas, values, values], axis=1))
        return NoiselessBank(values, bank, self.part)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "filters q"],
        bank: NoiselessBank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[NoiselessBank, Seen]:
        """All filters take in one observation."""
        values = jax.vmap(lambda theta, before: self._next(model, self._named(model, theta), before, u))(
            thetas, bank.values
        )
        given = jnp.concatenate([thetas, bank.values, values], axis=1)
        after, seen = self.inner.step(key, Noisy(model, self.part), given, bank.bank, y, u)
        return NoiselessBank(values, after, self.part), seen

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words."""
        names = ", ".join(f"x[{i}]" for i in self.part.entries)
        return {**self.inner.describe(nodes), "without noise": f"{names}: known given the parameters"}

    def _named(self, model: StateSpaceModel, theta: Float[Array, " q"]) -> Values:
        """The parameters by name. Those that the filters learn are zero: no noiseless component depends on them."""
        params = parameters(model)
        learnt = {name: jnp.zeros(params.priors[name].event_shape) for name in self.names}
        return Values({**learnt, **without(params, self.names).as_dict(theta)})

    def _first(self, model: StateSpaceModel, p: Values) -> Float[Array, " a"]:
        """The noiseless part before the first observation."""
        law: Any = initial_law(model, p)
        return self.part.apart(jnp.asarray(law.v, float))[0] if isinstance(law, Delta) else self._of(law)

    def _next(
        self, model: StateSpaceModel, p: Values, before: Float[Array, " a"], u: Array | None
    ) -> Float[Array, " a"]:
        """The noiseless part after a step, which does not depend on the noisy one."""
        return self._of(transition_law(model, p, self.part.joined(before, jnp.ones(len(self.part.others))), u))

    def _of(self, law: Any) -> Float[Array, " a"]:
        return jnp.stack([jnp.asarray(law.laws[i].v, float) for i in self.part.entries])

    def _depends_on(self, model: StateSpaceModel, p: Values, name: str, u: Array | None) -> bool:
        """Whether a noiseless component depends on this parameter."""

        def values(value: Array, before: Array) -> tuple[Array, Array]:
            those = Values({**{n: p[n] for n in p}, name: value})
            return self._first(model, those), self._next(model, those, before, u)

        return depends_on(values, p[name], jnp.ones(len(self.part.entries)))


def of_noise(filters: Any) -> Any:
    """The filters of what has noise: of most models, all of the state."""
    return filters.inner if isinstance(filters, NoiselessFilters) else filters
