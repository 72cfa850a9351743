"""Methods from the options of a command."""

from typing import Any

from epf.errors import SettingError
from epf.statistics._approximation import Chebyshev
from epf.storage._methods import METHODS, make


def make_method(name: str | None, particles: int | None, order: int | None) -> Any:
    """The method of this name; None if nothing was asked for, so that the library chooses."""
    if name is None and particles is None and order is None:
        return None
    name = (name or "epf").lower().replace("_", "-")
    settings: dict[str, Any] = {}
    if order is not None:
        if name != "epf":
            raise SettingError(f"--order is a setting of --method epf, not of {name}: leave it out.")
        settings = {"approximation": Chebyshev(order=order)}
    return make(name, particles, **settings)


def make_methods(text: str, particles: int | None) -> dict[str, Any]:
    """Several methods, as in `sir:5000,epf,pmmh`; `particles` is for those without a number of their own."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, colon, count = (piece.strip() for piece in part.partition(":"))
        if colon and not count.isdigit():
            raise SettingError(
                f"--methods {part.strip()}: give the number of particles after the colon, as in sir:5000."
            )
        if not name:
            raise SettingError(f"--methods {text}: give a comma-separated list of names, such as sir,liu-west,epf.")
        common = particles if METHODS.get(name.lower()) is None or METHODS[name.lower()].particles else None
        found[part.strip()] = make_method(name, int(count) if colon else common, None)
    return found
