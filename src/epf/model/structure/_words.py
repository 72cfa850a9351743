"""Sums in words: a^2/v, log(s), sin(theta x)."""

from collections.abc import Mapping, Sequence, Set
from fractions import Fraction
from math import prod

from jaxtyping import Array

from epf.model._model import StateSpaceModel
from epf.model._shapes import shapes_of
from epf.model.structure._algebra import Atom, Product, Sum
from epf.model.structure._operations import Operation

_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}
_NAMES = {
    "convert_element_type": "int",
    "lgamma": "log Gamma",
    "jit": "the law",
    "logistic": "sigmoid",
    "held": "a constant",
}
JUMPS = {"case", "floor", "ceil", "round", "sign", "convert_element_type", *_SIGNS}
_LONGEST, _MOST = 60, 1000  # characters of an atom, and of a sum


class Words:
    """How atoms are called: parameters by their labels, entries of vectors by their index."""

    def __init__(self, labels: Sequence[str], sizes: Mapping[str, int]) -> None:
        self.labels = labels
        self.sizes = sizes
        self._known: dict[Atom, str] = {}  # an atom may be in many others

    def sum(self, one: Sum) -> str:
        if not one.terms:
            return "0"
        text = ""
        for product, c in one.terms.items():
            sign = " - " if c < 0 else " + "
            text += (sign if text else sign.strip() if c < 0 else "") + self.product(product, abs(c))
            if len(text) > _MOST:  # nobody reads on
                return f"{text} + ..."
        return text

    def product(self, product: Product, c: Fraction = Fraction(1)) -> str:
        above = [self._power(atom, e) for atom, e in product if e > 0]
        below = [self._power(atom, -e) for atom, e in product if e < 0]
        if c != 1 or not above:
            above.insert(0, f"{float(c):.3g}")
        bottom = " ".join(below) if len(below) < 2 else f"({' '.join(below)})"
        return " ".join(above) + (f"/{bottom}" if below else "")

    def _power(self, atom: Atom, exponent: Fraction) -> str:
        if atom.name == "exp":
            return f"exp({self.sum(Sum({p: c * exponent for p, c in atom.arguments[0].terms.items()}))})"
        name = f"({self.sum(atom.arguments[0])})" if atom.name == "sum" else self.atom(atom)
        if exponent == 1:
            return name
        if exponent == Fraction(1, 2):
            return f"sqrt({name.strip('()')})" if atom.name == "sum" else f"sqrt({name})"
        power = str(exponent.numerator) if exponent.denominator == 1 else f"{float(exponent):.3g}"
        return f"{name}^{power}"

    def atom(self, atom: Atom) -> str:
        """An atom in words; a long one is cut short."""
        if atom not in self._known:
            text = self._atom(atom)
            self._known[atom] = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
        return self._known[atom]

    def _atom(self, atom: Atom) -> str:
        if atom.name == "theta":
            return str(self.labels[atom.detail])
        if not atom.arguments:
            single = self.sizes.get(atom.name, 1) == 1 or isinstance(atom.detail, str)
            return (
                str(atom.detail) if atom.name == "constant" else atom.name if single else f"{atom.name}[{atom.detail}]"
            )
        inside = [self.sum(one) for one in atom.arguments]
        if atom.name == "case":
            case, (kind, count) = atom.detail
            plain = inside[0] if kind == "select" and count == 2 else f"{inside[0]} = {case}"
            return f"[{plain}]" if case or kind != "select" else f"[not {plain}]"
        if atom.name in _SIGNS and isinstance(atom.detail, Operation):
            return f"{inside[0]} {_SIGNS[atom.name]} {inside[1]}"
        return f"{_NAMES.get(atom.name, atom.name)}({', '.join(inside)})"


def words_of(model: StateSpaceModel, labels: Sequence[str], u: Array | None) -> Words:
    """The words for a model's atoms."""
    shapes = shapes_of(model, u)
    state, new, y = (prod(shape) for shape in (shapes.state, shapes.new, shapes.observation))
    return Words(labels, {"x": state, "x_0": state, "new": new, "y": y, "u": 0 if u is None else u.shape[0] + 1})


def meets(atom: Atom, names: Set[str], parameter: int | None = None) -> bool:
    """Whether an atom is, or is made of, one of these functions of a parameter; of any, if none is given."""
    left, seen = [atom], {atom}  # an atom may be in many others
    while left:
        one = left.pop()
        if not one.thetas or (parameter is not None and parameter not in one.thetas):
            continue
        if one.name in names:
            return True
        inner = {atom for argument in one.arguments for atom in argument.atoms} - seen
        left, seen = left + list(inner), seen | inner
    return False
