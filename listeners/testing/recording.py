"""``recorded()``: a run whose events stay in a list. No Redis, no thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from listeners.contract.events import Event, decode
from listeners.contract.log import Limits
from listeners.publishing.publisher import RunPublisher
from listeners.publishing.sink import Sink, Stats

__all__ = ["RecordedRun", "recorded"]


class _Recording:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.owner = True
        self.suffix = ""
        self.patience = 0.0
        self.events: list[bytes] = []

    def put(self, type: str, event: bytes, *, progress_of: str | None = None) -> None:
        self.events.append(event)

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

    def _open(self, redis: object, namespace: str | None, limits: Limits) -> Sink:
        self._recording = _Recording()
        return self._recording

    @property
    def events(self) -> list[Event]:
        """What was published so far, ``run_started`` first."""
        return [decode(event) for event in self._recording.events]

    @property
    def types(self) -> list[str]:
        """The types of :attr:`events`."""
        return [event.type for event in self.events]


@contextmanager
def recorded(run: str = "recorded", **options: Any) -> Iterator[RecordedRun]:
    """Be the current run for the block, and keep its events; ``options`` are those of ``RunPublisher``."""
    with RecordedRun(run, **options) as recording:
        yield recording
