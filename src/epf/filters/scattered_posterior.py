"""The posterior of scattered nodes: their own weights or, where a quadratic fits them, many more points of that."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from epf.filters.bank import Bank
from epf.gibbs.coordinates import Coordinates
from epf.matrices import cholesky, gaussian_log_density, solve, solve_lower
from epf.parameters import Parameters
from epf.posterior import ParticlePosterior

POINTS = 2048
_TRUSTED = 0.3  # nats of residual up to which the quadratic stands for the log-posterior
_SPARE = 1.5  # times its coefficients: nodes in effect that a fit needs


class ScatteredPosterior(ParticlePosterior):
    """Weighted points of theta; the state's moments are those of the filters, each given its node's weight."""

    parameters: Parameters
    theta: Float[Array, "p particles"]
    x: Float[Array, "*state particles"]
    weights: Float[Array, " particles"]
    bank: Bank
    node_weights: Float[Array, " nodes"]
    residual: Float[Array, ""]
    """Of the quadratic, in nats; the nodes themselves are used where it is too large."""

    @property
    def in_pairs(self) -> bool:
        return False

    @classmethod
    def of(
        cls,
        coordinates: Coordinates,
        mean: Float[Array, " p"],
        lower: Float[Array, "p p"],
        normals: Float[Array, "points p"],
        z: Float[Array, "nodes p"],
        log_target: Float[Array, " nodes"],
        bank: Bank,
    ) -> "ScatteredPosterior":
        """From nodes drawn from N(mean, lower lower'), and their log-posteriors; `normals` are points for the quadratic."""
        log_weights = log_target - jax.vmap(lambda z: gaussian_log_density(z - mean, lower))(z)
        node_weights = jax.nn.softmax(jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights))
        white = jax.vmap(lambda z: solve_lower(lower, z - mean))(z)
        coefficients, residual = _fit(white, log_target, node_weights)
        trusted = residual < _TRUSTED
        smooth = _quadratic(normals) @ coefficients + 0.5 * jnp.sum(normals**2, axis=1)
        padding = normals.shape[0] - z.shape[0]
        own = jnp.concatenate([z, jnp.broadcast_to(mean, (padding, mean.shape[0]))])
        points = jnp.where(trusted, mean + normals @ lower.T, own)
        weights = jnp.where(trusted, jax.nn.softmax(smooth), jnp.pad(node_weights, (0, padding)))
        theta = jax.vmap(coordinates.theta)(points).T
        return cls(coordinates.parameters, theta, bank.x[0], weights, bank, node_weights, residual)

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        mean, sd = self.bank.state_moments()
        share = self.node_weights.reshape(-1, *(1 for _ in mean.shape[1:]))
        # A node without weight may be anywhere, and zero times infinity is no number.
        whole = jnp.sum(jnp.where(share > 0.0, share * mean, 0.0), axis=0)
        spread = jnp.where(share > 0.0, share * (sd**2 + (mean - whole) ** 2), 0.0)
        return whole, jnp.sqrt(jnp.sum(spread, axis=0))


def _quadratic(points: Float[Array, "many p"]) -> Float[Array, "many terms"]:
    """1, u_i and u_i u_j."""
    i, j = np.triu_indices(points.shape[1])
    return jnp.concatenate([jnp.ones_like(points[:, :1]), points, points[:, i] * points[:, j]], axis=1)


def _fit(
    points: Float[Array, "nodes p"], values: Float[Array, " nodes"], weights: Float[Array, " nodes"]
) -> tuple[Float[Array, " terms"], Float[Array, ""]]:
    """Least squares, each node with its weight; and the standard deviation of what is left, infinite if nodes are few."""
    design = _quadratic(points)
    terms = design.shape[1]
    sound = (weights > 0.0) & jnp.isfinite(values)
    share = jnp.where(sound, weights, 0.0)
    values = jnp.where(sound, values, 0.0)
    middle = share @ values
    scaled = design * share[:, None]
    normal = scaled.T @ design
    lower = cholesky(normal + 1e-6 * jnp.eye(terms) * jnp.trace(normal) / terms)
    found = solve(lower, scaled.T @ (values - middle))
    effective = 1.0 / jnp.sum(share**2)
    left = share @ (values - middle - design @ found) ** 2
    spare = effective - terms
    residual = jnp.sqrt(left * effective / jnp.maximum(spare, 1.0))
    return found, jnp.where(effective > _SPARE * terms, residual, jnp.inf)
