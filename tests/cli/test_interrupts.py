"""A signal ends the wait for a row, whichever thread it came to."""

import os
import signal
import threading

from epf.cli.interrupts import Interrupts


def lines(file):
    while text := os.read(file, 1):
        yield text


def test_a_signal_that_another_thread_got_ends_the_wait():
    """As one does that comes just before the wait: Python would note both when the wait is over."""
    there, here = os.pipe()

    def interrupt():
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    rescue = threading.Timer(20.0, lambda: os.write(here, b"x"))  # a row, so that a failure is not a hang
    rescue.start()
    try:
        with Interrupts() as interrupts:
            threading.Timer(0.1, interrupt).start()
            assert interrupts.next(lines(there)) is None
            assert interrupts.asked
    finally:
        rescue.cancel()
        os.close(here)
        os.close(there)


def test_an_update_is_not_interrupted_and_no_row_follows():
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background of a shell
    with Interrupts() as interrupts:
        rows = iter([1, 2, 3])
        assert interrupts.next(rows) == 1
        signal.raise_signal(signal.SIGTERM)  # during the update
        assert interrupts.asked
        assert interrupts.next(rows) is None
    assert signal.getsignal(signal.SIGINT) is before


def test_rows_go_on_and_end():
    with Interrupts() as interrupts:
        rows = iter([1])
        assert (interrupts.next(rows), interrupts.next(rows)) == (1, None)
    assert not interrupts.asked
