"""Results as tables of other libraries: xarray, pandas and ArviZ."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from epf.errors import ModelError
from epf.model._settings import require_count
from epf.numerics._keys import particle_keys, root_key
from epf.results._certificate import error_history, total_of
from epf.storage._checkpoint import versions

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from epf.results._answer import Answer
    from epf.results._chains import Chains
    from epf.results._result import Result

_CHAINS = 4


def summary(answer: "Answer", quantile_levels: Sequence[float] = (0.05, 0.5, 0.95)) -> "pd.DataFrame":
    """One row per parameter: mean, sd and quantiles, like ArviZ's summary; then one per value of a discrete parameter.

    The latter are those of 1 where the parameter has this value and 0 elsewhere: their mean is its probability.
    """
    import pandas as pd

    columns = {"mean": flat(answer.mean), "sd": flat(answer.sd)}
    columns |= {f"{100 * level:g}%": flat(answer.quantile(float(level))) for level in quantile_levels}
    table = pd.DataFrame(columns, index=pd.Index(list(answer.parameters.labels), name="parameter"))
    values = answer.posterior.probabilities if answer.parameters.discrete else {}
    for label, each in values.items():
        for value, p in each.items():
            row = [p, np.sqrt(p * (1.0 - min(p, 1.0))), *(float(1.0 - p < level) for level in quantile_levels)]
            table.loc[f"{label} = {value}"] = row
    return table


def flat(values: dict[str, Any]) -> np.ndarray:
    """Values by name as one vector, in the order of the labels."""
    return np.concatenate([np.zeros(0), *(np.ravel(value) for value in values.values())])


def states_over_time(mean: Any, sd: Any) -> "xr.Dataset":
    """`state_mean` and `state_sd` over time (1 for the first observation), and state for a vector state."""
    import xarray as xr

    dims = ("time", "state")[: np.ndim(mean)]
    return xr.Dataset({"state_mean": (dims, mean), "state_sd": (dims, sd)}, {"time": np.arange(1, len(mean) + 1)})


def history(result: "Result") -> "xr.Dataset":
    """Dimensions: time (`result.times`), parameter, level, and state for a vector state."""
    import xarray as xr

    record, info = result.record, result.record.info
    state = ("time", "state")[: record.state_mean.ndim]
    data = {
        "mean": (("time", "parameter"), record.mean),
        "sd": (("time", "parameter"), record.sd),
        "quantile": (("time", "level", "parameter"), record.quantiles),
        "state_mean": (state, record.state_mean),
        "state_sd": (state, record.state_sd),
        "ess": (("time",), info.ess),
        "log_evidence": (("time",), np.cumsum(info.log_evidence, dtype=np.float64)),
    }
    data |= {name: (("time",), getattr(info, name)) for name in ("resampled", "collapsed", "invalid")}
    total = total_of(error_history(record))
    data |= {"error": (("time", "parameter"), total[:, 0]), "sd_error": (("time", "parameter"), total[:, 1])}
    for name in ("residual", "ancestors"):
        if not np.isnan(getattr(info, name)).all():
            data[name] = (("time",), getattr(info, name))
    coordinates = {
        "time": result.times,
        "parameter": np.asarray(result.parameters.labels, dtype=str),
        "level": np.round(np.asarray(result.quantile_levels, dtype=float), 6),
    }
    if len(state) == 2:
        coordinates["state"] = np.arange(record.state_mean.shape[1])
    return xr.Dataset(data, coordinates)


def to_xarray(result: "Result") -> "xr.Dataset":
    """The history, with the settings and the library versions as attributes."""
    attributes = {**result.settings, "seed": result.seed, "seconds": result.seconds}
    return result.history.assign_attrs(attributes | {f"version of {name}": v for name, v in versions().items()})


def arviz() -> Any:
    """The ArviZ module, or an error that says how to install it."""
    try:
        import arviz as az
    except ImportError:
        raise ModuleNotFoundError('to_arviz needs ArviZ: pip install "epfilter[arviz]".') from None
    return az


def chains_to_arviz(result: "Chains", observed: Any) -> Any:
    """ArviZ's InferenceData of Markov chains: posterior by chain, statistics of each iteration, and observations."""
    record = result.record
    after = slice(-result.num_draws, None)
    statistics = {
        "lp": np.asarray(record.log_likelihood[after]).T,
        "acceptance_rate": np.asarray(record.accepted[after]).T,
    }
    seen = result.past[0] if observed is None else observed
    return arviz().from_dict(
        posterior=result.draws,
        sample_stats=statistics,
        observed_data={"y": np.asarray(seen, float)},
        attrs={name: str(value) for name, value in result.settings.items()},
    )


def to_arviz(result: "Result", num_samples: int, observed: Any, seed: int) -> Any:
    """ArviZ's InferenceData; the draws are independent, so their division into chains has no meaning."""
    az = arviz()
    each = require_count("to_arviz", "num_samples", num_samples, least=_CHAINS) // _CHAINS

    def chains(values: np.ndarray) -> np.ndarray:
        return np.asarray(values)[: _CHAINS * each].reshape(_CHAINS, each, *np.shape(values)[1:])

    groups: dict[str, Any] = {
        "posterior": {name: chains(values) for name, values in result.sample(num_samples, seed).items()}
    }
    params = result.parameters
    if result.model is not None:
        prior = np.asarray(jax.vmap(params.sample)(particle_keys(root_key(seed), num_samples)))
        groups["prior"] = {name: chains(values) for name, values in params.as_dict(prior).items()}
        with contextlib.suppress(ModelError):  # the laws may need the inputs of the next step, which are not known
            groups["posterior_predictive"] = {
                "y_next": chains(result.forecast(1, num_samples=num_samples, seed=seed).y[:, 0])
            }
    if observed is not None:
        groups["observed_data"] = {"y": np.asarray(observed, float)}
    data = az.from_dict(**groups, attrs={name: str(value) for name, value in result.settings.items()})
    # One number per time step: from_dict would take them for draws.
    names = ["ess", "log_evidence", "resampled", "collapsed", "invalid"]
    data.add_groups({"sample_stats": result.history[[name for name in names if name in result.history]]})
    return data
