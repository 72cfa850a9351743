"""Functions of sums: powers, exponentials, logarithms, cases, and any other operation as an atom of its own.

    (P Q)^r = P^r Q^r      log(P Q) = log P + log Q      |P Q| = |P| |Q|      P of theta, Q of the data
    exp(P + Q) = exp(P) exp(Q)      sin(P + Q) = sin(P) cos(Q) + cos(P) sin(Q)
    f(1[c] P + 1[not c] Q) = 1[c] f(P) + 1[not c] f(Q)

Any other function of a sum that mixes theta and data is a mixed atom.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from epf.model.structure._algebra import (
    ONE,
    ZERO,
    Algebra,
    Atom,
    Product,
    Sum,
    add,
    is_expanded,
    number,
    part,
    scale,
)

_MOST_CASES = 600
_NEVER_NEGATIVE = {"exp", "exp2", "logistic", "abs", "erfc", "bessel_i0e"}
_ALWAYS_REAL = {
    "exp", "exp2", "expm1", "sin", "cos", "tanh", "sinh", "cosh", "atan", "asinh", "logistic", "abs", "sign", "floor",
    "ceil", "round", "max", "min", "clamp", "erf", "erfc", "lgamma", "convert_element_type", "bessel_i0e", "bessel_i1e",
}  # fmt: skip
_UNIT = Fraction(1)


def as_array(sums: Iterable[Sum], shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(math.prod(shape), object)
    array[:] = list(sums)
    return array.reshape(shape)


def thetas_of(*values: np.ndarray) -> frozenset[int]:
    """The entries of theta that any of these numbers depends on."""
    return frozenset().union(*(one.thetas for value in values for one in value.flat if isinstance(one, Sum)))


class Functions(Algebra):
    """Atoms, and the functions of sums that make them."""

    def constant(self, value: Any) -> Sum:
        """A number of the program; one that is not finite is an atom."""
        value = float(value)
        if math.isfinite(value):
            return number(value)
        return self.single(self.atom("constant", (), repr(value), never_negative=value == math.inf))

    def single(self, atom: Atom, exponent: Fraction = _UNIT) -> Sum:
        return Sum({((atom, exponent),): _UNIT})

    def array(self, value: np.ndarray) -> np.ndarray:
        """An array of sums: numbers of the program are made constants."""
        return value if value.dtype == object else as_array(map(self.constant, value.flat), value.shape)

    def unknowns(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        of: str | None = None,
        theta: bool = False,
        never_negative: Any = False,
    ) -> np.ndarray:
        """Numbers that are not known: entries of theta, or data. `of` tells apart arrays of one name."""
        signs = np.broadcast_to(never_negative, math.prod(shape))
        found = []
        for i, sign in enumerate(map(bool, signs)):
            thetas, detail = (i,) if theta else (), i if of is None else (of, i)
            own = self.atom(name, (), detail, thetas=thetas, data=not theta, never_negative=sign, always_real=True)
            found.append(self.single(own))
        return as_array(found, shape)

    def call(self, name: str, arguments: Sequence[Sum], detail: Any = None) -> Sum:
        """Any function, case by case if its arguments have cases and mix theta and data."""

        def one(arguments: Sequence[Sum]) -> Sum:
            signs = [argument.never_negative for argument in arguments]
            positive = name in _NEVER_NEGATIVE or (name == "max" and any(signs))
            positive = positive or (name in ("min", "clamp") and all(signs))
            real = name in _ALWAYS_REAL
            return self.single(self.atom(name, arguments, detail, never_negative=positive, always_real=real))

        return self.by_cases(arguments, one)

    def by_cases(self, arguments: Sequence[Sum], function: Callable[[Sequence[Sum]], Sum]) -> Sum:
        """f(1[c] a + 1[not c] b) = 1[c] f(a) + 1[not c] f(b), for arguments that mix theta and data."""
        found = _indicators(arguments)
        if not found:
            return function(arguments)
        if math.prod(family[1] for _, family in found) > _MOST_CASES:
            return function([self.sealed(one) for one in arguments])
        (of, family), *_ = found
        results = []
        for case in range(family[1]):
            given = [_given(one, of, family, case) for one in arguments]
            results.append((self.case(of, case, family), self.by_cases(given, function)))
        return self.chosen(results)

    def case(self, of: tuple[Sum, ...], case: int, family: tuple[str, int]) -> Sum:
        """1 if a condition or an index has this value, and 0 otherwise."""
        if of[0].number is not None:
            value = of[0].number
            if family[0] == "index":  # the last two cases are before and after the array
                last = family[1] - 1
                value = Fraction(last - 1) if value < 0 else value if value < last - 1 else Fraction(last)
            return number(int(value == case))
        if _indicators(of):
            return self.by_cases(of, lambda given: self.case(tuple(given), case, family))
        atom = self.atom("case", of, (case, family), never_negative=True)
        atom.always_real = True  # a comparison with NaN is false, not NaN
        return self.single(atom)

    def chosen(self, alternatives: Sequence[tuple[Sum, Sum]]) -> Sum:
        """sum of 1[case] value over the cases of one condition; what all have in common needs no condition."""
        values = [value for _, value in alternatives]
        first = values[0].terms
        common = Sum({p: c for p, c in first.items() if all(value.terms.get(p) == c for value in values)})
        rest = [self.multiply(case, add(value, scale(common, -1))) for case, value in alternatives]
        return add(common, *rest)

    def power(self, one: Sum, exponent: Fraction) -> Sum:
        """The sum to a rational power."""
        if exponent == 0:
            return number(1)
        if exponent == 1:
            return one
        if one.number is not None:
            return self._power_of_number(one.number, exponent)
        whole = exponent.denominator == 1
        if whole and exponent > 0 and is_expanded(self._as_factor(one), exponent):
            return reduce(self.multiply, [one] * int(exponent))
        if _indicators([one]):
            return self.by_cases([one], lambda given: self.power(given[0], exponent))
        if one.mixed and (factors := self._factors(one, whole)):
            return self.multiply(*(self.power(factor, exponent) for factor in factors))
        if len(one.terms) == 1 and not any(atom.is_indicator for atom in one.atoms):
            ((product, c),) = one.terms.items()
            if whole:
                return scale(self._raised(product, exponent), c ** int(exponent))
            if (roots := self._signed(product, c)) is not None:
                parts = [self._raised(((atom, e),), exponent) for atom, e in roots]
                return scale(reduce(self.multiply, parts), _root(abs(c), exponent))
        # A sum whose first coefficient is 1 (or -1 under a root) is a factor of its own.
        c = next(iter(_ordered(one).values()))
        c = c if whole else abs(c)
        base = self._as_factor(scale(one, 1 / c))
        return self._raised(((base, _UNIT),), exponent, _root(c, exponent))

    def _power_of_number(self, value: Fraction, exponent: Fraction) -> Sum:
        if exponent.denominator == 1 and (value or exponent > 0):
            return number(value ** int(exponent))
        if value < 0 or (not value and exponent < 0):
            return self.constant(math.nan if value < 0 else math.inf)
        return number(_root(value, exponent))

    def _as_factor(self, one: Sum) -> Atom:
        if len(one.terms) == 1:
            ((product, c),) = one.terms.items()
            if c == 1 and len(product) == 1 and product[0][1] == 1:
                return product[0][0]
        return self.atom("sum", (one,), never_negative=one.never_negative, always_real=True)

    def _raised(self, product: Product, exponent: Fraction, c: Fraction = _UNIT) -> Sum:
        """c times the product with all exponents multiplied; factors that are sums are multiplied out where they can be."""
        raised = tuple((atom, e * exponent) for atom, e in product)
        return (
            self.multiply(Sum({raised[:1]: c}), Sum({raised[1:]: _UNIT})) if len(raised) > 1 else self._open(raised, c)
        )

    def _open(self, product: Product, c: Fraction) -> Sum:
        ((atom, e),) = product
        if is_expanded(atom, e):
            return scale(self.power(atom.arguments[0], e), c)
        return Sum({product: c})

    def _factors(self, one: Sum, whole: bool) -> tuple[Sum, Sum] | None:
        """Factors of theta and of the data; with `whole` false, only if roots and logarithms can be taken of each."""
        if len(one.terms) == 1:  # here mixed atoms may be among the factors of the data
            ((product, c),) = one.terms.items()
            h, s = Sum({part(product, False): _UNIT}), Sum({part(product, True): c})
        elif (found := self.split(one)) is not None:
            h, s = found
        else:
            return None
        if h.number is not None:
            return None
        if scale(s, -1).never_negative:
            h, s = scale(h, -1), scale(s, -1)
        return (h, s) if whole or h.never_negative or s.never_negative else None

    def _signed(self, product: Product, c: Fraction) -> Product | None:
        """The factors as numbers that are not negative wherever the product is not; None if that cannot be said."""
        unknown = [atom for atom, e in product if e % 2 == 1 and not atom.never_negative]
        if c < 0 or len(unknown) > 1:
            return None
        return tuple((self._size(atom) if e % 2 == 0 else atom, e) for atom, e in product)

    def _size(self, atom: Atom) -> Atom:
        """|a|."""
        return (
            atom
            if atom.never_negative
            else self.atom("abs", (self.single(atom),), never_negative=True, always_real=True)
        )

    def log(self, one: Sum) -> Sum:
        if one.number is not None:
            value = one.number
            return number(math.log(value)) if value > 0 else self.constant(-math.inf if value == 0 else math.nan)
        if _indicators([one]):
            return self.by_cases([one], lambda given: self.log(given[0]))
        if one.mixed and (factors := self._factors(one, False)):
            return add(*map(self.log, factors))
        if len(one.terms) == 1 and not any(atom.is_indicator for atom in one.atoms):
            ((product, c),) = one.terms.items()
            if (signed := self._signed(product, c)) is not None:
                return add(number(math.log(c)), *(scale(self._log_of(atom), e) for atom, e in signed))
        c = abs(next(iter(_ordered(one).values())))
        return add(number(math.log(c)), self._log_atom(scale(one, 1 / c)))

    def _log_of(self, atom: Atom) -> Sum:
        if atom.name == "exp":
            return atom.arguments[0]
        inside = atom.arguments[0] if atom.name == "sum" else self.single(atom)
        return self._log_atom(inside)

    def _log_atom(self, one: Sum) -> Sum:
        return self.single(self.atom("log", (one,), always_real=one.never_negative))

    def exp(self, one: Sum) -> Sum:
        if _indicators([one]):
            return self.by_cases([one], lambda given: self.exp(given[0]))
        result = number(1)
        for product, c in one.terms.items():
            if product == ONE:
                factor = number(math.exp(c)) if abs(c) < 700 else self.constant(math.inf if c > 0 else 0.0)
            elif len(product) == 1 and product[0][0].name == "log" and product[0][1] == 1:
                factor = self.power(product[0][0].arguments[0], c)
            else:
                factor = self.single(self._exp_atom(product), c)
            result = self.multiply(result, factor)
        return result

    def _exp_atom(self, product: Product) -> Atom:
        return self.atom("exp", (Sum({product: _UNIT}),), never_negative=True, always_real=True)

    def pow(self, base: Sum, exponent: Sum) -> Sum:
        """base^exponent, where both may be unknown."""
        if exponent.number is not None:
            return self.power(base, exponent.number)
        if _indicators([base, exponent]):
            return self.by_cases([base, exponent], lambda given: self.pow(*given))
        return (
            self.exp(self.multiply(exponent, self.log(base)))
            if base.never_negative
            else self.call("pow", [base, exponent])
        )

    def abs(self, one: Sum) -> Sum:
        if one.never_negative:
            return one
        if _indicators([one]):
            return self.by_cases([one], lambda given: self.abs(given[0]))
        if len(one.terms) == 1:
            ((product, c),) = one.terms.items()
            sizes = [self.single(self._size(atom), e) if e % 2 == 1 else self.single(atom, e) for atom, e in product]
            return scale(reduce(self.multiply, sizes, number(1)), abs(c))
        if one.mixed and (factors := self.split(one)):
            return self.multiply(*map(self.abs, factors))
        return self.call("abs", [one])

    def wave(self, name: str, one: Sum) -> Sum:
        """sin or cos; of an angle of theta plus an angle of the data by the formula for sums."""
        data = Sum({p: c for p, c in one.terms.items() if any(atom.data for atom, _ in p)})
        theta = add(one, scale(data, -1))
        if theta.number is not None or data.number is not None or data.mixed:
            return self.call(name, [one])

        pairs = [("sin", "cos"), ("cos", "sin")] if name == "sin" else [("cos", "cos"), ("sin", "sin")]
        first, second = (self.multiply(self.call(f, [theta]), self.call(g, [data])) for f, g in pairs)
        return add(first, second if name == "sin" else scale(second, -1))


def _root(value: Fraction, exponent: Fraction) -> Fraction:
    """value^exponent; exact for squares of fractions, which then stay equal to what they were made of."""
    if exponent.denominator == 1:
        return value ** int(exponent)
    if exponent.denominator == 2:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return Fraction(top, bottom) ** exponent.numerator
    return Fraction(float(np.float64(value) ** np.float64(exponent)))


def _ordered(one: Sum) -> dict[Product, Fraction]:
    """The terms in an order that depends on the sum alone."""
    return dict(sorted(one.terms.items(), key=lambda term: [(atom.number, e) for atom, e in term[0]]))


def _indicators(arguments: Sequence[Sum]) -> list[tuple[tuple[Sum, ...], tuple[str, int]]]:
    """The conditions in arguments that together mix theta and data."""
    if not (any(one.data for one in arguments) and any(one.thetas for one in arguments)):
        return []
    found = {(atom.arguments, atom.detail[1]): None for one in arguments for atom in one.atoms if atom.is_indicator}
    return list(found)


def _given(one: Sum, of: tuple[Sum, ...], family: tuple[str, int], case: int) -> Sum:
    """The sum in one case of a condition."""
    terms: dict[Product, Fraction] = {}
    for product, c in one.terms.items():
        kept, holds = [], True
        for atom, e in product:
            if atom.is_indicator and atom.arguments == of and atom.detail[1] == family:
                holds = holds and atom.detail[0] == case
            else:
                kept.append((atom, e))
        if holds:
            terms[tuple(kept)] = terms.get(tuple(kept), Fraction(0)) + c
    return Sum({p: c for p, c in terms.items() if c}) if terms else ZERO
