"""What comes back from Redis to the publishers of a process: answers to their questions, and what they ask for.

There is no subscription in the agent: once a second, one pipelined round trip for all runs that somebody waits in.
A person's answer takes longer than that anyway.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final

import redis
from redis.exceptions import ResponseError

from listeners.contract.exchange import Command
from listeners.publishing.writer import Writer

__all__ = ["LOOK_EVERY", "WayBack"]

LOOK_EVERY: Final = 1.0
"""Seconds between two looks for answers."""


class WayBack:
    """Used by the flusher's thread, but for :meth:`ask`, which any thread may call."""

    def __init__(self) -> None:
        self._asked: deque[tuple[Command, Future[Any]]] = deque()
        self._watched: dict[Writer, None] = {}
        self._due = 0.0

    def ask(self, command: Command) -> Future[Any]:
        """Have one command sent and return its reply to be; whoever asks wakes the flusher, and cancels what it no
        longer waits for."""
        future: Future[Any] = Future()
        self._asked.append((command, future))
        return future

    def watch(self, writer: Writer) -> None:
        """Look for answers to ``writer``'s questions as long as somebody waits for them."""
        if writer.questions.waited_for:
            self._watched[writer] = None
            if writer.questions.impatient:
                self._due = 0.0

    def seconds_left(self) -> float | None:
        """Return how long nothing is to be done, ``None`` if that is for ever."""
        if self._asked:
            return 0.0
        return max(0.0, self._due - time.monotonic()) if self._watched else None

    def round(self, connected: Callable[[], redis.Redis]) -> bool:
        """Do what is due in one round trip, and tell whether anything was; what isn't answered is asked again."""
        while self._asked and self._asked[0][1].cancelled():
            self._asked.popleft()
        asked = list(self._asked)
        watched = list(self._look())
        if not asked and not watched:
            return False
        with connected().pipeline(transaction=False) as pipeline:
            # redis-py leaves this one method untyped.
            queue_up: Callable[..., Any] = pipeline.execute_command
            for command, _ in asked:
                queue_up(*command)
            for writer in watched:
                for command in writer.questions.commands():
                    queue_up(*command)
            replies = iter(pipeline.execute(raise_on_error=False))

        for _, future in asked:
            self._asked.popleft()
            _answer(future, next(replies))
        if watched:
            self._due = time.monotonic() + LOOK_EVERY
        for writer in watched:
            meta, entries = next(replies), next(replies)
            # An error of the server's passes, or it is the administrator's: the agent goes on waiting.
            if not isinstance(meta, Exception) and not isinstance(entries, Exception):
                writer.heard(meta, entries)
                self.watch(writer)
        return True

    def _look(self) -> Iterator[Writer]:
        if self._due > time.monotonic():
            return
        for writer in list(self._watched):
            if writer.questions.waited_for:
                yield writer
            else:
                del self._watched[writer]


def _answer(future: Future[Any], reply: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(reply, ResponseError):
        future.set_exception(reply)
    else:
        future.set_result(reply)
