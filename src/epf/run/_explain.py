"""A model in words: how each parameter enters it, what can be exact, and what the default would do with it."""

import textwrap
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array
from numpyro.distributions import Distribution

from epf.filters._kalman import Kalman
from epf.filters._multiple_model import MultipleModel
from epf.filters.marginal._exact import KalmanFilters
from epf.filters.marginal._finite import FiniteFilters
from epf.filters.marginal._marginal import MarginalEPF
from epf.filters.marginal._mixture_kalman import MixtureKalmanFilters
from epf.filters.marginal._noiseless import NoiselessFilters, of_noise
from epf.filters.marginal._path import PathFilters
from epf.filters.marginal._quadrature import QuadratureFilters
from epf.filters.marginal._rao_blackwell import RaoBlackwellised
from epf.model._changes import notice_changes
from epf.model._check import check_inputs
from epf.model._enumeration import combinations, support_of
from epf.model._model import StateSpaceModel, check_is_model, fix, parameters
from epf.model._trial import told_by_a_path
from epf.model.structure._algebra import part
from epf.model.structure._symmetries import symmetries_of
from epf.model.structure._verify import structure_of
from epf.model.structure._words import JUMPS, meets, words_of
from epf.run._default import choose, core, size_of
from epf.statistics._conditionals import Conditionals

_JUMPS = "which jumps, so that no polynomial fits"
_TOLD = "depends on it without noise: a path of the state tells it"
_NAIVE_DEGREE = 14  # a drift expanded to order 7, and squared
_OF_PARTICLES = "particles", "partly Kalman", "mixture Kalman"  # what is inside of a node and has Monte Carlo error
_SHOWN = 4
_WIDTH = 88


class Parameter(NamedTuple):
    """How one parameter enters a model: "separable", "not separable" or "unused", and why."""

    label: str
    kind: str
    why: str


class Explanation:
    """What was found out about a model. Print it, or read its attributes.

    - `parameters`: for each element of theta its label, kind and why;
    - `sums`: how many sums along a path are sufficient for the separable parameters, given the others;
    - `naive`: how many coefficients a polynomial in all parameters would have;
    - `same`: which changes of theta no data can tell, in words, or nothing;
    - `inside`: the filter that fits once theta is known: "Kalman", "forward sums", "path", "points", "mixture Kalman",
      "partly Kalman" or "particles";
    - `integrated`: the parameters that this filter learns exactly, so that they need no nodes;
    - `noiseless`: the components of the state that are known once theta is, where others have noise;
    - `default`: the method that `epf.fit` begins with;
    - `cost`: how many steps of Kalman filters, or evaluations of transition(), it makes per observation.

    Examples:
        >>> found = epf.explain(model)
        >>> found.separable, found["noise_variance"].kind, found.inside
        (True, 'separable', 'Kalman')
    """

    def __init__(self, model: StateSpaceModel, u: Array | None) -> None:
        self.name = type(model).__name__
        self.default: Any = choose(model, u)
        bound = _bound(self.default, model, u)
        self.inside = _inside(self.default, bound)
        self.cost = _cost(self.default, bound)
        filters = _filters(bound)
        self.integrated = tuple(getattr(filters, "names", ()))
        self.noiseless = filters.part.entries if isinstance(filters, NoiselessFilters) else ()
        discrete: list[Parameter] = []
        if isinstance(self.default, MultipleModel):  # the rest is said of the model that each of its filters has
            params = parameters(model)
            discrete = [Parameter(name, "discrete", _values(params.priors[name])) for name in params.discrete]
            found = combinations(params)
            self.cost *= len(found)
            model = fix(model, found[-1].values)
        self.structure = structure = structure_of(model, u)
        self.words = words_of(model, structure.parameters.labels, u)
        self._told = told_by_a_path(model, u)
        self.parameters = [*discrete, *(self._parameter(i) for i in range(structure.parameters.size))]
        self.sums = structure.size
        self.same = symmetries_of(model, u).sentence(structure.parameters.labels) if structure.parameters.size else ""
        self.naive = (_NAIVE_DEGREE + 1) ** structure.parameters.size

    @property
    def separable(self) -> bool:
        """Whether no parameter has to be expanded."""
        return self.structure.separable

    def __getitem__(self, label: str) -> Parameter:
        found = next((p for p in self.parameters if p.label == label), None)
        return found or self.parameters[self.structure.parameters.index(label) - self.structure.parameters.size]

    def _parameter(self, i: int) -> Parameter:
        structure = self.structure
        label = structure.parameters.labels[i]
        laws = [name for name, law in structure.laws.items() if i in law.thetas]
        if not laws:
            return Parameter(label, "unused", "it is in none of the laws, so the data say nothing about it")
        if i in structure.awkward:
            name = next(name for name, part in structure.parameters.slices.items() if part.start <= i < part.stop)
            if name in self._told:
                return Parameter(label, "not separable", f"{self._told[name]}() {_TOLD}")
            reasons = [self._reason(name, i) for name in laws if i in structure.laws[name].awkward]
            return Parameter(label, "not separable", "; ".join(reasons))
        functions: dict[str, None] = {}
        for name in laws:
            for product in structure.laws[name].total.terms:
                h = part(product, False)
                if any(i in atom.thetas for atom, _ in h):
                    functions[self.words.product(h)] = None
        shown = sorted(functions, key=len)[:_SHOWN]
        more = f" and {len(functions) - len(shown)} more" if len(functions) > len(shown) else ""
        where = " and ".join(f"{name}()" for name in laws)
        return Parameter(label, "separable", f"{where} {'have' if len(laws) > 1 else 'has'} {', '.join(shown)}{more}")

    def _reason(self, law: str, i: int) -> str:
        """Why a law is not separable in a parameter."""
        reading = self.structure.laws[law]
        if reading.problem:
            return f"{law}() is not taken apart: {reading.problem}"
        atoms = [atom for atom in self.structure.reasons(law) if i in atom.thetas]
        jumps = [atom for atom in atoms if meets(atom, JUMPS, i)]
        if jumps:
            return f"{law}() has {self.words.atom(jumps[0])}, {_JUMPS}"
        return f"{law}() has {self.words.atom(atoms[0])}"

    def _jumping(self) -> list[str]:
        """The parameters in which a law jumps; also where it has no noise, and is zero but for one value."""
        return [p.label for p in self.parameters if _JUMPS in p.why or _TOLD in p.why]

    def __str__(self) -> str:
        paragraphs = [self._sums(), self.same, self._known(), self._filters(), self._methods()]
        return "\n\n".join([self._table(), *(textwrap.fill(text, _WIDTH) for text in paragraphs if text)])

    __repr__ = __str__

    def _table(self) -> str:
        if not self.parameters:
            return f"{self.name} has no unknown parameters."
        widths = [max(len(p.label) for p in self.parameters), max(len(p.kind) for p in self.parameters)]
        rows = [f"  {p.label:{widths[0]}}  {p.kind:{widths[1]}}  {p.why}" for p in self.parameters]
        return "\n".join([f"{self.name}: how each parameter enters", *rows])

    def _sums(self) -> str:
        if not self.structure.parameters.size:
            return ""
        counts = {name: self.structure.terms_of(name) for name in self.structure.laws}
        alone = _listed([f"{count} for {name}()" for name, count in counts.items() if count])
        shared = ", of which some are the same" if sum(counts.values()) > self.sums else ""
        naive = f"A polynomial of degree {_NAIVE_DEGREE} in each parameter would have {self.naive:,} coefficients."
        awkward = [self.structure.parameters.labels[i] for i in self.structure.awkward]
        if not awkward:
            return (
                f"Separable (theorem 1): {_count(self.sums, 'sum')} along a path of states say all that the path says "
                f"about the parameters, exactly, for any prior: {alone}{shared}. {naive}"
            )
        jumping = self._jumping()
        remedy = f"A filter that keeps sums along paths would have to expand {_listed(awkward)}."
        if jumping:
            remedy = f"No polynomial fits a jump, so {_listed(jumping)} cannot be expanded: use epf.MarginalEPF."
        if len(awkward) == self.structure.parameters.size:
            return f"Not separable in any parameter. {remedy} {naive}"
        return (
            f"Separable given {_listed(awkward)}: for each value of {_listed(awkward)}, {_count(self.sums, 'sum')} along "
            f"a path say all about the other parameters. {remedy} {naive}"
        )

    def _known(self) -> str:
        if not self.noiseless:
            return ""
        names = _listed([f"x[{i}]" for i in self.noiseless])
        known = "is known, since it has" if len(self.noiseless) == 1 else "are known, since they have"
        return f"Once theta is known, {names} {known} no noise. In what follows, the state is the rest of it."

    def _filters(self) -> str:
        if isinstance(core(self.default), Kalman) and self.structure.parameters.size:
            return (
                "The model is linear and Gaussian in the state and the parameters together: the Kalman filter learns both "
                "exactly."
            )
        if self.integrated:
            names = _listed(list(self.integrated))
            return (
                f"Once the other parameters are known, the model is linear and Gaussian in the state and {names} together: "
                f"the Kalman filter is exact, and learns {names} too. Nodes have values of the others alone."
            )
        return {
            "Kalman": "Once theta is known, the model is linear and Gaussian: the Kalman filter is exact.",
            "forward sums": "Once theta is known, the state has few values: forward sums are an exact filter.",
            "path": "Once theta is known, so is the state: it has no noise, and its path is an exact filter.",
            "points": "Once theta is known, the state is one number: quadrature over it has hardly any error.",
            "mixture Kalman": "Once theta is known, the state is linear and Gaussian, and is seen through another law: "
            "particles are Gaussians of the whole state.",
            "partly Kalman": "Once theta is known, a part of the state is linear and Gaussian given the path of the rest: "
            "particles of the rest carry a Kalman filter each.",
            "particles": "Once theta is known, no exact filter fits the state: a particle filter is needed.",
        }[self.inside]

    def _methods(self) -> str:
        lines = [f"epf.fit(model, y) begins with {self._default()}. {self._cost()}"]
        if isinstance(core(self.default), MarginalEPF) and self.structure.parameters.size:
            noisy = "Its particles have Monte Carlo error"
            within = dict.fromkeys(_OF_PARTICLES, noisy) | {"points": "The quadrature has some error"}
            lines.append(
                f"{within[self.inside]}, and the smooth function between nodes is approximate. Both errors are measured."
                if self.inside in within
                else "The filters at its nodes are exact. The smooth function between nodes is approximate, and its error "
                "is measured."
            )
        if isinstance(self.default, MultipleModel):
            lines.append("What is said of theta here is said of the parameters that are not discrete.")
        elif self.parameters and self.separable and not self.structure.parameters.discrete:
            lines.append(
                "epf.EPF and epf.Storvik keep exact sums for it, and are right as long as paths do not coalesce."
            )
            if exact := self._drawn_exactly():
                lines.append(f"Given a path and the other parameters they draw {_listed(exact)} exactly.")
        elif self.parameters and not self._jumping():
            lines.append("epf.EPF keeps a polynomial per particle for it; epf.Storvik does not serve it.")
        return " ".join(lines)

    def _drawn_exactly(self) -> list[str]:
        known = Conditionals.of(self.structure).known
        return [label for i, label in enumerate(self.structure.parameters.labels) if i in known]

    def _default(self) -> str:
        made_of = "particles" if self.inside in _OF_PARTICLES else "points" if self.inside == "points" else ""
        size = size_of(self.default, made_of)
        named = isinstance(self.default, MarginalEPF | MultipleModel)
        return f"epf.{type(self.default).__name__}, {size}" if named else f"epf.{size}"

    def _cost(self) -> str:
        kind = ("step of a Kalman filter", "steps of Kalman filters")
        if self.inside != "Kalman":
            kind = ("evaluation of transition()", "evaluations of transition()")
        replays = isinstance(core(self.default), MarginalEPF) and self.structure.parameters.size
        again = ", and as many again for each old one that new nodes replay" if replays else ""
        return f"One observation takes {self.cost:,} {kind[self.cost != 1]}{again}."


def explain(model: StateSpaceModel, inputs: Any = None) -> Explanation:
    """How the parameters enter a model, what can be exact, and what `epf.fit` would do; without data.

    `inputs` is what `epf.fit` gets, or its first row, if the model has inputs.

    Examples:
        >>> epf.explain(model).sums  # numbers per particle that are all its path has to say of the parameters
        4
    """
    check_is_model(model)
    rows = None if inputs is None else np.atleast_2d(np.asarray(inputs, float))[:1]
    checked = check_inputs(model, rows, 1)
    u = None if checked is None else checked[0]
    notice_changes(model, u)
    return Explanation(model, u)


def _bound(method: Any, model: StateSpaceModel, u: Array | None) -> Any:
    return method.bind(model, u) if isinstance(core(method), MarginalEPF) else None


def _filters(bound: Any) -> Any:
    """How the filters at the nodes work; with banks, those of the first."""
    return getattr(bound.groups[0].bank if hasattr(bound, "groups") else bound, "filters", None)


def _inside(method: Any, bound: Any) -> str:
    filters = of_noise(_filters(bound))
    if isinstance(core(method), Kalman) or isinstance(filters, KalmanFilters):
        return "Kalman"
    if isinstance(filters, FiniteFilters):
        return "forward sums"
    if isinstance(filters, PathFilters):
        return "path"
    if isinstance(filters, MixtureKalmanFilters):
        return "mixture Kalman"
    if isinstance(filters, RaoBlackwellised):
        return "partly Kalman"
    return "points" if isinstance(filters, QuadratureFilters) else "particles"


def _cost(method: Any, bound: Any) -> int:
    """Steps of Kalman filters, or evaluations of transition(), of one observation; with banks, of one of them."""
    filters = of_noise(_filters(bound))
    if filters is None:
        return getattr(method, "particles", 1)
    if isinstance(filters, KalmanFilters):
        each = 1
    elif isinstance(filters, FiniteFilters):
        each = len(filters.values) ** 2
    else:
        each = filters.points**2 if isinstance(filters, QuadratureFilters) else filters.particles
    nodes = getattr(bound.groups[0].bank if hasattr(bound, "groups") else bound, "nodes", 1)
    return nodes * filters.streams * each


def _values(prior: Distribution) -> str:
    values = support_of(prior)
    assert values is not None
    return f"one of {len(values)} values, with a filter for each"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
