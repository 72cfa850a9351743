"""The marginal extended parameter filter: a polynomial through log p(y_1:t | theta), with no path statistic at all.

The EPF's statistics ride on the particles' paths, and resampling makes paths coalesce. Here a particle filter runs at each
of a few values of theta (`bank.py`), and the sum of each one's log-likelihood increments is the value there of a
polynomial. Nothing is remembered of a path, so nothing degenerates, and the posterior is prior x exp(polynomial). One to
three parameters have a grid of nodes (`tensor_nodes.py`), more have scattered ones (`scattered_nodes.py`).

What is approximate. The log of an unbiased estimate is low by half its variance, which grows like t / particles and differs
from theta to theta: the mean is off by about sqrt(t) / particles posterior sds times a constant of the model. The
polynomial has the order of its nodes, which shows early, while the posterior is no Gaussian. The evidence is approximate
for both reasons.
"""

from math import gcd
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from epf.errors import SettingError, UnsupportedModelError
from epf.filters._bank import Filters
from epf.filters._base import Filter, Info, Past
from epf.filters.marginal._scattered_nodes import ScatteredNodes
from epf.filters.marginal._tensor_nodes import TensorNodes
from epf.model._check import is_number, is_whole, plain
from epf.model._model import StateSpaceModel, parameters
from epf.posterior._chart import Chart
from epf.posterior._posterior import Posterior
from epf.smc.proposals._automatic import Automatic, choose_proposal
from epf.smc.proposals._base import Proposal
from epf.smc.resampling import Resampling, Systematic

_NODES = {1: 11, 2: 13, 3: 7}
_SCATTERED = 8  # nodes for each parameter squared: some ten for every coefficient of a quadratic
_LEAST = 5
_STREAMS = 4  # of random numbers at scattered nodes, if their number allows: noise's slope in theta falls by its root
# Old observations a step. Scattered nodes are placed by what few of them say, which is soon out of date.
_CATCH_UP, _CATCH_UP_SCATTERED = 8, 64


def _plain_nodes(nodes: Any) -> Any:
    return tuple(plain(count) for count in nodes) if isinstance(nodes, tuple | list) else plain(nodes)


class MarginalEPF(Filter):
    """Learns the parameters from filters at a few values of theta, `particles` in each; nothing degenerates.

    `nodes` is their number along each parameter (one for all, or one for each), and for more than three parameters their
    number in all. They follow the posterior by `renoding`: "replay" runs filters at new nodes from the first observation,
    `catch_up` old ones for each new one (8, for scattered nodes 64), and the observations are kept; "forgetting" runs them
    beside the old ones for `overlap` steps before they take over, and nothing is kept. A `discount` below 1 forgets the
    past at that rate a step, for parameters that drift slowly; the nodes then stay.
    """

    particles: int = eqx.field(default=200, converter=plain)
    nodes: int | tuple[int, ...] | None = eqx.field(default=None, converter=_plain_nodes)
    renoding: str = eqx.field(default="replay", converter=plain)
    proposal: Proposal = eqx.field(default=Automatic(even=True), converter=plain)
    resampling: Resampling = eqx.field(default=Systematic(1.0), converter=plain)
    overlap: int = eqx.field(default=20, converter=plain)
    catch_up: int | None = eqx.field(default=None, converter=plain)
    discount: float = eqx.field(default=1.0, converter=plain)

    def __check_init__(self) -> None:
        if not is_whole(self.particles) or self.particles < 2:
            raise SettingError(
                f"MarginalEPF(particles={self.particles!r}): particles in each filter, a whole number, 2 or more."
            )
        counts = self.nodes if isinstance(self.nodes, tuple) else (self.nodes,)
        if self.nodes is not None and not (counts and all(is_whole(n) and n >= _LEAST for n in counts)):
            raise SettingError(
                f"MarginalEPF(nodes={self.nodes!r}): nodes along each parameter, a whole number of {_LEAST} or more, or one "
                "such number for each parameter."
            )
        if self.renoding not in ("replay", "forgetting"):
            raise SettingError(f"MarginalEPF(renoding={self.renoding!r}): it must be 'replay' or 'forgetting'.")
        if not isinstance(self.proposal, Proposal):
            raise SettingError(
                f"MarginalEPF(proposal={self.proposal!r}): it must be a proposal such as epf.proposals.Bootstrap() or "
                "epf.proposals.Guided(law)."
            )
        if not isinstance(self.resampling, Resampling):
            raise SettingError(
                f"MarginalEPF(resampling={self.resampling!r}): it must be a scheme such as epf.resampling.Systematic(threshold=0.5)."
            )
        if not is_whole(self.overlap) or self.overlap < 1:
            raise SettingError(f"MarginalEPF(overlap={self.overlap!r}): steps side by side, a whole number, 1 or more.")
        if self.catch_up is not None and not (is_whole(self.catch_up) and self.catch_up >= 2):
            raise SettingError(
                f"MarginalEPF(catch_up={self.catch_up!r}): old observations a step, a whole number, 2 or more."
            )
        if not is_number(self.discount) or not 0.0 < self.discount <= 1.0:
            raise SettingError(
                f"MarginalEPF(discount={self.discount!r}): it must lie above 0 and at most be 1 (nothing is forgotten)."
            )

    @property
    def replays(self) -> int:
        most = self.catch_up or max(_CATCH_UP, _CATCH_UP_SCATTERED)
        return most if self.renoding == "replay" and self.discount >= 1.0 else 0

    @property
    def residuals_add_up(self) -> bool:
        return False

    def next_past(self, state: Any) -> Int[Array, ""]:
        return jnp.maximum(state.run, 0)

    def scheme(self, model: StateSpaceModel) -> TensorNodes | ScatteredNodes:
        """How this model's parameters are covered."""
        p = parameters(model).size
        if p == 0:
            raise UnsupportedModelError("MarginalEPF learns parameters, and this model has none unknown: use epf.SIR.")
        if p <= 3:
            counts = self.nodes if isinstance(self.nodes, tuple) else (self.nodes or _NODES[p],) * p
            if len(counts) != p:
                raise SettingError(
                    f"MarginalEPF(nodes={self.nodes!r}) has {len(counts)} numbers, and the model has {p} unknown "
                    "parameters: give one number for each, or one for all."
                )
            filters = Filters(self.particles, self.proposal, self.resampling)
            catch_up = (self.catch_up or _CATCH_UP) if self.replays else 0
            return TensorNodes(counts, filters, self.overlap, catch_up, self.discount)
        if isinstance(self.nodes, tuple):
            raise SettingError(
                f"MarginalEPF(nodes={self.nodes!r}): for {p} parameters the nodes are scattered, so give one number: "
                "how many in all."
            )
        if not self.replays:
            raise UnsupportedModelError(
                f"MarginalEPF needs renoding='replay' and discount=1 for more than three parameters, and there are {p}: use "
                "these, or epf.EPF."
            )
        nodes = self.nodes or _SCATTERED * p * p
        filters = Filters(self.particles, self.proposal, self.resampling, streams=gcd(nodes, _STREAMS))
        return ScatteredNodes(nodes, filters, self.catch_up or _CATCH_UP_SCATTERED)

    def check(self, model: StateSpaceModel, u: Array | None) -> None:
        self.scheme(model)
        Chart(parameters(model))

    def init(self, key: PRNGKeyArray, model: StateSpaceModel, u: Array | None = None) -> Any:
        return self.scheme(model).init(key, model)

    def step(
        self,
        key: PRNGKeyArray,
        model: StateSpaceModel,
        state: Any,
        y: Float[Array, "*y"],
        u: Array | None,
        past: Past | None = None,
    ) -> tuple[Any, Info]:
        if self.replays and past is None:
            raise SettingError(
                "MarginalEPF(renoding='replay') goes through old observations again: run it with epf.fit or epf.Stream, "
                "give step() the `past`, or choose renoding='forgetting'."
            )
        return self.scheme(model).step(key, model, state, y, u, past)

    def posterior(self, model: StateSpaceModel, state: Any) -> Posterior:
        return self.scheme(model).posterior(model, state)

    def describe(self, model: StateSpaceModel, u: Array | None) -> dict[str, str]:
        proposal = self.proposal
        if isinstance(proposal, Automatic):
            proposal = choose_proposal(model, u, proposal.even)
        scheme = self.scheme(model)
        counts = scheme.counts if isinstance(scheme, TensorNodes) else (scheme.nodes,)
        how = {True: f"replay, {scheme.catch_up} old observations a step", False: f"forgetting, {self.overlap} steps"}
        return {
            "method": "MarginalEPF",
            "nodes": " x ".join(map(str, counts)) + ("" if isinstance(scheme, TensorNodes) else ", scattered"),
            "particles": f"{self.particles} a node, {self.particles * int(np.prod(counts))} in all",
            "proposal": proposal.describe(),
            "re-noding": how[self.replays > 0] if self.discount >= 1.0 else "none (discount)",
        }
