"""Chains: the answer of a method that draws theta by Markov chains."""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from epf.errors import UnavailableError
from epf.model._model import StateSpaceModel, parameters
from epf.model._parameters import Parameters
from epf.offline._base import Draw, MarkovChains
from epf.posterior._posterior import ParticlePosterior
from epf.results._answer import Answer
from epf.results._tables import flat
from epf.results._verdict import Verdict, judge_chains

if TYPE_CHECKING:
    import arviz
    import pandas as pd
    import xarray as xr


class Chains(Answer[MarkovChains, Draw]):
    """Draws of the parameters given the whole series, by chain.

    `draws` has them by name, each of shape (chains, draws, *shape), without the warm-up.
    `record` has every iteration, including the warm-up. There is no history and no evidence: the posterior is that of the
    whole series only.

    Examples:
        >>> chains.draws["noise_variance"].shape, chains.num_draws, chains.warmup, chains.done
        ((2, 20), 20, 10, 30)
        >>> chains.acceptance.shape, list(chains.rhat), list(chains.ess), chains.largest_rhat > 0.0
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
        moments = self.bound.smoothed(self.state)
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
        """Rank-normalised split R-hat by name, as in ArviZ; above 1.01 the chains have not converged."""
        from numpyro.diagnostics import gelman_rubin

        halves = self._halves
        with np.errstate(all="ignore"):
            folded = np.abs(halves - np.median(halves, axis=(0, 1)))
            found = [gelman_rubin(_scores(one)) for one in (halves, folded)] if halves.shape[1] > 1 else [self._unknown]
        return self._by_name(np.fmax.reduce(found))

    @property
    def ess(self) -> dict[str, Any]:
        """Effective number of draws by name, from their ranks (as ArviZ's bulk)."""
        from numpyro.diagnostics import effective_sample_size

        halves = self._halves
        with np.errstate(all="ignore"):
            found = effective_sample_size(_scores(halves)) if halves.shape[1] > 1 else self._unknown
        count = halves.shape[0] * halves.shape[1]
        most = count * np.log10(max(count, 1))  # draws that alternate can claim any number, or a negative one
        return self._by_name(np.where(found < 0.0, most, np.minimum(found, most)))

    @property
    def largest_rhat(self) -> float:
        """The largest R-hat of all parameters and their elements, but for those that never moved, which have none."""
        return float(np.fmax.reduce(flat(self.rhat), initial=np.nan))

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
        """A table with one row per parameter: mean, sd, quantiles, R-hat and ESS."""
        return super().summary(quantile_levels).assign(r_hat=flat(self.rhat), ess=flat(self.ess))

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

    @property
    def _halves(self) -> np.ndarray:
        """The halves of each chain, without the middle draw if their number is odd."""
        theta = self._theta
        half = theta.shape[1] // 2
        return np.concatenate([theta[:, :half], theta[:, -half:]])

    def _by_name(self, values: np.ndarray) -> dict[str, Any]:
        return {name: value[()] for name, value in self.parameters.as_dict(values).items()}

    @property
    def _unknown(self) -> np.ndarray:
        return np.full(self.parameters.size, np.nan)

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise UnavailableError(f"{self.settings['method']} {what}: {remedy}.")

    def _last_line(self) -> str:
        chains = self._theta.shape[0]
        return f"draws: {self.num_draws} in each of {chains} chains, R-hat at most {self.largest_rhat:.3f}"


def _scores(draws: np.ndarray) -> np.ndarray:
    """Ranks among all draws of all chains as normal scores, for draws of shape (chains, draws, p)."""
    from scipy.stats import rankdata  # which takes most of a second, and filters have no use for it

    ranks = rankdata(draws.reshape(-1, draws.shape[-1]), axis=0)
    return ndtri((ranks - 0.375) / (len(ranks) + 0.25)).reshape(draws.shape)
