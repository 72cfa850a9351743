"""The sampler for a number of parameters, where the user names none."""

from epf.posterior.samplers._base import Sampler
from epf.posterior.samplers._composite import Composite
from epf.posterior.samplers._inverse_cdf import InverseCDF
from epf.posterior.samplers._laplace import Laplace
from epf.posterior.samplers._slice import Slice


def default_sampler(p: int) -> Sampler:
    """Independent draws for one or two parameters; beyond, a proposal that forgets and a sampler that never sticks.

    One parameter gets a finer grid than a draw alone would need: a box shared by all particles is wider than one
    particle's density, and a second, closer look for some costs all of them more than the points do.
    """
    if p <= 2:
        return InverseCDF(49) if p == 1 else InverseCDF()
    return Composite((Laplace(), Slice()))
