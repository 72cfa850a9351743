"""Samplers: how a particle draws theta from its own log-density."""

from epf.posterior.samplers._base import Sampler as Sampler
from epf.posterior.samplers._inverse_cdf import InverseCDF as InverseCDF
from epf.posterior.samplers._metropolis import Laplace as Laplace
from epf.posterior.samplers._metropolis import Metropolis as Metropolis
from epf.posterior.samplers._slice import Slice as Slice
