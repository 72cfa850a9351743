"""What a stream's file holds beside the state of its filter."""

import jax.numpy as jnp
import numpy as np

from epf.filters._base import Filter, ReplayingFilter
from epf.model._model import StateSpaceModel
from epf.run.watch._saved import track_layouts
from epf.storage._checkpoint import Wanted, bind, observation_shape
from epf.storage._tensors import TensorFile


def layouts(file: TensorFile, model: StateSpaceModel, method: Filter) -> Wanted:
    """Shapes and types of its arrays: quantile levels and, for replay, the old observations."""
    dtype, t, inputs = np.dtype(jnp.zeros(()).dtype), file.header["t"], file.header["inputs"]
    levels = file.layouts["quantile_levels"].shape if "quantile_levels" in file.layouts else ()
    wanted: Wanted = {"quantile_levels": (dtype, levels if len(levels) == 1 else (3,))}
    if t and isinstance(bind(method, model, inputs), ReplayingFilter):
        wanted["past.ys"] = (dtype, (t, *observation_shape(model, inputs)))
        wanted |= {"past.us": (dtype, (t, inputs))} if inputs else {}
    return wanted | track_layouts(file)
