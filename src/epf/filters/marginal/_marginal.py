"""The marginal extended parameter filter: a polynomial through log p(y_1:t | theta), without path statistics.

The statistics of the EPF ride on the paths of the particles, and resampling makes paths coalesce. Here a particle filter
runs at each of a few values of theta (`_bank.py`), and a polynomial goes through the sums of their log-likelihood
increments. Nothing is remembered of a path, so nothing degenerates, and the posterior is prior x exp(polynomial). One to
three parameters have a grid of nodes (`_tensor_nodes.py`), more have scattered nodes (`_scattered_nodes.py`).

Sources of error. The log of an unbiased estimate is low by half its variance, which grows like t / particles and varies
with theta: the mean is off by about sqrt(t) / particles posterior sds, times a constant of the model. The polynomial has
the order of its nodes, which matters early, while the posterior is far from Gaussian. The evidence is approximate for both
reasons.
"""

from math import gcd
from typing import Any

from jaxtyping import Array

from epf.errors import SettingError, UnsupportedModelError
from epf.filters._bank import Filters
from epf.filters._base import Filter
from epf.filters.marginal._moving_nodes import MovingNodes
from epf.filters.marginal._scattered_nodes import ScatteredNodes
from epf.filters.marginal._tensor_nodes import FixedNodes, Grid
from epf.model._model import StateSpaceModel, parameters
from epf.model._settings import Rule, count, flag, instance, is_whole, number, plain, setting
from epf.posterior._chart import Chart
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic

_NODES = {1: 11, 2: 13, 3: 7}
_SCATTERED = 8  # nodes per squared number of parameters: some ten per coefficient of a quadratic
_LEAST = 5
_NODES_WORDS = f"a whole number of nodes, {_LEAST} or more, or one such number per parameter"
_STREAMS = 4  # of random numbers at scattered nodes, if their number allows: noise's slope in theta falls by the root
# Observations replayed per step. Scattered nodes are placed by what few of them say, which is soon out of date.
_CATCH_UP, _CATCH_UP_SCATTERED = 8, 64


def _plain_nodes(nodes: Any) -> Any:
    return tuple(plain(count) for count in nodes) if isinstance(nodes, tuple | list) else plain(nodes)


def _are_counts(nodes: Any) -> bool:
    counts = nodes if isinstance(nodes, tuple) else (nodes,)
    return bool(counts) and all(is_whole(number) and number >= _LEAST for number in counts)


class MarginalEPF(Filter):
    """Learns the parameters from particle filters at a few values of theta, `particles` in each; nothing degenerates.

    `nodes` is their number along each parameter (one number for all, or one per parameter); for more than three parameters
    it is their number in all. With `regrid` the nodes follow the posterior: filters at new nodes replay the observations
    from the first, `catch_up` per step (8, or 64 at scattered nodes), so the observations are kept. Without it, the nodes
    stay where the prior put them and nothing is kept. A `discount` below 1 forgets the past at that rate per step, for
    parameters that drift slowly; the nodes then stay too.
    """

    particles: int = count(200, least=2)
    nodes: int | tuple[int, ...] | None = setting(
        None, Rule(_are_counts, _NODES_WORDS), optional=True, converter=_plain_nodes
    )
    regrid: bool = flag(True)
    proposal: Proposal = instance(Automatic(even=True), Proposal, example="epf.proposals.Bootstrap()")
    resampling: Resampling = instance(Systematic(1.0), Resampling, example="epf.resampling.Systematic(threshold=0.5)")
    catch_up: int | None = count(None, least=2, optional=True)
    discount: float = number(1.0, above=0.0, high=1.0)

    @property
    def residuals_add_up(self) -> bool:
        return False

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> FixedNodes | MovingNodes | ScatteredNodes:
        params = parameters(model)
        if params.size == 0:
            raise UnsupportedModelError("MarginalEPF learns parameters, and this model has none unknown: use epf.SIR.")
        proposal = resolve_proposal(self.proposal, model, u)
        if params.size > len(_NODES):
            nodes = self._number_of_scattered_nodes(params.size)
            filters = Filters(self.particles, proposal, self.resampling, streams=gcd(nodes, _STREAMS))
            chart = Chart(params, unbounded=True)
            return ScatteredNodes(model, params, self.catch_up or _CATCH_UP_SCATTERED, chart, filters, nodes)
        filters = Filters(self.particles, proposal, self.resampling)
        grid = Grid(model, Chart(params), filters, self._counts(params.size), self.discount)
        if not self._moves:
            return FixedNodes(model, params, grid)
        return MovingNodes(model, params, self.catch_up or _CATCH_UP, grid)

    @property
    def _moves(self) -> bool:
        """With a discount the posterior may widen again, so the nodes stay where the prior put them."""
        return self.regrid and self.discount >= 1.0

    def _counts(self, p: int) -> tuple[int, ...]:
        """The number of nodes along each of at most three parameters."""
        counts = self.nodes if isinstance(self.nodes, tuple) else (self.nodes or _NODES[p],) * p
        if len(counts) != p:
            raise SettingError(
                f"MarginalEPF(nodes={self.nodes!r}) has {len(counts)} numbers, and the model has {p} unknown "
                "parameters: give one number for each, or one for all."
            )
        return counts

    def _number_of_scattered_nodes(self, p: int) -> int:
        if isinstance(self.nodes, tuple):
            raise SettingError(
                f"MarginalEPF(nodes={self.nodes!r}): for {p} parameters the nodes are scattered, so give one number: "
                "how many in all."
            )
        if not self._moves:
            raise UnsupportedModelError(
                f"MarginalEPF needs regrid=True and discount=1 for more than three parameters, and this model has {p}: "
                "use these, or epf.EPF."
            )
        return self.nodes or _SCATTERED * p * p
