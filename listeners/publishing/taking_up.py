"""Going on with a run that exists: what a publisher that joins or resumes does before its block begins."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from redis.exceptions import RedisError

from listeners.contract.exchange import carry_out, carry_out_async
from listeners.contract.reading import KnownRun, reading
from listeners.publishing.composer import Composer
from listeners.publishing.waiting import flushed

__all__ = ["RunNotInterrupted", "TakingUp"]

_log = logging.getLogger("listeners")


class RunNotInterrupted(Exception):
    """A run can't be resumed, since it doesn't wait for anybody; ``status`` says what it is instead."""

    def __init__(self, run: str, status: str) -> None:
        advice = {
            "waiting": "there is no such run, or no longer: check its id, the Redis URL and the namespace",
            "running": "another publisher has begun or resumed it and goes on: to write into it, join=True",
        }.get(status, f"it has ended ({status}): without resume=True it begins anew")
        super().__init__(f"run {run} is not interrupted and can't be resumed: {advice}")
        self.run = run
        self.status = status


class TakingUp:
    """Reads the run from its log, so that keys, attempts and held calls go on; then resumes it, if that is wanted.

    Who joins a run that can't be read within ``timeout`` seconds goes on without. Who resumes has to win: the agent
    goes on only after Redis has taken ``run_resumed``, and of two processes it takes one's.
    """

    def __init__(self, composer: Composer, *, resume: bool, timeout: float) -> None:
        self._composer = composer
        self._sink = composer.sink
        self._resume = resume
        self._timeout = timeout

    def enter(self) -> None:
        """Take the run up; raises :class:`RunNotInterrupted` and ``TimeoutError``, if it is to be resumed."""
        try:
            known = self._read()
        except (TimeoutError, RedisError) as error:
            self._unread(error)
            return
        if self._take_up(known):
            self._check(answered=self._sink.flush(self._timeout))

    async def enter_async(self) -> None:
        """Do as :meth:`enter`, without holding up the event loop."""
        try:
            known = await self._read_async()
        except (TimeoutError, RedisError) as error:
            self._unread(error)
            return
        if self._take_up(known):
            self._check(answered=await flushed(self._sink, self._timeout))

    def _read(self) -> KnownRun:
        until = time.monotonic() + self._timeout

        def execute(*command: Any) -> Any:
            reply = self._sink.ask(command)
            try:
                return reply.result(max(0.0, until - time.monotonic()))
            finally:
                # Nobody is to go on trying for it.
                reply.cancel()

        return carry_out(reading(self._sink.keys), execute)

    async def _read_async(self) -> KnownRun:
        async def execute(*command: Any) -> Any:
            return await asyncio.wrap_future(self._sink.ask(command))

        async with asyncio.timeout(self._timeout):
            return await carry_out_async(reading(self._sink.keys), execute)

    def _unread(self, error: Exception) -> None:
        run, shown = self._sink.keys.run, self._sink.shown
        if not self._resume:
            reason = str(error) or "no answer"
            _log.warning("run %s is joined without what it holds: %s (%s)", run, shown, reason)
        elif isinstance(error, TimeoutError):
            raise self._too_late() from None
        else:
            raise error

    def _take_up(self, known: KnownRun) -> bool:
        if not self._resume:
            self._composer.take_up(known, alone=False)
            return False
        if known.state.status != "interrupted":
            raise RunNotInterrupted(known.state.run, known.state.status)
        self._composer.take_up(known, alone=True)
        self._sink.began = False
        self._composer.publish("run_resumed")
        return True

    def _check(self, *, answered: bool) -> None:
        if not answered:
            self._sink.abandon()
            raise self._too_late()
        if not self._sink.began:
            raise RunNotInterrupted(self._sink.keys.run, "running")

    def _too_late(self) -> TimeoutError:
        return TimeoutError(
            f"run {self._sink.keys.run} can't be resumed: {self._sink.shown} gave no answer within "
            f"{self._timeout:g} s"
        )
