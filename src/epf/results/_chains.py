"""Chains: the answer of a method that draws theta by Markov chains."""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from epf.errors import UnavailableError
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.offline._base import Draw, MarkovChains
from epf.posterior._posterior import ParticlePosterior
from epf.results._answer import Answer
from epf.results._verdict import Verdict, judge_chains

if TYPE_CHECKING:
    import arviz
    import pandas as pd
    import xarray as xr


class Chains(Answer[MarkovChains, Draw]):
    """Draws of the parameters given the whole series, by chain.

    `draws` has them by name, each of shape (chains, draws, *shape), without the warm-up; `rhat` and `ess` are ArviZ's.
    `record` has every iteration, including the warm-up. There is no history and no evidence: the posterior is that of the
    whole series only.

    Examples:
        >>> chains.draws["noise_variance"].shape, chains.num_draws, chains.warmup, chains.done
        ((2, 20), 20, 10, 30)
        >>> chains.acceptance.shape, list(chains.rhat), list(chains.ess), chains.split_rhat > 0.0
        ((2,), ['level_variance', 'noise_variance'], ['level_variance', 'noise_variance'], True)
        >>> chains.verdict.word, chains.to_arviz().posterior["noise_variance"].shape, chains.plot().shape
        ('do not trust', (2, 20), (2,))
        >>> chains.smoothed_moments is None, hasattr(chains, "smoothed")  # epf.ParticleGibbs has both: it draws paths
        (True, False)
        >>> hasattr(chains, "history"), hasattr(chains, "log_evidence")  # a filter or SMC2 has them, and .report(...)
        (False, False)
        >>> chains.save("chains")
    """

    def __init__(
        self,
        model: StateSpaceModel | None,
        method: MarkovChains | None,
        seed: int,
        t: int,
        state: eqx.Module | None,
        record: Draw,
        seconds: float,
        settings: dict[str, str],
    ) -> None:
        super().__init__(model, method, seed, t, state, record, seconds, settings)
        self.settled = method
        """The method with everything that it chose from the data."""
        self.past: tuple[np.ndarray, np.ndarray | None] = (np.zeros(0), None)
        """The observations and inputs."""

    # What a saved answer has without its model can be set; the rest is computed.
    @cached_property
    def parameters(self) -> Parameters:
        """The unknown parameters: their names, labels and priors."""
        assert self.model is not None
        return parameters(self.model)

    @cached_property
    def warmup(self) -> int:
        """Number of iterations in which the chains adapted."""
        assert self.method is not None
        return self.method.warmup

    @cached_property
    def smoothed_moments(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Mean and sd of the state at every time, for chains that draw paths."""
        assert self.method is not None
        moments = self.method.smoothed(self.state)
        return None if moments is None else (np.asarray(moments[0]), np.asarray(moments[1]))

    @cached_property
    def posterior(self) -> ParticlePosterior:
        """All draws of all chains with equal weights, each with a state at the end of the series."""
        theta = self._theta
        count = theta.shape[0] * theta.shape[1]
        x = np.moveaxis(np.asarray(self.record.x[-self.num_draws :]), 1, 0)
        x = np.moveaxis(x.reshape(count, *x.shape[2:]), 0, -1)
        weights = jnp.full(count, 1.0 / count)
        return ParticlePosterior(self.parameters, jnp.asarray(theta.reshape(count, -1).T), weights, jnp.asarray(x))

    @property
    def done(self) -> int:
        """Number of iterations, including the warm-up."""
        return len(self.record.log_likelihood)

    @property
    def num_draws(self) -> int:
        """Number of draws per chain; if the run was interrupted in its warm-up, the second half of its iterations."""
        after = self.done - self.warmup
        return after if after >= 2 else (self.done + 1) // 2

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Draws by name, each of shape (chains, draws, *shape)."""
        return self.parameters.as_dict(self._theta)

    @property
    def acceptance(self) -> np.ndarray:
        """Acceptance rate of each chain after the warm-up."""
        return np.asarray(self.record.accepted[-self.num_draws :]).mean(axis=0)

    @property
    def rhat(self) -> dict[str, Any]:
        """Rank-normalised split R-hat by name (ArviZ); above 1.01 the chains have not converged."""
        return self._from_arviz("rhat")

    @property
    def ess(self) -> dict[str, Any]:
        """Effective number of draws by name (ArviZ, bulk)."""
        return self._from_arviz("ess")

    @cached_property
    def split_rhat(self) -> float:
        """The largest plain split R-hat of all parameters (Gelman et al. 2013, section 11.4); does not need ArviZ."""
        theta = self._theta.astype(float)
        half = theta.shape[1] // 2
        if half < 2:
            return float("nan")
        halves = np.concatenate([theta[:, :half], theta[:, -half:]])
        within = halves.var(axis=1, ddof=1).mean(axis=0)
        between = halves.mean(axis=1).var(axis=0, ddof=1)
        with np.errstate(all="ignore"):
            ratio = np.where(within > 0.0, (half - 1) / half + between / within, np.where(between > 0.0, np.inf, 1.0))
        return float(np.sqrt(ratio).max())

    @property
    def smoothed(self) -> "xr.Dataset":
        """A Dataset over time: mean and sd of the state given the whole series (ParticleGibbs only)."""
        from epf.results._tables import states_over_time

        if self.smoothed_moments is None:
            yet = " yet" if self.interrupted else ""
            self._refuse(f"has no paths of the state{yet}", "use epf.ParticleGibbs, which draws them")
        return states_over_time(*self.smoothed_moments)

    @property
    def history(self) -> NoReturn:
        """Not available: the posterior is that of the whole series, not of earlier times."""
        self._refuse("has no history over time", "use epf.SMC2 or a filter, or fit a part of the series")

    @property
    def log_evidence(self) -> NoReturn:
        """Not available."""
        self._refuse("estimates no evidence", "use epf.SMC2 or a filter")

    def summary(self, quantile_levels: Sequence[float] = (0.05, 0.5, 0.95)) -> "pd.DataFrame":
        """A table with one row per parameter: mean, sd, quantiles and, if ArviZ is installed, R-hat and ESS."""
        from epf.results._tables import flat

        table = super().summary(quantile_levels)
        try:
            return table.assign(r_hat=flat(self.rhat), ess=flat(self.ess))
        except ModuleNotFoundError:
            return table

    def to_arviz(self, observed: Any = None) -> "arviz.InferenceData":
        """ArviZ's InferenceData, with the chains as chains."""
        from epf.results._tables import chains_to_arviz

        return chains_to_arviz(self, observed)

    def plot(self, truth: dict[str, Any] | None = None, ax: Any = None) -> Any:
        """Trace plot of each parameter, one line per chain, and the truth if given; returns matplotlib axes."""
        from epf.results._plots import plot_chains

        return plot_chains(self, truth, ax)

    @property
    def verdict(self) -> Verdict:
        """Whether to trust this result: good, doubtful or do not trust, with the reasons."""
        return judge_chains(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the chains into a folder: `epf.load(path)` reads it, and `epf.load(path, model)` can also continue it.

        Other programs can read `summary.csv`, `settings.json`, and `draws.npz`, which has the draws by name.
        """
        from epf.results._saving import save_chains

        save_chains(self, path)

    def report(self, path: str | os.PathLike[str], y: Any = None, title: str | None = None) -> NoReturn:
        """Not available: the page shows a history."""
        self._refuse("has no report, which would show a history", "use result.to_arviz() and ArviZ's plots")

    @property
    def _theta(self) -> np.ndarray:
        return np.moveaxis(np.asarray(self.record.theta[-self.num_draws :]), 1, 0)

    def _from_arviz(self, statistic: str) -> dict[str, Any]:
        from epf.results._tables import arviz

        found = getattr(arviz(), statistic)(self.to_arviz()["posterior"])
        return {name: found[name].values[()] for name in self.parameters.names}

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise UnavailableError(f"{self.settings['method']} {what}: {remedy}.")

    def _last_line(self) -> str:
        chains = self._theta.shape[0]
        return f"draws: {self.num_draws} in each of {chains} chains, split R-hat at most {self.split_rhat:.3f}"
