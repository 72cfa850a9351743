"""A stream behind river's interface gives the stream's own answers, and passes through river's evaluation."""

import numpy as np
import pytest

import epf

river = pytest.importorskip("river")
evaluate, metrics = pytest.importorskip("river.evaluate"), pytest.importorskip("river.metrics")

MODEL = epf.fix(epf.zoo.LocalLevel(), {"level_variance": 1469.0, "noise_variance": 15099.0})
NILE = epf.datasets.nile().to_numpy()[:12] - 1000.0


def test_it_learns_and_predicts_as_the_stream_does():
    regressor, stream = epf.to_river(MODEL, epf.Kalman()), epf.Stream(MODEL, epf.Kalman())
    for value in NILE:
        regressor.learn_one({"year": 1871}, value)
        stream.update(value)
    ahead = stream.forecast(1)
    assert regressor.predict_one({}) == pytest.approx(float(ahead.mean[0]))
    assert regressor.predict_interval({}, 0.5) == pytest.approx(tuple(float(end[0]) for end in ahead.interval(0.5)))


def test_river_evaluates_it():
    regressor = epf.to_river(MODEL, epf.Kalman())
    found = evaluate.progressive_val_score([({}, value) for value in NILE], regressor, metrics.MAE())
    assert 0.0 < found.get() < 400.0  # the series has an sd of 169
    assert regressor.stream.num_observations == len(NILE)
    assert type(regressor.clone().stream) is epf.Stream
    assert np.isfinite(regressor.predict_one({}))
