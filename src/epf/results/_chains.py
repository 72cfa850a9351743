"""Chains: the answer of a method that draws theta by Markov chains."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jax.numpy as jnp
import numpy as np

from epf.errors import SettingError
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.offline._base import Draw, MarkovChains
from epf.posterior._posterior import ParticlePosterior
from epf.results._result import Answer


class Chains(Answer):
    """Draws of the parameters given the whole series, by chain.

    `draws` has them by name, each (chains, draws, *shape), without the warm-up; `rhat` and `ess` are ArviZ's. `record` has
    every iteration, the warm-up too, and `state` is where the chains are, from which `epf.fit(..., resume_from=result)` goes on.
    """

    _title = "Chains"

    def __init__(
        self,
        model: StateSpaceModel | None,
        method: MarkovChains | None,
        seed: int,
        t: int,
        state: Any,
        record: Draw,
        seconds: float,
        settings: dict[str, str],
    ) -> None:
        self.model = model
        self.method: Any = method
        self.settled: Any = method
        """The method with what it chose from the data."""
        self.seed = seed
        self.num_observations = t
        self.state = state
        self.record = record
        self.seconds = seconds
        self.settings = settings
        self.interrupted = False
        self.past: tuple[np.ndarray, np.ndarray | None] = (np.zeros(0), None)
        """The observations and inputs."""

    @property
    def done(self) -> int:
        """Iterations, the warm-up included."""
        return len(self.record.log_likelihood)

    @property
    def kept(self) -> int:
        """Draws of each chain; of a run that was interrupted in its warm-up, the second half of what there is."""
        after = self.done - self.warmup
        return after if after >= 2 else (self.done + 1) // 2

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Draws by name, each of shape (chains, draws, *shape)."""
        theta = self._theta
        return self.parameters.as_dict(theta, theta.shape[:2])

    @property
    def warmup(self) -> int:
        """The iterations in which the chains adapted."""
        return self.method.warmup

    @property
    def _parameters(self) -> Parameters:
        return parameters(self.model)

    @property
    def acceptance(self) -> np.ndarray:
        """The share of proposals that each chain accepted, after the warm-up."""
        return np.asarray(self.record.accepted[-self.kept :]).mean(axis=0)

    def _posterior(self) -> ParticlePosterior:
        """All draws of all chains, equally weighted, each with a state from the end of the series."""
        theta = self._theta
        count = theta.shape[0] * theta.shape[1]
        x = np.moveaxis(np.asarray(self.record.x[-self.kept :]), 1, 0)
        x = np.moveaxis(x.reshape(count, *x.shape[2:]), 0, -1)
        weights = jnp.full(count, 1.0 / count)
        return ParticlePosterior(self._parameters, jnp.asarray(theta.reshape(count, -1).T), jnp.asarray(x), weights)

    @property
    def rhat(self) -> dict[str, Any]:
        """Rank-normalised split R-hat by name, by ArviZ: 1 where the chains are one; look again above 1.01."""
        return self._by_arviz("rhat")

    @property
    def ess(self) -> dict[str, Any]:
        """Effective number of independent draws by name, by ArviZ (bulk)."""
        return self._by_arviz("ess")

    @cached_property
    def split_rhat(self) -> float:
        """The worst plain split R-hat of all parameters (Gelman et al. 2013, section 11.4), which needs no other library."""
        theta = self._theta.astype(float)
        half = theta.shape[1] // 2
        if half < 2:
            return float("nan")
        parts = np.concatenate([theta[:, :half], theta[:, -half:]])
        within = parts.var(axis=1, ddof=1).mean(axis=0)
        between = parts.mean(axis=1).var(axis=0, ddof=1)
        with np.errstate(all="ignore"):
            ratio = np.where(within > 0.0, (half - 1) / half + between / within, np.where(between > 0.0, np.inf, 1.0))
        return float(np.sqrt(ratio).max())

    @property
    def smoothed(self) -> Any:
        """An xarray.Dataset over time: mean and sd of the state given the whole series (ParticleGibbs only)."""
        import xarray as xr

        if self.smoothed_moments is None:
            yet = " yet" if self.interrupted else ""
            self._refuse(f"has no paths of the state{yet}", "use epf.ParticleGibbs, which draws them")
        mean, sd = (np.asarray(part) for part in self.smoothed_moments)
        dims = ("time",) if mean.ndim == 1 else ("time", "state")
        return xr.Dataset(
            {"state_mean": (dims, mean), "state_sd": (dims, sd)}, {"time": np.arange(1, self.num_observations + 1)}
        )

    @property
    def smoothed_moments(self) -> tuple[Any, Any] | None:
        """Mean and sd of the state at every time, of chains that have paths."""
        return self.method.smoothed(self.state)

    @property
    def log_evidence(self) -> float:
        self._refuse("estimates no evidence", "use epf.SMC2, or a filter")

    @property
    def history(self) -> Any:
        """There is none: the posterior is that of the whole series, and of no earlier time."""
        self._refuse("has no history over time", "use epf.SMC2 or a filter, or fit a part of the series")

    def summary(self, quantile_levels: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """A small table (pandas.DataFrame), one row a parameter: mean, sd, quantiles and, with ArviZ, R-hat and ESS."""
        from epf.results._tables import flat, summary

        table = summary(self, quantile_levels)
        try:
            return table.assign(r_hat=flat(self.rhat), ess=flat(self.ess))
        except ModuleNotFoundError:
            return table

    def to_arviz(self, observed: Any = None) -> Any:
        """ArviZ's InferenceData with chains and draws as they are, so that its R-hat, ESS and pictures mean something."""
        from epf.results._tables import chains_to_arviz

        return chains_to_arviz(self, observed)

    def plot(self, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
        """Every chain's draws of each parameter one after the other, and the truth where it is known; matplotlib axes."""
        from epf.results._plots import plot_chains

        return plot_chains(self, truth, ax)

    @property
    def verdict(self) -> Any:
        """Whether to trust this result, in words: good, doubtful or do not trust, and why."""
        from epf.results._verdict import judge_chains

        return judge_chains(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the chains into a folder; `epf.load(path)` reads it, `epf.load(path, model)` can also go on from it.

        Anything reads `summary.csv`, `settings.json`, and `draws.npz`, which has the draws by name.
        """
        from epf.results._saving import save_chains

        save_chains(self, Path(path))

    def report(self, path: str | os.PathLike[str], y: Any = None, title: str | None = None) -> None:
        """There is none: pages are made of the history of a run."""
        self._refuse("has no page, which would show a history", "use result.to_arviz() and ArviZ's pictures")

    @property
    def _theta(self) -> np.ndarray:
        return np.moveaxis(np.asarray(self.record.theta[-self.kept :]), 1, 0)

    def _by_arviz(self, what: str) -> dict[str, Any]:
        from epf.results._tables import arviz

        found = getattr(arviz(), what)(self.to_arviz().posterior)
        return {name: found[name].values[()] for name in self.parameters.names}

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise SettingError(f"{self.settings['method']} {what}: {remedy}.")

    def _last_words(self) -> list[str]:
        chains = self._theta.shape[0]
        return [f"draws: {self.kept} of each of {chains} chains, split R-hat at most {self.split_rhat:.3f}"]
