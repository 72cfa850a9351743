"""A posterior given by marginal densities on uniform grids of one region."""

from abc import abstractmethod

from jaxtyping import Array, Float

from epf.posterior._posterior import Posterior
from epf.posterior._quadrature import Box as Box
from epf.posterior._quadrature import GridDensity, Region


class BoxPosterior(Posterior):
    """Base class for posteriors whose moments and quantiles are read off marginal densities on a grid."""

    @abstractmethod
    def box(self) -> Region:
        """The region of the parameters that the grid covers."""

    @abstractmethod
    def densities(self) -> Float[Array, "p points"]:
        """The marginal densities on a uniform grid of the cube, each with integral 1."""

    def moments(self) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        return GridDensity(self.box(), self.densities()).moments()

    def quantiles(self, levels: Float[Array, " levels"]) -> Float[Array, "levels p"]:
        return GridDensity(self.box(), self.densities()).quantiles(levels)
