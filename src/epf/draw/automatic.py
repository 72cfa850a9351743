"""The sampler for a number of parameters, where the user names none."""

from epf.draw.base import Sampler
from epf.draw.composite import Composite
from epf.draw.inverse_cdf import InverseCDF
from epf.draw.laplace import Laplace
from epf.draw.slice import Slice


def default_sampler(p: int) -> Sampler:
    """Independent draws for one or two parameters; beyond, a proposal that forgets and a sampler that never sticks."""
    return InverseCDF() if p <= 2 else Composite((Laplace(), Slice()))
