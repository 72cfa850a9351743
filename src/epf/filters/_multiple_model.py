"""Discrete parameters: a filter for each combination of their values, weighed by its evidence.

        p(k | y) is proportional to p(k) p(y | k),        p(theta | y) = sum_k p(k | y) p(theta | y, k)

The filters, the banks, never exchange anything: the value that a fixed parameter has does not change. All have the same
random numbers: bank k is the filter of `epf.fix(model, k)` with the same seed, and what their noise has in common cancels.

Source: Magill, "Optimal adaptive estimation of sampled stochastic processes", IEEE Transactions on Automatic Control 10(4),
1965; the field calls it multiple-model estimation.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.errors import SettingError
from epf.filters._base import BoundFilter, Caveat, Evidence, Filter, Info, Past, ReplayingFilter
from epf.filters._islands import Islands
from epf.filters._layout import Layout
from epf.filters._model_mixture import Group, ModelMixture
from epf.filters.marginal._marginal import MarginalEPF
from epf.model._enumeration import combinations
from epf.model._model import StateSpaceModel, fix, parameters, with_values
from epf.model._parameters import Parameters
from epf.model._settings import instance
from epf.numerics._compile import evaluated

_MATTERS = 1e-3  # probability, below which nobody has to hear of a bank's troubles


class MultipleModel(Filter):
    """Learns discrete parameters: the filter `inner` runs once for each combination of their values.

    Its evidence gives each value a probability, and the posterior of all other parameters is the mixture of the banks'.
    `inner` is any filter that serves the model with the discrete parameters known. A certificate needs one that measures the
    error of its evidence: MarginalEPF, Kalman, or a filter with islands.

    Examples:
        >>> epf.MultipleModel(epf.EPF(1000)).inner.particles
        1000
    """

    inner: Filter = instance(MarginalEPF(), Filter, example="epf.MarginalEPF()")

    def check_together(self) -> None:
        if isinstance(self.inner, MultipleModel):
            raise SettingError("MultipleModel(inner=MultipleModel(...)): one of them serves all discrete parameters.")

    @property
    def max_observations(self) -> int | None:
        return self.inner.max_observations

    @property
    def weighted_particles(self) -> int | None:
        return self.inner.weighted_particles

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> "BoundMultipleModel":
        with evaluated():  # which values there are must be known
            return self._bind(model, u)

    def _bind(self, model: StateSpaceModel, u: Array | None) -> "BoundMultipleModel":
        params = parameters(model)
        found = combinations(params)
        banks = _bound(self.inner, model, [each.values for each in found], u)
        groups, order = _grouped(banks)
        values = jnp.stack([_vector(params, found[i].values) for i in order])
        log_prior = jnp.asarray([found[i].log_prior for i in order], float)
        layout = Layout.of(params.is_discrete)
        if isinstance(banks[0], ReplayingFilter):
            replays = banks[0].replays
            return ReplayingMultipleModel(  # pyright takes the abstract field for the third of these
                model=model,
                parameters=params,
                groups=groups,
                layout=layout,
                values=values,
                log_prior=log_prior,
                replays=replays,
            )
        return BoundMultipleModel(model, params, groups, layout, values, log_prior)

    def caveats(self, state: Any) -> tuple[Caveat, ...]:
        return self.inner.caveats(state)


class BanksState(eqx.Module):
    """The states of all banks, group by group, and the logarithm of prior x evidence of each, relative to the highest."""

    groups: tuple[Any, ...]
    levels: Float[Array, " banks"]


class BoundMultipleModel(BoundFilter):
    """The banks of one model. Those whose programs are the same are in one group, and run one after the other."""

    model: StateSpaceModel
    parameters: Parameters
    groups: tuple[Group, ...]
    layout: Layout
    values: Float[Array, "banks discrete"]
    log_prior: Float[Array, " banks"]

    def init(self, key: PRNGKeyArray) -> BanksState:
        states = tuple(group.each(lambda bank: bank.init(key)) for group in self.groups)
        return BanksState(states, self.log_prior - jnp.max(self.log_prior))

    def step(
        self, key: PRNGKeyArray, state: BanksState, y: Float[Array, "*y"], u: Array | None, past: Past | None = None
    ) -> tuple[BanksState, Info]:
        apart = past is not None and past.first.ndim > 0  # windows of their own, or one for all
        states, infos, first = [], [], 0
        for group, before in zip(self.groups, state.groups, strict=True):
            own = jax.tree.map(lambda leaf, a=first, b=first + group.count: leaf[a:b], past) if apart else None

            def one(bank: Any, before: Any, window: Past | None) -> tuple[Any, Info]:
                rows = () if past is None else (window if apart else past,)
                after, info = bank.step(key, before, y, u, *rows)
                # A bank that failed has no weight from now on, and stays where it was.
                return jax.tree.map(lambda old, new: jnp.where(info.failed, old, new), before, after), info

            after, info = group.each(one, before, own)
            states, infos, first = [*states, after], [*infos, info], first + group.count
        info = jax.tree.map(lambda *parts: jnp.concatenate(parts), *infos)
        levels, pooled = self._weighed(state.levels, info)
        return BanksState(tuple(states), levels), pooled

    def _weighed(self, before: Float[Array, " banks"], info: Info) -> tuple[Float[Array, " banks"], Info]:
        """The levels after a step, and what there is to know of it: of all banks, by their probabilities."""
        # A bank whose islands collapsed in part has evidence left; others that collapsed have none.
        collapsed = info.collapsed & jnp.asarray(not isinstance(self.groups[0].bank, Islands))
        gone = info.failed | collapsed | ~jnp.isfinite(info.log_evidence)
        found = jnp.where(gone, -jnp.inf, before + info.log_evidence)
        top = jnp.max(found)
        # An observation that no bank can explain is set aside by all.
        none = top == -jnp.inf
        levels = jnp.where(none, before, found - top)
        weights = jax.nn.softmax(levels)
        matters = weights > _MATTERS

        def mean(part: Float[Array, " banks"]) -> Float[Array, ""]:
            known = ~jnp.isnan(part) & matters
            return jnp.where(jnp.any(known), jnp.sum(jnp.where(known, weights * part, 0.0)), jnp.nan)

        pooled = Info(
            jax.nn.logsumexp(found) - jax.nn.logsumexp(before),
            mean(info.ess),
            jnp.any(info.resampled),
            none | jnp.any(info.collapsed & ~gone & matters),
            jnp.sum(jnp.where(matters, info.invalid, 0)),
            jnp.all(info.failed | (before == -jnp.inf)),
            mean(info.residual),
            mean(info.ancestors),
        )
        return levels, pooled

    def posterior(self, state: BanksState) -> ModelMixture:
        def read(bank: Any, state: Any) -> tuple[Any, Evidence]:
            return bank.posterior(state), bank.evidence(state)

        pairs = zip(self.groups, state.groups, strict=True)
        found = [group.side_by_side(read, states) for group, states in pairs]
        evidence = [one for _, one in found]
        streams = max(one.apart.shape[1] for one in evidence)
        wide = [one._replace(apart=jnp.broadcast_to(one.apart, (len(one.apart), streams))) for one in evidence]
        joined = jax.tree.map(lambda *parts: jnp.concatenate(parts), *wide)
        posteriors = tuple(posterior for posterior, _ in found)
        return ModelMixture(self.parameters, posteriors, self.layout, self.values, state.levels, joined)

    def describe(self) -> dict[str, str]:
        inside, names = self.groups[0].first.describe(), ", ".join(self.parameters.discrete)
        banks = {"banks": str(len(self.values)), "discrete": f"{names}, a {inside['method']} for each value"}
        return {**inside, "method": "MultipleModel", **banks}

    def check(self) -> None:
        for group in self.groups:
            group.first.check()


class ReplayingMultipleModel(BoundMultipleModel, ReplayingFilter):
    """Banks that replay old observations, each its own."""

    replays: int = eqx.field(static=True)

    def next_replayed(self, state: BanksState) -> Int[Array, " banks"]:
        pairs = zip(self.groups, state.groups, strict=True)
        return jnp.concatenate([group.each(lambda bank, s: bank.next_replayed(s), s) for group, s in pairs])


def _vector(params: Parameters, values: dict[str, Any]) -> Float[Array, " discrete"]:
    """The values of the discrete parameters in their order, as one vector."""
    return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(jnp.asarray(values[name], float)) for name in params.discrete)])


def _bound(inner: Filter, model: StateSpaceModel, values: list[dict[str, Any]], u: Array | None) -> list[Any]:
    """The filter of each combination.

    To bind takes a part of a second. Most filters are the same but for the values in their model, and then two are enough:
    whether it is so, the last one tells.
    """
    first, last = (inner.bind(fix(model, one), u) for one in (values[0], values[-1]))
    if eqx.tree_equal(with_values(first, values[-1]), last):
        return [with_values(first, one) for one in values]
    return [first, *(inner.bind(fix(model, one), u) for one in values[1:-1]), *([last] if len(values) > 1 else [])]


def _grouped(banks: list[Any]) -> tuple[tuple[Group, ...], list[int]]:
    """Banks with the same program together, and the number of each bank in their order."""
    groups: list[list[int]] = []
    for i, bank in enumerate(banks):
        own = next((group for group in groups if Group.alike(banks[group[0]], bank)), None)
        if own is None:
            groups.append([i])
        else:
            own.append(i)
    return tuple(Group.of([banks[i] for i in group]) for group in groups), [i for group in groups for i in group]
