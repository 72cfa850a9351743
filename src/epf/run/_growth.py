"""A stream without a method of its own takes a larger one when its certificate asks for it.

The certificate is looked at each time the observations have doubled. If it is too large, a second stream begins with a
larger method. It takes in the old observations, a few per update, and replaces the first stream's filter when it has seen
them all. So no update takes in many of them. Its program is compiled in a thread of its own meanwhile.

Where the certificate is small enough, the second stream is a look at what is elsewhere (`_elsewhere.py`), each time the
observations are four times as many: a near look and a far one in turn. If the answer misses another mode, the verdict says
so, and the next larger method has nodes there too.

When all this happens depends on the number of observations alone: a stream that was saved and loaded goes on as it would
have, and its answers are those of `epf.fit` with the method that it has come to.

When the larger method takes over, both have seen the same observations, and their answers are compared as those of two runs
of `epf.fit` are. A contradiction, or a larger method that fails, is part of the verdict from then on. It stays when a still
larger method takes over: if that one agrees, it agrees with a method that was doubted, and the one that contradicted it
is gone and cannot be asked again. `epf.fit` too compares its answer with all of its runs.
"""

import copy
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from epf.errors import EPFError
from epf.filters._base import Caveat, Filter
from epf.filters._modes import FAR, NEAR, Elsewhere, Modes, ellipse_of
from epf.filters._multiple_model import MultipleModel
from epf.filters.marginal._marginal import MarginalEPF
from epf.results._verdict import LEVELS
from epf.run._default import (
    MOST_AT_ONCE,
    MOST_ROUNDS,
    Found,
    Round,
    contradiction,
    core,
    enlarged,
    failed,
    is_affordable,
    made_of,
)
from epf.run._elsewhere import counts, is_sure, log_evidence_of, look, missed, share_of
from epf.storage._checkpoint import not_valid
from epf.storage._fingerprint import describe, rebuild

if TYPE_CHECKING:
    from epf.run._stream import Stream

_FIRST = 64  # observations: with fewer there is little to judge by
_WAIT = 4  # of the observations so far, one in so many passes before the first is replayed: time to compile
_PER_UPDATE = 2  # old observations that the larger method takes in: each may move its nodes, which replays more
_TAKEN = (
    *("method", "log_evidence", "_bound", "_start", "_stepper", "_packed", "_replayed", "_buffer"),
    *("_info", "_row", "_nats", "_collapsed", "_invalid"),
)
_MOST_BYTES = 1 << 24  # of a file whose method a header may name: as many particles as `is_affordable` allows
_LARGER = (MarginalEPF, MultipleModel, Elsewhere)  # the methods that a stream grows by


class Growth:
    """Whether a larger method is due, and the stream that it runs in until it has caught up."""

    def __init__(self, accuracy: float, rounds: int = 0) -> None:
        self.accuracy, self.rounds = accuracy, rounds
        self.doubts: tuple[Caveat, ...] = ()
        self.mode: Caveat | None = None
        """That the answer misses another mode, until the method that has it takes over."""
        self._began = 0  # observations when the larger method was chosen
        self._method: Filter | None = None
        self._larger: Stream | None = None
        self._compiling: threading.Thread | None = None
        self._compiled: list[Stream | Exception] = []  # by the thread, for all copies

    def after_update(self, stream: "Stream") -> None:
        """Look at the certificate if it is time to, or let the larger method go on.

        What changes is a copy: a copy of the stream, made before the update, keeps what it had.
        """
        t = stream.num_observations
        if self._method is not None:
            stream._growth = growth = copy.copy(self)
            growth._go_on(stream, t)
        elif t >= _FIRST and t & (t - 1) == 0 and stream._buffer is not None:
            larger = self._looked(stream, t)
            if larger is not None:
                stream._growth = growth = copy.copy(self)
                growth._begin(stream, larger, t)

    def _looked(self, stream: "Stream", t: int) -> Filter | None:
        """The method that the certificate asks for, or a look elsewhere if it asks for none."""
        try:
            found, larger = _found(stream), None
            if self.rounds < MOST_ROUNDS:
                larger = enlarged(stream.method, found, self.accuracy, MOST_AT_ONCE)
            if larger is None and t.bit_length() % 2 and is_sure(found.error.worst):
                reach = FAR if t.bit_length() % 4 == 1 else NEAR  # near after 64 observations, far after 256
                larger = look(stream.method, stream._bound, stream._state, stream.method, reach)
            return larger
        except Exception:  # whatever it is, the update itself has succeeded
            return None

    def facts(self) -> dict[str, Any]:
        """For a checkpoint: what `loaded` needs."""
        growth = {"accuracy": self.accuracy.hex(), "rounds": self.rounds, "began": self._began}
        return growth | {"method": describe(self._method), "doubts": self.doubts, "mode": self.mode}

    @classmethod
    def loaded(cls, path: Path, facts: Any, stream: "Stream") -> "Growth | None":
        """The growth of a stream that was saved; a larger method is where it was then."""
        if facts is None:
            return None
        try:
            growth = cls(float.fromhex(facts["accuracy"]), int(facts["rounds"]))
            # A file of an earlier version has no doubts.
            growth.doubts = tuple(Caveat(*one) for one in facts.get("doubts", ()))
            growth.mode = None if facts.get("mode") is None else Caveat(*facts["mode"])
            began, method = int(facts["began"]), facts.get("method")
            larger = None if method is None else rebuild(method, _MOST_BYTES, _LARGER)
            sound = growth.accuracy > 0.0 and 0 <= growth.rounds <= MOST_ROUNDS
            for level, sentence in doubts_of(growth):
                sound &= type(level) is int and 0 <= level < len(LEVELS) and isinstance(sentence, str)
            inner = core(larger)
            replays = isinstance(inner, MarginalEPF) and is_affordable(inner) and stream._buffer is not None
            if not sound or not 0 <= began <= stream.num_observations or (larger is not None and not replays):
                raise ValueError
        except (TypeError, ValueError, KeyError, OverflowError, EPFError):
            raise not_valid(path, "'growth'") from None
        if larger is not None:
            growth._begin(stream, larger, began)
            growth._go_on(stream, stream.num_observations)
        return growth

    def _begin(self, stream: "Stream", method: Filter, began: int) -> None:
        self._began, self._method, self._compiled = began, method, []
        settings: Any = jax.config  # each thread has its own
        double, device, precision = (
            settings.jax_enable_x64,
            settings.jax_default_device,
            settings.jax_default_matmul_precision,
        )

        compiled = self._compiled

        def first() -> None:
            with jax.enable_x64(double), jax.default_device(device), jax.default_matmul_precision(precision):
                try:
                    larger = _alike(stream, method)
                    _catch_up(larger, stream, 1)
                    _found(larger)  # compiles what it is compared by
                    compiled.append(larger)
                except Exception as error:  # raised by `_first`
                    compiled.append(error)

        self._compiling = threading.Thread(target=first, name="epf-growth")
        self._compiling.start()

    def _first(self) -> "Stream":
        """The larger stream after its first observation, when its thread has ended."""
        assert self._compiling is not None
        self._compiling.join()
        self._compiling, (larger,) = None, self._compiled
        if isinstance(larger, Exception):
            raise larger
        return larger

    def _go_on(self, stream: "Stream", t: int) -> None:
        """As many old observations as are due; after the last of them, the larger method is the stream's own."""
        due = min(t, _PER_UPDATE * (t - self._began - self._began // _WAIT))
        if due <= 0:
            return
        assert self._method is not None
        assert stream._bound is not None
        try:
            if self._larger is None:
                self._larger = self._first()
            _catch_up(self._larger, stream, due)
            if self._larger.num_observations != t or stream._info is None:  # just loaded: it has no answer to compare
                return
            larger, present = (Round.of(one.method, _found(one)) for one in (self._larger, stream))
            if isinstance(self._method, Elsewhere):
                self._compare(stream, present, larger, t)
                return
            finds = isinstance(self._method, Modes) and self._method.ellipses != getattr(stream.method, "ellipses", ())
            self.rounds += 1
            if not finds:
                self.doubts += tuple(contradiction(larger, present, when=f" after {t} observations"))
            elif is_sure(larger.error.worst):
                self.mode = None  # and the answer without it is no longer in question
            if not finds or self.mode is None:
                _take_over(stream, self._larger)
        except Exception as error:  # whatever it is, the update itself has succeeded, and the present method stays
            if not isinstance(self._method, Elsewhere):  # where nothing is elsewhere, no run succeeds
                self.doubts += (failed(self._method, made_of(stream._bound.describe()), error),)
                self.rounds = MOST_ROUNDS
        self._method, self._larger, self._compiled = None, None, []

    def _compare(self, stream: "Stream", present: Round, elsewhere: Round, t: int) -> None:
        """After a look elsewhere: if the answer misses another mode, the method that has it begins."""
        looked = self._larger
        assert looked is not None
        share = share_of(log_evidence_of(looked.log_evidence, looked._bound), stream.log_evidence)
        self._method, self._larger, self._compiled = None, None, []
        found = missed(present, elsewhere, share, self.accuracy, lambda: ellipse_of(looked._bound, looked._state))
        if found is not None and counts(elsewhere):
            self.mode = found.doubt
            self._begin(stream, found.method, t)


def doubts_of(growth: Growth | None) -> tuple[Caveat, ...]:
    """What a stream's verdict says of its growth, if it may grow."""
    if growth is None:
        return ()
    return growth.doubts if growth.mode is None else (*growth.doubts, growth.mode)


def _found(stream: "Stream") -> Found:
    assert stream._bound is not None
    return Found(stream.error, stream._bound.describe(), stream.latest, stream._bound.parameters)


def _alike(stream: "Stream", method: Filter) -> "Stream":
    """A stream that has seen nothing yet, with another method, and that does not warn."""
    larger = type(stream)(
        stream.model, method, seed=stream.seed, quantile_levels=stream._levels.tolist(), devices=stream._devices
    )
    larger._silent = True
    return larger


def _catch_up(larger: "Stream", stream: "Stream", due: int) -> None:
    """Let the larger stream take in old observations until it has `due` of them."""
    assert stream._buffer is not None
    ys, us = stream._buffer.arrays(due)
    rows = stream._incoming.like(ys, us)
    while larger.num_observations < due:
        larger._advance(rows.some(larger.num_observations, due), 0.0)


def _take_over(stream: "Stream", larger: "Stream") -> None:
    """The stream goes on with the larger one's filter: at once, since a page may copy it at any time."""
    stream.__dict__.update({name: getattr(larger, name) for name in _TAKEN} | {"_owner": None})
