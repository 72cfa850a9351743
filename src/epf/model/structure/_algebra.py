"""Sums of products of atoms, with exact rational coefficients: the form in which the reader keeps every number of a program.

An atom is an unknown number: a parameter, an entry of the state, an observation or an input, or a function of sums, such
as exp(k) or sin(theta x). A product has atoms with rational exponents, and a sum has products with coefficients. Equal
things have one form, as far as the rules here go; so equality of two sums is a proof, and inequality says nothing.

An atom is of theta if parameters reach it, and of the data if a state, an observation or an input does. It is mixed if
both do. A sum without mixed atoms is separable (definition 1 of the paper).

The rules are identities of real numbers wherever the program itself has a value. log(a b) = log(a) + log(b) is one of
these only if one of the two cannot be negative, so what is known about signs is kept with every atom.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

Product = tuple[tuple["Atom", Fraction], ...]  # sorted by the atoms' numbers, without exponents of zero
ONE: Product = ()
_MOST_PRODUCTS = 4000  # of a sum that mixes theta and data; beyond it is not taken apart
_MOST_PURE_PRODUCTS = 40  # of a sum of theta alone or data alone, which need not be taken apart
_BOUNDED = {
    "sin",
    "cos",
    "tanh",
    "logistic",
    "erf",
    "sign",
    "abs",
    "max",
    "min",
    "clamp",
    "floor",
    "ceil",
    "round",
    "sum",
}
_HIGHEST_POWER = 8  # of a sum that is multiplied out


class Atom:
    """One unknown number, made by an `Algebra`: two atoms are equal only if they are the same object."""

    __slots__ = (
        "always_finite",
        "always_real",
        "arguments",
        "data",
        "detail",
        "is_indicator",
        "name",
        "never_negative",
        "number",
        "thetas",
    )

    def __init__(self, number: int, name: str, arguments: tuple["Sum", ...], detail: Any, **about: Any) -> None:
        self.number, self.name, self.arguments, self.detail = number, name, arguments, detail
        self.thetas: frozenset[int] = about["thetas"]
        self.data: bool = about["data"]
        self.never_negative: bool = about["never_negative"]
        self.always_real: bool = about["always_real"]
        self.is_indicator = name == "case"
        inside = all(one.always_finite for one in arguments)
        self.always_finite = self.is_indicator or (self.always_real and inside and (not arguments or name in _BOUNDED))

    @property
    def mixed(self) -> bool:
        return self.data and bool(self.thetas)

    def __repr__(self) -> str:
        return f"{self.name}{self.detail if not self.arguments else list(self.arguments)}"


class Sum:
    """A sum of products with coefficients. It is never changed."""

    def __init__(self, terms: Mapping[Product, Fraction]) -> None:
        self.terms = terms

    @cached_property
    def key(self) -> frozenset:
        return frozenset(self.terms.items())

    @cached_property
    def thetas(self) -> frozenset[int]:
        """The parameters that reach this number."""
        return frozenset().union(*(atom.thetas for atom in self.atoms))

    @cached_property
    def data(self) -> bool:
        """Whether the data reach this number."""
        return any(atom.data for atom in self.atoms)

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        return tuple({atom: None for product in self.terms for atom, _ in product})

    @property
    def mixed(self) -> bool:
        return self.data and bool(self.thetas)

    @property
    def number(self) -> Fraction | None:
        """The value, if it is known."""
        if not self.terms:
            return Fraction(0)
        return self.terms[ONE] if len(self.terms) == 1 and ONE in self.terms else None

    @cached_property
    def never_negative(self) -> bool:
        return all(c >= 0 and never_negative(product) for product, c in self.terms.items())

    @cached_property
    def always_real(self) -> bool:
        """Whether this is a number, not NaN, for almost all values of theta and the data."""
        factors = [factor for product in self.terms for factor in product]
        return all(atom.always_real and (e.denominator == 1 or atom.never_negative) for atom, e in factors)

    @cached_property
    def always_finite(self) -> bool:
        """Whether this is a finite number for all values of theta and the data, however large."""
        return all(atom.always_finite and e > 0 and e.denominator == 1 for product in self.terms for atom, e in product)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self.key == other.key

    def __repr__(self) -> str:
        return " + ".join(f"{float(c):g}{''.join(f'*{a}^{e}' for a, e in p)}" for p, c in self.terms.items()) or "0"


ZERO = Sum({})


def number(value: Any) -> Sum:
    """A known number."""
    value = Fraction(value)
    return Sum({ONE: value}) if value else ZERO


def never_negative(product: Product) -> bool:
    return all(atom.never_negative or exponent % 2 != 1 for atom, exponent in product)


def signature(one: Sum) -> Hashable:
    """What is equal for equal sums of different readings."""

    def of(atom: Atom) -> Hashable:
        return atom.name, atom.detail, tuple(signature(argument) for argument in atom.arguments)

    return frozenset((frozenset((of(atom), e) for atom, e in product), c) for product, c in one.terms.items())


def part(product: Product, data: bool) -> Product:
    """The factors that the data reach, or those that they do not.

    An infinite constant goes with theta, if there are other factors of theta: a condition of theta then decides whether it
    counts, and 0 times infinity does not occur.
    """
    theta = tuple(factor for factor in product if not factor[0].data)
    if not any(atom.thetas for atom, _ in theta):
        theta = ONE
    return tuple(factor for factor in product if factor not in theta) if data else theta


def add(*sums: Sum) -> Sum:
    terms: dict[Product, Fraction] = {}
    for one in sums:
        for product, c in one.terms.items():
            total = terms.get(product, 0) + c
            if total:
                terms[product] = total
            else:
                del terms[product]
    return Sum(terms)


def scale(one: Sum, by: Fraction | int) -> Sum:
    return Sum({product: c * by for product, c in one.terms.items()}) if by else ZERO


@dataclass
class Algebra:
    """The atoms of one reading, each made once."""

    made: dict[Any, Atom] = field(default_factory=dict)
    held: dict[int, Any] = field(default_factory=dict)
    """Arrays that are part of the program but not known yet, by their identity."""

    def atom(
        self,
        name: str,
        arguments: Sequence[Sum] = (),
        detail: Any = None,
        *,
        thetas: Iterable[int] = (),
        data: bool = False,
        never_negative: bool = False,
        always_real: bool = False,
    ) -> Atom:
        """The atom `name` of these arguments; what its arguments depend on, it depends on."""
        key = (name, tuple(arguments), detail)
        if key not in self.made:
            self.made[key] = Atom(
                len(self.made),
                name,
                tuple(arguments),
                detail,
                thetas=frozenset(thetas).union(*(one.thetas for one in arguments)),
                data=data or any(one.data for one in arguments),
                never_negative=never_negative,
                always_real=always_real and all(one.always_real for one in arguments),
            )
        return self.made[key]

    def multiply(self, a: Sum, b: Sum) -> Sum:
        if a.number is not None:
            return scale(b, a.number)
        if b.number is not None:
            return scale(a, b.number)
        if len(a.terms) * len(b.terms) > (_MOST_PRODUCTS if a.mixed or b.mixed else _MOST_PURE_PRODUCTS):
            a, b = self._closed(a), self._closed(b)
            if len(a.terms) * len(b.terms) > _MOST_PRODUCTS:
                a, b = self.whole(a), self.whole(b)
        terms: dict[Product, Fraction] = {}
        unfinished: list[Sum] = []
        for p, c in a.terms.items():
            for q, d in b.terms.items():
                product, to_expand = _times(p, q)
                if product is None:
                    continue
                if to_expand:
                    unfinished.append(scale(self._expanded(product, to_expand), c * d))
                else:
                    terms[product] = terms.get(product, Fraction(0)) + c * d
        total = Sum({product: c for product, c in terms.items() if c})
        return add(total, *unfinished) if unfinished else total

    def whole(self, one: Sum) -> Sum:
        """A sum as a single atom, which will not be taken apart."""
        return one if len(one.terms) <= 1 else self.sealed(one)

    def sealed(self, one: Sum) -> Sum:
        """The same, also for a single product."""
        if one.number is not None:
            return one
        atom = self.atom("sum", (one,), "whole", never_negative=one.never_negative, always_real=True)
        return Sum({((atom, Fraction(1)),): Fraction(1)})

    def _closed(self, one: Sum) -> Sum:
        """The sum, with what multiplies each product of theta as one atom; as short as it gets without a loss."""
        if not one.mixed:
            return self.whole(one)
        rows = self.by_theta(one)
        return add(*(self.multiply(Sum({p: Fraction(1)}), self.whole(s)) for p, s in rows.items()))

    def by_theta(self, one: Sum) -> dict[Product, Sum]:
        """The sum as {h: s}, where h are products of theta alone and s is all that multiplies them."""
        rows: dict[Product, dict[Product, Fraction]] = {}
        for product, c in one.terms.items():
            rows.setdefault(part(product, False), {})[part(product, True)] = c
        return {h: Sum(s) for h, s in rows.items()}

    def split(self, one: Sum) -> tuple[Sum, Sum] | None:
        """Factors (of theta, of the data) whose product is the sum, if there are any without mixed atoms."""
        if any(atom.mixed for atom in one.atoms):
            return None
        rows = list(self.by_theta(one).items())
        s = rows[0][1]
        first, c = next(iter(s.terms.items()))
        h: dict[Product, Fraction] = {}
        for product, row in rows:
            h[product] = row.terms.get(first, Fraction(0)) / c
            if row != scale(s, h[product]):
                return None
        return Sum(h), s

    def _expanded(self, product: Product, atoms: list[Atom]) -> Sum:
        """A product with some of its factors, which are sums, multiplied out."""
        result = Sum({tuple(f for f in product if f[0] not in atoms): Fraction(1)})
        for atom, exponent in product:
            if atom in atoms:
                for _ in range(int(exponent)):
                    result = self.multiply(result, atom.arguments[0])
        return result


def is_expanded(atom: Atom, exponent: Fraction) -> bool:
    """Whether a factor is a sum that is multiplied out."""
    return (
        atom.name == "sum"
        and atom.detail != "whole"
        and exponent.denominator == 1
        and 0 < exponent <= _HIGHEST_POWER
        and len(atom.arguments[0].terms) ** exponent <= _MOST_PRODUCTS
    )


def _times(p: Product, q: Product) -> tuple[Product | None, list[Atom]]:
    """The product of two products, None if it is zero, and the factors of it to be multiplied out."""
    if not p or not q:
        return p or q, []
    powers = dict(p)
    for atom, exponent in q:
        powers[atom] = powers.get(atom, Fraction(0)) + exponent
    factors, to_expand, cases = [], [], {}
    for atom, exponent in powers.items():
        if not exponent:
            continue
        if atom.is_indicator:  # 1 squared is 1, and two cases do not hold at once
            case, family = atom.detail
            if cases.setdefault((atom.arguments, family), case) != case:
                return None, []
            exponent = Fraction(1)
        elif is_expanded(atom, exponent):
            to_expand.append(atom)
        factors.append((atom, exponent))
    return tuple(sorted(factors, key=lambda factor: factor[0].number)), to_expand
