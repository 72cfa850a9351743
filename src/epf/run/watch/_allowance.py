"""Time that something beside a filter may take: a share of the time, with a credit for the start."""

import time
from collections.abc import Callable, Sequence

FULL = 500.0  # updates a second, from which on the filter's own time counts alone
WAITING = 5.0  # how much a second counts in which the filter waits for data


class Allowance:
    """Seconds that may be spent: `share` of the time that counts, and never more than `credit` at once.

    What is done takes as long as it takes, so the allowance may fall below zero; then it is earned before the next.
    """

    def __init__(self, share: float, credit: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._share, self._credit, self._clock = share, credit, clock
        self._left, self._since, self._counts = credit, clock(), WAITING
        self.opens = self._since
        """The time from which on something may be done."""

    def spend(self, seconds: float) -> None:
        self._earn()
        self._left -= seconds
        self._note_when()

    def count(self, counts: float) -> None:
        """From now on so much of the time counts."""
        self._earn()
        self._counts = counts
        self._note_when()

    @property
    def wait(self) -> float:
        """Seconds until something may be done."""
        return max(self.opens - self._clock(), 0.0)

    def _earn(self) -> None:
        now = self._clock()
        self._left = min(self._left + self._share * self._counts * (now - self._since), self._credit)
        self._since = now

    def _note_when(self) -> None:
        self.opens = self._since + max(-self._left, 0.0) / (self._share * self._counts)


def counting(updates: float, busy: float, elapsed: float) -> float:
    """How much of the time counts, after so many updates that took `busy` seconds of the `elapsed` ones.

    It is the filter's own at 500 updates a second and more. Where fewer come, a page may take more, since the machine
    waits: (500 / rate)^2 times as much, up to where all time counts, that of waiting five times.
    """
    if elapsed <= 0.0 or updates <= 0.0 or busy <= 0.0:
        return WAITING
    share = min(busy / elapsed, 1.0)
    return min(share * max(1.0, FULL * elapsed / updates) ** 2, share + WAITING * (1.0 - share))


def paced(speed: Sequence[tuple[float, int, float, float]]) -> float:
    """The same, from notes of the clock, the updates until then, and the seconds and the processor time that they took."""
    (began, first, busy, had), (ended, last, busier, has) = speed[0], speed[-1]
    # On a crowded machine an update takes longer than the processor's time for it.
    return counting(last - first, min(busier - busy, has - had) if has > had else busier - busy, ended - began)
