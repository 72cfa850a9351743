"""Whether a log-density jumps along a parameter, so that no polynomial follows it: a threshold, a rounded parameter.

The program tells where it may jump. Many programs choose between formulas of one smooth function, so it is also tried: a
jump stays as high as it is, however close the two points on its sides are.
"""

import numpy as np
from jaxtyping import Array

from epf.model._model import StateSpaceModel
from epf.model.structure._structure import Structure
from epf.model.structure._verify import POINTS, Trial
from epf.model.structure._words import JUMPS, meets

_GRID, _ROUNDS = 257, 3
_LEAST = 1e-3  # nats: more than rounding
_SHARE = 0.2  # of its first height that is left after so many rounds


def jumping(model: StateSpaceModel, structure: Structure, u: Array | None) -> dict[str, int]:
    """The laws that jump, each with the parameter along which it does."""
    suspects = {
        (law, i)
        for law, reading in structure.laws.items()
        if not reading.problem
        for atom in structure.reasons(law)
        for i in structure.awkward
        if meets(atom, JUMPS, i)
    }
    if not suspects:
        return {}
    trial = Trial.of(model, u)
    found = {}
    for law, i in sorted(suspects):
        given = {name: value[..., None] for name, value in trial.data[law].items()}
        if _jumps(structure, law, i, trial.thetas[..., None], given):
            found[law] = i
    return found


def _jumps(structure: Structure, law: str, i: int, thetas: np.ndarray, data: dict[str, np.ndarray]) -> bool:
    low = np.full((POINTS, POINTS, 1), thetas[i].min())
    high, heights = np.full_like(low, thetas[i].max()), []
    for _ in range(_ROUNDS):
        line = low + (high - low) * np.linspace(0.0, 1.0, _GRID)
        at = np.broadcast_to(thetas, (thetas.shape[0], *line.shape)).copy()
        at[i] = line
        with np.errstate(all="ignore"):
            terms, c = structure.terms_at(law, at, data)
            steps = np.abs(np.diff(terms.sum(axis=0) + c, axis=-1))
        steps = np.where(np.isfinite(steps), steps, 0.0)  # ends of a support are found elsewhere
        place = np.argmax(steps, axis=-1)[..., None]
        heights.append(np.take_along_axis(steps, place, -1))
        low, high = (np.take_along_axis(line, place + side, -1) for side in (0, 1))
    return bool(np.any((heights[-1] > _LEAST) & (heights[-1] > _SHARE * heights[0])))
