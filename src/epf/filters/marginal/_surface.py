"""The smooth function through the log-posteriors of the nodes, and through what their filters know of the coefficients."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from epf.filters.marginal._coefficients import Coefficients
from epf.filters.marginal._distribution import white_log_density
from epf.filters.marginal._images import Images
from epf.filters.marginal._nodes import Nodes, placed
from epf.filters.marginal._quadrature import STREAMS
from epf.numerics._sums import mean_and_sd
from epf.polynomial._kriging import krige, terms
from epf.posterior._posterior import sensitivities, standard_error

# Nats at nodes left out, up to which the smooth function stands for the log-posterior. It passes through the nodes that it
# has, so it is better than this; the alternative, weights of the nodes alone, is off by 0.2 sds if 25 of them matter.
_TRUSTED = 1.0
_SPARE = 1.5  # times a quadratic's coefficients: nodes that a fit needs
_MOST = 6, 10  # times a quadratic's coefficients: nodes, or noisy ones, that a fit is made of; its cost is their cube
_AT_LEAST = 96  # nodes, which cost little
_WITHIN = 8.0  # nats below the peak, within which nodes are as good as the highest
_LOWEST = 1e3  # nats below the peak; lower is all the same
_FAR = 4.0  # nats below the peak at which a node's value begins to matter less
_ROUGH = 0.1  # of the squared errors, which are the function's own at least: the noise is known by its estimate alone
_NOISE = 0.1  # squared nats: with more, weights of single nodes are no measure of the function
_EVEN = 0.5  # of the error of random draws: measured on the proving ground, 0.3 to 0.6 (docs/measurements.md)
_ERRORS = 3.0  # standard errors, within which two ways to compute means and variances must agree


class Surface(eqx.Module):
    """The smooth function through the log-posteriors of the nodes, by its values at fixed points of the proposal.

    It stands for the log-posterior where it misses nodes that are left out by little (`trusted`).
    """

    log_density: Float[Array, " points"]
    """Over that of the proposal."""
    apart: Float[Array, "answers points"]
    """Errors that the log-likelihoods might have: see `Nodes.apart`."""
    left_out: Float[Array, " nodes"]
    """How far the function is off at each node if that is left out, in nats; 1 where it is not used."""
    trusted: Bool[Array, ""]
    share: Float[Array, ""]
    """How much the weights of the nodes themselves count beside the function: all, if it is not trusted."""
    gap: Float[Array, "2 p"]
    """What means, and logarithms of sds, differ by from those of the nodes, if that alone speaks against the function."""
    coefficients: Coefficients | None = None
    """At the points, if the filters learn any."""
    missed: Float[Array, "nodes 2k"] | None = None
    """How far their means and the logarithms of their sds are off at each node if that is left out."""

    @property
    def weights(self) -> Float[Array, " points"]:
        """Of the points that stand for the function."""
        return jax.nn.softmax(self.log_density)

    @classmethod
    def of_prior(cls, images: Images, nodes: Nodes, standard: Float[Array, "points q"]) -> "Surface":
        """The prior itself, while nothing was seen."""
        log_prior, extra = images.folded(nodes.proposal, nodes.proposal.point(standard))
        log_density = log_prior - (white_log_density(standard) + extra)
        apart = jnp.zeros((nodes.apart().shape[0], standard.shape[0]))
        none, gap = jnp.zeros(nodes.z.shape[0]), jnp.zeros((2, nodes.theta.shape[1]))
        found = log_density, apart, none, jnp.asarray(True), jnp.asarray(0.0), gap
        if (learnt := learnt_at(nodes)) is None:
            return cls(*found)
        same = Coefficients(*(jnp.broadcast_to(part[0], (len(standard), part.shape[1])) for part in learnt))
        return cls(*found, same, jnp.zeros((nodes.z.shape[0], 2 * same.mean.shape[1])))

    @classmethod
    def through(cls, images: Images, nodes: Nodes, standard: Float[Array, "points q"]) -> "Surface":
        """The function through the nodes, at these points; none where they are fewer than a quadratic needs."""
        (count, q), streams, learnt = nodes.z.shape, nodes.values.shape[0], learnt_at(nodes)
        if count < _SPARE * terms(q):
            none = cls.of_prior(images, nodes, standard)
            unused = {
                "log_density": jnp.zeros_like(none.log_density),
                "left_out": jnp.ones(count),
                "trusted": jnp.asarray(False),
                "share": jnp.asarray(1.0),
            }
            return dataclasses.replace(none, **unused)
        white, noisy = nodes.white, streams > STREAMS  # a quadrature hardly is
        log_target = nodes.log_weights + nodes.log_density
        below = jnp.max(log_target) - log_target
        below = jnp.where(jnp.isfinite(below), jnp.minimum(below, _LOWEST), _LOWEST)
        # Where there are more nodes than the fit can have, it has some from the tails too: through the highest alone, it
        # would extrapolate a parabola. The sort is stable, and the first points of a Sobol sequence are spread like all.
        among = jnp.argsort(jnp.maximum(below - _WITHIN, 0.0))[: max(_MOST[noisy] * terms(q), _AT_LEAST)]
        near, apart = below[among], jnp.clip(nodes.apart(), -_LOWEST, _LOWEST).T[among]
        of_density = 1 + apart.shape[1]
        own = nodes.weights
        middle = None if learnt is None else own @ learnt.mean
        values = jnp.zeros((count, 0)) if learnt is None or middle is None else learnt.columns(middle)
        columns = jnp.concatenate([-near[:, None], apart, values[among]], axis=1)
        function, missed = krige(white[among], columns, 1.0 + jnp.square(near / _FAR), noisy)
        everywhere = function(jnp.concatenate([white, standard]))
        at_nodes, found = everywhere[:count, 0], everywhere[count:]
        left_out = (at_nodes + below).at[among].set(missed[:, 0])
        # By the nodes' own weights and by those that the function gives them, so that it cannot invent mass.
        claimed = jax.nn.softmax(at_nodes - nodes.log_density)
        extra = images.folded(nodes.proposal, nodes.proposal.point(standard))[1]
        log_density = found[:, 0] - (white_log_density(standard) + extra)
        smooth = jax.nn.softmax(log_density)
        either, noise = jnp.maximum(own, claimed), nodes.noise
        off = either @ jnp.square(left_out)
        # A node's own noise, of variance v, is not the function's error. Own weights favour high noise: its mean is then v,
        # and its mean square v + v^2.
        smoother = jnp.maximum(off - noise * (jnp.sum(either) + noise), _ROUGH * off)
        left_out = left_out * jnp.sqrt(smoother / jnp.where(off > 0.0, off, 1.0))
        theta = placed(jax.vmap(images.parameters.constrain)(nodes.proposal.point(standard)), smooth)
        of_nodes = placed(nodes.theta, either)
        predicts = (smoother < _TRUSTED**2) & jnp.all(jnp.isfinite(smooth))
        trusted = predicts & _agree(theta, smooth, of_nodes, jnp.where(noise > _NOISE, claimed, own))
        gap = jnp.where(predicts & ~trusted, _gap((theta, smooth), (of_nodes, own)), 0.0)
        share = jnp.where(trusted, _share(nodes, left_out, of_nodes, theta, smooth), 1.0)
        parts = log_density, found[:, 1:of_density].T, jnp.where(trusted, left_out, 1.0), trusted, share, gap
        if middle is None:
            return cls(*parts)
        own_columns = slice(of_density, None)
        off = (everywhere[:count, own_columns] - values).at[among].set(missed[:, own_columns])
        # Far from all nodes a quadratic may be anywhere.
        within = jnp.clip(found[:, own_columns], jnp.min(values[among], axis=0), jnp.max(values[among], axis=0))
        return cls(*parts, Coefficients.of_columns(within, middle), off)


def learnt_at(nodes: Nodes, lookouts: bool = False) -> Coefficients | None:
    """The coefficients at the nodes, or at the lookouts; None if the filters learn none. Such filters have one stream."""
    found = nodes.bank.coefficients() if hasattr(nodes.bank, "coefficients") else None
    if found is None or not found.mean.shape[1]:
        return None
    count, best = nodes.z.shape[0], jnp.argmax(nodes.weights)
    # A filter whose theta gave no number from the first on has no weight, and must not spoil sums.
    sound = (jnp.where(jnp.isfinite(part), part, part[best]) for part in found)
    return Coefficients(*(part[count:] if lookouts else part[:count] for part in sound))


def weighted_points(
    nodes: Nodes, surface: Surface, standard: Float[Array, "points q"]
) -> tuple[Float[Array, "all q"], Float[Array, " all"]]:
    """The points that stand for the posterior, those of the function and the nodes themselves, and their weights."""
    smooth = jnp.where(surface.trusted, (1.0 - surface.share) * surface.weights, 0.0)
    weights = jnp.concatenate([smooth, surface.share * nodes.weights])
    return placed(jnp.concatenate([standard, nodes.white]), weights), weights


def _share(
    nodes: Nodes,
    left_out: Float[Array, " nodes"],
    own: Float[Array, "nodes p"],
    theta: Float[Array, "points p"],
    smooth: Float[Array, " points"],
) -> Float[Array, ""]:
    """How much the nodes' own weights count beside the function: each by its precision, over all means and sds.

    The errors of the two have different causes: a function may extrapolate into a tail, and single nodes that lie there may
    have much weight. So their mean is nearer to the truth than either.
    """
    mean, sd = mean_and_sd(own.T, nodes.weights)
    sd = jnp.where(sd > 0.0, sd, 1.0)
    of_nodes, of_points = (sensitivities((one - mean) / sd) for one in (own, theta))
    by_function, by_nodes = (
        jnp.sum(jnp.square(error))
        for error in (function_error(nodes, left_out, of_nodes, smooth, of_points), own_error(nodes, of_nodes))
    )
    share = by_function / (by_function + by_nodes)
    return jnp.where(jnp.isfinite(share), share, 0.0)


def function_error(
    nodes: Nodes,
    left_out: Float[Array, " nodes"],
    of_nodes: Float[Array, "2 nodes p"],
    smooth: Float[Array, " points"],
    of_points: Float[Array, "2 points p"],
) -> Float[Array, "2 p"]:
    """The error of mean and sd by the function: it misses nodes, and its integral is a sum over points."""
    missed = nodes.weights * jnp.minimum(jnp.abs(left_out), 1.0)
    return jnp.hypot(standard_error(of_nodes, missed), standard_error(of_points, smooth))


def own_error(nodes: Nodes, of_nodes: Float[Array, "2 nodes p"]) -> Float[Array, "2 p"]:
    """The error of mean and sd by the nodes' own weights. Nodes are spread evenly, so it is smaller than of random draws."""
    return standard_error(of_nodes, nodes.weights) * jnp.sqrt(_EVEN**2 + jnp.minimum(nodes.noise, 1.0))


def _agree(
    points: Float[Array, "points p"],
    smooth: Float[Array, " points"],
    nodes: Float[Array, "nodes p"],
    own: Float[Array, " nodes"],
) -> Bool[Array, ""]:
    """Whether means and variances by the smooth function and by the nodes' weights agree within the error of the latter.

    Those of theta itself, which are reported: in other coordinates a function may agree whose tail is far too heavy.
    """

    def alike(of_points: Float[Array, "points p"], of_nodes: Float[Array, "nodes p"]) -> Bool[Array, ""]:
        mean = own @ of_nodes
        error = jnp.sqrt(jnp.square(own) @ jnp.square(of_nodes - mean))
        return jnp.all(jnp.abs(smooth @ of_points - mean) <= _ERRORS * error + 1e-6 * jnp.abs(mean))

    mean = own @ nodes
    return alike(points, nodes) & alike(jnp.square(points - mean), jnp.square(nodes - mean))


def _gap(
    function: tuple[Float[Array, "points p"], Float[Array, " points"]],
    nodes: tuple[Float[Array, "nodes p"], Float[Array, " nodes"]],
) -> Float[Array, "2 p"]:
    """What means, and logarithms of sds, of the first weighted points differ by from those of the second."""
    (mean, sd), (other_mean, other_sd) = (mean_and_sd(theta.T, weights) for theta, weights in (function, nodes))
    is_known = (sd > 0.0) & (other_sd > 0.0)
    ratio = jnp.where(is_known, sd, 1.0) / jnp.where(is_known, other_sd, 1.0)
    return jnp.abs(jnp.stack([mean - other_mean, jnp.log(ratio)]))
