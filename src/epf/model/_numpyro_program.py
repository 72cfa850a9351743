"""Running a program of NumPyro with values of ours at its sites, and one step of its loop."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from epf.errors import ModelError


class _Done(Exception):
    """The program has run as far as its laws need."""


class Step(NamedTuple):
    """What one step of the loop has: the law of its latent site, that of its observed one, its value and the new carry."""

    latent: Distribution | None
    observed: Distribution
    y: Any
    carry: Any


class Reader(Messenger):
    """Runs a program with these values at its sites, and one step of its loop from a carry, a draw and a row of ours.

    It is the outermost handler: those of the program itself (masks, plates, scales) have done their part before.
    """

    def __init__(self, values: Mapping[str, Any], carry: Any = None, drawn: Any = None, row: Any = None, whole=False):
        super().__init__()
        self.values, self.given, self.whole = values, (carry, drawn, row), whole
        self.sites: dict[str, dict[str, Any]] = {}
        self.step: Step | None = None
        self.init: Any = None
        self.xs: Any = None
        self._inside: list[dict[str, Any]] | None = None
        self._names: set[str] = set()

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            self._loop(*msg["args"])
        elif msg["type"] in ("param", "mutable", "prng_key"):
            refuse(f"{msg['name']!r} is a numpyro.{msg['type']} site, which has no posterior: make it a sample site")
        elif msg["type"] == "sample" and self._inside is not None:
            self._inside.append(_plain(msg))
            if msg["value"] is None:
                drawn = self.given[1]
                msg["value"] = jnp.zeros(msg["fn"].shape()) if drawn is None else drawn
        elif msg["type"] == "sample" and msg["name"] not in self._names:
            if msg["is_observed"]:
                refuse(f"{msg['name']!r} is observed outside of the scan: only the step may have an observed site")
            if msg["name"] in self.values:
                msg["value"] = self.values[msg["name"]]
            self.sites[msg["name"]] = msg

    @property
    def of_step(self) -> Step:
        if self.step is None:
            refuse("it has no numpyro.contrib.control_flow.scan: write the loop over time as one")
        return self.step

    def _loop(self, f: Callable, init: Any, xs: Any, length: Any = None, reverse: bool = False) -> None:
        if self.step is not None or self._inside is not None:
            refuse("it has more than one scan or cond: write one scan, with jnp.where for conditions")
        if reverse:
            refuse("its scan runs in reverse")
        self.init, self.xs, self._inside = init, xs, []
        carry, _, row = self.given
        row = jax.tree.map(lambda leaf: leaf[0], xs) if row is None else row
        after, _ = f(init if carry is None else carry, row)
        sites, self._inside = self._inside, None
        latent = [site for site in sites if not site["is_observed"]]
        observed = [site for site in sites if site["is_observed"]]
        if len(latent) > 1 or len(observed) != 1:
            names = [site["name"] for site in (latent if len(latent) > 1 else observed)]
            refuse(
                f"a step has {len(latent)} latent and {len(observed)} observed sites ({', '.join(names)}): write at most "
                "one latent site and exactly one with obs=; several numbers can be one site, of a multivariate law"
            )
        law = latent[0]["fn"] if latent else None
        self._names = {site["name"] for site in sites}
        self.step = Step(joint(law), joint(observed[0]["fn"]), observed[0]["value"], after)
        if not self.whole:
            raise _Done


class Program:
    """A program with its arguments."""

    def __init__(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    def run(self, reader: Reader) -> Reader:
        try:
            with reader:
                self.function(*self.args, **self.kwargs)
        except _Done:
            pass
        return reader


def _plain(msg: dict[str, Any]) -> dict[str, Any]:
    """A site of the step without anything that changes what it counts."""
    if msg["cond_indep_stack"] or msg.get("scale") is not None or isinstance(msg["fn"], dist.MaskedDistribution):
        refuse(
            f"{msg['name']!r} is in a plate, scaled or masked: a model is of one series, .to_event(1) makes a vector of "
            "independent numbers, and a missing value is NaN in y"
        )
    return dict(msg)


def joint(law: Any) -> Any:
    """The law with all of its numbers as one event."""
    return law if law is None or not law.batch_shape else law.to_event(len(law.batch_shape))


def refuse(reason: str, error: Exception | None = None) -> NoReturn:
    raise ModelError(f"from_numpyro() cannot read this program: {reason}.") from error
