"""Where a publisher's events go: a writer in front of Redis, or a list in a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from listeners.contract.exchange import Command
from listeners.contract.keys import Keys
from listeners.contract.restoring import RestoreReason
from listeners.publishing.outbox import Queued
from listeners.publishing.questions import Questions

__all__ = ["Restate", "Restated", "Sink", "Stats"]

Restated = tuple[list[tuple[str, bytes]], Collection[str]]
"""The events that tell a run's state as a whole, and the keys of the calls in it."""
Restate = Callable[[RestoreReason, Sequence[Queued]], Restated]
"""From why, and what is still on its way, to the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What became of a publisher's events: ``dropped`` by type, ``waiting`` in the outbox, the server's last error.

    ``restored``: how often the run's state was told as a whole, since Redis had lost it or the outbox was full.
    """

    published: int
    dropped: Mapping[str, int]
    restored: int
    waiting: int
    last_error: str | None


class Sink(Protocol):
    """What takes encoded events of one run, in order. ``writer.Writer`` says what the members mean."""

    keys: Keys
    shown: str
    lock: threading.RLock
    questions: Questions
    joined: bool
    owner: bool
    began: bool
    suffix: str
    patience: float
    restate: Restate | None
    closed: bool

    def close(self) -> None:
        """Look after the run no longer than something waits."""

    def put(
        self, type: str, event: bytes, *, call: str | None = None, progress_of: str | None = None
    ) -> None:
        """Take an event; never raises."""

    def ask(self, command: Command) -> Future[Any]:
        """Send one command and return its reply to be."""

    def wake(self) -> None:
        """Have questions looked after at once."""

    def flush(self, timeout: float) -> bool:
        """Wait until all was answered, at most ``timeout`` seconds; tells whether it was."""

    def abandon(self) -> Mapping[str, int]:
        """Give up all that waits and count it by type."""

    def when_answered(self, watcher: Callable[[], None]) -> bool:
        """Have ``watcher`` called once all was answered; ``False``: it is already."""

    def forget(self, watcher: Callable[[], None]) -> None:
        """Take back :meth:`when_answered`."""

    @property
    def stats(self) -> Stats:
        """Count what happened."""
