"""Functions of distributions beyond sampling and density: Gaussian moments, and densities with missing values.

Distributions are those of `numpyro.distributions`. A *law* is a distribution with an empty batch shape: the initial,
transition or observation distribution of one particle.
"""

from typing import Any, TypeGuard

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    SoftplusTransform,
    Transform,
)

from epf.errors import ModelError, kind
from epf.model._precise_laws import precise
from epf.model._sensors import Sensors
from epf.numerics._gamma import gamma, student_t
from epf.numerics._keys import threefry_key
from epf.numerics._linear_algebra import cholesky, gaussian_log_density

_FIXED = (ExpTransform, SigmoidTransform, SoftplusTransform)  # functions of each component, without parameters
_OF_ANOTHER = (dist.Independent.sample, dist.ExpandedDistribution.sample, dist.TransformedDistribution.sample)
_ROUNDING = 0.01  # log-probabilities of nearly certain values may exceed 0 by this much


def check_law(law: object, where: str, inputs: int = 0) -> Distribution:
    """`law`, if it is a distribution with an empty batch shape; `where` names the method that returned it.

    `inputs` is their number per step: a law of as many values may come from all of `u` in place of one entry.
    """
    if not isinstance(law, Distribution):
        raise ModelError(
            f"{where} returned {kind(law)}, not a distribution: return one of numpyro.distributions, "
            "for example dist.Normal(mean, sd)."
        )
    if law.batch_shape != ():
        row = f" If it should be one number: u is a row of shape ({inputs},), so write u[0] for its first entry."
        raise ModelError(
            f"{where} returned {type(law).__name__} with batch shape {tuple(law.batch_shape)}: it must be the law of one "
            f"value, so add .to_event({len(law.batch_shape)}) to make its components one vector."
            + (row if inputs and law.batch_shape == (inputs,) else "")
        )
    return law


def draw(law: Distribution, key: PRNGKeyArray) -> Float[Array, "*event"]:
    """One draw, as floats."""
    base, functions = _behind(law)
    of_gamma = type(base).sample is dist.Gamma.sample  # a subclass with draws of its own keeps them
    if of_gamma or type(base).sample is dist.StudentT.sample:  # NumPyro splits its key in a loop
        shape = jnp.broadcast_to(jnp.asarray(base.concentration if of_gamma else base.df, float), law.event_shape)
        value = gamma(key, shape) / base.rate if of_gamma else base.loc + base.scale * student_t(key, shape)
        for function in functions:
            value = function(value)
        return jnp.asarray(value, float)
    try:
        value = law.sample(key)
    except NotImplementedError:  # JAX draws Poisson variables with Threefry keys only
        value = law.sample(threefry_key(key))
    return jnp.asarray(value, float)


def _behind(law: Distribution) -> tuple[Any, list[Transform]]:
    """The law of which this one is a function, component by component, and the functions; itself if there is none."""
    base: Any = law
    functions: list[Transform] = []
    # By its way to draw: a subclass may have one of its own.
    while type(base).sample in _OF_ANOTHER:
        if isinstance(base, dist.TransformedDistribution):
            if any(one.domain.event_dim or one.codomain.event_dim for one in base.transforms):
                return law, []
            functions = [*base.transforms, *functions]
        base = base.base_dist
    return base, functions


def log_prob(law: Distribution, value: Array) -> Float[Array, "*batch"]:
    """log p(value), -inf outside the support, whether or not numpyro validates it."""
    allowed = support(law)
    inside = allowed(value)
    if allowed.is_discrete:
        value = jnp.asarray(value).astype(int)
    return jnp.where(inside, precise(law).log_prob(value), -jnp.inf)


def support(law: Distribution) -> Any:
    """The constraint that the law's values satisfy."""
    return law.support


def constraint_of(law: Distribution) -> Any:
    """The constraint that single values of the law satisfy: `support` without the shapes around it."""
    constraint = support(law)
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    return constraint


def to_support(law: Distribution) -> Any:
    """The map from the real line (or space) to the law's support; where it maps single numbers, it rises.

    NumPyro's own map to the numbers below a bound falls: quantiles of coordinates would be those of values in reverse.
    """
    found = biject_to(support(law))
    if isinstance(constraint_of(law), constraints.less_than):
        return ComposeTransform([AffineTransform(0.0, -1.0), found])
    return found


def base_of(law: Distribution) -> Any:
    """The law of one element, where all elements are independent and have the same kind of law."""
    while isinstance(law, dist.Independent | dist.ExpandedDistribution):
        law = law.base_dist
    return law


def components(law: Any) -> list[Any]:
    """The components of a mixture; none of any other law."""
    if hasattr(law, "component_distributions"):
        return list(law.component_distributions)
    return [law.component_distribution] if hasattr(law, "component_distribution") else []


def inner_laws(law: Any) -> list[Any]:
    """The laws that this one is made of."""
    if isinstance(law, Sensors):
        return list(law.laws)
    base, mixing = ([getattr(law, name)] if hasattr(law, name) else [] for name in ("base_dist", "mixing_distribution"))
    return [*base, *components(law), *mixing]


def is_gaussian(law: Distribution) -> bool:
    """Whether the law is Gaussian: normal, independent normals, or multivariate normal."""
    if isinstance(law, Sensors):
        return all(map(is_gaussian, law.laws))
    return isinstance(base_of(law), dist.Normal) or isinstance(
        law, dist.MultivariateNormal | dist.LowRankMultivariateNormal
    )


def is_gaussian_or_point(law: Distribution) -> bool:
    """Whether the law is Gaussian, or a point, or Gaussian in some components and a point in the others.

    It has moments, as a Gaussian has, and may have no density.
    """
    if isinstance(law, Sensors):
        return all(map(is_gaussian_or_point, law.laws))
    return is_gaussian(law) or isinstance(base_of(law), dist.Delta)


def gaussian_moments(law: Distribution) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
    """Mean and covariance of a Gaussian law or a point; a scalar law counts as a vector of length one."""
    mean = jnp.ravel(jnp.asarray(law.mean, float))
    covariance = getattr(law, "covariance_matrix", None)
    if covariance is None:
        covariance = jnp.diag(jnp.ravel(jnp.broadcast_to(law.variance, law.event_shape)))
    return mean, jnp.asarray(covariance, float)


def gaussian_root(law: Distribution) -> Float[Array, "k k"]:
    """R with R R' = the covariance of a Gaussian law or a point."""
    if (lower := getattr(law, "scale_tril", None)) is not None:
        return jnp.asarray(lower, float)
    if isinstance(law, dist.LowRankMultivariateNormal):
        return cholesky(gaussian_moments(law)[1])
    return jnp.diag(jnp.sqrt(jnp.ravel(jnp.broadcast_to(jnp.asarray(law.variance, float), law.event_shape))))


def gaussian_of(law: Distribution) -> tuple[Distribution, Transform | None]:
    """The Gaussian law behind one whose value is a fixed function of a Gaussian's, and that function.

    A lognormal value, for example, is the exponential of a normal one. Functions with parameters of their own do not count.
    """
    if isinstance(law, dist.Independent):
        base, function = gaussian_of(law.base_dist)
        return base.to_event(law.reinterpreted_batch_ndims), function
    if not isinstance(law, dist.TransformedDistribution) or [type(part) in _FIXED for part in law.transforms] != [True]:
        return law, None
    return (law.base_dist, law.transforms[0]) if is_gaussian(law.base_dist) else (law, None)


def to_gaussian(function: Transform | None, y: Float[Array, "*y"]) -> tuple[Float[Array, "*y"], Float[Array, ""]]:
    """The Gaussian's value where the function of it is `y`, and what is added to its log-density to make it that of `y`.

    Where no value of the Gaussian gives `y`, it is infinite: the density there is zero.
    """
    if function is None:
        return y, jnp.zeros(())
    inside = function.codomain(y) & (jnp.abs(y) < jnp.inf)
    x = function.inv(jnp.where(inside, y, function(jnp.zeros_like(y))))
    slope = jnp.where(inside, function.log_abs_det_jacobian(x, y), 0.0)
    return jnp.where(inside, x, jnp.where(jnp.isnan(y), y, jnp.inf)), -jnp.sum(slope)


def centre(law: Distribution) -> Float[Array, "*event"] | None:
    """The location parameter of a law, or None if it has none."""
    base: Any = law
    while hasattr(base, "base_dist"):
        base = base.base_dist
    loc = getattr(base, "loc", None)
    return None if loc is None else jnp.broadcast_to(jnp.asarray(loc, float), law.event_shape)


def number_of_values(law: Distribution) -> int:
    """How many values a law of one number has; 0 if they are not finitely many, or not known before the law is.

    Of a binomial law, for example, whose size is the state, nothing is known while a model is traced.
    """
    if law.event_shape != () or not law.has_enumerate_support or support(law) is None:
        return 0
    try:
        return law.enumerate_support(expand=False).shape[0]
    except (TypeError, NotImplementedError):  # JAX's errors for values that are only traced are the former
        return 0


def has_atoms(law: Any) -> bool:
    """Whether a mixture has a component that is one point: it can be drawn from, and has no density."""
    inner = [*components(law), getattr(law, "base_dist", None)]
    return any(isinstance(part, dist.Delta) or has_atoms(part) for part in inner if part is not None)


def is_independent(law: Distribution) -> TypeGuard[dist.Independent]:
    """Whether the components of the law are independent scalars, as in `dist.Normal(...).to_event(1)`."""
    return isinstance(law, dist.Independent) and law.base_dist.event_shape == ()


def weighs_single_components(law: Distribution) -> bool:
    """Whether a row with missing components has a tractable density: independent components, or multivariate normal."""
    return law.event_shape == () or is_independent(law) or is_gaussian(law) or isinstance(law, Sensors)


def observed(y: Float[Array, "*y"]) -> Bool[Array, "*y"]:
    """Which components of an observation are not missing (NaN)."""
    return ~jnp.isnan(y)


def log_prob_observed(law: Distribution, y: Float[Array, "*y"]) -> Float[Array, ""]:
    """log p(observed components of y); 0 if all are missing."""
    if isinstance(law, Sensors):
        return jnp.sum(jnp.stack([log_prob_observed(*each) for each in law.each(y)]))
    if law.event_shape == ():
        return _by_component(law, law, y)
    if is_independent(law):
        return jnp.sum(_by_component(law, law.base_dist, y))
    if is_gaussian(law):
        mean, covariance = gaussian_moments(law)
        return marginal_gaussian_log_density(y - mean, covariance)
    there = observed(y)
    return jnp.where(jnp.any(there), log_prob(law, _filled(law, y, there)), 0.0)


def _by_component(law: Distribution, base: Distribution, y: Float[Array, "*y"]) -> Float[Array, "*y"]:
    """log p of each component that is observed, else 0; `base` is the law of the components."""
    there = observed(y)
    return jnp.where(there, log_prob(base, _filled(law, y, there)), 0.0)


def _filled(law: Distribution, y: Float[Array, "*y"], there: Bool[Array, "*y"]) -> Float[Array, "*y"]:
    """Missing values replaced by values inside the support, so that neither density nor gradient is NaN."""
    return jnp.where(there, y, support(law).feasible_like(y))


def log_weight_observed(law: Distribution, y: Float[Array, "*y"]) -> Float[Array, ""]:
    """`log_prob_observed`, NaN where a discrete law gives a probability above one.

    Such a density, of a law of the user's own, has lost its digits. Taken at its word, it would outweigh all that is right.
    """
    if isinstance(law, Sensors):
        return jnp.sum(jnp.stack([log_weight_observed(*each) for each in law.each(y)]))
    return _with_digits(law, log_prob_observed(law, y))


def log_weights_observed(law: Distribution, y: Float[Array, "*y"]) -> Float[Array, " parts"]:
    """`log_weight_observed` of each part of y that is independent of the others given the state."""
    if isinstance(law, Sensors):
        return jnp.stack([log_weight_observed(*each) for each in law.each(y)])
    if not is_independent(law):
        return log_weight_observed(law, y)[None]
    return _with_digits(law, jnp.ravel(_by_component(law, law.base_dist, y)))


def _with_digits(law: Distribution, found: Float[Array, "*parts"]) -> Float[Array, "*parts"]:
    return jnp.where(found > _ROUNDING, jnp.nan, found) if support(law).is_discrete else found


def without_missing(
    residual: Float[Array, " m"], covariance: Float[Array, "m m"]
) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
    """Replace missing (NaN) components by independent N(0, 1) components with value 0."""
    there = observed(residual)
    both = there[:, None] & there[None, :]
    return jnp.where(there, residual, 0.0), jnp.where(both, covariance, jnp.eye(residual.shape[0]))


def marginal_gaussian_log_density(residual: Float[Array, " m"], covariance: Float[Array, "m m"]) -> Float[Array, ""]:
    """log N(residual; 0, covariance) of the components that are not missing (NaN)."""
    filled, kept = without_missing(residual, covariance)
    missing = jnp.sum(~observed(residual))
    return gaussian_log_density(filled, cholesky(kept)) + 0.5 * missing * jnp.log(2.0 * jnp.pi)
