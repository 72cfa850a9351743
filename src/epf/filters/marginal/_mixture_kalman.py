"""Filters at the nodes for a linear Gaussian state that is seen through other laws: particles that are Gaussians.

Counts, binary and ordinal answers, heavy tails, volatilities, bearings, distances: the state is linear and Gaussian given
theta. A particle is a Gaussian N(m, P) of the whole state. Prediction is Kalman's. Parts of y that are independent given the
state are taken in one after the other, by quadrature (`_taken_in.py`). Where the density of the state given such a part is
not Gaussian it is a mixture of Gaussians, one of which is drawn, by chance. Their means differ as little as its moments
allow. So nearly all of what is not known of the state stays within the Gaussians: there are no draws of x, which is what
makes particle filters of slow states (trends, seasons, coefficients) lose their diversity. What chance is left shows between
the streams of a node.

Most parts of y depend on one linear function of the state (`_one_number.py`), and what they say is taken in exactly. What is
left out where it is not so, or where that claim fails, is looked at in each step, for one likely state, and counts as
rounding.

Sources: Alspach and Sorenson, "Nonlinear Bayesian estimation using Gaussian sum approximations", IEEE Transactions on
Automatic Control 17(4), 1972; Chen and Liu, "Mixture Kalman filters", JRSS B 62(3), 2000. The root of P is updated as in
Potter's filter (Kaminski, Bryson and Schmidt 1971).
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Key, PRNGKeyArray

from epf.filters._bank import Bank, Filters, Seen
from epf.filters._kalman import moments_of
from epf.filters.marginal._one_number import LogParts, log_parts_of, parts_of
from epf.filters.marginal._rao_blackwell import RaoBlackwellBank
from epf.filters.marginal._taken_in import LogLikelihood, along_its_slope, by_one_number, left_beside
from epf.model._laws import gaussian_moments, gaussian_root
from epf.model._model import StateSpaceModel, advance, initial_law, parameters, state_shape, transition_law
from epf.model._parameters import Parameters, Values
from epf.model.structure._linear_part import LinearPart
from epf.numerics._keys import even_keys, particle_keys
from epf.numerics._linear_algebra import upper_root
from epf.smc.proposals._base import Bootstrap
from epf.smc.resampling import Resampling

GAUSSIANS = "mixture Kalman"  # how `describe` begins
_MOST_LEFT_OUT = 1e3  # nats: a number, so that nodes without weight do not count


class MixtureBank(RaoBlackwellBank):
    """The Gaussians of all filters; a particle is its mean and a root of its covariance, flat."""

    def _parts(self, x: Float[Array, " z *rest"]) -> tuple[Array, Array]:
        """The mean of the state, and its covariance, flat."""
        mean, root = _apart(x, len(self.part.entries))
        return mean, jnp.einsum("ij...,kj...->ik...", root, root).reshape(-1, *x.shape[1:])


class MixtureKalmanFilters(Filters):
    """How the filters of a bank work."""

    size: int = eqx.field(static=True, kw_only=True)
    """How many numbers a state has."""
    parts: tuple[bool, ...] = eqx.field(static=True, kw_only=True)
    """For each part of y, whether it depends on one linear function of the state."""

    @classmethod
    def of(
        cls, model: StateSpaceModel, u: Array | None, particles: int, resampling: Resampling, streams: int
    ) -> "MixtureKalmanFilters | None":
        """The filters for this model, or None if its state is not linear and Gaussian, or y not seen part by part."""
        parts = parts_of(model, u)
        if not parts:
            return None
        size = state_shape(model)[0]
        return cls(particles, Bootstrap(), resampling, streams=streams, size=size, parts=parts)

    def _first(self, keys: Key[Array, " particles"], model: StateSpaceModel, params: Parameters, theta: Array) -> Array:
        mean, root = moments_of(initial_law(model, params.named(theta)))
        flat = jnp.concatenate([mean, jnp.ravel(root)])
        return jnp.broadcast_to(flat[:, None], (flat.shape[0], self.particles))

    def _bank(self, *parts: Array) -> MixtureBank:
        return MixtureBank(*parts, part=LinearPart(tuple(range(self.size)), (), self.size))

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        thetas: Float[Array, "nodes p"],
        bank: Bank,
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> tuple[Bank, Seen]:
        """All filters take in one observation; what a part of y says of the rest of the state counts as rounding."""
        bank, seen = super().step(key, model, thetas, bank, y, u)
        params = parameters(model)

        def left_out(key: PRNGKeyArray, theta: Array, x: Array, weights: Array) -> Float[Array, ""]:
            """What y says of a likely state beyond the one number that is taken in, in nats."""
            k_which, k_draw = jax.random.split(key)
            mean, root = _apart(x[:, jax.random.choice(k_which, self.particles, p=weights)], self.size)
            a, log_parts = jax.random.normal(k_draw, mean.shape), log_parts_of(model, params.named(theta), y, u)
            each = [left_beside(_of(log_parts, i), mean, root, a, one) for i, one in enumerate(self.parts)]
            return jnp.minimum(0.5 * jnp.sum(jnp.square(jnp.stack(each))), _MOST_LEFT_OUT)

        keys = particle_keys(jax.random.fold_in(key, 2), thetas.shape[0])
        rounding = jnp.where(seen.collapsed, 0.0, jax.vmap(left_out)(keys, thetas, bank.x, bank.weights))
        return bank, replace(seen, rounding=rounding)

    def describe(self, nodes: int) -> dict[str, str]:
        """The settings in words, for this many filters."""
        said = {"filters": f"{GAUSSIANS}: Gaussians of the state, with a quadrature for each number that is observed"}
        return {**said, "particles": super().describe(nodes)["particles"]}

    def _moved(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, y: Array, u: Any
    ) -> tuple[Array, Array, Float[Array, " particles"]]:
        p = params.named(theta)
        mean, root = self._predicted(model, p, x, u)
        log_parts, count = log_parts_of(model, p, y, u), len(self.parts)
        words = jax.vmap(lambda k: jax.random.uniform(k, (2 * count,)))(even_keys(key, x.shape[-1]))
        shifts = jax.random.uniform(jax.random.fold_in(key, 1), (count,))
        total = jnp.zeros(x.shape[-1])
        # Those that depend on one number come first: what they leave of the spread makes the others more nearly so.
        for i in sorted(range(count), key=lambda i: not self.parts[i]):
            seen, chance = _of(log_parts, i), words[:, i]
            if self.parts[i]:
                mean, root, found = by_one_number(seen, mean, root, shifts[i], chance)
            else:
                away = ndtri(jnp.clip(words[:, count + i], 1e-6, 1.0 - 1e-6))
                mean, root, found = along_its_slope(seen, mean, root, shifts[i], chance, away)
            total = total + found
        after = _together(mean, root)
        return after, after, total

    def _moved_unseen(
        self, key: PRNGKeyArray, model: StateSpaceModel, params: Parameters, theta: Array, x: Array, u: Any
    ) -> Array:
        return _together(*self._predicted(model, params.named(theta), x, u))

    def _alike(self, model: StateSpaceModel, x: Array) -> Array:
        return x[: self.size]

    def _predicted(self, model: StateSpaceModel, p: Values, x: Array, u: Any) -> tuple[Array, Array]:
        """Means and roots after the transition: one line for all particles."""
        mean, root = _apart(x, self.size)
        middle = jnp.mean(mean, axis=1)
        law = transition_law(model, p, middle, u)

        def after(x: Array, noise: Array) -> tuple[Array, Array]:
            # The law at x, whose mean moves with x, and whose noise does not.
            moved = gaussian_moments(transition_law(model, p, x, u))[0] + noise
            found = advance(model, x, moved.reshape(law.event_shape))
            return found, found

        quiet = jnp.zeros(gaussian_moments(law)[0].shape)
        (slope, reach), found = jax.jacfwd(after, (0, 1), has_aux=True)(middle, quiet)
        noise = reach @ gaussian_root(law)
        mean = found[:, None] + slope @ (mean - middle[:, None])
        carried = jnp.einsum("ij,jkn->ikn", slope, root)
        own = jnp.broadcast_to(noise[:, :, None], (*noise.shape, x.shape[-1]))
        return mean, jax.vmap(upper_root, -1, -1)(jnp.concatenate([carried, own], axis=1))


def _of(log_parts: LogParts, i: int) -> LogLikelihood:
    return lambda x: log_parts(x)[i]


def _apart(x: Float[Array, " z *rest"], n: int) -> tuple[Float[Array, " n *rest"], Float[Array, "n n *rest"]]:
    return x[:n], x[n:].reshape(n, n, *x.shape[1:])


def _together(mean: Float[Array, "n particles"], root: Float[Array, "n n particles"]) -> Float[Array, "z particles"]:
    return jnp.concatenate([mean, root.reshape(-1, root.shape[-1])])
