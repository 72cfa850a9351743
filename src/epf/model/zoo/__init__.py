"""Ready-made models. A field that is a number is known; a field that is a distribution is the prior of an unknown."""

from epf.model.zoo._cauchy_ar import CauchyAR as CauchyAR
from epf.model.zoo._linear_gaussian import LinearGaussian as LinearGaussian
from epf.model.zoo._local_level import LocalLevel as LocalLevel
from epf.model.zoo._sin import Sin as Sin
from epf.model.zoo._star import STAR as STAR
from epf.model.zoo._stochastic_volatility import StochasticVolatility as StochasticVolatility
