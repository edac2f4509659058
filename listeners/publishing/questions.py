"""The questions of one publisher's run: where they stand in the log, who waits for an answer, and what comes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

from listeners.contract.deciding import QuestionNotOpen, read_answers
from listeners.contract.decisions import Decision
from listeners.contract.exchange import Command
from listeners.contract.keys import Keys
from listeners.contract.position import Position

__all__ = ["Questions"]

_PAGE: Final = 100


class _Question:
    """One call's question. ``unplaced`` counts its events that Redis has not answered yet."""

    def __init__(self) -> None:
        self.unplaced = 0
        self.position: Position | None = None
        self.waiters: list[Future[Decision]] = []


class Questions:
    """Told of questions by who publishes them, and of answers by the flusher. Thread-safe under ``lock``.

    ``impatient`` says that somebody has begun to wait since the last look, so that the next one is due at once.
    """

    def __init__(self, keys: Keys, lock: threading.RLock) -> None:
        self._keys = keys
        self._lock = lock
        self._by_call: dict[str, _Question] = {}
        self._after = self._asked_after = "-"
        self.impatient = False

    def after_fork(self, lock: threading.RLock) -> None:
        """Go on in a forked child, where nobody waits yet."""
        self._lock = lock
        for question in self._by_call.values():
            question.waiters = []

    # --- The publisher's side ---

    def asked(self, call: str, position: Position | None = None) -> None:
        """Note that ``call`` is held; ``position`` is ``None`` until Redis has answered."""
        with self._lock:
            question = self._by_call.setdefault(call, _Question())
            question.position = position
            question.unplaced += position is None

    def settled(self, call: str) -> None:
        """Note that ``call`` is started or has ended: who waits for an answer waits for nothing."""
        if call not in self._by_call:
            return
        with self._lock:
            question = self._by_call.pop(call, None)
        if question is not None:
            self._refuse(call, question, "running")

    def close(self, status: str) -> None:
        """Give all questions up, since the run has come to ``status`` or is another publisher's."""
        with self._lock:
            questions, self._by_call = self._by_call, {}
        for call, question in questions.items():
            self._refuse(call, question, status)

    def wait(self, call: str) -> Future[Decision]:
        """Return what will be the answer; raises :class:`QuestionNotOpen` if the call isn't held."""
        future: Future[Decision] = Future()
        with self._lock:
            question = self._by_call.get(call)
            if question is None:
                raise QuestionNotOpen(self._keys.run, call, status="running")
            question.waiters.append(future)
            # The answer may stand among those that were passed over.
            self._after = "-"
            self.impatient = True
        return future

    def position(self, call: str) -> Position | None:
        """Return where the question of ``call`` stands, if it is known."""
        with self._lock:
            question = self._by_call.get(call)
            return question.position if question is not None else None

    # --- The flusher's side ---

    def placed(self, call: str, position: Position) -> None:
        """Note where a question stands in the log."""
        with self._lock:
            question = self._by_call.get(call)
            if question is None:
                return
            question.unplaced = max(0, question.unplaced - 1)
            if not question.unplaced:
                question.position = position

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits."""
        with self._lock:
            for question in self._by_call.values():
                question.waiters = [future for future in question.waiters if not future.done()]
            return any(question.waiters for question in self._by_call.values())

    def command(self) -> Command:
        """Return what to ask Redis for; the reply is :meth:`read`."""
        with self._lock:
            self.impatient = False
            self._asked_after = self._after
            return ("XRANGE", self._keys.decisions, self._after, "+", "COUNT", _PAGE)

    def read(self, entries: list[Any]) -> None:
        """Take in what Redis has answered."""
        with self._lock:
            # Unless somebody has begun to wait meanwhile, and wants to hear from the start.
            if entries and self._after == self._asked_after:
                self._after = f"({entries[-1][0].decode()}"
                self.impatient = self.impatient or len(entries) == _PAGE
            for given in read_answers(entries):
                self.answer(given.call, given.question, given.answer.decision)

    def asked_anew(self, calls: Sequence[str]) -> None:
        """Note that the log is gone: the questions of ``calls``, one for each time, are on their way into another,
        and who waits goes on waiting."""
        times = Counter(calls)
        with self._lock:
            self._after = self._asked_after = "-"
            for call, question in self._by_call.items():
                question.unplaced, question.position = times[call], None

    def answer(self, call: str, position: Position, decision: Decision) -> None:
        """Hand a decision to who waits for the answer to the question at ``position``."""
        with self._lock:
            question = self._by_call.get(call)
            if question is None or question.position != position:
                return
            waiters, question.waiters = question.waiters, []
        for future in waiters:
            if future.set_running_or_notify_cancel():
                future.set_result(decision)

    def _refuse(self, call: str, question: _Question, status: str) -> None:
        for future in question.waiters:
            if future.set_running_or_notify_cancel():
                future.set_exception(QuestionNotOpen(self._keys.run, call, status=status))
