"""The fewest terms: a sparse matrix of exact numbers as few of its own rows, and how the others are made of them."""

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

Row = Mapping[Hashable, Fraction]
Combination = dict[int, Fraction]


def independent_rows(rows: Sequence[Row]) -> tuple[list[int], list[Combination]]:
    """The rows that no earlier ones add up to, and every row as a combination of these, by their position among them.

    The arithmetic is exact, so a row is left out only if it is proved to depend on the others.
    """
    kept: list[int] = []
    made_of: list[Combination] = []
    reduced: dict[Hashable, tuple[dict[Hashable, Fraction], Combination]] = {}  # by pivot, each with its combination
    for i, row in enumerate(rows):
        left, combination = dict(row), Combination()
        # A reduced row has no pivot of an earlier one but may have one of a later one, so each is looked at in turn.
        for pivot, (other, of) in reduced.items():
            c = left.get(pivot)
            if c:
                _subtract(left, other, c)
                _subtract(combination, of, -c)
        if left:
            pivot, c = next(iter(left.items()))
            own = {len(kept): Fraction(1)}
            _subtract(own, combination, Fraction(1))
            reduced[pivot] = ({column: v / c for column, v in left.items()}, {k: v / c for k, v in own.items()})
            combination = {len(kept): Fraction(1)}
            kept.append(i)
        made_of.append(combination)
    return kept, made_of


def _subtract(row: dict[Any, Fraction], other: Mapping[Any, Fraction], c: Fraction) -> None:
    for column, value in other.items():
        difference = row.get(column, Fraction(0)) - c * value
        if difference:
            row[column] = difference
        else:
            row.pop(column, None)
