"""Every method at a size that is as small as it can be: the one list for all tests of what every method must do.

The same settings, `AR` or `VectorAR` and the same number of steps everywhere: what one file compiles, others find in the
compilation cache. Islands are those of the filter they are made of, one after the other: Storvik stands for all filters that
have them, and the others have one.
"""

import jax
import numpy as np
import pytest

import epf
from models import AR, SwitchedAR, VectorAR

STEPS = 12
FILTERS = {
    "SIR": epf.SIR(20, islands=1),
    "LiuWest": epf.LiuWest(20, islands=1),
    "LiuWest-discount": epf.LiuWest(20, discount=0.98, islands=1),
    "Storvik": epf.Storvik(40, islands=2),
    "Kalman": epf.Kalman(extended=True),
    "Kalman-unscented": epf.Kalman(unscented=True),
    "EPF": epf.EPF(20, approximation=epf.Chebyshev(order=3), islands=1),
    "MarginalEPF": epf.MarginalEPF(20, 16, exact=False),
    "MarginalEPF-exact": epf.MarginalEPF(20, 16),
    "MarginalEPF-fixed": epf.MarginalEPF(20, 16, regrid=False, exact=False),
    "MultipleModel": epf.MultipleModel(epf.MarginalEPF(20, 16)),
    "ResampleMove": epf.ResampleMove(20, capacity=20, islands=1),
    "ParticleLearning": epf.ParticleLearning(20, islands=1),
    "PracticalFilter": epf.PracticalFilter(50, lag=4, sweeps=2, islands=1),
    "OnlineEM": epf.OnlineEM(20, burn_in=3),
    "NestedFilter": epf.NestedFilter(20, inner=10, islands=1),
    "AssumedParameterFilter": epf.AssumedParameterFilter(20, islands=1),
}

REST = tuple(name for name in FILTERS if name not in ("SIR", "Storvik", "Kalman", "EPF", "MarginalEPF"))
"""Filters whose compiled tests run with `make test-slow`: they share their parts with the others."""


def each_filter(*slow):
    """Parametrizes a test by `name`, a key of `FILTERS`; those named in `slow` run with `make test-slow`."""
    marks = {name: [pytest.mark.slow] if name in slow else [] for name in FILTERS}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks[name]) for name in FILTERS])


def scalar_model(name):
    """`AR`; its variance is known to the filters that take longest to compile (they meet three parameters in `VectorAR`)."""
    if name == "MultipleModel":
        return SwitchedAR()
    return epf.fix(AR(), {"v": 0.5}) if "EPF" in name else AR()


def scalar_case(name, steps=STEPS, seed=1):
    """A model for one of `FILTERS`, and a series of it with a missing value."""
    _, y = epf.simulate(AR(), {"a": 0.8, "v": 0.5}, steps=steps, seed=seed)
    y[5] = np.nan
    return scalar_model(name), y


def vector_case(steps=STEPS, seed=1):
    """`VectorAR`, a series of it with a missing row and a missing component, and its inputs."""
    inputs = np.sin(np.arange(steps, dtype=np.float32))[:, None]
    _, y = epf.simulate(VectorAR(), {"a": [0.9, 0.5], "gain": 0.7}, steps=steps, seed=seed, inputs=inputs)
    y[5], y[3, 1] = np.nan, np.nan
    return VectorAR(), y, inputs


def assert_same(one, other):
    """Equal to the last bit, NaN included."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def interrupted(stream, rows, path, model, inputs=None):
    """A stream that is saved and loaded at every fifth row gives the same bits as one that is not."""
    whole = epf.Stream(model, stream.method, seed=stream.seed, quantile_levels=stream.quantile_levels)
    for i, row in enumerate(rows):
        u = None if inputs is None else inputs[i]
        whole.update(row, u)
        if i % 5 == 2:
            stream.save(path)
            stream = epf.Stream.load(path, model)
            assert (stream.num_observations, stream.position) == (i, i)
        stream.update(row, u)
    assert_same((stream.posterior, stream.latest), (whole.posterior, whole.latest))
    assert (stream.log_evidence, stream._nats.error) == (whole.log_evidence, whole._nats.error)
