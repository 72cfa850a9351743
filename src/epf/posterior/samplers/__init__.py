"""Samplers: how a particle draws theta from its own log-density."""

from epf.posterior.samplers._base import Sampler as Sampler
from epf.posterior.samplers._inverse_cdf import InverseCDF as InverseCDF
from epf.posterior.samplers._mcmc import Laplace as Laplace
from epf.posterior.samplers._mcmc import Metropolis as Metropolis
from epf.posterior.samplers._mcmc import Slice as Slice
