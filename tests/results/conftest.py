"""One result for all tests of this folder: compiling its questions takes longer than asking them."""

import pytest

import epf

LEVEL = epf.zoo.LocalLevel()


@pytest.fixture(scope="session")
def result():
    _, y = epf.simulate(LEVEL, {"level_variance": 0.5, "noise_variance": 0.3}, steps=40, seed=3)
    return epf.fit(LEVEL, y[:30], epf.SIR(200), seed=2)
