"""``recorded()``: a run whose events stay in a list. No Redis, no thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from listeners.contract.deciding import QuestionNotOpen
from listeners.contract.decisions import Answer, Decision
from listeners.contract.events import Event, decode, encode
from listeners.contract.exchange import Command
from listeners.contract.keys import Keys
from listeners.contract.log import Limits
from listeners.contract.position import Position
from listeners.publishing.call import Call
from listeners.publishing.publisher import RunPublisher
from listeners.publishing.questions import Questions
from listeners.publishing.sink import Restate, Sink, Stats

__all__ = ["RecordedRun", "recorded"]


class _Recording:
    """A sink that keeps what it is given."""

    def __init__(self, run: str, *, joined: bool) -> None:
        self.keys = Keys(run)
        self.shown = "a recording"
        self.lock = threading.RLock()
        self.questions = Questions(self.keys, self.lock)
        self.joined = joined
        self.owner = not joined
        self.began = True
        self.suffix = ""
        self.patience = 0.0
        self.restate: Restate | None = None
        self.closed = False
        self.events: list[bytes] = []
        self.answers: list[tuple[str, Position, Decision]] = []

    def put(
        self, type: str, event: bytes, *, call: str | None = None, progress_of: str | None = None
    ) -> None:
        self.events.append(event)
        if type == "tool_interrupted" and call is not None:
            self.questions.placed(call, Position(1, len(self.events)))

    def ask(self, command: Command) -> Future[Any]:
        nothing: Future[Any] = Future()
        nothing.set_result([])
        return nothing

    def wake(self) -> None:
        for call, question, decision in self.answers:
            self.questions.answer(call, question, decision)

    def abandon(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        self.closed = True

    def flush(self, timeout: float) -> bool:
        return True

    def when_answered(self, watcher: Callable[[], None]) -> bool:
        return False

    def forget(self, watcher: Callable[[], None]) -> None:
        pass

    @property
    def stats(self) -> Stats:
        return Stats(published=len(self.events), dropped={}, restored=0, waiting=0, last_error=None)


class RecordedRun(RunPublisher):
    """A ``RunPublisher`` whose events stay here, as readers would get them: decoded, after policy and titles."""

    def _open(self, redis: object, namespace: str | None, limits: Limits, *, joined: bool) -> Sink:
        self._recording = _Recording(self.run, joined=joined)
        return self._recording

    @property
    def events(self) -> list[Event]:
        """What was published so far, ``run_started`` first."""
        return [decode(event) for event in self._recording.events]

    def decide(self, call: Call | str, decision: Decision, *, by: str | None = None) -> None:
        """Answer the question of ``call`` (or of the call with this key), as a person would by ``decide``."""
        key = call if isinstance(call, str) else call.key
        question = self._recording.questions.position(key)
        asked = next((one for one in self.state.calls if one.key == key and one.interrupt is not None), None)
        if question is None or asked is None:
            raise QuestionNotOpen(self.run, key, status=self.state.status)
        event = next(one for one in reversed(self.events) if one.call and one.call.key == key)
        data = Answer(decision, by).wire()
        data.pop("reason", None)
        self._recording.put("tool_decision", encode(replace(event, type="tool_decision", data=data)))
        self._recording.answers.append((key, question, decision))
        self._recording.wake()

    @property
    def types(self) -> list[str]:
        """The types of :attr:`events`."""
        return [event.type for event in self.events]


@contextmanager
def recorded(run: str = "recorded", **options: Any) -> Iterator[RecordedRun]:
    """Be the current run for the block, and keep its events; ``options`` are those of ``RunPublisher``."""
    with RecordedRun(run, **options) as recording:
        yield recording
