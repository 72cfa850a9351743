"""What filters share whose particles may carry polynomials: how these are made, followed, drawn from and told of."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from epf.errors import SettingError
from epf.filters._learner import Learner, Memory
from epf.filters._particle import Cloud, Piece
from epf.model._check import is_number, is_whole, plain
from epf.model._model import StateSpaceModel, parameters
from epf.posterior._posterior import Posterior
from epf.posterior.samplers._base import Sampler
from epf.statistics import _follow as following
from epf.statistics._approximation import Approximation, Chebyshev, Taylor
from epf.statistics._base import Gibbs
from epf.statistics._expansion import plan_expansions
from epf.statistics._log_polynomial import LogPolynomial
from epf.statistics._mixture import GibbsMixture
from epf.statistics._shared_mixture import SharedMixture
from epf.statistics._trial import try_out


class PolynomialLearner(Learner):
    """A learner whose statistic is a polynomial (or, where the model is conjugate and it is asked for, exact)."""

    approximation: Approximation = eqx.field(default=Chebyshev(), converter=plain)
    sampler: Sampler | None = eqx.field(default=None, converter=plain)
    refresh: int = eqx.field(default=10, converter=plain)
    discount: float = eqx.field(default=1.0, converter=plain)

    def __check_init__(self) -> None:
        name = type(self).__name__
        if not isinstance(self.approximation, Approximation):
            raise SettingError(
                f"{name}(approximation={self.approximation!r}): give epf.Chebyshev(order) or epf.Taylor(order, centre)."
            )
        if self.sampler is not None and not isinstance(self.sampler, Sampler):
            raise SettingError(
                f"{name}(sampler={self.sampler!r}): give a sampler such as epf.samplers.InverseCDF() or epf.samplers.Slice()."
            )
        if not is_whole(self.refresh) or self.refresh < 1:
            raise SettingError(f"{name}(refresh={self.refresh!r}): theta is drawn every so many steps, 1 or more.")
        if not is_number(self.discount) or not 0.0 < self.discount <= 1.0:
            raise SettingError(
                f"{name}(discount={self.discount!r}): it must lie above 0 and at most be 1 (nothing is forgotten)."
            )

    @property
    def every(self) -> int:
        return self.refresh

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        gibbs = self.gibbs(model, u)
        if isinstance(gibbs, LogPolynomial):
            try_out(gibbs, model, u)

    def guide(self) -> following.Guide:
        return following.Guide.start()

    def has_moved(self, guide: following.Guide) -> Bool[Array, ""]:
        return guide.moved

    def follow(
        self,
        model: StateSpaceModel,
        common: Memory,
        theta: Float[Array, "p particles"],
        statistic: Any,
        weights: Float[Array, " particles"],
        piece: Piece,
    ) -> tuple[Any, Any, Float[Array, ""]]:
        return follow(common.gibbs, model, common.guide, theta, statistic, weights, piece)

    def posterior(self, model: StateSpaceModel, state: Cloud) -> Posterior:
        return mixture(state.common.gibbs, model, state.statistic, state.theta, state.x, state.weights)

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        return {**super().describe(model, u), **describe_gibbs(self.gibbs(model, u), model, u, self.refresh)}


def follow(
    gibbs: Gibbs,
    model: StateSpaceModel,
    guide: following.Guide,
    theta: Float[Array, "p particles"],
    statistic: Any,
    weights: Float[Array, " particles"],
    piece: Piece,
) -> tuple[Any, following.Guide, Float[Array, ""]]:
    """Every particle's statistic after a step: a polynomial on a box that suits it; exact sums have nothing to follow."""
    if not isinstance(gibbs, LogPolynomial):
        return gibbs.update_all(model, statistic, piece), guide, jnp.asarray(jnp.nan)
    return following.follow(gibbs, model, guide, theta, statistic, weights, piece)


def mixture(
    gibbs: Gibbs,
    model: StateSpaceModel,
    statistic: Any,
    theta: Float[Array, "p particles"],
    x: Float[Array, "*state particles"],
    weights: Float[Array, " particles"],
) -> Posterior:
    """The mixture of the particles' Gibbs densities; on one grid where they share a box."""
    if isinstance(gibbs, LogPolynomial) and gibbs.follow_mode != "each":
        return SharedMixture(parameters(model), model, gibbs, statistic, theta, x, weights)
    return GibbsMixture(parameters(model), model, gibbs, statistic, theta, x, weights)


def describe_gibbs(gibbs: Gibbs, model: StateSpaceModel, u: Array | None, refresh: int) -> dict[str, str]:
    """What is expanded and how, in words."""
    if not isinstance(gibbs, LogPolynomial):
        return {}
    laws = plan_expansions(model, gibbs.approximation, u) or {}
    forms = [f"{where}: {law.form}, order {law.order}" for where, law in laws.items() if law is not None]
    kind = "Taylor" if isinstance(gibbs.approximation, Taylor) else "Chebyshev"
    box = {"shared": "one for all particles, following", "each": "one a particle, following", "no": "fixed"}
    return {
        "approximation": f"{kind}; {'; '.join(forms)}; {gibbs.indices.size} coefficients a particle",
        "box": box[gibbs.follow_mode],
        "draws of theta": f"{gibbs.sampler.describe()}, every {refresh} steps ({2 * refresh} while nothing is resampled)"
        if refresh > 1
        else gibbs.sampler.describe(),
    }
