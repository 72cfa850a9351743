"""What must be expanded of a law that is not separable: smooth functions of the awkward parameters and the data, its units.

The mixed factors of a law's sums are powers of few functions: those of STAR are G and G^2, with G = sigmoid(gamma (x - c)).
If G is replaced by a polynomial wherever it occurs, what results is the log-density of another law, of which G is that
polynomial. So it stays below its bound, however bad the polynomial is, as if the drift of the law had been expanded
(theorem 3 of the paper). Polynomials of G and of G^2 by themselves would not fit each other, and the precision of a
coefficient could become negative.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from epf.model.structure._algebra import Atom, Product, Sum
from epf.model.structure._words import JUMPS, meets

_KINKS = {"max", "min", "abs", "clamp", "rem", "is_finite"}
Powers = tuple[tuple[int, int], ...]  # unit and exponent


@dataclass(frozen=True)
class MixedLaw:
    """s_k = sum_m r_km(data) U_m of one law, where U_m are products of powers of its units."""

    units: tuple[Product, ...]
    monomials: tuple[Powers, ...]
    weights: tuple[tuple[int, int, Sum], ...]
    """k, m and r_km, where it is not zero."""

    @property
    def degree(self) -> int:
        return max((sum(power for _, power in powers) for powers in self.monomials), default=0)


def mixed_law(statistics: list[Sum]) -> MixedLaw:
    """The mixed sums s_k of a law by their units."""
    found: dict[Product, dict[int, dict[Product, Fraction]]] = {}
    for k, one in enumerate(statistics):
        for product, c in one.terms.items():
            mixed = tuple(factor for factor in product if factor[0].mixed)
            rest = tuple(factor for factor in product if not factor[0].mixed)
            found.setdefault(mixed, {}).setdefault(k, {})[rest] = c
    scales: dict[Product, set[Fraction]] = {}
    for mixed in found:
        for direction, scale in _families(mixed):
            scales.setdefault(direction, set()).add(scale)
    units: list[Product] = []
    place: dict[tuple[Product, Fraction], tuple[int, int]] = {}
    for direction, several in scales.items():
        for scale, (base, power) in _powers(direction, several).items():
            unit = tuple((atom, e * base) for atom, e in direction)
            if unit not in units:
                units.append(unit)
            place[direction, scale] = units.index(unit), power
    monomials = tuple(tuple(place[family] for family in _families(mixed)) for mixed in found)
    weights = [(k, m, Sum(r)) for m, rows in enumerate(found.values()) for k, r in rows.items()]
    return MixedLaw(tuple(units), monomials, tuple(weights))


def _families(mixed: Product) -> Iterator[tuple[Product, Fraction]]:
    """The factors as powers: exponentials together, so that large ones cancel before they overflow, others one by one."""
    exponentials = tuple(factor for factor in mixed if factor[0].name == "exp")
    groups = [exponentials] if exponentials else []
    for group in (*groups, *((factor,) for factor in mixed if factor[0].name != "exp")):
        scale = group[0][1]
        yield tuple((atom, e / scale) for atom, e in group), scale


def _powers(direction: Product, scales: set[Fraction]) -> dict[Fraction, tuple[Fraction, int]]:
    """For each exponent that occurs, the exponent of the unit and the power of it."""
    exponential, least = direction[0][0].name == "exp", min(scales, key=abs)
    base = Fraction(1) if not exponential and all(s > 0 and s.denominator == 1 for s in scales) else least
    if any(s / base <= 0 or (s / base).denominator != 1 for s in scales):
        return {s: (s, 1) for s in scales}
    # A variance or its inverse by itself is the square of a unit: so it is never negative.
    if scales == {base} and (exponential or base < 0):
        return {base: (base / 2, 2)}
    return {s: (base, int(s / base)) for s in scales}


def is_smooth(atom: Atom) -> bool:
    """Whether theta reaches neither a jump nor a kink in an atom."""
    return not meets(atom, JUMPS | _KINKS)
