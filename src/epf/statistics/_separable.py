"""The separable statistic: sums along a path that are sufficient for theta, whatever the prior (theorem 1 of the paper).

    p(theta | path) = prior(theta) exp(S . h(theta)),   S = sum over steps of s(x_prev, new, y, u)

h and s are found by reading the model (`model/structure`). There is no order, and no box: the density is known everywhere,
and theta moves by slices along lines in unbounded coordinates. Half of the lines have the shape of the cloud of all
particles' thetas, so that moves are as long as the posterior is wide, whatever its correlations; the others have the shape
of the prior, so that a cloud that has shrunk to a point is left again. Parameters whose law given the others is known are
then drawn from it (`_conditionals.py`).

Where some parameters are awkward, the terms that depend on them are polynomials in these alone (`_awkward.py`), and the
density ends where their box ends. Nothing else changes.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from epf.errors import UnsupportedModelError
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.model.structure._jumps import jumping
from epf.model.structure._structure import Structure
from epf.model.structure._words import words_of
from epf.numerics._chunks import in_chunks
from epf.numerics._compile import compiled_once, evaluated
from epf.numerics._keys import packed, particle_keys, root_key, threefry_key, unpacked
from epf.numerics._linear_algebra import semidefinite_root
from epf.numerics._sums import Compensated
from epf.posterior._posterior import ParticlePosterior
from epf.statistics._awkward import MOST, Awkward, Polynomials
from epf.statistics._base import Gibbs, Guide, Marginals, box_of_draws, how_often, some
from epf.statistics._conditionals import Conditionals
from epf.statistics._lines import along_lines
from epf.statistics._mixture import BoxedPosterior

_PRIOR_DRAWS = 256
_LINES = 1  # of each kind
_CLOUD_WIDTH, _PRIOR_WIDTH = 6.0, 12.0  # length of a line in sds
_GROWTH = 1.2  # the box is looked at whenever the number of steps has grown by this factor
_TOLERANCE = 0.01  # nats of residual above which a smaller box is tried, and again at the next step
_SIZES = (1.0, 0.75, 0.5)  # of the box; a small one has no room for tails that few draws show
_FEW = 50
_CONDITIONALS = 1 << 20  # a key that no line has
_WATCHED, _DRAWS = 16, 25  # particles whose residual is measured at every step, and at how many draws

Step = tuple[str, dict[str, Array], dict[str, Array | None]]  # a law, its data of each particle, and those of all


class PathSums(eqx.Module):
    """The statistic of one particle: sums of the plain terms, then those of the others in the middle of their box."""

    sums: Compensated
    polynomials: Polynomials | None


class Separable(Gibbs):
    """p(theta | path) of a model that is separable in some of its parameters or all, in K sums per particle."""

    model: StateSpaceModel
    parameters: Parameters
    structure: Structure = eqx.field(static=True)
    prior_sd: Float[Array, " q"]
    """Of the unbounded coordinates."""
    awkward: Awkward | None
    conditionals: Conditionals

    @classmethod
    def of(cls, model: StateSpaceModel, structure: Structure) -> "Separable":
        params = parameters(model)
        params.require_unbounded("Storvik")
        with evaluated():
            awkward = None if structure.separable else Awkward.of(structure)
            return cls(model, params, structure, _prior_sd(params), awkward, Conditionals.of(structure))

    def init(self, x_0: Float[Array, "*state"]) -> PathSums:
        polynomials = None if self.awkward is None else self.awkward.empty()
        size = len(self.structure.plain[0]) + (0 if self.awkward is None else self.awkward.size)
        empty = PathSums(Compensated.zero((size,)), polynomials)
        return _only(self._added(_alone(empty), [("initial", {"x_0": x_0[..., None]}, {})]))

    def update(
        self,
        statistic: PathSums,
        x_prev: Float[Array, "*state"],
        new: Float[Array, "*new"],
        x: Float[Array, "*state"],
        y: Float[Array, "*y"],
        u: Array | None,
    ) -> PathSums:
        return _only(self.update_all(_alone(statistic), (*_alone((x_prev, new, x)), y, u)))

    def update_all(self, statistic: PathSums, piece: Any) -> PathSums:
        x_prev, new, x, y, u = piece

        def step(statistic: PathSums, path: tuple[Array, Array, Array]) -> PathSums:
            return self._added(statistic, _laws_of(*path, y, u))

        return in_chunks(step, statistic, (x_prev, new, x), self._rows)

    @property
    def _rows(self) -> int:
        return 64 if self.awkward is None else max(64, self.awkward.count)

    def _added(
        self, statistic: PathSums, steps: list[tuple[str, dict[str, Array], dict[str, Array | None]]]
    ) -> PathSums:
        """The statistic of all particles with the terms of some laws added."""
        nowhere = jnp.zeros(self.parameters.size)  # plain terms have nothing of theta

        def plain(law: str, data: dict[str, Array], common: dict[str, Array | None]) -> Float[Array, "terms particles"]:
            def one(data: dict[str, Array]) -> Float[Array, " terms"]:
                sums = self.structure.plain[1][law]
                return self.structure.of_data(law, nowhere, {**data, **common}, lambda found: found.vector(sums))

            return jax.vmap(one, -1, -1)(data)

        nothing = jnp.zeros((len(self.structure.plain[0]), statistic.sums.total.shape[-1]))
        added = sum((plain(*step) for step in steps), nothing)
        if self.awkward is None or statistic.polynomials is None:
            return PathSums(statistic.sums.add(added), None)
        polynomials, gained = statistic.polynomials, jnp.zeros((self.awkward.size, added.shape[-1]))
        for law, data, common in steps:
            if self.awkward.laws[law].units:
                polynomials, middle = self.awkward.add(law, polynomials, data, common)
                gained += middle
        return PathSums(statistic.sums.add(jnp.concatenate([added, gained])), polynomials)

    def log_density(self, statistic: PathSums, theta: Float[Array, " p"]) -> Float[Array, ""]:
        return self.parameters.log_prior(theta) + self._data(_alone(statistic), theta[:, None])[0]

    def _data(self, statistic: PathSums, theta: Float[Array, "p particles"]) -> Float[Array, " particles"]:
        """What the paths of all particles say, each about its own theta."""
        functions = self._functions(theta)
        # Both parts of a compensated sum: large sums cancel against each other in the dot product.
        sums = statistic.sums
        total = jnp.sum(sums.total * functions, axis=0) + jnp.sum(sums.error * functions, axis=0)
        if self.awkward is None or statistic.polynomials is None:
            return total
        return total + self.awkward.value(statistic.polynomials, functions[-self.awkward.size :], theta)

    def _sums(self, statistic: PathSums, theta: Float[Array, "p particles"]) -> Float[Array, "terms particles"]:
        """S_k, at the awkward parameters of each particle."""
        sums = statistic.sums.value
        if self.awkward is None or statistic.polynomials is None:
            return sums
        return sums.at[-self.awkward.size :].add(self.awkward.values(statistic.polynomials, theta))

    def _functions(self, theta: Float[Array, "p particles"]) -> Float[Array, "terms particles"]:
        functions = [*self.structure.plain[0], *self.structure.mixed[0]]
        return jax.vmap(lambda theta: self.structure.h(theta, functions), -1, -1)(theta)

    def draw(self, key: PRNGKeyArray, statistic: PathSums, theta: Float[Array, " p"]) -> Float[Array, " p"]:
        """Moves along lines of the prior's shape."""
        words = packed(key)[:, None]
        return self._moved(words, _alone(statistic), theta[:, None], jnp.diag(self.prior_sd))[:, 0]

    def draw_all(
        self, key: PRNGKeyArray, statistic: PathSums, theta: Float[Array, "p particles"]
    ) -> Float[Array, "p particles"]:
        """`draw` for all particles, along lines of the cloud's shape too."""
        free = jax.vmap(self.parameters.unconstrain, -1, -1)(theta)
        known = jnp.all(jnp.isfinite(free), axis=0)
        count = jnp.maximum(jnp.sum(known), 1)
        from_mean = jnp.where(known, free - jnp.sum(jnp.where(known, free, 0.0), axis=1, keepdims=True) / count, 0.0)
        root = semidefinite_root(from_mean @ from_mean.T / count)
        words = jax.vmap(packed, out_axes=-1)(particle_keys(key, theta.shape[1]))

        def move(theta: Float[Array, "p some"], given: tuple[Array, PathSums]) -> Float[Array, "p some"]:
            return self._moved(given[0], given[1], theta, root)

        return in_chunks(move, theta, (words, statistic), self._rows)

    def _moved(
        self,
        words: Array,
        statistic: PathSums,
        theta: Float[Array, "p particles"],
        root: Float[Array, "q q"],
    ) -> Float[Array, "p particles"]:
        params = self.parameters
        shapes = jnp.stack([_CLOUD_WIDTH * root, _PRIOR_WIDTH * jnp.diag(self.prior_sd)] * _LINES)
        constrain = jax.vmap(params.constrain, -1, -1)

        def log_density(free: Float[Array, "q particles"]) -> Float[Array, " particles"]:
            return jax.vmap(params.log_prior_free, -1)(free) + self._data(statistic, constrain(free))

        keys = jax.vmap(unpacked, -1)(words)
        if not self.independent:
            start = jax.vmap(params.unconstrain, -1, -1)(theta)
            theta = constrain(along_lines(keys, log_density, start, shapes))
        if self.conditionals.known:
            keys = jax.vmap(lambda key: jax.random.fold_in(key, _CONDITIONALS))(keys)
            theta = jax.vmap(self.conditionals.draw, (0, -1, -1), -1)(keys, self._sums(statistic, theta), theta)
        # Without finite sums nothing is known of theta: NaN makes the particle invalid, and the filter says so.
        finite = jnp.all(jnp.isfinite(statistic.sums.total), axis=0)
        return jnp.where(finite, theta, jnp.nan)

    @property
    def independent(self) -> bool:
        """No parameter is left that moves along lines."""
        return len(self.conditionals.known) == self.parameters.size

    def marginals(self, statistic: PathSums, theta: Float[Array, " p"]) -> Marginals:
        raise NotImplementedError("the posterior of a separable statistic is made of weighted draws")

    def posterior(
        self,
        theta: Float[Array, "p particles"],
        weights: Float[Array, " particles"],
        x: Float[Array, "*state particles"],
        statistic: PathSums,
    ) -> ParticlePosterior:
        if self.awkward is None or statistic.polynomials is None:
            return ParticlePosterior(self.parameters, theta, weights, x)
        at_ends = self.awkward.share_at_ends(statistic.polynomials, theta, weights)
        return BoxedPosterior(self.parameters, theta, weights, x, at_ends)

    def describe(self, refresh: int) -> dict[str, str]:
        found = {"statistic": f"{len(self.structure.plain[0])} exact sums per particle"}
        if (awkward := self.awkward) is not None:
            labels = " and ".join(self.parameters.labels[i] for i in self.structure.awkward)
            found["approximation"] = f"Chebyshev; {awkward.size} polynomials in {labels}, of {awkward.count} nodes each"
        exact = [self.parameters.labels[i] for i in sorted(self.conditionals.known)]
        given = f"; then {', '.join(exact)} exactly given the rest" if exact else ""
        return {**found, "draws of theta": "exact" if self.independent else f"slices{given}{how_often(refresh)}"}

    def guide(self) -> Guide | None:
        return None if self.awkward is None else Guide.start()

    def follow(
        self,
        guide: Guide | None,
        theta: Float[Array, "p particles"],
        statistic: PathSums,
        weights: Float[Array, " particles"],
        piece: Any,
    ) -> tuple[PathSums, Guide | None, Float[Array, ""]]:
        """The box moves first, if it is time: where the draws are does not depend on this step's polynomial."""
        awkward, polynomials = self.awkward, statistic.polynomials
        if awkward is None or polynomials is None or guide is None:
            return super().follow(guide, theta, statistic, weights, piece)
        t = guide.t + 1

        def look() -> PathSums:
            sizes = jnp.asarray(_SIZES if theta.shape[1] >= _FEW else _SIZES[:1])
            points = jax.vmap(awkward.point, -1, -1)(theta)

            def is_coarse(tried: tuple[Array, Array, Array]) -> Array:
                return (tried[0] < len(sizes)) & (self._residual(theta, *tried[1:], weights, piece) > _TOLERANCE)

            def smaller(tried: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                return tried[0] + 1, *box_of_draws(points, weights, *polynomials.box, sizes[tried[0]])

            first = smaller((jnp.asarray(0), *polynomials.box))
            _, low, high = jax.lax.while_loop(is_coarse, smaller, first)
            moved, middle = awkward.moved(polynomials, low, high)
            plain = jnp.zeros((statistic.sums.total.shape[0] - awkward.size, theta.shape[1]))
            return PathSums(statistic.sums.add(jnp.concatenate([plain, middle])), moved)

        statistic = jax.lax.cond(t >= guide.look, look, lambda: statistic)
        assert statistic.polynomials is not None
        low, high = statistic.polynomials.box
        residual = self._residual(theta, low, high, weights, piece)
        ahead = jnp.where(residual > _TOLERANCE, t + 1, jnp.maximum(t + 1, jnp.ceil(_GROWTH * t).astype(t.dtype)))
        look_again = jnp.where(t >= guide.look, ahead, jnp.minimum(guide.look, ahead))
        after = Guide(look_again, t, guide.tolerance, jnp.asarray(False))
        return self.update_all(statistic, piece), after, residual

    def _residual(
        self,
        theta: Float[Array, "p particles"],
        low: Float[Array, " awkward"],
        high: Float[Array, " awkward"],
        weights: Float[Array, " particles"],
        piece: Any,
    ) -> Float[Array, ""]:
        """The standard deviation, in nats, of the error of this step's polynomial on a box, over the draws of theta."""
        awkward = self.awkward
        assert awkward is not None
        draws, share = some(theta, _DRAWS), some(weights, _DRAWS)
        x_prev, new, x, watched = (some(leaf, _WATCHED) for leaf in (piece.x_prev, piece.new, piece.x, weights))
        functions = self._functions(draws)[-awkward.size :]
        steps = _laws_of(x_prev, new, x, piece.y, piece.u)
        gaps = (
            awkward.gaps(law, low, high, draws, functions, data, common)
            for law, data, common in steps
            if awkward.laws[law].units
        )
        gap = jnp.where(share[:, None] > 0.0, sum(gaps, jnp.zeros(())), 0.0)
        share, watched = (each / jnp.maximum(jnp.sum(each), 1e-30) for each in (share, watched))
        variances = share @ (gap - share @ gap) ** 2
        return jnp.sqrt(jnp.sum(jnp.where(watched > 0.0, watched * variances, 0.0)))


def _laws_of(x_prev: Array, new: Array, x: Array, y: Array, u: Array | None) -> list[Step]:
    return [("transition", {"x": x_prev, "new": new}, {"u": u}), ("observation", {"x": x}, {"y": y, "u": u})]


def _alone(tree: Any) -> Any:
    """One particle as all of them."""
    return jax.tree.map(lambda leaf: leaf[..., None], tree)


def _only(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[..., 0], tree)


def require_separable(model: StateSpaceModel, structure: Structure, u: Array | None, partly: bool = False) -> None:
    """An error that says which law of a model is not separable, in which parameters and why.

    A model that is separable in some parameters will do, if `partly` says so and the others are few.
    """
    params = parameters(model)
    if partly and structure.partly_separable and len(structure.awkward) <= MOST:
        return
    for name, law in structure.laws.items():
        if law.awkward:
            labels = ", ".join(params.labels[i] for i in sorted(law.awkward))
            why = law.problem or f"it has {words_of(model, params.labels, u).atom(structure.reasons(name)[0])}"
            raise UnsupportedModelError(
                f"Storvik keeps exact sums along paths, and {name}() is not separable in {labels} ({why}): use "
                "epf.MarginalEPF or epf.EPF, or epf.fix to make them known."
            )


def refuse_jumps(model: StateSpaceModel, structure: Structure, u: Array | None) -> None:
    """An error if a law jumps along a parameter, as at a threshold: no polynomial follows it."""
    for law, i in jumping(model, structure, u).items():
        raise UnsupportedModelError(
            f"What is not separable is expanded as a polynomial, and none fits {law}(), whose density jumps along "
            f"{parameters(model).labels[i]!r}: use epf.MarginalEPF, or epf.fix to make it known."
        )


@compiled_once
def _prior_sd(params: Parameters) -> Float[Array, " q"]:
    """The sds of the unbounded coordinates, from draws."""
    keys = jax.random.split(threefry_key(root_key(0)), _PRIOR_DRAWS)
    free = jax.vmap(lambda key: params.unconstrain(params.sample(key)))(keys)
    return jnp.nanstd(jnp.where(jnp.isfinite(free), free, jnp.nan), axis=0)
