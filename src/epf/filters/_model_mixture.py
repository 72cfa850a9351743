"""The posterior of a model with discrete parameters: the mixture of the posteriors of its banks, one for each value."""

from collections.abc import Callable, Sequence
from math import erf
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from epf.filters._base import Evidence
from epf.filters._layout import Layout
from epf.model._parameters import Parameters
from epf.numerics._sums import mixture_moments, quantiles
from epf.posterior._posterior import ErrorEstimate, Posterior, Summary, student

_NEGLIGIBLE = 1e-6  # probability of a bank whose own errors do not matter
_ERRORS = 2.0  # standard errors, at which the effect of an error of the evidence is looked at: it is not linear
SMALLEST = 0.1  # errors of a discrete parameter with a smaller sd are in units of this
_LEVELS = np.array([0.5 + 0.5 * erf(z / 4.0) for z in range(-11, 12)])  # at which the banks' quantiles are known
_HALVINGS = 40


class Group(eqx.Module):
    """Things of one structure side by side: leaves of `bank` that are arrays have an axis for the bank in front."""

    bank: Any
    count: int = eqx.field(static=True)

    @classmethod
    def of(cls, banks: Sequence[Any]) -> "Group":
        arrays = [eqx.filter(bank, eqx.is_array) for bank in banks]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)
        return cls(eqx.combine(stacked, eqx.filter(banks[0], eqx.is_array, inverse=True)), len(banks))

    @staticmethod
    def alike(one: Any, other: Any) -> bool:
        """Whether two differ in the numbers of their arrays alone."""
        (arrays, rest), (others, other_rest) = eqx.partition(one, eqx.is_array), eqx.partition(other, eqx.is_array)
        same = jax.tree.structure(arrays) == jax.tree.structure(others) and eqx.tree_equal(rest, other_rest) is True
        leaves = zip(jax.tree.leaves(arrays), jax.tree.leaves(others), strict=same)
        return same and all(a.shape == b.shape and a.dtype == b.dtype for a, b in leaves)

    @property
    def first(self) -> Any:
        """The first of them."""
        return jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, self.bank)

    def each(self, function: Callable[..., Any], *rest: Any) -> Any:
        """A function of each, one after the other: side by side, every branch that one takes would be computed for all."""
        arrays, settings = eqx.partition(self.bank, eqx.is_array)
        return jax.lax.map(lambda each: function(eqx.combine(each[0], settings), *each[1:]), (arrays, *rest))

    def side_by_side(self, function: Callable[..., Any], *rest: Any) -> Any:
        """A function of each whose values are modules: what is no array in them stays as it is."""
        return eqx.filter_vmap(function, in_axes=eqx.if_array(0), out_axes=eqx.if_array(0))(self.bank, *rest)


class ModelMixture(Posterior):
    """The banks' posteriors, each with the probability of its values."""

    parameters: Parameters
    groups: tuple[Posterior, ...]
    layout: Layout
    values: Float[Array, "banks discrete"]
    levels: Float[Array, " banks"]
    """The logarithm of prior x evidence of each bank, as the sum over its steps."""
    evidence: Evidence

    @property
    def weights(self) -> Float[Array, " banks"]:
        """The posterior probability of each combination of values."""
        return jax.nn.softmax(self._levels)

    @property
    def _levels(self) -> Float[Array, " banks"]:
        return self.levels + jnp.where(jnp.isfinite(self.levels), self.evidence.correction, 0.0)

    def _each(self, function: Callable[..., Any], *rest: Any) -> Any:
        """What a function of each bank's posterior gives, with an axis for the bank in front."""
        found = []
        for posterior in self.groups:
            count = jax.tree.leaves(eqx.filter(posterior, eqx.is_array))[0].shape[0]
            found.append(Group(posterior, count).each(lambda bank: function(bank, *rest)))
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *found)

    def _filled(self, moments: tuple[Array, Array]) -> tuple[Float[Array, "banks p"], Float[Array, "banks p"]]:
        """Means and sds of all parameters in each bank."""
        return self.layout.joined(moments[0], self.values), self.layout.joined(moments[1], jnp.zeros_like(self.values))

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return mixture_moments(self.weights, *self._filled(self._each(lambda bank: bank.moments())))

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        grid = _with_ends(levels)
        return self._mixed_quantiles(levels, grid, self._each(lambda bank: bank.quantiles(grid)))

    def _mixed_quantiles(
        self, levels: Float[Array, " levels"], grid: Float[Array, " grid"], found: Float[Array, "banks grid f"]
    ) -> Float[Array, "levels p"]:
        """Of the others where the mixture of the banks' distribution functions, linear between `found`, has the levels."""
        weights = self.weights
        rows = jnp.where(weights[:, None, None] > 0.0, found, found[jnp.argmax(weights)])

        def one(points: Float[Array, "banks grid"], level: Float[Array, ""]) -> Float[Array, ""]:
            def halve(_: Any, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
                middle = 0.5 * (bracket[0] + bracket[1])
                below = weights @ jax.vmap(lambda row: jnp.interp(middle, row, grid, left=0.0, right=1.0))(points)
                return jnp.where(below < level, middle, bracket[0]), jnp.where(below < level, bracket[1], middle)

            return jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.min(points), jnp.max(points)))[1]

        mixed = jax.vmap(lambda points: jax.vmap(lambda level: one(points, level))(levels), 2, 1)(rows)
        return self.layout.joined(mixed, quantiles(self.values.T, weights, levels))

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        """Of a discrete parameter, the probability of each value."""
        if index in self.layout.chosen:
            values = self.values[:, self.layout.chosen.index(index)]
            return jnp.sum(jnp.where(grid[:, None] == values, self.weights, 0.0), axis=1)
        place = self.layout.others.index(index)
        found = self._each(lambda bank: bank.marginal_density(place, grid))
        return jnp.sum(jnp.where(self.weights[:, None] > 0.0, self.weights[:, None] * found, 0.0), axis=0)

    def points(self) -> tuple[Float[Array, "banks p"], Float[Array, " banks"]]:
        """The values of the discrete parameters; the others, which have no finite number, are left at zero."""
        return self.layout.joined(jnp.zeros((len(self.values), len(self.layout.others))), self.values), self.weights

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        return self._drawn(key, count, lambda bank, key: (bank.draws(key, count),))[0]

    @property
    def in_pairs(self) -> bool:
        return all(posterior.in_pairs for posterior in self.groups)

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        return self._drawn(key, count, lambda bank, key: bank.pairs(key, count))

    def _drawn(self, key: PRNGKeyArray, count: int, draw: Callable[..., Any]) -> Any:
        """As many draws from each bank, of which each is taken from one bank: from each as often as its probability says."""
        k_bank, k_order, k_draw = jax.random.split(key, 3)
        at = (jnp.arange(count) + jax.random.uniform(k_bank)) / count
        chosen = jnp.searchsorted(jnp.cumsum(self.weights)[:-1], jax.random.permutation(k_order, at), side="right")
        others, *rest = (part[chosen, jnp.arange(count)] for part in self._each(draw, k_draw))
        return (self.layout.joined(others, self.values[chosen]), *rest)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        return mixture_moments(self.weights, *self._each(lambda bank: bank.state_moments()))

    def error(self) -> ErrorEstimate:
        return self._mixed_error(*self._each(lambda bank: (bank.moments(), bank.error())))

    def summary(self, levels: Float[Array, " levels"]) -> Summary:
        """One pass over the banks, and so one loop in the program."""
        grid = _with_ends(levels)
        each = self._each(lambda bank: bank.summary(grid))
        return Summary(
            mixture_moments(self.weights, *self._filled(each.moments)),
            self._mixed_quantiles(levels, grid, each.quantiles),
            mixture_moments(self.weights, *each.state_moments),
            self._mixed_error(each.moments, each.error),
        )

    def _mixed_error(self, moments: tuple[Array, Array], parts: ErrorEstimate) -> ErrorEstimate:
        """The banks' own errors by their probabilities, and what errors of the probabilities do."""
        weights, (means, sds) = self.weights, self._filled(moments)
        mean, sd = mixture_moments(weights, means, sds)
        # A value that is nearly certain leaves an sd near zero, of which no share means anything.
        least = self.layout.joined(jnp.zeros(len(self.layout.others)), jnp.full(len(self.layout.chosen), SMALLEST))
        unit = jnp.maximum(sd, least)
        unit = jnp.where(unit > 0.0, unit, 1.0)
        share = jnp.where(weights > _NEGLIGIBLE, weights, 0.0)[:, None]

        def within(part: Float[Array, "banks 2 f"]) -> Float[Array, "2 p"]:
            none = jnp.zeros((2, len(self.layout.chosen)))
            full = self.layout.joined(part, none)
            off = full[:, 0] * sds
            of_mean = jnp.sum(jnp.where(share > 0.0, share * off, 0.0), axis=0) / unit
            spread = full[:, 1] * jnp.square(sds) + jnp.abs(means - mean) * off
            of_sd = jnp.sum(jnp.where(share > 0.0, share * spread, 0.0), axis=0) / (unit * jnp.where(sd > 0.0, sd, 1.0))
            return jnp.stack([of_mean, of_sd])

        def moved(change: Float[Array, " banks"]) -> Float[Array, "2 p"]:
            changed = jnp.where(jnp.isfinite(self._levels), self._levels + change, -jnp.inf)
            other, other_sd = mixture_moments(jax.nn.softmax(changed), means, sds)
            return jnp.stack([other - mean, other_sd - sd]) / unit

        def by_bank(errors: Float[Array, " banks"]) -> Float[Array, "2 p"]:
            """Of errors of the banks' evidence that are independent of each other."""
            up = jax.vmap(moved)(jnp.diag(_ERRORS * errors))
            down = jax.vmap(moved)(jnp.diag(-_ERRORS * errors))
            return jnp.sqrt(jnp.sum(jnp.square(jnp.maximum(jnp.abs(up), jnp.abs(down)) / _ERRORS), axis=0))

        apart = self.evidence.apart
        of_streams = jax.vmap(moved, 1)(apart)
        streams = apart.shape[1]
        noise = jnp.zeros_like(of_streams[0])
        if streams > 1:
            noise = student(streams) * jnp.std(of_streams, axis=0, ddof=1) / jnp.sqrt(1.0 * streams)
        noise = jnp.where(jnp.any(jnp.isnan(apart)), jnp.nan, noise)  # not measured
        return ErrorEstimate(
            jnp.hypot(within(parts.monte_carlo), noise),
            within(parts.bias) + by_bank(self.evidence.bias),
            jnp.hypot(within(parts.expansion), by_bank(self.evidence.expansion)),
            within(parts.truncation),
            within(parts.numbers),
        )


def _with_ends(levels: Float[Array, " levels"]) -> Float[Array, " grid"]:
    """The levels that are asked for among those at which the banks' quantiles are known."""
    return jnp.sort(jnp.concatenate([jnp.asarray(_LEVELS, levels.dtype), levels]))
