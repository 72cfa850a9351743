"""The runs of the default: larger methods until the certificate is small enough, and then looks at what is elsewhere."""

import dataclasses
from collections.abc import Callable

import numpy as np

from epf.errors import EPFError
from epf.filters._base import Caveat, Filter
from epf.filters._modes import Anew, Elsewhere, Modes, ellipse_of, passes
from epf.filters.marginal._marginal import MarginalEPF
from epf.results._result import Result
from epf.run._answer import renewed
from epf.run._checks import memory_errors
from epf.run._default import MOST_ROUNDS, Round, contradiction, core, enlarged, failed
from epf.run._elsewhere import SURE, Missed, counts, farther, is_sure, log_evidence_of, look, missed, name_of, share_of

_MORE = 1e3  # times its claim: what may be elsewhere if a look is not sure of itself
_AS_SURE = 1.1  # times the error of another run: certificates are no more exact than that
_ABOUT = 1.5  # times the error of the surest run, up to which another one is about as sure
_LOOKS = 0.5  # of the budget, which looks elsewhere, and then nodes at what they found, may take beyond it


class Search:
    """The rounds of one series: larger methods until the certificate is below `accuracy` or `budget` seconds end.

    `method` is the one to run next, None at the end. `best` is the run with the smallest error. It need not be the largest:
    its nodes are others, and may have been less lucky. If the user has chosen the method, `only` that one is run, and a look
    elsewhere.
    """

    def __init__(self, method: Filter, accuracy: float, budget: float, only: bool = False) -> None:
        self.method: Filter | None = method
        self.rounds: list[Round] = []
        self.best: Result | None = None
        self.notes: list[str] = []
        """What was run, and what was found, in words."""
        self._accuracy, self._left, self._only = accuracy, np.inf if only else budget, only
        self._beyond = _LOOKS * budget
        self._chosen: Round | None = None
        self._failed: list[Caveat] = []
        self._missing: dict[str, Caveat] = {}
        """What each look has found, until there are nodes."""
        self._found: Missed | None = None
        """What the last of them has found that changes the answer."""
        self._lost: list[Caveat] = []
        """That nodes which went there do not have it."""
        self._near: Elsewhere | None = None
        self._looks: list[Elsewhere] = []
        """Those that are still to be made."""
        self._first: Round | None = None
        """The first, and smallest, that was sure of its answer: looks are made by its method."""
        self._passes = 1.0
        """How often the last run that began with the prior went through the observations, replays included."""
        self._log_mass = -np.inf
        """The evidence of all regions together, by that method."""

    def take(self, result: Result) -> None:
        """The result of `method`."""
        assert self.method is not None
        self._left -= result.seconds_of_steps
        if isinstance(self.method, Elsewhere):
            self.method = self._compared(result, self.method)
            return
        method, seconds = self.method, result.seconds_of_steps
        if isinstance(method, Anew):
            assert self.best is not None
            if result.interrupted:
                self.method = None
                return
            result, method = renewed(self.best, result), method.inner
            seconds *= self._passes  # as a run from the prior would take
        else:
            self._passes = passes(result.state)
        one = Round.of(method, result, seconds)
        if result.interrupted:  # it has seen fewer observations: it contradicts nothing
            one = one._replace(answer=np.full_like(one.answer, np.nan))
        if self._missing and is_sure(_worst(result)) and not result.interrupted:
            if self._found is not None and self._chosen is not None:
                errors = sum(run.error.worst for run in (one, self._chosen))
                gained = result.log_evidence - self._log_mass - errors
                self._lost = self._found.lost(one, self._accuracy + errors, gained)
            # The answers without that mode are no longer in question.
            self.rounds, self.best, self._missing = [], None, {}
        self.rounds.append(one)
        self.notes.append(str(one))
        # Each run is larger than those before it. Of two that are as sure, the larger is the answer.
        if self.best is None or (_worst(result) <= _AS_SURE * _worst(self.best) and not result.interrupted):
            self.best, self._chosen = result, one
        if self._first is None and is_sure(_worst(result)):
            self._first, self._log_mass = one, result.log_evidence
        done = self._only or result.interrupted or len(self.rounds) >= MOST_ROUNDS
        self.method = None if done else self._larger(one, result)
        if self.method is None and not result.interrupted and not self._missing:
            self.method = self._look()

    def _larger(self, one: Round, result: Result) -> Filter | None:
        """A larger method, if there is time. Its nodes are drawn where this run has ended, if that has helped so far."""
        most, method = self._left / max(one.seconds, 1e-3), one.method
        where = None if self._less_sure() else ellipse_of(result.bound, result.state)
        if where is not None and isinstance(method, MarginalEPF):
            larger = enlarged(method, result, self._accuracy, most * self._passes)
            # With filters of another kind, nodes may have values of other parameters.
            if not isinstance(larger, MarginalEPF) or larger.exact == method.exact:
                return Anew(larger, (where,)) if isinstance(larger, MarginalEPF) else None
        return enlarged(method, result, self._accuracy, most)

    def fail(self, error: Exception) -> None:
        """A larger run failed: what the smaller ones have found is not lost. Where nothing is elsewhere, no run succeeds."""
        assert self.method is not None
        if not isinstance(self.method, Elsewhere):
            self._failed = [failed(self.method, self.rounds[-1].inside, error)]
        self.method = self._next_look()

    def doubts(self) -> list[Caveat]:
        """What speaks against the best run: another mode, a larger run that failed, or one that contradicts it.

        Of two that contradict each other one certificate is wrong, and nobody knows which.
        """
        return [*self._missing.values(), *self._lost, *self._failed, *self._contradictions()]

    def _contradictions(self) -> list[Caveat]:
        # A run that is not sure of its own answer says nothing of another one.
        sure = [one for one in self.rounds if one is not self._chosen and is_sure(one.error.worst)]
        if self._chosen is None or not sure:
            return self._less_sure()
        # Of those about as sure as the surest the last speaks for all: it is the largest, and misses least.
        least = min(one.error.worst for one in sure)
        last = [one for one in sure if one.error.worst <= _ABOUT * least][-1]
        return contradiction(self._chosen, last) or self._less_sure()

    def _less_sure(self) -> list[Caveat]:
        """A doubt, if more nodes were less sure: few of many nodes are where much of the posterior is, and none of fewer."""
        whole = [one for one in self.rounds if not np.isnan(one.answer).all()]  # to the last observation
        for i, one in enumerate(whole):
            for larger in whole[i + 1 :]:
                if is_sure(one.error.worst) and not is_sure(larger.error.worst):
                    said = f"A larger run was less sure of its answer ({larger}) than a smaller one ({one})"
                    return [Caveat(1, f"{said}. Try other seeds: a part of the posterior may be far from the rest.")]
        return []

    def _look(self) -> Filter | None:
        """A look elsewhere, if there is an answer, and the budget allows."""
        if self._first is None or not self._allows(self._first.seconds):
            return None
        assert self._chosen is not None
        assert self.best is not None
        if not is_sure(_worst(self.best)):
            return None
        self._near = look(self._chosen.method, self.best.bound, self.best.state, self._first.method)
        return self._near

    def _allows(self, seconds: float) -> bool:
        """Whether there is so much time for a look."""
        return seconds <= self._left + self._beyond

    def _next_look(self) -> Filter | None:
        return self._looks.pop(0) if self._looks else None

    def _seen(self, there: Round, share: float, elsewhere: Result) -> Missed | None:
        """What it means for the answer if so much of the posterior is elsewhere."""
        assert self._chosen is not None
        return missed(self._chosen, there, share, self._accuracy, lambda: ellipse_of(elsewhere.bound, elsewhere.state))

    def _compared(self, elsewhere: Result, method: Elsewhere) -> Filter | None:
        """The method with nodes there too, if what is elsewhere changes the answer; the next look, if it does not."""
        assert self._chosen is not None
        if elsewhere.interrupted:
            return None
        is_near = method is self._near and self._allows(elsewhere.seconds_of_steps)
        if is_near and (far := farther(method, elsewhere.bound)) is not None:
            self._looks.append(far)
        there, where = Round.of(method, elsewhere), name_of(method)
        log_evidence = log_evidence_of(elsewhere.log_evidence, elsewhere.bound)
        share = share_of(log_evidence, self._log_mass)
        found = self._seen(there, share, elsewhere)
        self._missing.pop(where, None)
        if found is not None and (counts(there) or not self._only):
            self._missing[where] = found.doubt
        if not counts(there):
            self.notes.append(f"{where}: not known")
            # Too few nodes or points can claim anything. If more than they claim would matter, more of them must say.
            if self._only or self._seen(there, min(_MORE * share, 0.5), elsewhere) is None:
                return self._next_look()
            most = (self._left + self._beyond) / max(elsewhere.seconds_of_steps, 1e-3)
            larger = enlarged(method.inner, elsewhere, SURE, most)
            if larger is not None:
                self._looks.append(dataclasses.replace(method, inner=larger))
            return self._next_look()
        self._log_mass = float(np.logaddexp(self._log_mass, log_evidence))
        self.notes.append(f"{where}: {share:.1g} of the posterior")
        if found is None:
            return self._next_look()
        self._looks, self._found = [], found
        if self._only:
            self._missing[where] = Caveat(
                found.doubt.level, f"{found.doubt.sentence} Name no method: nodes go there too then."
            )
            return None
        return self._affordable(found.method)

    def _affordable(self, modes: Modes) -> Modes | None:
        """This method with the nodes of the largest run for which there is time: at one mode each, fewer may do as well.

        The chosen run may have been large only because its nodes were at several modes.
        """
        left = self._left + self._beyond
        for one in sorted(self.rounds, key=lambda one: -one.seconds):
            regions = len(getattr(one.method, "ellipses", ())) + 1
            if is_sure(one.error.worst) and (len(modes.ellipses) + 1) * one.seconds / regions < left:
                return dataclasses.replace(modes, inner=core(one.method))
        return None


def reach(
    method: Filter, run: Callable[[Filter], Result], accuracy: float, budget: float, only: bool = False
) -> tuple[Result, Search]:
    """Run `method`, and others as the search asks for them: the best result, which knows of the doubts, and the search."""
    search = Search(method, accuracy, budget, only)
    while search.method is not None:
        try:
            with memory_errors(search.method):
                result = run(search.method)
        except EPFError as error:  # it gave no finite numbers, or does not fit into memory
            if search.best is None:
                raise
            search.fail(error)
        else:
            search.take(result)
    assert search.best is not None
    if doubts := search.doubts():
        search.best.method_facts = search.best.method_facts.also(doubts)
    return search.best, search


def _worst(result: Result) -> float:
    """The largest error; one that is not known is without bound."""
    return float(np.nan_to_num(result.error.worst, nan=np.inf)) if result.error.labels else 0.0
