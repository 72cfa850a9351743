"""The real series say where they are from, and are what their sources say."""

import pytest

import epf

SERIES = {
    "nile": (100, 919.35),
    "influenza": (14, 1559 / 14),
    "lynx_hare": (21, 27.124),
    "sunspots": (288, 48.43),
    "sterling": (399, 2.257),
}


@pytest.mark.parametrize("name", SERIES)
def test_a_series_has_its_length_mean_and_provenance(name):
    series = getattr(epf.datasets, name)()
    count, mean = SERIES[name]
    assert len(series) == count
    assert float(series.mean().mean()) == pytest.approx(mean, rel=5e-3)
    assert set(series.attrs) == {"what", "source", "licence"}
    assert all(series.attrs.values())


def test_years_and_days_are_dates():
    assert str(epf.datasets.nile().index[-1].date()) == "1970-01-01"
    assert epf.datasets.influenza().index.freqstr == "D"
