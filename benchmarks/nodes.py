"""A step of the particle filters at the marginal filter's nodes: ns per particle, and seconds of the first call.

python -m benchmarks nodes
"""

from functools import partial

import jax
import jax.numpy as jnp
from proving.models.hidden import Counts, HeavyTails, Volatility

from benchmarks.timing import seconds
from epf.filters._bank import Filters
from epf.model._model import parameters
from epf.numerics._keys import root_key
from epf.smc.proposals._automatic import Automatic, resolve_proposal
from epf.smc.proposals._base import Bootstrap
from epf.smc.resampling import Systematic

NODES, PARTICLES, STREAMS, REPEATS = 96, 200, 4, 100
CASES = ((Volatility(), 0.7), (Counts(), 3.0), (HeavyTails(), 0.4))


def main() -> None:
    for model, y in CASES:
        params, key = parameters(model), root_key(1)
        draws = jax.vmap(params.sample)(jax.random.split(jax.random.key(0), NODES))
        thetas = jnp.broadcast_to(jnp.median(draws, axis=0), (STREAMS * NODES, params.size))
        for proposal in (resolve_proposal(Automatic(even=True), model, None), Bootstrap()):
            filters = Filters(PARTICLES, proposal, Systematic(1.0), streams=STREAMS)
            bank, row = filters.start(key, model, thetas), jnp.asarray(y)
            step = jax.jit(lambda key, bank, y, f=filters, m=model, t=thetas: f.step(key, m, t, bank, y, None))
            first, best = seconds(partial(step, key, bank, row), REPEATS)
            each = 1e9 * best / (NODES * PARTICLES * STREAMS)
            names = f"{type(model).__name__}, {type(proposal).__name__}"
            print(f"{names:24s} {each:4.0f} ns per particle and step, first call {first:.1f} s", flush=True)


if __name__ == "__main__":
    main()
