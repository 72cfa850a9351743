"""Whole series as a posterior expects them, beside the one that was seen: posterior predictive checks.

    theta ~ p(theta | y),   x_0 ~ initial(theta),   x_t ~ transition,   y_t ~ observation

If the model is right, the series that was seen looks like one of these in every respect that one cares for. A statistic that
is larger in nearly all or in hardly any of them tells what the model lacks (Gelman, Meng and Stern, "Posterior predictive
assessment of model fitness via realized discrepancies", Statistica Sinica 6, 1996).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from epf.errors import DataError, SettingError, reason
from epf.model._series import check_series
from epf.model._settings import check_seed, require_count, require_memory
from epf.model._simulate import simulate_many
from epf.numerics._keys import root_key
from epf.results._panels import BLUE, ORANGE


class Replicates(NamedTuple):
    """Series (draws, T, *observation) from the posterior, with the gaps of the series `seen` (T, *observation).

    Examples:
        >>> found = result.replicates(y, num_samples=50)
        >>> found.y.shape, 0.0 <= found.share(np.nanstd) <= 1.0
        ((50, 20), True)
        >>> found.statistics(np.nanmax)[0].shape
        (50,)
        >>> found.plot(np.nanmax).get_xlabel()
        'nanmax'
    """

    y: np.ndarray
    seen: np.ndarray

    def statistics(self, statistic: Callable[[np.ndarray], Any]) -> tuple[np.ndarray, float]:
        """The statistic, a function of one series to a number, of each replicate and of the series that was seen."""
        try:
            found = np.array([float(statistic(one)) for one in (*self.y, self.seen)])
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"The statistic failed ({reason(error)}): give a function of one series to a number."
            ) from error
        if not np.isfinite(found[-1]):
            raise DataError(
                f"The statistic of your series is {found[-1]}: missing values are NaN, so use functions such as np.nanmax."
            )
        if undefined := int(np.sum(np.isnan(found))):
            raise DataError(
                f"The statistic of {undefined} of {len(self.y)} replicates is NaN: the model diverges for some of the "
                "posterior's thetas, or the statistic does not allow for their values."
            )
        return found[:-1], float(found[-1])

    def share(self, statistic: Callable[[np.ndarray], Any]) -> float:
        """The share of replicates whose statistic is above that of the series, ties by half.

        Near 0 or 1 the model does not know of what the statistic measures.
        """
        found, seen = self.statistics(statistic)
        return float(np.mean(found > seen) + 0.5 * np.mean(found == seen))

    def plot(self, statistic: Callable[[np.ndarray], Any], ax: Any = None) -> Any:
        """The histogram of the statistic over the replicates, with a line at that of the series; a matplotlib axis."""
        import matplotlib.pyplot as plt

        found, seen = self.statistics(statistic)
        axis = plt.subplots(figsize=(5, 3), layout="constrained")[1] if ax is None else ax
        axis.hist(found[np.isfinite(found)], bins=30, color=BLUE, alpha=0.5, label="replicates")
        axis.axvline(seen, color=ORANGE, label="observed")
        axis.set_xlabel(getattr(statistic, "__name__", "statistic"))
        axis.set_ylabel("replicates")
        axis.set_title(f"{self.share(statistic):.1%} are above", fontsize="small", loc="left")
        axis.legend(frameon=False, fontsize="small")
        return axis

    def __repr__(self) -> str:
        return f"Replicates({len(self.y)} series of {len(self.seen)} observations)"


def replicates(answer: Any, y: Any, inputs: Any, num_samples: int, seed: int) -> Replicates:
    """Series like `y` from the posterior of an answer."""
    model = answer.model
    if model is None:
        raise SettingError("replicates() needs the model: load the result with it, as in epf.load(path, model).")
    count = require_count("replicates", "num_samples", num_samples)
    ys, us, _ = check_series(model, y, inputs)
    require_memory(f"replicates(num_samples={num_samples})", 2 * count * ys.size, "ask for less")
    k_theta, k_series = jax.random.split(root_key(check_seed(seed)))
    thetas = answer.posterior.draws(k_theta, count)
    found = np.array(simulate_many(model, thetas, k_series, jnp.arange(1, len(ys) + 1), us))
    return Replicates(np.where(np.isnan(ys), np.nan, found), np.asarray(ys, float))
