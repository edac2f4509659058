"""What is due for the runs of a process beside what it publishes: leases to renew, and what comes back from Redis.

There is no subscription in the agent: one pipelined round trip for all runs that are due renews their leases, tells
whether their logs are still there, and brings answers to who waits for them, once a second. A person takes longer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import redis
from redis.exceptions import NoScriptError, ResponseError

from listeners.contract.exchange import Command
from listeners.contract.log import read_append_reply
from listeners.publishing.writer import Writer

__all__ = ["WayBack"]

AT_ONCE: Final = 500
"""Runs that one round trip looks after."""


class WayBack:
    """Used by the flusher's thread, but for :meth:`ask`, which any thread may call."""

    def __init__(self) -> None:
        self._asked: deque[tuple[Command, Future[Any]]] = deque()
        self._due: dict[Writer, float] = {}
        # No later than the earliest of them: who has published since is due later than it was.
        self._soonest = float("inf")

    def ask(self, command: Command) -> Future[Any]:
        """Have one command sent and return its reply to be; whoever asks wakes the flusher, and cancels what it no
        longer waits for."""
        future: Future[Any] = Future()
        self._asked.append((command, future))
        return future

    def watch(self, writer: Writer) -> None:
        """Look after ``writer``'s run from now on, as often as it says: something of it was sent, or is waited for."""
        every = writer.look_every
        if every is None:
            self._due.pop(writer, None)
            return
        due = time.monotonic() + every
        if writer.questions.impatient:
            due = 0.0
        elif writer in self._due and writer.questions.waited_for:
            # Publishing mustn't put off who waits for an answer.
            due = min(due, self._due[writer])
        self._due[writer] = due
        self._soonest = min(self._soonest, due)

    def seconds_left(self) -> float | None:
        """Return how long nothing is to be done, ``None`` if that is for ever."""
        if self._asked:
            return 0.0
        return max(0.0, self._soonest - time.monotonic()) if self._due else None

    def round(self, connected: Callable[[], redis.Redis], script: Callable[[], str]) -> bool:
        """Do what is due in one round trip, and tell whether anything was; what isn't answered is asked again.

        ``script`` is the hash of ``append`` on that server.
        """
        while self._asked and self._asked[0][1].cancelled():
            self._asked.popleft()
        asked = list(self._asked)
        watched = self._all_due()
        if not asked and not watched:
            return False
        with connected().pipeline(transaction=False) as pipeline:
            # redis-py leaves this one method untyped.
            queue_up: Callable[..., Any] = pipeline.execute_command
            for command, _ in asked:
                queue_up(*command)
            looks = []
            for writer in watched:
                batch = writer.look()
                keys = batch.script_keys()
                queue_up("EVALSHA", script(), len(keys), *keys, *batch.script_arguments(writer.limits))
                waits = writer.questions.waited_for
                if waits:
                    queue_up(*writer.questions.command())
                looks.append((writer, batch, waits))
            replies = iter(pipeline.execute(raise_on_error=False))

        for _, future in asked:
            self._asked.popleft()
            _answer(future, next(replies))
        for writer, batch, waits in looks:
            reply, entries = next(replies), next(replies) if waits else None
            if isinstance(reply, NoScriptError):
                raise reply
            # Another error of the server's passes, or it is the administrator's: the next look is due all the same.
            if entries is not None and not isinstance(entries, Exception):
                writer.questions.read(entries)
            if not isinstance(reply, Exception):
                writer.answered(batch, read_append_reply(reply))
            self._due.pop(writer, None)
            self.watch(writer)
        self._look_ahead()
        return True

    def _all_due(self) -> list[Writer]:
        now = time.monotonic()
        if self._soonest > now:
            return []
        for writer in [writer for writer, at in self._due.items() if at <= now and writer.look_every is None]:
            del self._due[writer]
        due = [writer for writer, at in self._due.items() if at <= now]
        if not due:
            self._look_ahead()
        return due[:AT_ONCE]

    def _look_ahead(self) -> None:
        self._soonest = min(self._due.values(), default=float("inf"))


def _answer(future: Future[Any], reply: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(reply, ResponseError):
        future.set_exception(reply)
    else:
        future.set_result(reply)
