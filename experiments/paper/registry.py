"""The experiments by name, in the order of the paper. Each is imported when first needed."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from experiments.paper.experiment import Experiment

from epf.errors import SettingError

NAMES = (
    "fig2",
    "fig3",
    "fig4a",
    "fig4b",
    "fig5",
    "fig6",
    "fig7",
    "complexity",
    "storvik",
    "theorem2",
    "theorem3",
    "theorem4",
)


def find(name: str, quick: bool = False) -> Experiment:
    """The experiment of this name, or its quick version."""
    found: Experiment = import_module(f"experiments.paper.{name}").EXPERIMENT
    return replace(found, settings={**found.settings, **found.quick}) if quick else found


def choose(wanted: Sequence[str]) -> list[str]:
    """The requested names in order (`fig4` stands for both parts), or all if none is requested."""
    chosen: list[str] = []
    for name in wanted or NAMES:
        found = [known for known in NAMES if name in (known, known[:-1])]
        if not found:
            raise SettingError(f"There is no experiment {name!r}: choose from {', '.join(NAMES)}.")
        chosen += [known for known in found if known not in chosen]
    return chosen
