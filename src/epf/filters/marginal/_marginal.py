"""The marginal extended parameter filter: a smooth function through log p(y_1:t | theta), without path statistics.

The statistics of the EPF ride on the paths of the particles, and resampling makes paths coalesce. Here a filter runs at each
of some values of theta, the nodes (`_nodes.py`), and a smooth function goes through the sums of their log-likelihood
increments. Nothing is remembered of a path, so nothing degenerates. Where the model is linear and Gaussian once theta is
known, or the state finite, the filters are exact (`_exact.py`, `_finite.py`). Where the state is one number with a density,
they are quadratures (`_quadrature.py`). Otherwise they have particles (`filters/_bank.py`): Gaussians where the state is
linear and Gaussian and only its observation is not (`_mixture_kalman.py`), and with a Kalman filter each where a part of the
state is linear given the rest (`_rao_blackwell.py`).
"""

from typing import Any

import numpy as np
from jaxtyping import Array

from epf.filters._bank import Filters
from epf.filters._base import Filter
from epf.filters._kalman import BoundKalman, Kalman
from epf.filters._layout import Layout
from epf.filters.marginal._coefficients import candidates, without
from epf.filters.marginal._distribution import prior_proposal
from epf.filters.marginal._exact import KalmanFilters
from epf.filters.marginal._finite import FiniteFilters
from epf.filters.marginal._known import KnownFilter
from epf.filters.marginal._lookouts import lookouts_of
from epf.filters.marginal._marginal_nodes import MarginalNodes
from epf.filters.marginal._mixture_kalman import MixtureKalmanFilters
from epf.filters.marginal._nodes import Points
from epf.filters.marginal._noiseless import NoiselessFilters, Noisy, noiseless_part
from epf.filters.marginal._path import PathFilters
from epf.filters.marginal._quadrature import QuadratureFilters
from epf.filters.marginal._rao_blackwell import RaoBlackwellised
from epf.filters.marginal._region import Region
from epf.filters.marginal._switching import SwitchingFilters
from epf.model._model import StateSpaceModel, may_lack_inputs, parameters, state_shape
from epf.model._settings import count, flag, instance, number
from epf.model.structure._symmetries import Symmetries, symmetries_of
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic

_STREAMS = 4
_FEWEST = 32  # nodes per parameter, up to four
_CHEAP = 2  # times as many with exact filters, which cost little
_SCATTERED = 8  # nodes per squared number of parameters: some ten per coefficient of a quadratic


class MarginalEPF(Filter):
    """Learns the parameters from filters at some values of theta, the nodes; nothing degenerates.

    Each node has `particles` particles in four streams that share no random numbers. Where the model is linear and Gaussian
    once its parameters are known, or its state has finitely many values or no noise, the filter is exact instead (Kalman's,
    forward sums, or its one path). Components without noise that nothing random reaches are known given the parameters, and
    the filter is one of the others. Where the state is one number with a density, a quadrature with `points` points over it
    is nearly exact. Where the state is linear and Gaussian and is seen through another law (counts, heavy tails), particles
    are Gaussians of it. Where a part of the state is linear and Gaussian given the rest, particles are of the rest, with a
    Kalman filter each. With `exact=False` there are particles of the whole state in any case. `nodes` is the number of
    filters: by default 32 per parameter, or 8 p^2 for many, and twice that without particles (400 for four parameters).
    With `regrid` the nodes follow the posterior: filters at new nodes replay the observations from the first, `catch_up` per
    step, so the observations are kept. Without it, the nodes stay where the prior put them and nothing is kept. A few more
    filters look out for mirror images of the posterior, where parameters have other signs. Under symmetries of the model
    (signs of loadings, labels of regimes) each node stands for all of its images, so the posterior has every mode. A
    `discount` below 1 forgets the past at that rate per step, for parameters that drift slowly; the nodes then stay too. If
    nothing is unknown, there is one filter, of the state.

    Examples:
        >>> epf.MarginalEPF(nodes=64).bind(model).describe()["filters"]
        'Kalman, exact given the parameters'
    """

    particles: int = count(256, least=8)
    nodes: int | None = count(None, least=8, optional=True)
    regrid: bool = flag(True)
    exact: bool = flag(True)
    proposal: Proposal = instance(Automatic(even=True), Proposal, example="epf.proposals.Bootstrap()")
    resampling: Resampling = instance(Systematic(1.0), Resampling, example="epf.resampling.Systematic(threshold=0.5)")
    catch_up: int = count(64, least=2)
    discount: float = number(1.0, above=0.0, high=1.0)
    points: int = count(32, least=8)

    def bind(self, model: StateSpaceModel, u: Array | None = None) -> MarginalNodes | KnownFilter | BoundKalman:
        params = parameters(model)
        params.require_unbounded("MarginalEPF")
        filters = self._filters(model, u)
        times = 1 if filters.streams == _STREAMS else _CHEAP
        if params.size == 0:
            return KnownFilter(model, params, filters)
        symmetries, names = Symmetries.none(params.size, int(np.prod(state_shape(model)))), ()
        with may_lack_inputs(model, u):
            symmetries = symmetries_of(model, u)
            # What Kalman filters learn they do not forget.
            if isinstance(filters, KalmanFilters | NoiselessFilters) and self.discount >= 1.0:
                filters = filters.learning(model, u, candidates(params, symmetries))
                names = filters.names
        rest = without(params, names)
        if rest.size == 0:
            return Kalman().bind(model, u)
        layout = Layout.of(name in names for name, part in params.slices.items() for _ in range(part.start, part.stop))
        symmetries = symmetries.among(layout.others)
        q = rest.free_size
        # A second run of the default means a second compilation: with 256 nodes for four parameters, a third of the models
        # needed one (proving ground), which takes ten times as long as the run.
        size = max(q, 5) if times > 1 and q > 3 else q
        nodes = self.nodes or times * max(_FEWEST * min(q, 4), _SCATTERED * size * size)
        moves = self.regrid and self.discount >= 1.0
        points, changes, first = Points.of(nodes, q), lookouts_of(symmetries, rest), prior_proposal(rest)
        settings = Region.of([], None, first), filters, nodes, moves, self.discount
        return MarginalNodes(model, params, self.catch_up, rest, layout, symmetries, points, changes, first, *settings)

    def _filters(self, model: StateSpaceModel, u: Array | None) -> Any:
        """The filters at the nodes: without particles if that is possible."""
        if self.exact:
            with may_lack_inputs(model, u):
                filters = KalmanFilters.of(model, u) or FiniteFilters.of(model, u) or PathFilters.of(model, u)
                if filters is None and (part := noiseless_part(model, u)):
                    filters = NoiselessFilters(part, self._filters(Noisy(model, part), u))
                # Who names a proposal asks for particles.
                if filters is None and isinstance(self.proposal, Automatic):
                    filters = QuadratureFilters.of(model, u, self.points)
                if filters is not None:
                    return filters
        return self._with_particles(model, u)

    def _with_particles(self, model: StateSpaceModel, u: Array | None) -> Filters:
        """Filters of the whole state, or of the part of it that is not linear given that part."""
        each = -(-self.particles // _STREAMS)
        if self.exact and isinstance(self.proposal, Automatic):
            with may_lack_inputs(model, u):
                mixed = MixtureKalmanFilters.of(model, u, each, self.resampling, _STREAMS)
                if mixed is not None and all(mixed.parts):
                    return mixed
                # Without bias, and quicker than Gaussians that take in several numbers at once.
                partly = RaoBlackwellised.of(model, u, each, self.resampling, _STREAMS)
                partly = partly or SwitchingFilters.of(model, u, each, self.resampling, _STREAMS)
                if partly is not None:
                    return partly
                if mixed is not None:
                    return mixed
        return Filters(each, resolve_proposal(self.proposal, model, u), self.resampling, streams=_STREAMS)
