"""A program of NumPyro with one `scan` as a StateSpaceModel: its sites outside are the prior, those inside are the laws.

A program is Python, so it is run, not parsed: for each law it runs up to its `scan`, with the values of the parameters in
their sites, and then one step of the loop with a carry of our choice. Whether the program is a state-space model at all is
asked once, from a trace: which laws use which values. A program that is none is refused, with the reason.

The state is the carry after a step; further what the observation uses of the step besides: the value that was drawn, if the
carry is not that value itself, and the carry before the step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import Distribution

from epf.errors import ModelError
from epf.model._model import StateSpaceModel
from epf.model._numpyro_program import Program, Reader, joint, refuse


class ProgramModel(StateSpaceModel):
    """The model of a NumPyro program; made by `from_numpyro`."""

    program: Program = eqx.field(static=True)
    priors: dict[str, Distribution]
    start: str | None = eqx.field(static=True)
    """The site that is the first carry, whose law is that of the first state."""
    parts: tuple[str, ...] = eqx.field(static=True)
    """What the state holds: "carry", and "drawn" and "before" where the observation needs them."""
    carry_is_drawn: bool = eqx.field(static=True)
    like: dict[str, Any]
    """Values of each part, of the sites and of a row: for their shapes, and where nothing depends on them."""
    row_of_y: int = eqx.field(static=True)

    def prior(self) -> dict[str, Distribution]:
        return self.priors

    def initial(self, p: Any) -> Distribution:
        read = self._read(p)
        if self.start is not None:
            return joint(read.sites[self.start]["fn"])
        return _delta(self._packed(carry=read.init))

    def transition(self, p: Any, x: Any, u: Any) -> Distribution:
        before = self._unpacked(x)["carry"]
        step = self._read(p, before, row=self._row(u)).of_step
        law = step.latent
        return _delta(self._packed(carry=step.carry, before=before)) if law is None else law

    def observation(self, p: Any, x: Any, u: Any) -> Distribution:
        state = self._unpacked(x)
        return self._read(p, state["before"], state["drawn"], self._row(u)).of_step.observed

    def advance(self, x: Any, new: Any) -> Any:
        if self.like["drawn"] is None:  # the law of the step was that of the whole state
            return new
        before, drawn = self._unpacked(x)["carry"], _filled(self.like["drawn"], jnp.ravel(new))[0]
        carry = self._read(self.like["values"], before, drawn).of_step.carry
        return self._packed(carry=carry, drawn=drawn, before=before)

    def _read(self, p: Any, carry: Any = None, drawn: Any = None, row: Any = None) -> Reader:
        values = {name: (p if name in self.priors else self.like["values"])[name] for name in self.like["values"]}
        given = (("carry", carry), ("drawn", drawn), ("row", row))
        return self.program.run(Reader(values, *(self.like[key] if value is None else value for key, value in given)))

    def _packed(self, **state: Any) -> Array:
        """The parts of the state in one vector; a number if that is all."""
        leaves = [leaf for part in self.parts for leaf in jax.tree.leaves(state.get(part, self.like[part]))]
        if len(leaves) == 1 and jnp.ndim(leaves[0]) == 0:
            return jnp.asarray(leaves[0], float)
        return jnp.concatenate([jnp.ravel(jnp.asarray(leaf, float)) for leaf in leaves])

    def _unpacked(self, x: Any) -> dict[str, Any]:
        flat, state = jnp.ravel(x), dict(self.like)
        for part in self.parts:
            state[part], flat = _filled(state[part], flat)
        return {**state, "drawn": jax.tree.leaves(state["carry"])[0]} if self.carry_is_drawn else state

    def _row(self, u: Any) -> Any:
        """A row of xs with these inputs. In place of the observation is the first one: no law uses it."""
        leaves, tree = jax.tree.flatten(self.like["row"])
        y, size = leaves.pop(self.row_of_y), sum(leaf.size for leaf in leaves)
        if size and (u is None or u.shape != (size,)):
            refuse(
                f"its scan has {size} numbers per step besides the observation: give inputs of shape (T, {size}), these "
                "entries of xs side by side"
            )
        leaves = _filled(leaves, jnp.asarray(u))[0] if size else leaves
        return jax.tree.unflatten(tree, [*leaves[: self.row_of_y], y, *leaves[self.row_of_y :]])


def from_numpyro(program: Callable, *args: Any, **kwargs: Any) -> StateSpaceModel:
    """The state-space model of a NumPyro program with one `scan`, given the program's own arguments, data included.

    Sample sites outside of the `scan` are the parameters. The latent site of its step is the transition, the site with
    `obs=` the observation, and other entries of `xs` are inputs. A site that is only the first carry is the law of the
    first state. Fit the observations as `y`, and the other entries of `xs`, side by side, as `inputs`.

    Refused, with the reason, is all that is no state-space model or not seen to be one: priors that depend on other sites,
    several latent or observed sites in a step, a new carry that uses parameters or inputs other than by the value drawn,
    laws that use earlier observations, masks, plates around the loop, and sites that are observed outside of it.

    Examples:
        >>> import numpyro
        >>> from numpyro.contrib.control_flow import scan
        >>> def program(y):
        ...     sd = numpyro.sample("sd", dist.HalfNormal(1.0))
        ...     def step(x, value):
        ...         x = numpyro.sample("x", dist.Normal(x, sd))
        ...         numpyro.sample("y", dist.Normal(x, 0.5), obs=value)
        ...         return x, None
        ...     scan(step, 0.0, y)
        >>> level = epf.from_numpyro(program, y)
        >>> list(level.prior()), level.initial({"sd": 0.1}).event_shape
        (['sd'], ())
    """
    if not callable(program):
        raise ModelError(f"from_numpyro() got {program!r}: give a function with sample sites, and then its arguments.")
    made = Program(program, args, kwargs)
    with handlers.seed(rng_seed=0):
        first = made.run(Reader({}, whole=True))
    latent = first.of_step.latent
    carry = jax.tree.map(jnp.asarray, first.init)
    like = {
        "carry": carry,
        "drawn": None if latent is None else jnp.zeros_like(latent.sample(jax.random.key(0))),
        "before": carry,
        "row": jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], first.xs),
        "values": {name: site["value"] for name, site in first.sites.items()},
    }
    uses = Uses.of(made, like)
    row_of_y, parts = uses.observation(), uses.parts()
    uses.refuse_other_models()
    is_vector = all(leaf.ndim <= 1 for leaf in jax.tree.leaves(carry))
    start = uses.start() if parts == ("carry",) and is_vector else None
    uses.refuse_hierarchies(start)
    priors = {name: joint(site["fn"]) for name, site in first.sites.items() if name != start}
    return ProgramModel(made, priors, start, parts, uses.same("carry") == {"drawn"}, like, row_of_y)


class Uses(NamedTuple):
    """Which values each output of a program uses: sites by "site NAME", entries of a row and of the arguments by number.

    Outputs are the laws of the sites outside, "latent", "observed" and "carry" of a step, "y" its observed value, "init" and
    "xs" of the scan. A law uses a value if there is a way from the one to the other in the trace.
    """

    sources: dict[str, list[frozenset[str]]]
    copies: dict[str, list[str | None]]
    """The input that an output is itself, for each array of it."""

    @classmethod
    def of(cls, program: Program, like: dict[str, Any]) -> "Uses":
        arguments, tree = jax.tree.flatten((program.args, program.kwargs))
        series = {i: jnp.asarray(leaf) for i, leaf in enumerate(arguments) if np.ndim(leaf) > 0}
        rows, structure = jax.tree.flatten(like["row"])

        def outputs(inputs: dict[str, Any]) -> dict[str, Any]:
            args, kwargs = jax.tree.unflatten(
                tree, [inputs.get(f"argument {i}", leaf) for i, leaf in enumerate(arguments)]
            )
            row = jax.tree.unflatten(structure, [inputs[f"row {i}"] for i in range(len(rows))])
            values = {name: inputs[f"site {name}"] for name in like["values"]}
            with handlers.seed(rng_seed=inputs["draws"]):
                reader = Reader(values, inputs["before"], inputs["drawn"], row, whole=True)
                read = Program(program.function, args, kwargs).run(reader)
            latent, observed, y, carry = read.of_step
            found = {f"site {name}": site["fn"] for name, site in read.sites.items()}
            found |= {"latent": latent, "observed": observed, "y": y, "carry": carry, "init": read.init, "xs": read.xs}
            return {name: [jnp.asarray(leaf) for leaf in jax.tree.leaves(value)] for name, value in found.items()}

        inputs = {"draws": jax.random.PRNGKey(0), "before": like["before"], "drawn": like["drawn"]}
        inputs |= {f"site {name}": value for name, value in like["values"].items()}
        inputs |= {f"row {i}": leaf for i, leaf in enumerate(rows)}
        inputs |= {f"argument {i}": leaf for i, leaf in series.items()}
        try:
            closed, shapes = jax.make_jaxpr(outputs, return_shape=True)(inputs)
        except jax.errors.ConcretizationTypeError as error:
            refuse(
                "Python reads a value of a site or of the data (by float(), np.asarray() or if): use jax.numpy", error
            )
        labels = jax.tree.leaves({name: jax.tree.map(lambda _, name=name: name, part) for name, part in inputs.items()})
        known = dict(zip(closed.jaxpr.invars, labels, strict=True))
        used = {var: frozenset([label]) for var, label in known.items()}
        for equation in closed.jaxpr.eqns:
            together = frozenset().union(*(used.get(v, ()) for v in equation.invars if not hasattr(v, "val")))
            used |= dict.fromkeys(equation.outvars, together)
        flat = [
            (frozenset(), None) if hasattr(v, "val") else (used.get(v, frozenset()), known.get(v))
            for v in closed.jaxpr.outvars
        ]
        pairs = jax.tree.unflatten(jax.tree.structure(shapes), flat)
        return cls(*({name: [pair[k] for pair in of] for name, of in pairs.items()} for k in (0, 1)))

    def used(self, *outputs: str) -> frozenset[str]:
        return frozenset().union(*(one for name in outputs for one in self.sources[name]))

    def same(self, output: str) -> set[str | None]:
        return set(self.copies[output])

    def observation(self) -> int:
        """Which entry of a row is the observation."""
        (label,) = self.same("y") if len(self.same("y")) == 1 else (None,)
        if label is None or not label.startswith("row "):
            refuse("the value of obs= is not an entry of the xs of the scan: pass the series there, transformed")
        if label in self.used("latent", "observed", "carry"):
            refuse(
                "a law uses the observation of its own step or hands it on in the carry: make it an input, a step late"
            )
        return int(label.removeprefix("row "))

    def parts(self) -> tuple[str, ...]:
        """What the state must hold."""
        observed, is_drawn = self.used("observed"), self.same("carry") == {"drawn"}
        drawn = ("drawn",) if "drawn" in observed and not is_drawn else ()
        return ("carry", *drawn, *(("before",) if "before" in observed else ()))

    def refuse_other_models(self) -> None:
        step = self.used("latent", "observed", "carry")
        if "draws" in step:
            refuse("a step draws numbers that are no sample site")
        series = {label for label in self.sources["xs"][self.observation()] if label.startswith("argument ")}
        if series & step:
            refuse(
                "a step reads the series of observations other than by xs: pass what it needs as a further entry of xs"
            )
        other = sorted(self.used("carry") - {"before", "drawn"}) if self.sources["latent"] else []
        other = [label for label in other if not label.startswith("argument ")]
        if other:
            refuse(
                f"the new carry uses {' and '.join(map(_named, other))}: let the latent site be the new state itself, "
                'x = numpyro.sample("x", dist.Normal(a * x, sd)), and not noise that is added to it'
            )

    def start(self) -> str | None:
        """The site that is the first carry and used nowhere else."""
        (label,) = self.same("init") if len(self.copies["init"]) == 1 else (None,)
        others = (name for name in self.sources if name not in ("init", "y", "xs"))
        return label.removeprefix("site ") if label and label not in self.used(*others) else None

    def refuse_hierarchies(self, start: str | None) -> None:
        for name in (name for name in self.sources if name.startswith("site ")):
            uses = sorted(label for label in self.used(name) if not label.startswith("argument "))
            if name == f"site {start}":
                uses = [label for label in uses if not label.startswith("site ")]
            if uses:
                refuse(
                    f"the prior of {_named(name)} uses {' and '.join(map(_named, uses))}, and parameters need priors of "
                    "their own: give a law without other sites, and compute the rest from their values"
                )


def _named(label: str) -> str:
    kind, _, name = label.partition(" ")
    return {"site": repr(name), "row": "an input", "draws": "values drawn in the scan"}.get(kind, label)


def _delta(x: Float[Array, "..."]) -> Distribution:
    return dist.Delta(x, event_dim=x.ndim)


def _filled(like: Any, flat: Float[Array, " numbers"]) -> tuple[Any, Array]:
    """A tree of arrays like these from the first of some numbers, and the numbers that are left."""
    leaves, tree = jax.tree.flatten(like)
    filled = []
    for leaf in leaves:
        filled.append(flat[: leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        flat = flat[leaf.size :]
    return jax.tree.unflatten(tree, filled), flat
