"""Several models of the same series: their evidence, and the probability of each given the data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from epf.errors import DataError, EPFError, SettingError, kind, warn
from epf.model._model import StateSpaceModel, check_is_model
from epf.results._result import Result
from epf.results._verdict import LEVELS
from epf.run._fit import fit

_ENOUGH = 2  # models


class ModelComparison:
    """What several models make of the same series.

    `results` has the fits by name; `refused` has a sentence for each model that could not be fitted. `probability` is that
    of each model given the data: in proportion to prior x exp(log_evidence). `table` is a pandas.DataFrame with a row for
    every model, the most probable first: prior, log_evidence, probability, and the verdict on its fit.

    Probabilities depend on the priors of the parameters: one that is ten times as wide costs up to 2.3 nats of evidence,
    also where the posterior of the parameter stays the same.

    Examples:
        >>> found = epf.compare({"moving": model, "still": epf.fix(model, {"level_variance": 1e-6})}, y, epf.SIR(400))
        >>> round(sum(found.probability.values()), 6), found.verdict
        (1.0, 'do not trust')
        >>> found.table["log_evidence"].to_dict() == found.log_evidence
        True
    """

    def __init__(self, results: dict[str, Result], refused: dict[str, str], prior: dict[str, float]) -> None:
        self.results = results
        self.refused = refused
        self.prior = prior

    @property
    def log_evidence(self) -> dict[str, float]:
        """log p(y) under each model."""
        return {name: float(result.log_evidence) for name, result in self.results.items()}

    @property
    def probability(self) -> dict[str, float]:
        """The probability of each model given the data, if it is one of these."""
        names = list(self.results)
        with np.errstate(divide="ignore"):
            weight = np.array([np.log(self.prior[name]) + self.log_evidence[name] for name in names])
        share = np.exp(weight - np.max(weight)) if len(weight) else weight
        return dict(zip(names, (share / share.sum()).tolist(), strict=True))

    @property
    def verdict(self) -> str:
        """The worst of the verdicts on the fits, in words; without a fit there is nothing to trust."""
        return LEVELS[max((result.verdict.level for result in self.results.values()), default=-1)]

    @property
    def table(self) -> Any:
        """A pandas.DataFrame with a row for every model, the most probable first."""
        import pandas as pd

        probability, log_evidence = self.probability, self.log_evidence
        rows = {
            name: {
                "prior": self.prior[name],
                "log_evidence": log_evidence[name],
                "probability": probability[name],
                "verdict": result.verdict.word,
            }
            for name, result in self.results.items()
        }
        columns = ["prior", "log_evidence", "probability", "verdict"]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
        table.index.name = "model"
        return table.sort_values("probability", ascending=False)

    def __repr__(self) -> str:
        refused = [f"{name}: {sentence}" for name, sentence in self.refused.items()]
        return "\n".join([*([self.table.to_string()] if self.results else []), *refused])


def compare_models(
    models: Mapping[str, StateSpaceModel],
    y: Any,
    method: Any,
    prior: Mapping[str, float] | None,
    seed: int,
    inputs: Any,
    progress: bool | None,
) -> ModelComparison:
    """Fit every model, by the default or by one method."""
    named = {str(name): model for name, model in models.items()}
    if len(named) < _ENOUGH:
        raise SettingError(f"compare() has {len(named)} models: give at least two by name, or one model and methods.")
    for model in named.values():
        check_is_model(model)
    before, results, refused = _prior(named, prior), {}, {}
    try:
        for name, model in named.items():
            try:
                result = fit(model, y, method, seed=seed, inputs=inputs, progress=progress)
            except DataError:  # the series is at fault, and all models have it
                raise
            except EPFError as error:
                refused[name] = str(error)
                continue
            if not isinstance(result, Result) or not np.isfinite(result.log_evidence):
                refused[name] = "It has no evidence: use a method that estimates it, and a proper prior."
                continue
            if result.interrupted:  # the evidence of fewer observations is no evidence of all
                break
            results[name] = result
    except KeyboardInterrupt:
        pass
    comparison = ModelComparison(results, refused, before)
    if len(results) + len(refused) < len(named):
        warn(f"Interrupted: {len(results)} of {len(named)} models are compared.", result=comparison)
    return comparison


def _prior(models: Mapping[str, Any], prior: Mapping[str, float] | None) -> dict[str, float]:
    """The probabilities of the models before the data: equal, or as given, with sum one."""
    if prior is None:
        return dict.fromkeys(models, 1.0 / len(models))
    if not isinstance(prior, Mapping) or set(prior) != set(models):
        raise SettingError(
            f"compare(prior=...) is {kind(prior)}: give a weight for each of {', '.join(models)}, by name."
        )
    weights = np.array([prior[name] for name in models], float)
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0.0) and weights.sum() > 0.0):
        raise SettingError("compare(prior=...) has a weight that is not a number, or negative, or all are 0.")
    return dict(zip(models, (weights / weights.sum()).tolist(), strict=True))
