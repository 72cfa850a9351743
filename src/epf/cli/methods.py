"""The method and its settings, as options of every command that runs one."""

from typing import Any

from epf.errors import SettingError
from epf.statistics._approximation import Chebyshev
from epf.storage._methods import METHODS, make

NAMES = tuple(METHODS)


def make_method(name: str | None, particles: int | None, order: int | None) -> Any:
    """The method of this name; `epf` where none is given."""
    name = (name or "epf").lower().replace("_", "-")
    settings: dict[str, Any] = {}
    if order is not None:
        if name not in ("epf", "marginal"):
            raise SettingError(f"--order belongs to --method epf or marginal, and the method is {name}: leave it out.")
        settings = {"approximation": Chebyshev(order=order)} if name == "epf" else {"nodes": order + 1}
    return make(name, particles, **settings)


def make_methods(text: str, particles: int | None) -> dict[str, Any]:
    """Several of them: `sir:5000,epf,pmmh`, each by its own number of particles or by the one for all that have any."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, colon, count = (piece.strip() for piece in part.partition(":"))
        if colon and not count.isdigit():
            raise SettingError(
                f"--methods {part.strip()}: after the colon comes the number of particles, as in sir:5000."
            )
        if not name:
            raise SettingError(f"--methods {text}: give names with commas between them, such as sir,liu-west,epf.")
        everyones = particles if METHODS.get(name.lower()) is None or METHODS[name.lower()].particles else None
        found[part.strip()] = make_method(name, int(count) if colon else everyones, None)
    return found
