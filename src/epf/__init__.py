"""Learn the fixed parameters of a state-space model while the data stream in, at a constant cost per observation."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from epf import errors as errors
from epf.fit import fit as fit
from epf.model import StateSpaceModel as StateSpaceModel
from epf.model import fix as fix
from epf.posterior import Posterior as Posterior
from epf.result import Result as Result
from epf.score import score as score
from epf.simulate import simulate as simulate

__version__ = "0.1.0"

if TYPE_CHECKING:
    from epf import diagnostics as diagnostics
    from epf import zoo as zoo
    from epf.chains import Chains as Chains
    from epf.comparison import Comparison as Comparison
    from epf.comparison import compare as compare
    from epf.draw.inverse_cdf import InverseCDF as InverseCDF
    from epf.draw.laplace import Laplace as Laplace
    from epf.draw.metropolis import Metropolis as Metropolis
    from epf.draw.slice import Slice as Slice
    from epf.filters.epf import EPF as EPF
    from epf.filters.kalman import Kalman as Kalman
    from epf.filters.liu_west import LiuWest as LiuWest
    from epf.filters.marginal import MarginalEPF as MarginalEPF
    from epf.filters.online_em import OnlineEM as OnlineEM
    from epf.filters.particle_learning import ParticleLearning as ParticleLearning
    from epf.filters.practical_filter import PracticalFilter as PracticalFilter
    from epf.filters.resample_move import ResampleMove as ResampleMove
    from epf.filters.sir import SIR as SIR
    from epf.filters.storvik import Storvik as Storvik
    from epf.gibbs.approximation import Chebyshev as Chebyshev
    from epf.gibbs.approximation import Taylor as Taylor
    from epf.lagged import Lagged as Lagged
    from epf.loading import load as load
    from epf.offline.particle_gibbs import ParticleGibbs as ParticleGibbs
    from epf.offline.pmmh import PMMH as PMMH
    from epf.offline.point_mass import PointMass as PointMass
    from epf.offline.smc2 import SMC2 as SMC2
    from epf.smc.proposals.automatic import Automatic as Automatic
    from epf.smc.proposals.automatic import choose_proposal as choose_proposal
    from epf.smc.proposals.base import Bootstrap as Bootstrap
    from epf.smc.proposals.base import Guided as Guided
    from epf.smc.proposals.defensive import Defensive as Defensive
    from epf.smc.proposals.linearised import Linearised as Linearised
    from epf.smc.proposals.optimal import Optimal as Optimal
    from epf.smc.resampling import Multinomial as Multinomial
    from epf.smc.resampling import Residual as Residual
    from epf.smc.resampling import Stratified as Stratified
    from epf.smc.resampling import Systematic as Systematic
    from epf.smoothing import smooth as smooth
    from epf.stream import Stream as Stream

# All else loads when it is first named: `import epf` is to cost little more than JAX itself. What has the name of the file
# that it is in (`fit`, `score`, `simulate`) cannot wait: importing that file would put the file in its place.
_LATE = {
    "Chains": "epf.chains",
    "Comparison": "epf.comparison",
    "compare": "epf.comparison",
    "InverseCDF": "epf.draw.inverse_cdf",
    "Laplace": "epf.draw.laplace",
    "Metropolis": "epf.draw.metropolis",
    "Slice": "epf.draw.slice",
    "EPF": "epf.filters.epf",
    "Kalman": "epf.filters.kalman",
    "LiuWest": "epf.filters.liu_west",
    "MarginalEPF": "epf.filters.marginal",
    "OnlineEM": "epf.filters.online_em",
    "ParticleLearning": "epf.filters.particle_learning",
    "PracticalFilter": "epf.filters.practical_filter",
    "ResampleMove": "epf.filters.resample_move",
    "SIR": "epf.filters.sir",
    "Storvik": "epf.filters.storvik",
    "Chebyshev": "epf.gibbs.approximation",
    "Taylor": "epf.gibbs.approximation",
    "Lagged": "epf.lagged",
    "load": "epf.loading",
    "ParticleGibbs": "epf.offline.particle_gibbs",
    "PMMH": "epf.offline.pmmh",
    "PointMass": "epf.offline.point_mass",
    "SMC2": "epf.offline.smc2",
    "Automatic": "epf.smc.proposals.automatic",
    "choose_proposal": "epf.smc.proposals.automatic",
    "Bootstrap": "epf.smc.proposals.base",
    "Guided": "epf.smc.proposals.base",
    "Defensive": "epf.smc.proposals.defensive",
    "Linearised": "epf.smc.proposals.linearised",
    "Optimal": "epf.smc.proposals.optimal",
    "Multinomial": "epf.smc.resampling",
    "Residual": "epf.smc.resampling",
    "Stratified": "epf.smc.resampling",
    "Systematic": "epf.smc.resampling",
    "smooth": "epf.smoothing",
    "Stream": "epf.stream",
}
_ROOMS = ("diagnostics", "zoo")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return _import_module(f"epf.{name}")
    if name not in _LATE:
        raise AttributeError(f"module 'epf' has no attribute {name!r}")
    globals()[name] = value = getattr(_import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, *_ROOMS})
