"""How far an approximated log-density may be from the exact one, from the residuals of its steps."""

import numpy as np

from epf.results._record import Record

MAX_ERROR = 0.5  # nats, above which a posterior is not to be trusted


def approximation_error(record: Record, add_up: bool, before: float = 0.0) -> np.ndarray:
    """How far, in nats, the approximated log-density may be from the exact one, step by step; 0 where none is made.

    Where residuals `add_up` (`Filter.residuals_add_up`), the errors of single steps add up like independent ones; those of
    the past lose weight as the posterior shrinks, since over a smaller region they vary less.
    """
    residual = np.nan_to_num(np.asarray(record.info.residual, float), nan=0.0, posinf=1e6)
    if not add_up:
        return residual
    with np.errstate(all="ignore"):
        shrink = np.nanmax(np.minimum(record.sd[1:] / record.sd[:-1], 1.0), axis=1, initial=0.0)
    total, found = before, []
    for step, kept in zip(residual, [1.0, *np.nan_to_num(shrink, nan=1.0)], strict=True):
        total = float(np.hypot(total * kept, min(step, 1e6)))
        found.append(total)
    return np.asarray(found)
