"""The posterior of a case as a function of unbounded coordinates, for many values at once, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import ExpTransform

from proving._case import Case, How


class Target:
    """log p(theta) + log p(y | theta) + log |d theta / d free|, vectorised and compiled."""

    def __init__(self, case: Case, k: int):
        if not jax.config.read("jax_enable_x64"):
            raise RuntimeError("References need double precision: set jax_enable_x64 first.")
        y, u = case.data(k)
        self.case, self.y, self.u = case, jnp.asarray(y, float), None if u is None else jnp.asarray(u, float)
        self.maps = {name: biject_to(prior.support) for name, prior in case.prior.items()}
        self.shapes = {name: self.maps[name].inverse_shape(prior.event_shape) for name, prior in case.prior.items()}
        self.size = sum(int(np.prod(shape)) for shape in self.shapes.values())
        self.batch = case.batch * (256 if jax.default_backend() == "gpu" else 1)
        self.calls = 0
        self._compiled = {grid: jax.jit(self._many(grid)) for grid in (0.5, 1.0, 2.0)}
        self.flat = jax.jit(jax.vmap(lambda free: self._flat(self._named(free))))

    @property
    def positive(self) -> list[int]:
        """The coordinates that are logarithms of parameters."""
        found, start = [], 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            found += range(start, start + size) if isinstance(self.maps[name], ExpTransform) else []
            start += size
        return found

    def __call__(self, free: np.ndarray, grid: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Log prior density and log-likelihood at each row of `free`; -inf where either is undefined."""
        rows = jnp.asarray(free, float)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(20240501), self.calls), len(rows))
        self.calls += 1
        prior, told = (np.array(part) for part in self._compiled[grid](rows, keys))
        bad = ~(np.isfinite(prior) & np.isfinite(told))
        prior[bad], told[bad] = -np.inf, -np.inf
        return prior, told

    def sample_prior(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draws from the prior in unbounded coordinates."""
        keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(self.maps))
        parts = []
        for key, (name, prior) in zip(keys, self.case.prior.items(), strict=True):
            free = jax.vmap(self.maps[name].inv)(prior.sample(key, (count,)))
            parts.append(np.asarray(free, float).reshape(count, -1))
        return np.concatenate(parts, axis=1)

    def _named(self, free):
        named, start = {}, 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            named[name] = self.maps[name](free[start : start + size].reshape(shape))
            start += size
        return named

    def _flat(self, named):
        return jnp.concatenate([jnp.ravel(value) for value in named.values()])

    def _log_prior(self, free):
        total, start = jnp.zeros(()), 0
        for name, shape in self.shapes.items():
            part = free[start : start + int(np.prod(shape))].reshape(shape)
            start += part.size
            value = self.maps[name](part)
            total += jnp.sum(self.case.prior[name].log_prob(value))
            total += jnp.sum(self.maps[name].log_abs_det_jacobian(part, value))
        return total

    def _many(self, grid):
        def one(row):
            free, key = row
            return self._log_prior(free), self.case.log_likelihood(self._named(free), self.y, self.u, How(grid, key))

        return lambda free, keys: jax.lax.map(one, (free, keys), batch_size=min(self.batch, free.shape[0]))
