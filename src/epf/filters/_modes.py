"""A posterior in several places: nodes for each region of the parameters, weighed by their evidence."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.filters._base import Filter, Info, Past
from epf.filters._layout import Layout
from epf.filters._model_mixture import Group
from epf.filters._multiple_model import BanksState, MultipleModel, ReplayingMultipleModel
from epf.filters.marginal._distribution import SkewStudent
from epf.filters.marginal._marginal import MarginalEPF
from epf.filters.marginal._marginal_nodes import MarginalNodes, MarginalState
from epf.filters.marginal._region import MOST, Region, spread_over
from epf.model._model import StateSpaceModel
from epf.model._prior_draws import prior_draws
from epf.model._settings import Rule, instance, number, setting
from epf.numerics._compile import compiled_once

NEAR, FAR = 5.0 / 3.0, 50.0 / 3.0  # times as large as regions are the ellipses that looks stay out of

Ellipse = tuple[Any, ...]
"""A distribution of nodes as plain numbers, so that a file can have it: its fields, in their order."""


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(one) for one in value) if isinstance(value, list | tuple) else value


def _ellipses(most: int = MOST - 1) -> Any:
    rule = Rule(lambda value: isinstance(value, tuple) and len(value) <= most, f"a tuple of up to {most} ellipses")
    return setting((), rule, converter=_as_tuples)


class Elsewhere(Filter):
    """The marginal filter `inner` outside of some ellipses. Its evidence is that of what nodes inside of them do not see.

    They are `reach` times as large as the regions of `Modes`.
    """

    inner: MarginalEPF = instance(MarginalEPF(), MarginalEPF, example="epf.MarginalEPF()")
    ellipses: tuple[Ellipse, ...] = _ellipses()
    reach: float = number(NEAR, above=0.0)

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> MarginalNodes:
        return _banks(self.inner, self.ellipses, model, u, self.reach)[-1]


class Anew(Filter):
    """The marginal filter `inner` with nodes that are drawn where an earlier run ended, and stay there.

    It goes through the series once. The other one replays it each time that its nodes move, some five times in all. Only
    the answer after the last observation means anything: before it, few nodes are where the posterior was.
    """

    inner: MarginalEPF = instance(MarginalEPF(), MarginalEPF, example="epf.MarginalEPF()")
    ellipses: tuple[Ellipse, ...] = _ellipses(1)

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> MarginalNodes:
        bound = self.inner.bind(model, u)
        assert isinstance(bound, MarginalNodes)
        return dataclasses.replace(bound, first=_places(bound, self.ellipses)[0], moves=False)


class Modes(MultipleModel):
    """Learns a posterior with several modes: a marginal filter `inner` in each ellipse, and one outside of all.

    `epf.fit` finds the ellipses and takes this method if it must; it is then the result's `method`.
    """

    inner: Filter = instance(MarginalEPF(), MarginalEPF, example="epf.MarginalEPF()")
    ellipses: tuple[Ellipse, ...] = _ellipses()

    def _bind(self, model: StateSpaceModel, u: Array | None) -> "BoundModes":
        assert isinstance(self.inner, MarginalEPF)
        banks = _banks(self.inner, self.ellipses, model, u)
        params = banks[0].parameters
        return BoundModes(
            model=model,
            parameters=params,
            groups=(Group.of(banks),),
            layout=Layout.of([False] * params.size),
            values=jnp.zeros((len(banks), 0)),
            log_prior=jnp.zeros(len(banks)),
            replays=banks[0].replays,
        )


class BoundModes(ReplayingMultipleModel):
    """A bank for each region."""

    def init(self, key: PRNGKeyArray) -> BanksState:
        state = super().init(key)
        mass = state.groups[0].old.log_mass  # of the prior in each region
        return BanksState(state.groups, mass - jnp.max(mass))

    def step(
        self, key: PRNGKeyArray, state: BanksState, y: Float[Array, "*y"], u: Array | None, past: Past | None = None
    ) -> tuple[BanksState, Info]:
        after, info = super().step(key, state, y, u, past)
        # The prior in all regions has the mass 1, whatever the first nodes make of it.
        nodes = state.groups[0]
        extra = jnp.where(nodes.t[0] == 0, jax.nn.logsumexp(nodes.old.log_mass), 0.0)
        return after, eqx.tree_at(lambda i: i.log_evidence, info, info.log_evidence + extra)

    def describe(self) -> dict[str, str]:
        count = str(len(self.values))
        return {
            **self.groups[0].first.describe(),
            "method": "Modes",
            "banks": count,
            "regions": f"{count}, with nodes each",
        }


def ellipse_of(bound: Any, state: Any) -> Ellipse | None:
    """Where the posterior of a marginal filter is, or that of the last bank of several; None for one without nodes."""
    if isinstance(bound, BoundModes):
        arrays, settings = eqx.partition((bound.groups[0].bank, state.groups[0]), eqx.is_array)
        bound, state = eqx.combine(jax.tree.map(lambda leaf: leaf[-1], arrays), settings)
    if not isinstance(bound, MarginalNodes):
        return None
    found = _near(bound, state)
    return tuple(_as_tuples(getattr(found, name).tolist()) for name in SkewStudent.__dataclass_fields__)


def passes(state: Any) -> float:
    """How often the filters of a run have gone through the observations."""
    return 1.0 + float(state.replays / jnp.maximum(state.t, 1)) if isinstance(state, MarginalState) else 1.0


@compiled_once
def log_prior_mass(bound: MarginalNodes) -> Float[Array, ""]:
    """The logarithm of the share of the prior that a filter is confined to, which its evidence is relative to."""
    draws = prior_draws(bound.rest)
    share = bound.images.log_share(jax.vmap(bound.rest.unconstrain)(draws))
    # Where no draw is, there is less than one of them.
    return jnp.maximum(jax.nn.logsumexp(jnp.where(jnp.isnan(share), -jnp.inf, share)), 0.0) - jnp.log(len(draws))


@compiled_once
def _near(bound: MarginalNodes, state: MarginalState) -> SkewStudent:
    return bound.near(state)


def _places(bound: MarginalNodes, ellipses: tuple[Ellipse, ...]) -> list[SkewStudent]:
    """The ellipses as distributions of nodes of this filter."""
    where = [SkewStudent(*(jnp.asarray(part) for part in one)) for one in ellipses]
    shapes = jax.tree.map(jnp.shape, bound.first)
    if any(not eqx.tree_equal(jax.tree.map(jnp.shape, one), shapes) for one in where):
        raise UnsupportedModelError("These ellipses are of a model with other parameters.")
    return where


def _banks(
    inner: MarginalEPF, ellipses: tuple[Ellipse, ...], model: StateSpaceModel, u: Array | None, reach: float = 1.0
) -> list[Any]:
    """The filter in each ellipse, outside of those before it, and the one outside of all."""
    bound = inner.bind(model, u)
    if not isinstance(bound, MarginalNodes):
        raise UnsupportedModelError("Modes needs a model with parameters that are not learnt exactly.")
    where = _places(bound, ellipses)

    def confined(k: int) -> MarginalNodes:
        inside = where[k] if k < len(where) else None
        region = Region.of(where[:k], inside, bound.first, reach)
        first = bound.first if inside is None else spread_over(inside)
        return eqx.tree_at(lambda b: (b.region, b.first), bound, (region, first))

    return [confined(k) for k in range(len(where) + 1)]
