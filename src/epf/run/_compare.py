"""Several methods on the same model and data: one table, one picture, and how far each is from the exact answer."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, overload

import numpy as np

from epf.errors import EPFError, EPFWarning, SettingError, UnsupportedModelError, kind, warn
from epf.filters._base import Filter, Method
from epf.filters._kalman import Kalman
from epf.model._date_checks import warn_of_gap
from epf.model._model import StateSpaceModel
from epf.model._series import check_series
from epf.offline._point_mass import PointMass
from epf.results._chains import Chains
from epf.results._result import Result
from epf.results._tables import flat
from epf.results._verdict import Verdict
from epf.run._checks import check_method
from epf.run._compare_models import ModelComparison, compare_models
from epf.run._fit import fit
from epf.run._runner import quarters
from epf.storage._methods import make

_LEVELS = (0.05, 0.95)
_SHORT = 0.02  # seconds: less is the clock's noise, and says nothing of how a cost grows
_AGAIN = "T a draw"


class Numbers(NamedTuple):
    """Each parameter's mean, sd and 90% interval."""

    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, posterior: Any) -> "Numbers":
        return cls(flat(posterior.mean), flat(posterior.sd), *(flat(posterior.quantile(level)) for level in _LEVELS))


class Exact(NamedTuple):
    """An exact posterior, by which method, and what that says of itself."""

    method: str
    numbers: Numbers
    log_evidence: float
    verdict: Verdict | None = None


class Comparison:
    """What several methods made of the same series.

    `results` has them by name; `refused` has a sentence for each method that could not serve the model, or that could
    not be taken for exact. `table` is a pandas.DataFrame with a row for every method and parameter:

    - mean, sd, 5% and 95% of the posterior after the last observation;
    - z = (mean - exact mean) / exact sd and r = sd / exact sd, where an exact posterior is known;
    - seconds, compilation included;
    - growth: the seconds of the last quarter of the steps over those of the second, so 1 is a constant cost and 7 / 3 one
      that grows in proportion to the time. Markov chains cost T a draw and begin anew with every observation;
    - log_evidence, where the method has one;
    - verdict: whether to trust the method's answer (`results[name].verdict` has the reasons).

    Examples:
        >>> found = epf.compare(model, y, {"SIR": epf.SIR(400)}, exact=result)
        >>> found.table.index.tolist()[:2], float(found.table.loc["SIR", "z"].abs().max())
        ([('exact', 'level_variance'), ('exact', 'noise_variance')], 0.0)
        >>> found.plot(truth).shape
        (2,)
    """

    def __init__(
        self,
        t: int,
        results: dict[str, Result | Chains],
        refused: dict[str, str],
        exact: Exact | None,
    ) -> None:
        self.num_observations = t
        self.results = results
        self.refused = refused
        self.exact = exact

    @property
    def table(self) -> Any:
        """A pandas.DataFrame with a row for every method and parameter."""
        import pandas as pd

        rows: dict[tuple[str, str], dict[str, Any]] = {}
        if self.exact is not None:
            labels = next(iter(self.results.values())).parameters.labels if self.results else ()
            for i, label in enumerate(labels):
                rows["exact", label] = self._row(self.exact.numbers, i) | {
                    "seconds": np.nan,
                    "growth": np.nan,
                    "log_evidence": self.exact.log_evidence,
                    "verdict": _word(self.exact.verdict),
                }
        for name, result in self.results.items():
            numbers = Numbers.of(result)
            told = {"seconds": result.seconds, "growth": growth(result), "log_evidence": evidence(result)}
            told |= {"verdict": _word(result.verdict)}
            for i, label in enumerate(result.parameters.labels):
                rows[name, label] = self._row(numbers, i) | told
        table = pd.DataFrame.from_dict(rows, orient="index")
        table.index = pd.MultiIndex.from_tuples(list(rows), names=["method", "parameter"])
        return table

    def _row(self, numbers: Numbers, i: int) -> dict[str, Any]:
        mean, sd, low, high = (part[i] for part in numbers)
        row = {"mean": mean, "sd": sd, "5%": low, "95%": high, "z": np.nan, "r": np.nan}
        if self.exact is not None:
            exact = self.exact.numbers
            row |= {"z": (mean - exact.mean[i]) / exact.sd[i], "r": sd / exact.sd[i]}
        return row

    def plot(self, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
        """Every method's trajectory of each parameter in one figure; an answer without one as a bar at the end."""
        from epf.results._plots import plot_comparison

        return plot_comparison(self, truth, ax)

    def __repr__(self) -> str:
        refused = [f"{name}: {sentence}" for name, sentence in self.refused.items()]
        about = f"Comparison after {self.num_observations} observations" + (
            f", exact by {self.exact.method}" if self.exact else ""
        )
        return "\n".join([about, *([str(self.table.to_string())] if self.results else []), *refused])


@overload
def compare(
    model: StateSpaceModel,
    y: Any,
    methods: Any,
    *,
    exact: Any = "auto",
    seed: int = 0,
    inputs: Any = None,
    progress: bool | None = None,
) -> Comparison: ...
@overload
def compare(
    model: Mapping[str, StateSpaceModel],
    y: Any,
    methods: Filter | None = None,
    *,
    prior: Mapping[str, float] | None = None,
    seed: int = 0,
    inputs: Any = None,
    progress: bool | None = None,
) -> ModelComparison: ...
def compare(
    model: StateSpaceModel | Mapping[str, StateSpaceModel],
    y: Any,
    methods: Any = None,
    *,
    exact: Any = "auto",
    prior: Mapping[str, float] | None = None,
    seed: int = 0,
    inputs: Any = None,
    progress: bool | None = None,
) -> Comparison | ModelComparison:
    """Run several methods, or several models, on the same series and set them side by side.

    With models by name in place of one model, each is fitted by the default (or by one method), and the answer is an
    `epf.ModelComparison`: the evidence of each, and its probability given the data. `prior` gives the models' probabilities
    before the data by name; they are equal without it.

    `methods` is a dictionary of methods by the names to show, or a list of methods or of their names ("sir", "pmmh").
    `exact` is "auto" (the Kalman filter where it is exact, else epf.PointMass for a one-dimensional state and at most
    two parameters, if its own verdict is good, else none), None, or what to take for exact: a result, or a Dataset as
    `epf.score` takes. A method that cannot serve the model is left out, and says why in `refused`. Ctrl-C ends the
    comparison with what there is.

    Examples:
        >>> found = epf.compare(model, y, {"SIR": epf.SIR(400), "Kalman": epf.Kalman()}, exact=result)
        >>> list(found.results), list(found.refused)  # variances are not Gaussian
        (['SIR'], ['Kalman'])
    """
    if isinstance(model, Mapping):
        return compare_models(model, y, methods, prior, seed, inputs, progress)
    if prior is not None:
        raise SettingError("compare(prior=...) is for several models: give them by name in place of one.")
    chosen = _by_name(methods)
    ys = check_series(model, y, inputs).ys
    warn_of_gap(y)
    results: dict[str, Result | Chains] = {}
    refused: dict[str, str] = {}
    found: Exact | None = None
    interrupted = False
    try:
        found = _exact(model, ys, inputs, exact, refused)
        for name, method in chosen.items():
            try:
                results[name] = fit(model, ys, method, seed=seed, inputs=inputs, progress=progress)
            except EPFError as error:  # model and data have been looked over: it is this method that cannot
                refused[name] = str(error)
            if name in results and results[name].interrupted:
                if results[name].num_observations < len(ys):  # of chains that are cut short the draws count
                    del results[name]
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        interrupted = True
    comparison = Comparison(len(ys), results, refused, found)
    if interrupted:
        warn(f"Interrupted: {len(results)} of {len(chosen)} methods are compared.", result=comparison)
    return comparison


def growth(result: Result | Chains) -> float | str:
    """How the cost of a step grows: seconds of the last quarter over those of the second; NaN where these are too short."""
    if isinstance(result, Chains):
        return _AGAIN
    at = dict(result.clock)
    if not at:
        return float("nan")
    last = max(at)
    cuts = [at.get(cut) for cut in quarters(last)]
    if any(cut is None for cut in cuts):
        return float("nan")
    first, second, third, fourth = (float(cut) for cut in cuts if cut is not None)
    sizes = np.diff([0, *quarters(last)])
    before, after = (second - first) / sizes[1], (fourth - third) / sizes[3]
    return after / before if second - first > _SHORT else float("nan")


def evidence(result: Result | Chains) -> float:
    """log p(y), NaN for a method that does not estimate it."""
    return float("nan") if isinstance(result, Chains) else result.log_evidence


def _word(verdict: Verdict | None) -> str:
    return "" if verdict is None else verdict.word


def _by_name(methods: Any) -> dict[str, Method]:
    if isinstance(methods, str):
        methods = methods.split(",")
    if isinstance(methods, Method):
        methods = [methods]
    if isinstance(methods, Mapping):
        named = dict(methods)
    elif isinstance(methods, Iterable):
        named = {}
        for method in methods:
            name = method.strip() if isinstance(method, str) else type(method).__name__
            known = sum(key == name or key.startswith(f"{name} ") for key in named)
            named[f"{name} {known + 1}" if known else name] = method
    else:
        raise SettingError(
            f"compare(methods=...) is {kind(methods)}: give methods by name, such as {{'EPF': epf.EPF(), 'SIR': epf.SIR()}}."
        )
    if not named:
        raise SettingError("compare(methods=...) is empty: give at least one method.")
    found = {str(name): make(method) if isinstance(method, str) else method for name, method in named.items()}
    for method in found.values():
        check_method(method, Method)
    return found


def _exact(model: StateSpaceModel, ys: np.ndarray, inputs: Any, exact: Any, refused: dict[str, str]) -> Exact | None:
    """The reference; one that does not call itself good is refused, unless the user gave it."""
    if exact is None:
        return None
    if isinstance(exact, Result | Chains):
        return Exact(exact.settings["method"], Numbers.of(exact), evidence(exact), exact.verdict)
    if hasattr(exact, "sel"):
        return _at_the_end(exact, len(ys))
    if exact != "auto":
        raise SettingError(
            f"compare(exact={exact!r}): it must be 'auto', None, or a result or Dataset to take for exact."
        )
    references = {"Kalman": Kalman, "PointMass": lambda: PointMass().refined(model, ys, inputs=inputs)}
    for name, chosen in references.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EPFWarning)  # its verdict says the same
                result = fit(model, ys, chosen(), inputs=inputs, progress=False)
        except UnsupportedModelError:
            continue
        except EPFError as error:
            refused[f"{name} as the exact answer"] = str(error)
            continue
        if result.interrupted:  # it has seen fewer observations
            raise KeyboardInterrupt
        verdict = result.verdict
        if not verdict.level:
            return Exact(name, Numbers.of(result), result.log_evidence, verdict)
        refused[f"{name} as the exact answer"] = f"{verdict.word}. {verdict.findings[0].sentence}"
    return None


def _at_the_end(exact: Any, t: int) -> Exact:
    """From a Dataset over time and parameter, such as a history or a file of references."""
    try:
        mean, sd = (np.asarray(exact[key].sel(time=t), float) for key in ("mean", "sd"))
        log_evidence = float(exact["log_evidence"].sel(time=t)) if "log_evidence" in exact else float("nan")
    except KeyError:
        raise SettingError(
            f"compare(exact=...) has no mean and sd at time {t}, the end of the series: give one that reaches it."
        ) from None
    unknown = np.full_like(mean, np.nan)
    return Exact("your reference", Numbers(mean, sd, unknown, unknown), log_evidence)
