"""How far an answer is from its reference: z, r, coverage, and right, near or wrong."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def score(answer: Mapping[str, np.ndarray], reference: Mapping[str, Any]) -> dict[str, Any]:
    """z and r of each parameter, and the reference's cdf at the answer's 5% and 95% quantiles (0.05 and 0.95 if right)."""
    mean, sd = np.array(reference["mean"]), np.array(reference["sd"])
    z, r = (answer["mean"] - mean) / sd, answer["sd"] / sd
    return {
        "z": z.tolist(),
        "r": r.tolist(),
        "cdf_at_5": [_cdf(reference, i, value) for i, value in enumerate(answer["low"])],
        "cdf_at_95": [_cdf(reference, i, value) for i, value in enumerate(answer["high"])],
        "outcome": outcome(z, r),
    }


def outcome(z: Any, r: Any) -> str:
    """*Right*: |z| <= 0.3 and 0.85 <= r <= 1.18 for every parameter. *Wrong*: |z| > 0.6 or r outside 0.7 .. 1.43."""
    z, r = np.abs(np.asarray(z, float)), np.asarray(r, float)
    if np.all(z <= 0.3) and np.all((r >= 0.85) & (r <= 1.18)):
        return "right"
    if np.all(z <= 0.6) and np.all((r >= 0.7) & (r <= 1.43)):
        return "near"
    return "wrong"  # also where a number is NaN


def _cdf(reference: Mapping[str, Any], i: int, value: float) -> float:
    return float(np.interp(value, reference["table"][i], reference["levels"], left=0.0, right=1.0))


def plain(value: Any) -> Any:
    """Anything as JSON takes it: numbers, lists, dictionaries; whatever has fields becomes a dictionary."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        return str(value)
    return [plain(part) for part in array] if array.ndim else _number(float(array))


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)  # JSON has no NaN


def certificate(error: Any) -> np.ndarray | None:
    """The stated error of each posterior mean, in posterior sds, from `result.error` as `plain` wrote it; None if absent."""
    if not isinstance(error, Mapping):
        return None
    part = {name: np.array([float(value) for value in rows[0]]) for name, rows in error["parts"].items()}
    return np.hypot(part["monte_carlo"], part["expansion"]) + part["bias"] + part["truncation"] + part["numbers"]
