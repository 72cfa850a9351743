"""Learn the fixed parameters of a state-space model while the data stream in, at a constant cost per observation."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from epf import errors as errors

__version__ = "0.1.0"

if TYPE_CHECKING:
    from epf.filters._assumed_parameter import AssumedParameterFilter as AssumedParameterFilter
    from epf.filters._epf import EPF as EPF
    from epf.filters._kalman import Kalman as Kalman
    from epf.filters._liu_west import LiuWest as LiuWest
    from epf.filters._multiple_model import MultipleModel as MultipleModel
    from epf.filters._nested import NestedFilter as NestedFilter
    from epf.filters._particle_learning import ParticleLearning as ParticleLearning
    from epf.filters._practical_filter import PracticalFilter as PracticalFilter
    from epf.filters._resample_move import ResampleMove as ResampleMove
    from epf.filters._sir import SIR as SIR
    from epf.filters._storvik import Storvik as Storvik
    from epf.filters.marginal._marginal import MarginalEPF as MarginalEPF
    from epf.filters.online_em._online_em import OnlineEM as OnlineEM
    from epf.model import datasets as datasets
    from epf.model import zoo as zoo
    from epf.model._lagged import Lagged as Lagged
    from epf.model._model import StateSpaceModel as StateSpaceModel
    from epf.model._model import fix as fix
    from epf.model._numpyro import from_numpyro as from_numpyro
    from epf.model._sensors import Sensors as Sensors
    from epf.model._simulate import simulate as simulate
    from epf.model._statsmodels import from_statsmodels as from_statsmodels
    from epf.offline._particle_gibbs import ParticleGibbs as ParticleGibbs
    from epf.offline._pmmh import PMMH as PMMH
    from epf.offline._point_mass import PointMass as PointMass
    from epf.offline._smc2 import SMC2 as SMC2
    from epf.posterior import samplers as samplers
    from epf.posterior._posterior import Posterior as Posterior
    from epf.results import diagnostics as diagnostics
    from epf.results._chains import Chains as Chains
    from epf.results._result import Result as Result
    from epf.results._score import score as score
    from epf.run._compare import Comparison as Comparison
    from epf.run._compare import compare as compare
    from epf.run._compare_models import ModelComparison as ModelComparison
    from epf.run._consume import consume as consume
    from epf.run._explain import Explanation as Explanation
    from epf.run._explain import explain as explain
    from epf.run._fit import fit as fit
    from epf.run._load import load as load
    from epf.run._river import to_river as to_river
    from epf.run._smooth import smooth as smooth
    from epf.run._stream import Stream as Stream
    from epf.run.panel._fit_panel import fit_panel as fit_panel
    from epf.run.panel._panel import Panel as Panel
    from epf.run.panel._result import PanelResult as PanelResult
    from epf.smc import proposals as proposals
    from epf.smc import resampling as resampling
    from epf.statistics._approximation import Chebyshev as Chebyshev
    from epf.statistics._approximation import Taylor as Taylor
    from epf.storage._cache import cache as cache

# Everything loads when it is first named, so that `import epf` imports nothing else, not even JAX.
_LATE = {
    "AssumedParameterFilter": "epf.filters._assumed_parameter",
    "EPF": "epf.filters._epf",
    "Kalman": "epf.filters._kalman",
    "LiuWest": "epf.filters._liu_west",
    "MultipleModel": "epf.filters._multiple_model",
    "NestedFilter": "epf.filters._nested",
    "ParticleLearning": "epf.filters._particle_learning",
    "PracticalFilter": "epf.filters._practical_filter",
    "ResampleMove": "epf.filters._resample_move",
    "SIR": "epf.filters._sir",
    "Storvik": "epf.filters._storvik",
    "MarginalEPF": "epf.filters.marginal._marginal",
    "OnlineEM": "epf.filters.online_em._online_em",
    "Lagged": "epf.model._lagged",
    "StateSpaceModel": "epf.model._model",
    "fix": "epf.model._model",
    "from_numpyro": "epf.model._numpyro",
    "Sensors": "epf.model._sensors",
    "simulate": "epf.model._simulate",
    "from_statsmodels": "epf.model._statsmodels",
    "ParticleGibbs": "epf.offline._particle_gibbs",
    "PMMH": "epf.offline._pmmh",
    "PointMass": "epf.offline._point_mass",
    "SMC2": "epf.offline._smc2",
    "Posterior": "epf.posterior._posterior",
    "Chains": "epf.results._chains",
    "Result": "epf.results._result",
    "score": "epf.results._score",
    "Comparison": "epf.run._compare",
    "cache": "epf.storage._cache",
    "ModelComparison": "epf.run._compare_models",
    "compare": "epf.run._compare",
    "consume": "epf.run._consume",
    "Explanation": "epf.run._explain",
    "explain": "epf.run._explain",
    "fit": "epf.run._fit",
    "load": "epf.run._load",
    "to_river": "epf.run._river",
    "smooth": "epf.run._smooth",
    "Stream": "epf.run._stream",
    "Panel": "epf.run.panel._panel",
    "PanelResult": "epf.run.panel._result",
    "fit_panel": "epf.run.panel._fit_panel",
    "Chebyshev": "epf.statistics._approximation",
    "Taylor": "epf.statistics._approximation",
}
_NAMESPACES = {
    "datasets": "epf.model.datasets",
    "diagnostics": "epf.results.diagnostics",
    "proposals": "epf.smc.proposals",
    "resampling": "epf.smc.resampling",
    "samplers": "epf.posterior.samplers",
    "zoo": "epf.model.zoo",
}


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        value = _import_module(_NAMESPACES[name])
    elif name in _LATE:
        value = getattr(_import_module(_LATE[name]), name)
    else:
        raise AttributeError(f"module 'epf' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE, *_NAMESPACES})
