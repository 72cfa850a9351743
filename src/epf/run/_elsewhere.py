"""A look at what nodes do not see: a run outside of where they are, and what it means for the answer.

Nodes follow the mode that they find first, and their certificate speaks of what is near them. A run of the same filter
outside (`Elsewhere`) has the evidence of all the rest. Beside that of the first run it is the share of the posterior that
was missed. If it changes the answer, nodes in both places are the remedy (`Modes`).

There are two looks, a near and a far one. While observations are few, the posterior is wide, and the nodes of a near look
settle on what is left of the first mode around its region. A narrow mode that only later observations show is then lost. Far
away nothing is left of the first mode; but another mode may be near.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from epf.filters._base import Caveat, Filter
from epf.filters._modes import FAR, NEAR, Ellipse, Elsewhere, Modes, ellipse_of, log_prior_mass
from epf.filters.marginal._marginal import MarginalEPF
from epf.filters.marginal._region import MOST
from epf.model._prior_draws import PRIOR_DRAWS
from epf.run._default import Round, core, vary

SURE = 0.3  # posterior sds: with a larger error nodes are not at one mode, and the verdict says enough
_NEGLIGIBLE = 1e-5  # of the posterior, however far away it is


def is_sure(error: float) -> bool:
    """Whether a run with this error is sure of its own mode."""
    return error <= SURE


def look(method: Filter, bound: Any, state: Any, like: Any, reach: float = NEAR) -> Elsewhere | None:
    """The run to follow one with this method and state, with the method `like`; None where there are no nodes."""
    known = getattr(method, "ellipses", ())
    has_nodes = isinstance(core(method), MarginalEPF) and isinstance(core(like), MarginalEPF)
    if not has_nodes or len(known) >= MOST - 1 or (ellipse := ellipse_of(bound, state)) is None:
        return None
    return Elsewhere(core(like), (*known, ellipse), reach)


def farther(near: Elsewhere, bound: Any) -> Elsewhere | None:
    """The far look beside this near one; None where not even one of many draws of the prior is so far away."""
    away = eqx.tree_at(lambda nodes: nodes.region.reach, bound, jnp.asarray(FAR))
    return dataclasses.replace(near, reach=FAR) if log_prior_mass(away) > -np.log(PRIOR_DRAWS) else None


def name_of(method: Elsewhere) -> str:
    """Where a look was, for notes."""
    return "far away" if method.reach == FAR else "elsewhere"


def counts(elsewhere: Round) -> bool:
    """Whether the evidence of a look means anything.

    Particles and points can claim any evidence where they are too few, and say so in their error. Exact filters cannot.
    """
    return not elsewhere.inside or is_sure(elsewhere.error.worst)


class Missed(NamedTuple):
    """The method that misses nothing, and a doubt for as long as it has not run."""

    method: Modes
    doubt: Caveat
    answer: np.ndarray
    """Means and sds of the two answers together, shape (2, p)."""

    def lost(self, modes: Round, allowed: float, gained: float = 0.0) -> list[Caveat]:
        """Doubts about nodes at several modes that do not have what a look had found, by more than is `allowed`.

        A look sees no more of a mode than is outside of its large ellipses. So nodes may rightly have found more of it: then
        their evidence is larger than all that was found before, by `gained` nats beyond the errors of the runs.
        """
        if gained > 0.0:
            return []
        (mean, sd), found = self.answer, modes.answer
        apart = np.nan_to_num(np.max(np.abs(found - self.answer), axis=0) / np.where(vary(self.answer), sd, np.inf))
        i = int(np.argmax(apart))
        if not apart[i] > allowed:
            return []
        label = modes.error.labels[i]
        one, other = (f"mean {m[i]:.3g} and sd {s[i]:.2g}" for m, s in ((mean, sd), found))
        return [
            Caveat(
                1,
                f"A look elsewhere found that {label} has {one}, and nodes that went there found {other}: one is wrong.",
            )
        ]


def missed(
    chosen: Round, elsewhere: Round, share: float, accuracy: float, where: Callable[[], Ellipse | None]
) -> Missed | None:
    """What a look means for the chosen answer; None if that hardly changes when it gets what is elsewhere, `where` it is."""
    means, sds = (np.stack(parts) for parts in zip(chosen.answer, elsewhere.answer, strict=True))
    weights = np.array([1.0 - share, share])
    mean = weights @ means
    sd = np.sqrt(weights @ (sds**2 + (means - mean) ** 2))
    changed = np.maximum(np.abs(mean - means[0]), np.abs(sd - sds[0])) / np.where(sd > 0.0, sd, 1.0)
    if share < _NEGLIGIBLE or not np.nanmax(changed, initial=0.0) > accuracy:
        return None
    i = int(np.nanargmax(changed))
    there, here = f"{chosen.error.labels[i]} near {means[1, i]:.3g}", f"{means[0, i]:.3g} (sd {sds[0, i]:.2g})"
    sentence = f"Another mode has {share:.2g} of the posterior: {there}, where this answer has {here}."
    if not counts(elsewhere):
        sentence = f"There may be another mode: {there}, where this answer has {here}. A larger budget may tell."
    # The mode that was found gets an ellipse: outside of it, nodes find the others as they did before.
    known, found = getattr(chosen.method, "ellipses", ()), where()
    assert found is not None
    return Missed(Modes(core(chosen.method), (*known, found)), Caveat(1, sentence), np.stack([mean, sd]))


def log_evidence_of(found: float, bound: Any) -> float:
    """The log-evidence of a look as a part of the whole: its own is relative to the prior where it was."""
    return found + float(log_prior_mass(bound))


def share_of(elsewhere: float, whole: float) -> float:
    """The share of the posterior that is elsewhere, from the log-evidence of both runs."""
    return float(np.exp(-np.logaddexp(0.0, whole - elsewhere)))
