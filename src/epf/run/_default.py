"""The default: a method chosen for the model, and more of it until the certificate is as small as was asked for."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from epf.errors import UnsupportedModelError
from epf.filters._base import Caveat, Filter
from epf.filters._kalman import BoundKalman, Kalman
from epf.filters._model_mixture import SMALLEST
from epf.filters._modes import Anew, Elsewhere, Modes
from epf.filters._multiple_model import MultipleModel
from epf.filters._sir import SIR
from epf.filters.marginal._marginal import MarginalEPF
from epf.filters.marginal._mixture_kalman import GAUSSIANS, MixtureKalmanFilters
from epf.filters.marginal._noiseless import of_noise
from epf.model._laws import is_gaussian
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.results._certificate import WORDS, Certificate
from epf.results._record import Record
from epf.results._result import Result

ACCURACY, BUDGET = 0.1, 60.0
MOST_ROUNDS = 4
MOST_AT_ONCE = 16  # times as many particles in the next round
_SPARE = 1.2  # more than the square law asks for, as the estimate of the error is itself uncertain
_MOST_POINTS = 128  # of a quadrature over the state
_FAR = 3.0  # posterior sds
_MOST_PAIRS = 1 << 28  # of points, in all nodes: as much work as some gigabytes
_MOST_PARTICLES = 1 << 22  # in all nodes: some gigabytes
_TINY = 1e-300  # stands for an sd of zero
_ROUNDING = 1e-6  # of a mean: an sd that small is one
_GAUSSIANS = 128  # particles that are Gaussians: each has more work than a draw of the state, and far less noise
_FEW_GAUSSIANS = 32  # where y depends on several numbers at once: twenty times as much work each
_DRAWS = 256  # of the state, where Gaussians do not serve
_ALONE = 2000  # particles for each value of discrete parameters, if nothing else is unknown


class Round(NamedTuple):
    """A run of the default, and how its error came out."""

    method: Filter
    error: Certificate
    seconds: float
    inside: str
    """What the filters at the nodes are made of: see `made_of`."""
    answer: np.ndarray
    """Means and sds of the parameters, shape (2, p)."""

    @classmethod
    def of(cls, method: Filter, result: "Result | Found", seconds: float = 0.0) -> "Round":
        sd = np.maximum(result.record.sd[-1], SMALLEST * np.array(result.parameters.is_discrete))
        answer = np.stack([result.record.mean[-1], sd]).astype(float)
        return cls(method, result.error, seconds, made_of(result.settings), answer)

    def contradicts(self, other: "Round") -> np.ndarray:
        """For each parameter, whether means or sds differ by more than twice what both certificates allow.

        A run that does not know its own sd, as all weight is on one node, contradicts nothing: its sds are no measure. Nor
        are those of an entry that is always the same, such as the diagonal of a correlation matrix: they are rounding.
        """
        means = np.abs(self.answer[0] - other.answer[0])
        logs = np.abs(np.diff(np.log(np.maximum([self.answer[1], other.answer[1]], _TINY)), axis=0)[0])
        errors = self.error.total, other.error.total
        far = means > 2.0 * (errors[0][0] * self.answer[1] + errors[1][0] * other.answer[1])
        far |= logs > 2.0 * (errors[0][1] + errors[1][1])
        varies = vary(np.maximum(self.answer, other.answer))
        return far & varies & (np.maximum(errors[0][1], errors[1][1]) < 1.0)

    def __str__(self) -> str:
        worst = f"{self.error.worst:.2g}" if np.isfinite(self.error.worst) else "not known"
        return f"{size_of(self.method, self.inside)}: error {worst} ({WORDS[self.error.largest_part]})"


def vary(answer: np.ndarray) -> np.ndarray:
    """Which parameters are not always the same, by their means and sds (2, p): an sd may be no more than rounding."""
    return answer[1] > _ROUNDING * np.abs(answer[0])


def choose(model: StateSpaceModel, u: Array | None) -> Filter:
    """The method to begin with: Kalman's where it is exact, else the marginal filter, wherever it can learn the model."""
    params = parameters(model)
    if all(is_gaussian(prior) for prior in params.priors.values()):
        try:
            Kalman().bind(model, u)
            return Kalman()
        except UnsupportedModelError:
            if params.size == 0:
                return SIR(1000)
    try:
        bound: Any = (MultipleModel() if params.discrete else MarginalEPF()).bind(model, u)
    except UnsupportedModelError:
        return SIR(10_000)
    if not params.discrete:
        filters = of_noise(bound.filters)
        if isinstance(filters, MixtureKalmanFilters):
            return MarginalEPF(_GAUSSIANS if all(filters.parts) else _FEW_GAUSSIANS, nodes=bound.nodes)
        return MarginalEPF(nodes=bound.nodes)
    banks = [group.bank for group in bound.groups]
    if all(isinstance(bank, BoundKalman) for bank in banks):
        return MultipleModel(Kalman())
    nodes = next((bank.nodes for bank in banks if hasattr(bank, "nodes")), None)
    return MultipleModel(MarginalEPF(nodes=nodes) if nodes else MarginalEPF(_ALONE))


def core(method: Any) -> Any:
    """The method that has particles or nodes: the inner one of a method with banks."""
    return method.inner if isinstance(method, MultipleModel | Elsewhere | Anew) else method


def contradiction(chosen: Round, other: Round, when: str = "") -> list[Caveat]:
    """A doubt, if the other run contradicts the chosen one; one whose error is not known contradicts nothing."""
    if not np.isfinite(other.error.worst) or not (apart := chosen.contradicts(other)).any():
        return []
    i = int(np.argmax(apart))
    found = [f"{one.answer[0, i]:.3g} (sd {one.answer[1, i]:.2g})" for one in (chosen, other)]
    sizes = [size_of(one.method, one.inside) for one in (chosen, other)]
    said = f"{chosen.error.labels[i]} is {found[0]} with {sizes[0]}, and {found[1]} with {sizes[1]}{when}"
    return [Caveat(1, f"Two runs contradict each other: {said}. Try other seeds; there may be several modes.")]


def failed(method: Filter, inside: str, error: Exception) -> Caveat:
    """A doubt, since a larger run failed; `inside` is what the filters of the smaller one were made of."""
    # A place in brackets means something to whoever made that run alone.
    what = re.sub(r" \([^)]*\)?", "", str(error)).partition(":")[0].rstrip(".") or type(error).__name__
    size = size_of(method, inside)
    return Caveat(1, f"A larger run, with {size}, failed: {what}. The answer is that of a smaller one.")


class Found(NamedTuple):
    """As much of a result as a larger method is chosen by and compared with."""

    error: Certificate
    settings: Mapping[str, Any]
    record: Record
    parameters: Parameters


def enlarged(method: Filter, result: Result | Found, accuracy: float, most: float) -> Filter | None:
    """A method that should reach the accuracy with at most so many times the work; None if this one does, or none can."""
    if isinstance(method, MultipleModel):
        inner = enlarged(method.inner, result, accuracy, most)
        return None if inner is None else dataclasses.replace(method, inner=inner)
    error = result.error
    if not error.labels or error.worst <= accuracy or most < 1.0:
        return None
    banks = int(result.settings.get("banks", 1))
    # NaN and infinity say that nothing is known: then as much more as is allowed at once.
    noise = np.nan_to_num(np.hypot(error.parts["monte_carlo"], error.parts["bias"]).max(), nan=np.inf)
    inside = made_of(result.settings)
    if inside == "particles" and not np.isfinite(error.worst):
        noise = np.inf  # one node has all weight, which noise gives to it more often than not
    # What is missing many sds away is at another mode, where more nodes would not be.
    near = np.where(error.parts["truncation"] < _FAR, error.parts["truncation"], 0.0)
    spread = np.nan_to_num((error.parts["expansion"] + near).max(), nan=np.inf)
    if str(result.settings.get("filters", "")).startswith(GAUSSIANS) and error.parts["numbers"].max() > accuracy:
        # Laws too curved for Gaussians, or with jumps, are left to draws of the state.
        draws = dataclasses.replace(method, exact=False, particles=_DRAWS)
        return draws if is_affordable(draws, banks) else None
    ratio = noise / (0.7 * accuracy)
    wanted = {"particles": _SPARE * ratio**2}
    if isinstance(method, MarginalEPF) and method.nodes:
        wanted["nodes"] = (spread / (0.7 * accuracy)) ** 2
    if inside == "points" and ratio > 1.0:
        if getattr(method, inside) >= _MOST_POINTS:
            particles = dataclasses.replace(method, exact=False)  # what so many points do not resolve is left to them
            return particles if is_affordable(particles, banks) else None
        wanted = {"points": 2.0 if ratio < MOST_AT_ONCE else 4.0}  # nodes are judged when the noise is gone
    more: dict[str, Any] = {}
    # What is worst comes first; what the budget does not allow is left out.
    for name, times in sorted(wanted.items(), key=lambda item: -item[1]):
        if times > 1.0 and hasattr(method, name) and name in ("nodes", inside):
            cost = 2 if name == "points" else 1  # quadrature costs the square of its points
            factor = _power_of_two(min(times, most ** (1 / cost), MOST_AT_ONCE if name == "particles" else 4))
            if factor > 1:
                more[name], most = factor * getattr(method, name), most / factor**cost
    larger = dataclasses.replace(method, **more)
    return larger if more and is_affordable(larger, banks) else None


def _power_of_two(times: float) -> int:
    """The power of two that is nearest to so many times, on a logarithmic scale."""
    return int(2 ** np.round(np.log2(max(times, 1.0))))


def is_affordable(method: Any, banks: int = 1) -> bool:
    """Whether its particles fit into some gigabytes, and its points need no more work than such."""
    nodes = banks * (method.nodes or 1 if isinstance(method, MarginalEPF) else 1)
    return method.particles * nodes <= _MOST_PARTICLES and getattr(method, "points", 0) ** 2 * nodes <= _MOST_PAIRS


def made_of(settings: Mapping[str, Any]) -> str:
    """What a method has more or fewer of besides nodes: particles, points of a quadrature over the state, or nothing."""
    exact = "filters" in settings and "particles" not in settings
    return "points" if "points" in settings else "" if exact else "particles"


def size_of(method: Any, inside: str = "particles") -> str:
    """A method and its size in words."""
    if isinstance(method, MultipleModel):
        return f"{size_of(method.inner, inside)} for each {'mode' if isinstance(method, Modes) else 'value'}"
    if isinstance(method, Elsewhere | Anew):
        return f"{size_of(method.inner, inside)} {'elsewhere' if isinstance(method, Elsewhere) else 'drawn anew'}"
    if isinstance(method, MarginalEPF):
        sizes = {"nodes": method.nodes} | ({inside: getattr(method, inside)} if inside else {})
        return " x ".join(f"{size} {name}" for name, size in sizes.items() if size) or "an exact filter"
    return f"{type(method).__name__}, {method.particles} particles" if hasattr(method, "particles") else "Kalman"
