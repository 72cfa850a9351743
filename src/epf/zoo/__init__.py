"""Models ready to use. In each, a field that is a number is known, and one that is a distribution is to be learned."""

from epf.zoo._cauchy_ar import CauchyAR as CauchyAR
from epf.zoo._linear_gaussian import LinearGaussian as LinearGaussian
from epf.zoo._local_level import LocalLevel as LocalLevel
from epf.zoo._sin import Sin as Sin
from epf.zoo._star import STAR as STAR
from epf.zoo._stochastic_volatility import StochasticVolatility as StochasticVolatility
