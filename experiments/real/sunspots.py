"""Sunspots: square roots of the yearly numbers as a cycle with two regimes, a smooth transition autoregression (STAR).

The independent answer is NumPyro's NUTS, over the parameters and all hidden values at once, in double precision:

        python -m experiments.real.sunspots  # writes experiments/real/sunspots_nuts.json
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS, init_to_value

import epf

MIDDLE, UNIT = 6.3, 3.0  # of the square roots, so that the series has about mean 0 and sd 1
REFERENCE = Path(__file__).with_name("sunspots_nuts.json")


def model():
    """Cycles of `a` where the year before last was quiet, of `b` where it was far above the threshold `c`."""
    each = dist.Normal(np.array([1.4, -0.7]), 0.3).to_event(1)  # either regime is some cycle of about eleven years
    return epf.zoo.STAR(
        a=each,
        b=each,
        gamma=dist.Gamma(2.0, 0.5),  # how sharp the threshold is
        c=dist.Normal(0.0, 1.0),
        sigma=dist.HalfNormal(1.0),
        sigma_obs=0.1,
        lags=2,
        delay=2,
    )


def data():
    return ((np.sqrt(epf.datasets.sunspots()) - MIDDLE) / UNIT).rename("sunspots")


def filtered(result):
    """What the filter made of the series after each year; the noise of counting is small."""
    history = result.history
    return [("sunspots", history["state_mean"].to_numpy()[:, 0], history["state_sd"].to_numpy()[:, 0])]


def answer():
    exact = json.loads(REFERENCE.read_text())
    return dict(zip(exact["labels"], zip(exact["mean"], exact["sd"], strict=True), strict=True))


def program(y: np.ndarray) -> None:
    """The same model for NumPyro: the priors, two values before the first year, one for each year, and the observations."""
    p = {name: numpyro.sample(name, law) for name, law in model().prior().items()}
    x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real_vector, (), (len(y) + 2,)))
    numpyro.factor("before", dist.Normal(0.0, 1.0).log_prob(x[:2]).sum())
    lags = jnp.stack([x[1:-1], x[:-2]], axis=-1)
    upper = jax.nn.sigmoid(p["gamma"] * (lags[:, 1] - p["c"]))
    mean = (lags @ p["a"]) * (1.0 - upper) + (lags @ p["b"]) * upper
    numpyro.factor("moves", dist.Normal(mean, p["sigma"]).log_prob(x[2:]).sum())
    numpyro.sample("y", dist.Normal(x[2:], 0.1), obs=jnp.asarray(y))


def sampled(y: np.ndarray, warmup: int = 1000, draws: int = 5000, chains: int = 4) -> dict[str, list]:
    """Means and sds of the posterior, from Markov chains, with the errors of the means and Gelman and Rubin's R."""
    numpyro.enable_x64()
    start = init_to_value(values={"x": jnp.concatenate([jnp.zeros(2), jnp.asarray(y)])})
    kernel = NUTS(program, init_strategy=start, target_accept_prob=0.9)
    chain = MCMC(
        kernel, num_warmup=warmup, num_samples=draws, num_chains=chains, chain_method="sequential", progress_bar=False
    )
    chain.run(jax.random.key(1), y)
    found = {name: value for name, value in chain.get_samples(group_by_chain=True).items() if name != "x"}
    rows = {}
    for name, each in summary(found).items():
        for i in np.ndindex(np.shape(each["mean"])):
            label = f"{name}[{i[0]}]" if i else name
            mean, sd, size, r = (float(np.asarray(each[key])[i]) for key in ("mean", "std", "n_eff", "r_hat"))
            rows[label] = mean, sd, sd / size**0.5, r
    columns = [list(column) for column in zip(*rows.values(), strict=True)]
    return {"labels": list(rows), **dict(zip(("mean", "sd", "error", "r_hat"), columns, strict=True))}


if __name__ == "__main__":
    REFERENCE.write_text(json.dumps(sampled(data().to_numpy()), indent=1) + "\n")
