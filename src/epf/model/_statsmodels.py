"""A model of statsmodels as a StateSpaceModel: the same matrices, with priors in place of maximum likelihood.

statsmodels writes  y_t = d + Z a_t + N(0, H),  a_t+1 = c + T a_t + R N(0, Q),  and fills the matrices from its parameters by
code that JAX cannot trace. Their entries are sums of products of parameters, in UnobservedComponents (but for cycles) and in
SARIMAX. So the coefficients are read off: f(theta) = sum over sets S of c_S prod_{i in S} theta_i is known from its values
at the corners of the cube {0, 1}^p (Moebius' inversion), and is compared with the matrices at other points.
"""

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions import Distribution

from epf.errors import ModelError, SettingError, kind
from epf.model._model import StateSpaceModel
from epf.numerics._linear_algebra import semidefinite_root

_MATRICES = ("design", "obs_intercept", "obs_cov", "transition", "state_intercept", "selection", "state_cov")
_NOWHERE = 1e6  # sds from all that is likely
_ZERO = 1e-9  # coefficients below are rounding
_MOST = 10  # parameters: 2^10 corners are visited


class Matrix(eqx.Module):
    """A matrix whose entries are sums of products of parameters: one matrix of coefficients per product."""

    products: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    coefficients: tuple[np.ndarray, ...]

    @classmethod
    def from_corners(cls, corners: dict[tuple[int, ...], np.ndarray]) -> "Matrix":
        found = {}
        for chosen in corners:
            inner = (part for size in range(len(chosen) + 1) for part in itertools.combinations(chosen, size))
            term = sum(((-1.0) ** (len(chosen) - len(part)) * corners[part] for part in inner), start=np.zeros(()))
            if not chosen or np.any(np.abs(term) > _ZERO):
                found[chosen] = term
        return cls(tuple(found), tuple(found.values()))

    def __call__(self, theta: Any) -> Any:
        """The matrix at theta, a sequence of numbers or of traced values."""
        pairs = zip(self.products, self.coefficients, strict=True)
        return sum(coefficient * math.prod(theta[i] for i in product) for product, coefficient in pairs)


class Block(eqx.Module):
    """Some entries of the first state: stationary, or with a known mean and covariance."""

    entries: tuple[int, ...] = eqx.field(static=True)
    known: tuple[np.ndarray, np.ndarray] | None


class LinearModel(StateSpaceModel):
    """A linear Gaussian model whose matrices are those of a model of statsmodels; made by `from_statsmodels`."""

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    priors: dict[str, Distribution]
    matrices: dict[str, Matrix]
    blocks: tuple[Block, ...]

    def prior(self) -> dict[str, Distribution]:
        return self.priors

    def initial(self, p: Any) -> Distribution:
        """The law of a_1, the state at the first observation: the first transition leaves it where it is."""
        size = self._at(p, "transition").shape[0]
        mean, covariance = jnp.zeros(size), jnp.zeros((size, size))
        for block in self.blocks:
            here = np.array(block.entries)
            m, P = self._stationary(p, here) if block.known is None else block.known
            mean, covariance = mean.at[here].set(m), covariance.at[np.ix_(here, here)].set(P)
        return dist.MultivariateNormal(mean, scale_tril=_root(semidefinite_root(covariance)))

    def transition(self, p: Any, x: Any, u: Any, t: Any = None) -> Distribution:
        moved = self._at(p, "state_intercept")[:, 0] + self._at(p, "transition") @ x
        root = _root(self._noise(p))
        still = _tiny(jnp.max(jnp.abs(root))) * jnp.eye(x.shape[0])
        return dist.MultivariateNormal(jnp.where(t == 1, x, moved), scale_tril=jnp.where(t == 1, still, root))

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        mean = self._at(p, "obs_intercept")[:, 0] + self._at(p, "design") @ x
        noise = self._at(p, "obs_cov")
        root = _root(
            semidefinite_root(noise), jnp.max(jnp.abs(semidefinite_root(noise))) + jnp.max(jnp.abs(self._noise(p)))
        )
        return dist.MultivariateNormal(mean, scale_tril=root)

    def _at(self, p: Any, matrix: str) -> Float[Array, "rows columns"]:
        return jnp.asarray(self.matrices[matrix]([p[name] for name in self.names]), float)

    def _noise(self, p: Any) -> Float[Array, "states noises"]:
        """R Q^(1/2)."""
        return self._at(p, "selection") @ semidefinite_root(self._at(p, "state_cov"))

    def _stationary(self, p: Any, here: np.ndarray) -> tuple[Array, Array]:
        """Mean and covariance that a step does not change: P = T P T' + R Q R'."""
        T, noise = self._at(p, "transition")[np.ix_(here, here)], self._noise(p)[here]
        size = T.shape[0]
        mean = jnp.linalg.solve(jnp.eye(size) - T, self._at(p, "state_intercept")[here, 0])
        P = jnp.linalg.solve(jnp.eye(size**2) - jnp.kron(T, T), (noise @ noise.T).ravel()).reshape(size, size)
        P = 0.5 * (P + P.T)
        # Where T is not stable the equation may have a solution still, but that is no covariance. A law must be one for any
        # theta, so the state then starts where no observation can be.
        values, scale = jnp.linalg.eigvalsh(P), jnp.max(jnp.abs(noise))
        stable = jnp.min(values) >= -1e3 * jnp.finfo(P.dtype).eps * jnp.max(values)
        return jnp.where(stable, mean, _NOWHERE * scale), jnp.where(stable, P, scale**2 * jnp.eye(size))


def from_statsmodels(model: Any, prior: Mapping[str, Distribution] | None = None) -> StateSpaceModel:
    """A model of statsmodels (UnobservedComponents, SARIMAX) with the same states and likelihood, for `epf.fit`.

    Parameters keep their names with `_` for every other sign: `sigma2.level` is `sigma2_level`, `ar.L1` is `ar_L1`. `prior`
    gives their priors by these names. Those that it leaves out get wide ones on the scale of the data: variances are
    lognormal about a tenth of the variance of the series, a single coefficient of a lag lies in (-1, 1), others are normal.
    Values under which a stationary start does not exist have likelihood zero. Several moving average terms may have more
    than one mode; give them priors that choose one.

    The likelihood is that of statsmodels, its first `loglikelihood_burn` observations included. Matrices that change with
    time (regressors, trends in time), cycles and exact diffuse starts are refused.

        model = sm.tsa.UnobservedComponents(y, "local level")
        result = epf.fit(epf.from_statsmodels(model), y)

    Examples:
        >>> import statsmodels.api as sm
        >>> level = epf.from_statsmodels(sm.tsa.UnobservedComponents(y, "local level"))
        >>> list(level.prior())
        ['sigma2_irregular', 'sigma2_level']
    """
    ssm = getattr(model, "ssm", None)
    if ssm is None or not hasattr(model, "param_names"):
        raise ModelError(
            f"from_statsmodels() got {kind(model)}: give a model such as sm.tsa.UnobservedComponents(y, 'local level'), or "
            "`results.model` of a fit."
        )
    labels, count = list(model.param_names), len(model.param_names)
    names = tuple(re.sub(r"\W", "_", label) for label in labels)
    if count > _MOST:
        raise ModelError(
            f"{type(model).__name__} has {count} parameters, and from_statsmodels() reads at most {_MOST}."
        )
    matrices = _read(model, labels)
    priors = {
        name: _default(label, labels, np.asarray(model.endog, float)) for name, label in zip(names, labels, strict=True)
    }
    for name, law in (prior or {}).items():
        if name not in priors:
            raise SettingError(f"prior has {name!r}, and the parameters are {', '.join(names)}: use these names.")
        priors[name] = law
    return LinearModel(
        type(model).__name__, names, priors, matrices, tuple(_blocks(ssm.initialization, tuple(range(ssm.k_states))))
    )


def _read(model: Any, labels: list[str]) -> dict[str, Matrix]:
    count, start = len(labels), np.array(model.start_params, float)
    corners: dict[str, dict[tuple[int, ...], np.ndarray]] = {name: {} for name in _MATRICES}
    for size in range(count + 1):
        for chosen in itertools.combinations(range(count), size):
            point = np.zeros(count)
            point[list(chosen)] = 1.0
            for name, value in _matrices(model, point).items():
                corners[name][chosen] = value
    found = {name: Matrix.from_corners(values) for name, values in corners.items()}
    rng = np.random.default_rng(0)
    for _ in range(4):
        point = rng.uniform(0.1, 0.9, count)
        for name, value in _matrices(model, point).items():
            if not np.allclose(found[name](point), value, rtol=1e-9, atol=1e-9):
                raise ModelError(
                    f"The {name} of {type(model).__name__} is no sum of products of its parameters, as in a cycle: "
                    "write the model as an epf.StateSpaceModel."
                )
    model.update(start)
    return found


def _matrices(model: Any, point: np.ndarray) -> dict[str, np.ndarray]:
    model.update(point, transformed=True, includes_fixed=False)
    found = {}
    for name in _MATRICES:
        value, size = np.real(np.array(model.ssm[name])), 1 if name.endswith("intercept") else 2
        if value.ndim > size and np.any(value != value[..., :1]):
            raise ModelError(
                f"The {name} of {type(model).__name__} changes with time: write the model as an epf.StateSpaceModel, with "
                "regressors as inputs."
            )
        value = value[..., 0] if value.ndim > size else value
        found[name] = value.reshape(len(value), -1)
    return found


def _default(label: str, labels: list[str], y: np.ndarray) -> Distribution:
    """A wide prior on the scale of the data."""
    variance = float(np.nanvar(y)) or 1.0
    if label.startswith("sigma2"):
        return dist.LogNormal(np.log(0.1 * variance), 2.0)
    if label.startswith(("ar.", "ma.")):
        family = label.rstrip("0123456789")
        alone = sum(other.startswith(family) for other in labels) == 1
        return dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=1.0) if alone else dist.Normal(0.0, 1.0)
    return dist.Normal(0.0, 10.0 * np.sqrt(variance))


def _blocks(how: Any, entries: tuple[int, ...]) -> list[Block]:
    """Where each part of the first state comes from."""
    if how is None:
        raise ModelError("The model has no initialization: call its initialize_approximate_diffuse() first.")
    if how.blocks:
        return [
            block
            for places, part in how.blocks.items()
            if part is not None
            for block in _blocks(part, tuple(entries[int(i)] for i in places))
        ]
    if how.initialization_type == "stationary":
        return [Block(entries, None)]
    if how.initialization_type in ("approximate_diffuse", "known"):
        mean = np.asarray(how.constant, float)
        covariance = how.approximate_diffuse_variance * np.eye(len(entries))
        if how.initialization_type == "known":
            covariance = np.asarray(how.stationary_cov, float)
        return [Block(entries, (mean, covariance))]
    raise ModelError(
        f"The model starts with {how.initialization_type!r}, which from_statsmodels() cannot read: call its "
        "initialize_approximate_diffuse() first."
    )


def _root(factor: Float[Array, "n k"], scale: Any = None) -> Float[Array, "n n"]:
    """The lower triangular root of factor factor', with a tiny diagonal where it has none."""
    n = factor.shape[0]
    upper = jnp.linalg.qr(factor.T, mode="r")
    lower = jnp.zeros((n, n)).at[:, : upper.shape[0]].set(upper.T)
    signs = jnp.where(jnp.diag(lower) < 0.0, -1.0, 1.0)
    lower = lower * signs
    least = _tiny(jnp.max(jnp.abs(factor)) if scale is None else scale)
    return lower + jnp.diag(jnp.where(jnp.diag(lower) < least, least, 0.0))


def _tiny(scale: Any) -> Any:
    """The sd of a state without noise: its square is the rounding of the variance of the largest noise."""
    return jnp.sqrt(jnp.finfo(scale.dtype).eps) * scale
