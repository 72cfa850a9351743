"""Ctrl-C and SIGTERM while rows are read: they end the wait for a row at once, and an update never."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

_AGAIN = 0.05  # seconds until a signal that nobody noted is sent again


class Interrupts:
    """Delays Ctrl-C and SIGTERM during an update, which is done completely or not at all.

    A signal that comes just before the wait for a row begins, or to another thread, does not end the wait: Python notes it
    when the wait is over. So a thread of its own sees every signal, and sends it to this one until it is noted.
    """

    def __init__(self) -> None:
        self.asked = False
        self._waiting = False
        self._over = False
        self._main = threading.get_ident()

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        self._bell, self._cord = os.pipe()
        os.set_blocking(self._cord, False)
        self._cord_before = signal.set_wakeup_fd(self._cord, warn_on_full_buffer=False)
        self._ringing = threading.Thread(target=self._ring, daemon=True)
        self._ringing.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._cord_before)
        os.close(self._cord)
        self._over = True
        self._ringing.join()  # before the handlers change: what it sent is still ours
        os.close(self._bell)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        first, self.asked = not self.asked, True
        if first and self._waiting:
            raise KeyboardInterrupt

    def _ring(self) -> None:
        while os.read(self._bell, 1):  # nothing once the other end is closed
            time.sleep(_AGAIN)
            while not (self.asked or self._over):
                if self._waiting:  # after an update Python notes it by itself
                    signal.pthread_kill(self._main, signal.SIGINT)
                time.sleep(_AGAIN)

    def next(self, rows: Iterator[Any]) -> Any:
        """The next row; None at the end of the input or after an interrupt."""
        try:
            self._waiting = True
            return None if self.asked else next(rows, None)
        except KeyboardInterrupt:
            return None
        finally:
            self._waiting = False
