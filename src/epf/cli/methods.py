"""The method and its settings, as options of every command that runs one."""

from typing import Any

from epf.errors import SettingError
from epf.filters.base import Filter
from epf.filters.epf import EPF
from epf.filters.kalman import Kalman
from epf.filters.liu_west import LiuWest
from epf.filters.marginal import MarginalEPF
from epf.filters.online_em import OnlineEM
from epf.filters.particle_learning import ParticleLearning
from epf.filters.practical_filter import PracticalFilter
from epf.filters.resample_move import ResampleMove
from epf.filters.sir import SIR
from epf.filters.storvik import Storvik
from epf.gibbs.approximation import Chebyshev

NAMES = (
    *("epf", "marginal", "storvik", "sir", "liu-west", "kalman", "extended-kalman", "unscented"),
    *("resample-move", "particle-learning", "practical", "online-em"),
)
_PLAIN = {
    "storvik": Storvik,
    "sir": SIR,
    "liu-west": LiuWest,
    "liuwest": LiuWest,
    "resample-move": ResampleMove,
    "particle-learning": ParticleLearning,
    "practical": PracticalFilter,
    "online-em": OnlineEM,
}


def make_method(name: str | None, particles: int | None, order: int | None) -> Filter:
    """The method of this name; `epf` where none is given."""
    name = (name or "epf").lower().replace("_", "-")
    size: dict[str, Any] = {} if particles is None else {"particles": particles}
    if order is not None and name not in ("epf", "marginal"):
        raise SettingError(f"--order belongs to --method epf or marginal, and the method is {name}: leave it out.")
    if name == "epf":
        return EPF(**size) if order is None else EPF(**size, approximation=Chebyshev(order=order))
    if name == "marginal":
        return MarginalEPF(**size) if order is None else MarginalEPF(**size, nodes=order + 1)
    if name in _PLAIN:
        return _PLAIN[name](**size)
    if name in ("kalman", "extended-kalman", "unscented"):
        if size:
            raise SettingError("--particles: the Kalman filter has none, so leave it out.")
        return Kalman(extended=name == "extended-kalman", unscented=name == "unscented")
    raise SettingError(f"--method {name}: choose one of {', '.join(NAMES)}.")
