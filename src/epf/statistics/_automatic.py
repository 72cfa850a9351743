"""The choice of a statistic: exact sums where the model is conjugate, a polynomial elsewhere, or as asked."""

from jaxtyping import Array

from epf.errors import UnsupportedModelError
from epf.model._model import StateSpaceModel, parameters
from epf.posterior.samplers._automatic import default_sampler
from epf.posterior.samplers._base import Sampler
from epf.statistics._approximation import Approximation
from epf.statistics._base import Gibbs
from epf.statistics._conjugate import Conjugate, serves
from epf.statistics._log_polynomial import LogPolynomial

STATISTICS = ("automatic", "conjugate", "polynomial")


def choose_gibbs(
    method: str,
    model: StateSpaceModel,
    u: Array | None,
    statistics: str,
    approximation: Approximation,
    sampler: Sampler | None,
    discount: float = 1.0,
) -> Gibbs:
    """The statistic for a model: exact sums if it is conjugate, otherwise a polynomial; `u` is a row of its inputs."""
    p, conjugate = parameters(model).size, statistics != "polynomial" and serves(model, u)
    if statistics == "conjugate" and not conjugate:
        raise UnsupportedModelError(
            f"{method}(statistics='conjugate') needs coefficients that enter linearly with normal priors, and variances "
            "with inverse-gamma ones, which this model does not have: use statistics='polynomial', or epf.EPF."
        )
    if p == 0 or conjugate:
        return Conjugate.of(model)  # without unknown parameters the statistic is empty
    return LogPolynomial.of(model, approximation, sampler or default_sampler(p), discount, u)
