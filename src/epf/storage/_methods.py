"""The methods of the library by the names that commands and files use; each is imported on first use."""

from importlib import import_module
from typing import Any, NamedTuple

from epf.errors import SettingError


class Entry(NamedTuple):
    """Module and class of a method, and the settings that its name implies."""

    module: str
    title: str
    settings: tuple[tuple[str, Any], ...] = ()
    particles: bool = True
    """Whether the number of particles is a setting."""
    in_files: bool = True
    """Whether the method can be made again from the settings in a file."""


METHODS = {
    "epf": Entry("epf.filters._epf", "EPF"),
    "marginal": Entry("epf.filters.marginal._marginal", "MarginalEPF"),
    "storvik": Entry("epf.filters._storvik", "Storvik"),
    "sir": Entry("epf.filters._sir", "SIR"),
    "liu-west": Entry("epf.filters._liu_west", "LiuWest"),
    "kalman": Entry("epf.filters._kalman", "Kalman", particles=False),
    "extended-kalman": Entry("epf.filters._kalman", "Kalman", (("extended", True),), particles=False),
    "unscented": Entry("epf.filters._kalman", "Kalman", (("unscented", True),), particles=False),
    "resample-move": Entry("epf.filters._resample_move", "ResampleMove"),
    "particle-learning": Entry("epf.filters._particle_learning", "ParticleLearning"),
    "practical": Entry("epf.filters._practical_filter", "PracticalFilter"),
    "online-em": Entry("epf.filters.online_em._online_em", "OnlineEM"),
    "nested": Entry("epf.filters._nested", "NestedFilter"),
    "assumed-parameter": Entry("epf.filters._assumed_parameter", "AssumedParameterFilter"),
    "multiple-model": Entry("epf.filters._multiple_model", "MultipleModel", particles=False),
    "pmmh": Entry("epf.offline._pmmh", "PMMH"),
    "particle-gibbs": Entry("epf.offline._particle_gibbs", "ParticleGibbs"),
    "smc2": Entry("epf.offline._smc2", "SMC2"),
    "point-mass": Entry("epf.offline._point_mass", "PointMass", particles=False, in_files=False),
}


def entry(name: str) -> Entry:
    """The method of this name; hyphens, underscores and case are ignored."""
    plain = {key.replace("-", ""): found for key, found in METHODS.items()}
    key = name.lower().replace("-", "").replace("_", "")
    if key not in plain:
        raise SettingError(f"There is no method {name!r}: choose one of {', '.join(METHODS)}.")
    return plain[key]


def make(name: str, particles: int | None = None, **settings: Any) -> Any:
    """A method by name, with the given number of particles."""
    found = entry(name)
    if particles is not None:
        if not found.particles:
            raise SettingError(f"{name} has no particles: leave out their number.")
        settings = {"particles": particles, **settings}
    return load(found)(**dict(found.settings), **settings)


def load(found: Entry) -> type:
    """The class of a method."""
    return getattr(import_module(found.module), found.title)


# What the default finds, and nobody can ask for by name.
_FOUND = tuple(Entry("epf.filters._modes", title) for title in ("Modes", "Elsewhere", "Anew"))


def rebuildable() -> dict[str, type]:
    """The classes that a file may name, by their own names."""
    return {found.title: load(found) for found in (*METHODS.values(), *_FOUND) if found.in_files}
