"""The choice of a statistic: exact sums where the model has them (theorem 1), polynomials in the rest (theorem 3)."""

from contextlib import suppress

from jaxtyping import Array

from epf.errors import UnsupportedModelError
from epf.model._model import StateSpaceModel, parameters
from epf.model.structure._verify import structure_of
from epf.posterior.samplers._automatic import default_sampler
from epf.posterior.samplers._base import Sampler
from epf.statistics._approximation import Approximation, Chebyshev
from epf.statistics._base import Gibbs
from epf.statistics._conjugate import Conjugate, require_conjugate, serves
from epf.statistics._log_polynomial import LogPolynomial
from epf.statistics._separable import Separable, refuse_jumps, require_separable


def exact_statistic(model: StateSpaceModel, u: Array | None) -> Gibbs:
    """Exact sums along a path; an error where the model has none. `u` is a row of its inputs."""
    if parameters(model).discrete:
        require_conjugate(model, u)
    if serves(model, u):
        return Conjugate.of(model)
    structure = structure_of(model, u)
    require_separable(model, structure, u)
    return Separable.of(model, structure)


def choose_statistic(
    model: StateSpaceModel,
    u: Array | None,
    approximation: Approximation | None,
    sampler: Sampler | None,
    discount: float = 1.0,
) -> Gibbs:
    """Exact sums in all parameters but awkward ones, and one polynomial in all of them where these are too many.

    Also where an approximation, a sampler or a discount is chosen: these are properties of the polynomial.
    """
    size = parameters(model).size
    if size == 0:
        return Conjugate.of(model)  # without unknown parameters the statistic is empty
    if approximation is None and sampler is None and discount == 1.0:
        if serves(model, u):
            return Conjugate.of(model)
        structure = structure_of(model, u)
        with suppress(UnsupportedModelError):
            require_separable(model, structure, u, partly=True)
            return Separable.of(model, structure)
        refuse_jumps(model, structure, u)
    return LogPolynomial.of(model, approximation or Chebyshev(), sampler or default_sampler(size), discount, u)
