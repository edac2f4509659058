"""One reader: ``GET /runs/{run}/events``, or ``GET /events`` of several runs, as a bare ASGI callable.

One coroutine writes, one small task notices the hang-up, and the wheel does all timing. Headers and ``:ok`` go out at
once, then what :class:`~gateway.http.reading.Reading` gives, then the end or an abort. While the reader keeps up the
coroutine sleeps: whoever brings an event writes it, since waking a coroutine costs as much as a write.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from gateway.fanout.frames import CONTENT_TYPES, Format, comment, preamble
from gateway.http.access import Grant
from gateway.http.asked import Asked
from gateway.http.problems import Header, Problem
from gateway.http.reading import Reading, Streams
from gateway.http.several import SeveralReadings
from gateway.http.wire import Wire

__all__ = ["EventStream"]

EXPIRY_DRAIN: Final = 0.5
"""Seconds that a reader whose time has run out gets to take its last bytes."""

log = structlog.get_logger("toolcast.stream")


class EventStream:
    """The stream of one reader, from its first byte to its last; it ends at the latest when its grant does."""

    __slots__ = (
        "_ends_at",
        "_ends_because",
        "_format",
        "_method",
        "_reading",
        "_receive",
        "_runs",
        "_shared",
        "_wire",
    )

    def __init__(
        self,
        shared: Streams,
        asked: Sequence[Asked],
        grant: Grant,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._shared = shared
        self._format = asked[0].format
        self._runs = ", ".join(one.run for one in asked)
        left = None if grant.until is None else grant.until - shared.clock()
        self._ends_at = None if left is None else shared.wheel.now() + left
        self._ends_because = "token expired"
        if shared.settings.max_age:
            # Spread, so that readers who came together don't come back together.
            age = shared.wheel.now() + shared.settings.max_age * random.uniform(0.75, 1.25)
            if self._ends_at is None or age < self._ends_at:
                self._ends_at, self._ends_because = age, "this connection is old enough; reconnect"
        self._method: str = scope["method"]
        self._receive = receive
        self._wire = Wire(scope, receive, send, shared.connections, clock=shared.wheel.now)
        self._reading: Reading | SeveralReadings = (
            Reading(shared, asked[0], self._wire)
            if self._format != "sse-runs" and len(asked) == 1
            else SeveralReadings(shared, asked, self._wire)
        )

    async def run(self, headers: Iterable[Header]) -> None:
        """Serve the reader; raises :class:`Problem` for what must be answered before the stream begins."""
        shared, wire, reading = self._shared, self._wire, self._reading
        hang_up: asyncio.Task[None] | None = None
        try:
            if shared.hub.draining:
                again = [(b"retry-after", b"1")]
                raise Problem(503, "Stopping", "This gateway is stopping; try again.", headers=again)
            if await reading.nothing_left():
                await wire.open(204, headers)
                return await wire.finish()
            wire.notice_half_open()
            await wire.open(200, [*_headers(self._format), *headers])
            if self._method == "HEAD":
                return await wire.finish()
            # Held only while it runs: the reader ends when it does, and ends it.
            hang_up = asyncio.create_task(self._watch_hang_up(), name="hang-up")
            shared.wheel.add(0, self._tick)
            reading.on_drain(self._drain)
            await wire.write(preamble(self._format, retry=_jittered(2000)))
            await self._serve()
        finally:
            reading.close()
            shared.wheel.remove(self._tick)
            if hang_up is not None:
                if wire.cut or wire.gone:
                    # The server hears of the closed connection in a later turn of the loop, and would complain about an
                    # unfinished response if this returned before.
                    await asyncio.wait({hang_up}, timeout=0.5)
                hang_up.cancel()

    async def _serve(self) -> None:
        reading, wire, drain = self._reading, self._wire, self._shared.settings.drain
        while not (reading.closed or wire.gone):
            if self._shared.hub.draining:
                seconds = random.uniform(0.2, 1.0) * drain
                return await self._farewell("the gateway is stopping; reconnect", seconds=seconds)
            if self._ends_at is not None and self._shared.wheel.now() >= self._ends_at:
                return await self._farewell(self._ends_because, seconds=EXPIRY_DRAIN)
            data = await reading.next()
            if reading.over:
                return await self._finish(data)
            if data:
                await wire.write(data)

    async def _finish(self, data: bytes) -> None:
        """Nothing follows: the body ends cleanly."""
        await self._wire.finish(data + await self._reading.ending())

    async def _farewell(self, reason: str, *, seconds: float) -> None:
        """Let the reader take its last bytes, then cut, so that it knows that the run goes on without it."""
        reading = self._reading
        again = preamble(self._format, retry=_jittered(1500)).removeprefix(b":ok\n")
        try:
            async with asyncio.timeout(seconds):
                await self._wire.write(comment(reason, self._format) + again)
                while not reading.closed:
                    await reading.wait()
        except TimeoutError:
            pass
        self._wire.abort()
        reading.stop()

    def _drain(self) -> None:
        """Give a reader that takes nothing a moment, since its coroutine is held up by it and can't say farewell."""
        seconds = random.uniform(0.2, 1.0) * self._shared.settings.drain
        asyncio.get_running_loop().call_later(seconds, self._cut_stalled)

    def _cut_stalled(self) -> None:
        if self._wire.writing_since is not None:
            self._wire.abort()
            self._reading.stop()

    async def _watch_hang_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._reading.stop()

    def _tick(self, now: float) -> float | None:
        """Called by the wheel: wakes a silent reader, lets one go that is gone or takes nothing."""
        wire, reading, timeout = self._wire, self._reading, self._shared.settings.write_timeout
        if wire.gone:
            reading.stop()
            return None
        if wire.writing_since is not None and now - wire.writing_since >= timeout:
            self._shared.dropped += 1
            log.info("reader takes nothing; dropped", run=self._runs)
            wire.abort()
            reading.stop()
            return None
        due = reading.due(now)
        if self._ends_at is not None:
            due = min(due, max(self._ends_at - now, 0))
        if due == 0 and reading.waiting:
            reading.wake()
        return min(due, timeout)


def _headers(format: Format) -> list[Header]:
    return [
        (b"content-type", CONTENT_TYPES[format].encode()),
        (b"cache-control", b"no-store, no-transform"),
        (b"x-accel-buffering", b"no"),
        (b"x-content-type-options", b"nosniff"),
    ]


def _jittered(milliseconds: int) -> int:
    return int(milliseconds * random.uniform(0.75, 1.5))
