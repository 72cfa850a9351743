"""The posterior of nodes: their own weights or, where a smooth function fits them, many more points of that."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from epf.filters._base import Evidence
from epf.filters._layout import Layout
from epf.filters.marginal._coefficients import Coefficients
from epf.filters.marginal._images import Images
from epf.filters.marginal._nodes import Nodes, placed
from epf.filters.marginal._surface import Surface, function_error, learnt_at, own_error, weighted_points
from epf.model._parameters import Parameters
from epf.numerics._sums import mixture_moments, quantiles
from epf.posterior._posterior import ErrorEstimate, WeightedThetas, sensitivities, shifts, standard_error, student

_BANDWIDTH = 0.1, 0.2  # standard deviations, with many effective points and with few: narrower ones leave bumps
_LEFT_OF_BIAS = 1.0 / 3.0  # of the correction: measured on an AR(1), T = 1000 to 20 000 (docs/measurements.md)
_CONSTANT = 1e-6  # relative: what varies by less from one end of the coordinates to the other varies by rounding
_FURTHEST = 3.0  # standard errors of an answer by nodes: a function that differs from it by more is no measure
_OUTERMOST = 1.0 / 32.0  # share of the nodes on each side of each parameter that tells of mass beyond


class NodePosterior(WeightedThetas):
    """Weighted points of theta; the state's moments are those of the filters, each given its node's weight.

    The points are those of the smooth function, which have no weight where that is not trusted, and after them the nodes.
    Coefficients that the filters learn have a Gaussian at each point; its mean is in `theta`.
    """

    white: Float[Array, "points q"]
    """The points of which theta are the images, in units of the distribution that the nodes were drawn from."""
    images: Images
    nodes: Nodes
    node_weights: Float[Array, " nodes"]
    surface: Surface
    layout: Layout
    """The coefficients, and the parameters that nodes have values of."""
    coefficients: Coefficients | None
    """At the points and their images."""

    @classmethod
    def of(
        cls,
        params: Parameters,
        layout: Layout,
        images: Images,
        nodes: Nodes,
        surface: Surface,
        standard: Float[Array, "points q"],
    ) -> "NodePosterior":
        white, weights = weighted_points(nodes, surface, standard)
        z = nodes.proposal.point(white)
        theta, each = images.thetas(z), images.shares(z) * weights
        points = theta.reshape(-1, theta.shape[-1])
        learnt = learnt_at(nodes)
        if learnt is not None:
            assert surface.coefficients is not None
            pairs = zip(surface.coefficients, learnt, strict=True)
            both = (placed(jnp.concatenate(pair), weights) for pair in pairs)
            learnt = Coefficients(*(jnp.tile(part, (images.count, 1)) for part in both))
            points = layout.joined(points, learnt.mean)
        found = each.reshape(-1), white, images, nodes, nodes.weights, surface, layout, learnt
        return cls(params, points.T, *found)

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        mean, sd = super().moments()
        if self.coefficients is None:
            return mean, sd
        # Coefficients vary within a point too.
        within = jnp.sqrt(self.weights @ jnp.square(self.coefficients.sd))
        return mean, jnp.hypot(sd, self.layout.joined(jnp.zeros(len(self.layout.others)), within))

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        if self.coefficients is None:
            return super().quantiles(levels)
        of_others = quantiles(self.theta[np.array(self.layout.others)], self.weights, levels)
        mean, sd = (part[np.array(self.layout.chosen)] for part in self.moments())
        return self.layout.joined(of_others, self.coefficients.quantiles(self.weights, (mean, sd), levels))

    def marginal_density(self, index: int, grid: Float[Array, " grid"]) -> Float[Array, " grid"]:
        if self.coefficients is None or index not in self.layout.chosen:
            return super().marginal_density(index, grid)
        return self.coefficients.density(self.layout.chosen.index(index), grid, self.weights)

    @property
    def trusted(self) -> Bool[Array, ""]:
        return self.surface.trusted

    def bandwidth(self, size: Float[Array, ""]) -> Float[Array, ""]:
        """Narrow where the points are those of a smooth function: they are evenly spread, unlike random draws."""
        narrow = jnp.clip(5.0 / jnp.sqrt(size), *_BANDWIDTH)
        return jnp.where(self.trusted, narrow, super().bandwidth(size))

    def spread(self, values: Float[Array, " images_x_points"], weights: Array) -> Float[Array, ""]:
        """That of the points themselves: their images may be far away."""
        folded = jnp.sum(weights.reshape(self.images.count, -1), axis=0)
        return super().spread(values[: folded.shape[0]], folded)

    @property
    def in_pairs(self) -> bool:
        return True

    def pairs(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "count p"], Float[Array, "count *state"]]:
        """The state is drawn from a filter at the node nearest to theta that has a weight."""
        chosen, image, filters, k_x = self._chosen(key, count)
        theta = self.theta[:, chosen].T
        if self.coefficients is None:
            x = self.nodes.bank.drawn(k_x, filters)
        else:  # as they are together in the filter, for forecasts
            x, learnt = self.nodes.bank.drawn_jointly(k_x, filters)
            theta = theta.at[:, np.array(self.layout.chosen)].set(learnt)
        return theta, jax.vmap(self.images.symmetries.state)(image, x) if self.images.count > 1 else x

    def draws(self, key: PRNGKeyArray, count: int) -> Float[Array, "count p"]:
        """Coefficients have the correlations that they have in a filter near the point, and the point's moments."""
        if self.coefficients is None:
            return super().draws(key, count)
        chosen, _, filters, k_x = self._chosen(key, count)
        there, here = self.nodes.bank.coefficients(), self.coefficients
        away = (self.nodes.bank.drawn_jointly(k_x, filters)[1] - there.mean[filters]) / there.sd[filters]
        learnt = here.mean[chosen] + here.sd[chosen] * away
        return self.theta[:, chosen].T.at[:, np.array(self.layout.chosen)].set(learnt)

    def _chosen(self, key: PRNGKeyArray, count: int) -> tuple[Array, Array, Array, PRNGKeyArray]:
        """Draws of the points, the image and a near filter of each, and a key for what is drawn from the filter."""
        k_point, k_stream, k_x = jax.random.split(key, 3)
        chosen = jax.random.choice(k_point, self.weights.shape[0], (count,), p=self.weights)
        image, point = jnp.divmod(chosen, self.white.shape[0])

        def nearest(white: Float[Array, " q"]) -> Int[Array, ""]:
            gap = jnp.sum(jnp.square(self.nodes.white - white), axis=1)
            return jnp.argmin(jnp.where(self.node_weights > 0.0, gap, jnp.inf))

        nodes = jax.lax.map(lambda i: nearest(self.white[i]), point)
        streams, total = self.nodes.values.shape[0], self.nodes.thetas.shape[0]
        stream = jax.random.randint(k_stream, (count,), 0, streams)
        return chosen, image, stream * total + nodes, k_x

    def state_moments(self) -> tuple[Float[Array, "*state"], Float[Array, "*state"]]:
        streams, lookouts = self.nodes.values.shape[0], self.nodes.lookouts.theta.shape[0]
        each = self.images.shares(self.nodes.z) * self.node_weights / streams
        found = [self.images.state_moments(i, self.nodes.bank) for i in range(self.images.count)]
        mean, sd = (jnp.concatenate(part) for part in zip(*found, strict=True))
        share = jnp.ravel(jnp.tile(jnp.pad(each, ((0, 0), (0, lookouts))), (1, streams)))
        return mixture_moments(share, mean, sd)

    def error(self) -> ErrorEstimate:
        """By first-order changes of the nodes' weights: no second posterior is computed."""
        nodes, weights, surface = self.nodes, self.node_weights, self.surface
        count, points = nodes.z.shape[0], self.white.shape[0]
        _, sd = self.moments()
        unit = jnp.where(sd > 0.0, sd, 1.0)
        zero = jnp.zeros((2, sd.shape[0]))
        here = None if self.coefficients is None else Coefficients(*(part[:points] for part in self.coefficients))
        of_all = self._sensitivities(nodes.proposal.point(self.white), here)
        of_points = of_all[:, : points - count]
        # Where they are, also if their own weights have no share.
        of_nodes = self._sensitivities(nodes.proposal.point(placed(nodes.white, weights)), learnt_at(nodes))
        if nodes.values.shape[0] > 1:
            folded = jnp.sum(self.weights.reshape(-1, points), axis=0)
            apart = jnp.concatenate([jnp.where(self.trusted, surface.apart, 0.0), nodes.apart()], axis=1)
            moved = shifts(of_all, folded, apart)
            monte_carlo = student(len(moved)) * jnp.std(moved, axis=0, ddof=1) / jnp.sqrt(1.0 * len(moved))
            bias = _LEFT_OF_BIAS * jnp.abs(shifts(of_nodes, weights, nodes.correction))
        else:
            monte_carlo = bias = zero
        expansion = jnp.where(self.trusted, self._of_both(of_points, of_nodes, unit), self._of_nodes(of_nodes, unit))
        theta = self._joined(nodes.theta, learnt_at(nodes))
        truncation = self._beyond((theta - weights @ placed(theta, weights)) / unit) + self._elsewhere(sd)
        # A filter that is beyond all numbers, as a node far out may be, does not know what it lost by rounding.
        unknown = ~jnp.isfinite(nodes.rounding)
        dead = weights @ (jnp.any(~nodes.alive, axis=0) | unknown)
        lost = dead + jnp.sqrt(weights @ jnp.where(unknown, 0.0, nodes.rounding))
        numbers = jnp.where(jnp.isfinite(sd) & (sd > 0.0), lost, jnp.inf) * jnp.ones((2, 1))
        # An element that the support makes a constant (the diagonal of a correlation matrix) has no error.
        constant = _constants(self.parameters)
        parts = monte_carlo, bias, expansion, truncation, numbers
        return ErrorEstimate(*(jnp.where(constant, 0.0, part) for part in parts))

    def _of_both(
        self, of_points: Float[Array, "2 points p"], of_nodes: Float[Array, "2 nodes p"], unit: Float[Array, " p"]
    ) -> Float[Array, "2 p"]:
        """The error of the function and of the nodes' own weights, by their shares.

        Where the two differ by more than their errors explain, both errors are larger than they seem, in proportion (Birge
        1932).
        """
        nodes, surface = self.nodes, self.surface
        smooth = jnp.where(self.trusted, surface.weights, 0.0)
        function = function_error(nodes, surface.left_out, of_nodes, smooth, of_points)
        if surface.missed is not None:
            function = jnp.hypot(function, self._between(surface.missed, unit))
        own = own_error(nodes, of_nodes)
        gap = jnp.abs(jnp.einsum("n,knp->kp", nodes.weights, of_nodes) - jnp.einsum("n,knp->kp", smooth, of_points))
        both = jnp.hypot(function, own)
        known = jnp.hypot((1.0 - surface.share) * function, surface.share * own)
        return known * jnp.maximum(1.0, gap / jnp.where(both > 0.0, both, 1.0))

    def _of_nodes(self, of_nodes: Float[Array, "2 nodes p"], unit: Float[Array, " p"]) -> Float[Array, "2 p"]:
        """The error of the nodes' own weights alone, and what a function differs by that was not trusted for it."""
        own, gap = standard_error(of_nodes, self.nodes.weights), self.surface.gap
        if self.coefficients is not None:
            gap = self.layout.joined(gap, jnp.zeros((2, self.coefficients.mean.shape[1])))
        return jnp.hypot(own, jnp.minimum(gap / jnp.stack([unit, jnp.ones_like(unit)]), _FURTHEST * own))

    def _sensitivities(self, z: Float[Array, "many q"], at: Coefficients | None) -> Float[Array, "2 many p"]:
        """How the mean and the sd of the whole posterior depend on the weights of points, each with its images."""
        mean, sd = self.moments()
        unit = jnp.where(sd > 0.0, sd, 1.0)
        both = sensitivities((self._joined(self.images.thetas(z), at) - mean) / unit)
        if at is not None:  # a Gaussian adds its own variance
            within = self.layout.joined(jnp.zeros((len(at.sd), len(self.layout.others))), jnp.square(at.sd))
            both = both.at[1].add(0.5 * within / jnp.square(unit))
        return jnp.sum(self.images.shares(z)[None, :, :, None] * both, axis=1)

    def _joined(self, theta: Float[Array, "*lead many q"], at: Coefficients | None) -> Float[Array, "*lead many p"]:
        """All parameters, coefficients by their means."""
        return theta if at is None else self.layout.joined(theta, at.mean)

    def _between(self, missed: Float[Array, "nodes 2k"], unit: Float[Array, " p"]) -> Float[Array, "2 p"]:
        """What the functions through the coefficients' means and sds may be off by."""
        of_mean, of_log_sd = jnp.split(jnp.sqrt(jnp.square(self.node_weights) @ jnp.square(missed)), 2)
        unit = unit[np.array(self.layout.chosen)]
        sd = self.nodes.bank.coefficients().sd[: missed.shape[0]]
        share = self.node_weights @ jnp.square(sd) / jnp.square(unit)
        both = jnp.stack([of_mean / unit, of_log_sd * share])
        return self.layout.joined(jnp.zeros((2, len(self.layout.others))), both)

    def evidence(self) -> Evidence:
        """By the smooth function where it is trusted: the sum over the nodes alone is off by a tenth or more."""
        nodes, weights, surface = self.nodes, self.node_weights, self.surface
        top = jnp.max(nodes.log_weights + nodes.log_density)
        smooth = top + jax.nn.logsumexp(surface.log_density, b=1.0 / surface.log_density.shape[0])
        correction = jnp.where(self.trusted, smooth - nodes.log_mass, 0.0)
        smooth_weights = surface.weights
        apart = jnp.where(self.trusted, surface.apart @ smooth_weights, nodes.apart() @ weights)
        of_nodes = jnp.sqrt(jnp.sum(jnp.square(weights * jnp.minimum(jnp.abs(surface.left_out), 1.0))))
        spread = jnp.sum(jnp.square(smooth_weights)) - 1.0 / len(smooth_weights)  # points of equal weight have no error
        of_points = jnp.where(self.trusted, jnp.sqrt(jnp.maximum(spread, 0.0)), 0.0)
        bias = _LEFT_OF_BIAS * jnp.abs(weights @ nodes.correction)
        return Evidence(correction, apart, bias, jnp.hypot(of_nodes, of_points))

    def _beyond(self, white: Float[Array, "nodes p"]) -> Float[Array, "2 p"]:
        """What may lie beyond the nodes on either side of each parameter, times how far out they are.

        The nodes are drawn from a distribution with long tails, so beyond the last node there is about as much mass as at
        it: the mean of the outermost ones, twice for safety.
        """
        count = max(1, int(_OUTERMOST * white.shape[0]))

        def one(at: Float[Array, " nodes"]) -> Float[Array, " 2"]:
            order = jnp.argsort(at)
            ends = jnp.concatenate([order[:count], order[-count:]])
            out = jnp.abs(placed(at[:, None], self.node_weights)[ends, 0])
            mass = min(1.0, 2.0 / count) * self.node_weights[ends]
            return jnp.stack([mass @ out, 0.5 * mass @ jnp.square(out)])

        return jax.vmap(one, 1, 1)(white)

    def _elsewhere(self, sd: Float[Array, " p"]) -> Float[Array, "2 p"]:
        """What a mode at a lookout would change."""
        share = self.nodes.missing()
        if not share.shape[0]:
            return jnp.zeros((2, sd.shape[0]))
        there = learnt_at(self.nodes, lookouts=True)
        theta = self._joined(self.nodes.lookouts.theta, there)
        gap = jnp.abs(theta - theta[0]) / jnp.where(sd > 0.0, sd, 1.0)
        change = share[:, None] * jnp.stack([gap, 0.5 * jnp.square(gap)])
        return jnp.max(change, axis=1)


def _constants(params: Parameters) -> Bool[Array, " p"]:
    """Which elements are the same wherever the unbounded coordinates are."""
    line = jnp.linspace(-1.0, 1.0, params.free_size)
    theta = jax.vmap(params.constrain)(jnp.stack([line - 0.3, 0.7 - line, 1.5 * line]))
    reach = jnp.max(theta, axis=0) - jnp.min(theta, axis=0)
    same = reach <= _CONSTANT * jnp.max(jnp.abs(theta), axis=0)
    return same & ~jnp.asarray(params.elementwise)
