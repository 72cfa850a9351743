"""`epf panel`: a file of many series in; a table, a page and JSON out, and exit codes for scripts."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

import epf
from epf.cli.app import app

SIR = ["--method", "sir", "--particles", "20"]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "panel.csv"
    series = {
        name: epf.simulate(epf.zoo.Sin(), {"theta": 0.7}, steps=n, seed=n)[1] for name, n in (("01", 9), ("2", 5))
    }
    rows = [{"shop": name, "day": t, "sold": float(y)} for name, ys in series.items() for t, y in enumerate(ys)]
    pd.DataFrame(rows).to_csv(path, index=False)
    return path, series


def test_a_file_of_series_becomes_a_table_and_a_page(data, tmp_path):
    path, series = data
    columns = ["--by", "shop", "--time", "day", "--columns", "sold"]
    wanted = ["--out", tmp_path / "all.csv", "--report", tmp_path / "page.html"]
    said = run("panel", "sin", path, *columns, *SIR, *wanted).output
    assert "2 series" in said
    table = pd.read_csv(tmp_path / "all.csv", dtype={"series": str}).set_index(["series", "parameter"])
    panel = epf.fit_panel(epf.zoo.Sin(), series, epf.SIR(20))
    for key in series:
        assert table.loc[(key, "theta"), "mean"] == pytest.approx(panel.table().loc[(key, "theta"), "mean"])
    assert "<svg" in (tmp_path / "page.html").read_text()
    found = json.loads(run("panel", "sin", path, *columns, *SIR, "--json").stdout)
    assert found["series"]["01"]["observations"] == 9
    assert np.isclose(found["series"]["2"]["parameters"]["theta"]["mean"], table.loc[("2", "theta"), "mean"])


def test_mistakes_have_codes(data, tmp_path):
    path, _ = data
    assert "no such column" in run("panel", "sin", path, "--by", "store", *SIR, code=2).stderr
    assert "cannot be read" in run("panel", "sin", tmp_path / "no.csv", "--by", "shop", *SIR, code=3).stderr
    assert "whole series" in run("panel", "sin", path, "--by", "shop", "--method", "pmmh", code=2).stderr
