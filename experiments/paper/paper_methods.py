"""The filters as the paper prints them (algorithms 1 to 3): bootstrap proposals, multinomial resampling at every step, and all
particles in one population, so that N means what it means in the paper. One island has no spread: the Monte Carlo error of
these runs is not measured, and the experiments score them against the exact posterior instead.
"""

from typing import Any

from epf.filters._epf import EPF
from epf.filters._liu_west import LiuWest
from epf.filters._sir import SIR
from epf.posterior.samplers._base import Sampler
from epf.smc.proposals._base import Bootstrap
from epf.smc.resampling import Multinomial
from epf.statistics._approximation import Taylor


def sir(particles: int) -> SIR:
    return SIR(particles, Bootstrap(), Multinomial(), islands=1)


def liu_west(particles: int) -> LiuWest:
    return LiuWest(particles, Bootstrap(), Multinomial(), islands=1, rho=0.9)


def epf(particles: int, order: int, centre: Any = None, of: str = "automatic", sampler: Sampler | None = None) -> EPF:
    """The EPF with theta drawn at every step; by inverse CDF if the paper names no sampler."""
    taylor = Taylor(order, centre=centre, of=of)
    return EPF(particles, Bootstrap(), Multinomial(), islands=1, approximation=taylor, sampler=sampler, refresh=1)
