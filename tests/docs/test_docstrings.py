"""Every public name has a docstring with an example, and the examples run.

A name is public if it can be reached from `epf`, or is a method of something that `epf` returns. An example of a class
counts for each of its methods that it uses.
"""

import doctest
import functools
import importlib.util
import inspect
import re
import warnings
from pathlib import Path

import pytest

import epf
from epf.results._answer import Answer
from epf.results._certificate import Certificate
from epf.results._forecast import Forecast
from epf.results._replicates import Replicates
from epf.results._residuals import Residuals
from epf.results._verdict import Verdict
from epf.run._smooth import Smoothed
from epf.run.watch._watch import Watch

pytest.importorskip("matplotlib").use("Agg")

RETURNED = (Answer, Forecast, Replicates, Residuals, Certificate, Verdict, Smoothed, Watch)
NEEDS = {
    "epf.from_statsmodels": "statsmodels",
    "epf.to_river": "river",
    "epf.consume": "nats",
    "epf.Result": "plotly",
    "epf.Chains": "arviz",
}
# Users only choose these. Their methods are for those who extend the library (docs/extending.md has working skeletons).
CHOSEN = ("epf.filters.", "epf.offline.", "epf.statistics.", "epf.smc.", "epf.posterior.samplers.", "epf.model.")
# For other rooms of the library.
INSIDE = {
    "Answer": {"keep_dates"},
    "Result": {"bound", "method_facts", "keep_dates"},
    "Chains": {"keep_dates"},
    "Watch": {"push", "saved", "track"},
}


def _public():
    found = {f"epf.{name}": getattr(epf, name) for name in epf._LATE}
    for space in (*epf._NAMESPACES, "errors"):
        module = getattr(epf, space)
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        values = {f"epf.{space}.{name}": getattr(module, name) for name in names}
        found |= {name: value for name, value in values.items() if getattr(value, "__module__", "").startswith("epf")}
    return found | {f"{value.__module__}.{value.__name__}": value for value in RETURNED}


PUBLIC = _public()


def _members(owner):
    """The public methods and properties of a class that the library has written."""
    for name in dir(owner):
        if name.startswith("_") or name in INSIDE.get(owner.__name__, ()):
            continue
        member = inspect.getattr_static(owner, name, None)
        function = getattr(member, "fget", None) or getattr(member, "func", None) or inspect.unwrap(member)
        function = getattr(function, "__func__", function)
        if inspect.isfunction(function) and function.__module__.startswith("epf."):
            yield name, member


def _code(value):
    return "".join(example.source for example in doctest.DocTestParser().get_examples(inspect.getdoc(value) or ""))


@pytest.mark.parametrize("name", PUBLIC)
def test_there_is_a_docstring_with_an_example(name):
    value = PUBLIC[name]
    own = value.__doc__ if not inspect.isclass(value) else value.__dict__.get("__doc__")  # none is inherited
    assert own, name
    assert not re.match(rf"{getattr(value, '__name__', '')}\(.*\)$", own), name  # what NamedTuple writes by itself
    assert _code(value), name
    if not inspect.isclass(value):
        return
    shown = "".join(_code(owner) for owner in value.__mro__ if owner.__module__.startswith("epf."))
    for method, member in _members(value):
        assert inspect.getdoc(
            getattr(value, method) if not isinstance(member, property | functools.cached_property) else member
        ), method
        if not value.__module__.startswith(CHOSEN):
            assert re.search(rf"[.\"]{method}\b", shown + _code(member)), f"{name}.{method} is in no example"


@pytest.fixture(scope="module")
def shared():
    """The lines that the examples share, as the page prints them."""
    page = Path(__file__).parents[2] / "docs" / "api.md"
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", epf.errors.EPFWarning)
        exec(re.search(r"```python\n(.*?)```", page.read_text(), re.S)[1], found)
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_its_example_runs(name, shared, tmp_path, monkeypatch):
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    monkeypatch.chdir(tmp_path)
    value = PUBLIC[name]
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(value), dict(shared), name, inspect.getfile(value), None
    )
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", epf.errors.EPFWarning)  # a handful of particles, on purpose
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        failed = runner.run(example, out=said.append, clear_globs=False).failed
    import matplotlib.pyplot as plt

    plt.close("all")
    assert not failed, "".join(said)
