"""A posterior as a small table, and as ArviZ's groups."""

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from epf.errors import ModelError, SettingError
from epf.model._check import is_whole
from epf.numerics._keys import particle_keys, root_key

_CHAINS = 4


def summary(result: Any, quantile_levels: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
    """A pandas DataFrame, one row a parameter: mean, sd and quantiles, in the manner of ArviZ's summary."""
    import pandas as pd

    labels = list(result.parameters.labels)
    columns = {"mean": flat(result.mean), "sd": flat(result.sd)}
    columns |= {f"{100 * level:g}%": flat(result.quantile(float(level))) for level in quantile_levels}
    return pd.DataFrame(columns, index=pd.Index(labels, name="parameter"))


def flat(values: dict[str, Any]) -> np.ndarray:
    """Values by name as one vector, in the order of the labels."""
    return np.concatenate([np.zeros(0), *(np.ravel(value) for value in values.values())])


def to_xarray(result: Any) -> Any:
    """The history, with the settings and the versions as its attributes."""
    from epf.storage._checkpoint import versions

    attributes = {**result.settings, "seed": result.seed, "seconds": result.seconds}
    return result.history.assign_attrs(attributes | {f"version of {name}": v for name, v in versions().items()})


def arviz() -> Any:
    """ArviZ, or a sentence on how to get it."""
    try:
        import arviz as az
    except ImportError:
        raise ModuleNotFoundError('R-hat, ESS and to_arviz need ArviZ: pip install "epfilter[arviz]".') from None
    return az


def chains_to_arviz(result: Any, observed: Any) -> Any:
    """ArviZ's InferenceData of Markov chains: the posterior by chain, how each iteration went, and the observations."""
    record = result.record
    after = slice(-result.kept, None)
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


def to_arviz(result: Any, num_samples: int, observed: Any, seed: int) -> Any:
    """ArviZ's InferenceData; draws are independent, so how they are cut into chains means nothing."""
    az = arviz()
    if not is_whole(num_samples) or num_samples < _CHAINS:
        raise SettingError(f"to_arviz(num_samples={num_samples!r}): it must be a whole number, {_CHAINS} or more.")
    each = num_samples // _CHAINS

    def chains(values: np.ndarray) -> np.ndarray:
        return np.asarray(values)[: _CHAINS * each].reshape(_CHAINS, each, *np.shape(values)[1:])

    groups: dict[str, Any] = {
        "posterior": {name: chains(values) for name, values in result.sample(num_samples, seed).items()}
    }
    params = result.parameters
    if result.model is not None:
        prior = np.asarray(jax.vmap(params.sample)(particle_keys(root_key(seed), num_samples)))
        groups["prior"] = {name: chains(values) for name, values in params.as_dict(prior, (num_samples,)).items()}
        with contextlib.suppress(ModelError):  # its laws may need inputs, and those of the next step are not known
            groups["posterior_predictive"] = {
                "y_next": chains(result.forecast(1, num_samples=num_samples, seed=seed).y[:, 0])
            }
    if observed is not None:
        groups["observed_data"] = {"y": np.asarray(observed, float)}
    data = az.from_dict(**groups, attrs={name: str(value) for name, value in result.settings.items()})
    # One number a time step, not a draw: ArviZ's own way of making this group would take them for draws.
    names = ["ess", "log_evidence", "resampled", "collapsed", "invalid"]
    data.add_groups({"sample_stats": result.history[[name for name in names if name in result.history]]})
    return data
