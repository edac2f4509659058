"""One reader: ``GET /runs/{run}/events`` as a bare ASGI callable.

One coroutine writes, one small task notices the hang-up, and the wheel does all timing. The order of things is
contract §4: headers and ``:ok`` at once, then history, then what comes, then the end or an abort. While the reader
keeps up the coroutine sleeps: whoever brings an event writes it, since waking a coroutine costs as much as a write.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog
from redis.exceptions import RedisError
from starlette.types import Receive, Scope, Send

from gateway.fanout.frames import CONTENT_TYPES, HEARTBEATS, Format, comment, frame, preamble
from gateway.fanout.history import History
from gateway.fanout.hub import Hub
from gateway.fanout.relay import Relay
from gateway.fanout.runlog import encode_entries
from gateway.fanout.states import States
from gateway.fanout.text import ending
from gateway.fanout.wheel import Wheel
from gateway.http.access import Grant
from gateway.http.asked import Asked
from gateway.http.connections import Connections
from gateway.http.problems import Header, Problem
from gateway.http.wire import Wire
from gateway.settings import Settings
from listeners.contract.events import Event, encode, format_time
from listeners.contract.fold import SnapshotReason
from listeners.contract.log import Entry
from listeners.contract.position import ABSENT, Position

__all__ = ["EventStream", "Streams"]

LOOK_UP: Final = 2.0
"""Seconds to ask Redis where a run stands before the headers are sent, for answers that depend on it."""

EXPIRY_DRAIN: Final = 0.5
"""Seconds that a reader whose permission has run out gets to take its last bytes."""

log = structlog.get_logger("toolcast.stream")


class Streams:
    """What all streams of a gateway share; ``clock`` tells seconds since 1970."""

    def __init__(
        self,
        *,
        settings: Settings,
        hub: Hub,
        relay: Relay,
        history: History,
        states: States,
        wheel: Wheel,
        connections: Connections,
        clock: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.hub = hub
        self.relay = relay
        self.history = history
        self.states = states
        self.wheel = wheel
        self.connections = connections
        self.clock = clock
        self.waiting = 0
        """Streams that wait for a run nobody has published yet."""
        self.dropped = 0
        """Streams that were cut because their reader took nothing."""


class EventStream:
    """The stream of one reader, from its first byte to its last."""

    __slots__ = (
        "_absent_at",
        "_asked",
        "_ends_at",
        "_events_sent",
        "_method",
        "_receive",
        "_rest",
        "_shared",
        "_subscription",
        "_wire",
    )

    def __init__(
        self, shared: Streams, asked: Asked, grant: Grant, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._shared = shared
        left = None if grant.until is None else grant.until - shared.clock()
        self._ends_at = None if left is None else shared.wheel.now() + left
        self._asked = asked
        self._method: str = scope["method"]
        self._receive = receive
        self._wire = Wire(scope, receive, send, shared.connections, clock=shared.wheel.now)
        self._subscription = shared.hub.attach(asked.run, asked.format, asked.types)
        self._absent_at: float | None = None
        self._events_sent = False
        self._rest: Sequence[Entry] = ()

    async def run(self, headers: Iterable[Header]) -> None:
        """Serve the reader; raises :class:`Problem` for what must be answered before the stream begins."""
        shared, subscription = self._shared, self._subscription
        hang_up: asyncio.Task[None] | None = None
        try:
            if shared.hub.draining:
                raise Problem(
                    503, "Stopping", "This gateway is stopping; try again.", headers=[(b"retry-after", b"1")]
                )
            if await self._nothing_left():
                await self._wire.open(204, headers)
                return await self._wire.finish()
            await self._wire.open(200, [*_headers(self._asked.format), *headers])
            if self._method == "HEAD":
                return await self._wire.finish()
            # Held only while it runs: the reader ends when it does, and ends it.
            hang_up = asyncio.create_task(self._watch_hang_up(), name="hang-up")
            shared.wheel.add(self._tick(shared.wheel.now()) or 0, self._tick)
            await self._wire.write(preamble(self._asked.format, retry=_jittered(2000)))
            await self._serve()
        finally:
            subscription.closed = True
            self._present()
            shared.hub.detach(subscription)
            shared.wheel.remove(self._tick)
            if hang_up is not None:
                if self._wire.cut:
                    # The server hears of the cut connection in a later turn of the loop, and would complain about an
                    # unfinished response if this returned before.
                    await asyncio.wait({hang_up}, timeout=0.5)
                hang_up.cancel()

    # -- before the headers -------------------------------------------------------------------------------------

    async def _nothing_left(self) -> bool:
        """Tell whether the answer is 204; asks Redis only where the answer's status depends on it."""
        asked, watch = self._asked, self._subscription.watch
        crowded = 0 < self._shared.settings.max_waiting <= self._shared.waiting
        if asked.after is None and asked.wait > 0 and not crowded:
            return False
        known = await watch.ready(LOOK_UP)
        if not known:
            if asked.wait == 0:
                raise Problem(
                    503,
                    "Redis is away",
                    "The log can't be read now; try again.",
                    headers=[(b"retry-after", b"2")],
                )
            return False
        if watch.log is None:
            if asked.after == ABSENT:
                return True
            if asked.wait == 0:
                raise Problem(
                    404, "No such run", f"Nobody has published run {asked.run!r}, or its log has expired."
                )
            if crowded:
                raise Problem(
                    503,
                    "Too many waiting streams",
                    f"{self._shared.waiting} streams wait for runs that nobody has published; try again, "
                    "or raise TOOLCAST_MAX_WAITING.",
                    headers=[(b"retry-after", b"5")],
                )
            return False
        return watch.log.ended and asked.after == watch.log.position

    # -- the stream ---------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        subscription = self._subscription
        limit = self._shared.settings.write
        while not (subscription.closed or self._wire.gone):
            if self._shared.hub.draining:
                return await self._farewell(
                    "the gateway is stopping; reconnect",
                    seconds=random.uniform(0.2, 1.0) * self._shared.settings.drain,
                )
            if self._ends_at is not None and self._shared.wheel.now() >= self._ends_at:
                return await self._farewell("token expired", seconds=EXPIRY_DRAIN)
            if subscription.log is None:
                if await self._begin():
                    return
                continue
            if subscription.behind:
                data = await self._page()
            else:
                self._rest = ()  # what memory holds too would be out of place the next time
                data = subscription.take(limit)
            if subscription.ended:
                return await self._finish(data)
            if data:
                self._events_sent = True
                await self._wire.write(data)
            elif subscription.superseded or subscription.overtaken:
                await self._snapshot("restarted")
            elif subscription.idle:
                await self._silence()

    async def _begin(self) -> bool:
        """Find the reader's first place, or wait for the run; tells whether that was the end."""
        asked, watch, subscription = self._asked, self._subscription.watch, self._subscription
        if not watch.loaded:
            if self._shared.relay.down_since is not None:
                await self._say("redis is away, waiting")
            await self._silence()
            return False
        run_log = watch.log
        if run_log is None:
            return await self._absent()
        waited = self._present()
        after = asked.after
        if after is None:
            # A run that begins under a reader's eyes begins with its first event, whatever `from` says.
            if asked.origin == "start" or waited:
                subscription.move(run_log, 0)
            else:
                await self._snapshot("join")
        elif after == "garbage" or after == ABSENT:
            await self._snapshot("join")
        elif after.epoch != run_log.epoch:
            await self._snapshot("restarted")
        else:
            if after.seq > run_log.head:
                # Memory may lag behind what another gateway has served.
                self._shared.relay.look_again(watch)
                await watch.ready(LOOK_UP)
            subscription.move(run_log, after.seq)
        return False

    async def _absent(self) -> bool:
        """Wait for a run nobody has published yet; tells whether the wait is over."""
        now = self._shared.wheel.now()
        if self._absent_at is None:
            self._absent_at = now
            self._shared.waiting += 1
            self._shared.wheel.add(min(self._interval, self._asked.wait), self._tick)
            await self._say(f"waiting for run {self._asked.run}")
        elif now - self._absent_at >= self._asked.wait:
            self._present()
            data = {"reason": "absent", "run": self._asked.run, "position": str(ABSENT), "status": "waiting"}
            event = Event(
                type="snapshot",
                run=self._asked.run,
                time=format_time(self._shared.clock()),
                data={**data, "calls": []},
            )
            await self._wire.finish(frame(Entry(ABSENT, "snapshot", encode(event)), self._asked.format))
            return True
        await self._silence()
        return False

    def _present(self) -> bool:
        """The reader waits no longer; tells whether it did."""
        waited = self._absent_at is not None
        if waited:
            self._absent_at = None
            self._shared.waiting -= 1
        return waited

    async def _snapshot(self, reason: SnapshotReason) -> None:
        subscription = self._subscription
        run_log = subscription.watch.log
        if run_log is None:
            return
        try:
            entry, seq = await subscription.read(
                self._shared.states.snapshot(
                    self._asked.run,
                    run_log,
                    reason=reason,
                    calls=self._asked.origin != "now" or reason != "join",
                    now=self._shared.clock(),
                )
            )
        except (RedisError, OSError):
            return await self._pause()
        subscription.move(run_log, seq)
        await self._wire.write(frame(entry, self._asked.format))

    async def _page(self) -> bytes:
        """Read on for a reader whose place has left memory; empty after a snapshot or while Redis is away."""
        subscription = self._subscription
        run_log = subscription.log
        assert run_log is not None  # `behind` has just said so
        if not self._rest:
            try:
                self._rest = await subscription.read(
                    self._shared.history.page(self._asked.run, Position(run_log.epoch, subscription.seq))
                )
            except (RedisError, OSError):
                await self._pause()
                return b""
        if not self._rest or self._rest[0].position.seq != subscription.seq + 1:
            self._rest = ()
            if run_log is not subscription.watch.log:
                await self._snapshot("restarted")
            else:
                await self._snapshot("lagged" if self._events_sent else "trimmed")
            return b""
        data, seq = encode_entries(
            self._rest, self._asked.format, self._asked.types, limit=self._shared.settings.write
        )
        self._rest = self._rest[seq - subscription.seq :]
        subscription.seq = seq
        return data

    async def _pause(self) -> None:
        """Redis is away and the reader needs it: wait for the wheel or the relay, whoever is first."""
        await self._say("redis is away, waiting")
        await self._silence()

    async def _silence(self) -> None:
        if self._shared.hub.draining:
            return  # whoever wasn't waiting yet has missed its wake-up
        await self._subscription.wait(self._pass_on if self._wire.steps else None)
        await self._wire.settle()
        await self._beat()

    def _pass_on(self) -> bool:
        """Write what has come while this coroutine sleeps; tells whether it may sleep on."""
        subscription = self._subscription
        if not subscription.follows:
            return False
        data = subscription.take(self._shared.settings.write)
        if data:
            self._events_sent = True
            if not self._wire.try_write(data):
                return False
        return subscription.idle

    async def _beat(self) -> None:
        now = self._shared.wheel.now()
        if now - self._wire.wrote_at >= self._shared.settings.heartbeat and not self._subscription.closed:
            self._wire.wrote_at = now
            if beat := HEARTBEATS[self._asked.format]:
                await self._wire.write(beat)

    # -- the end ------------------------------------------------------------------------------------------------

    async def _finish(self, data: bytes) -> None:
        """The terminal event has been reached: the body ends cleanly."""
        if self._asked.format == "text":
            run_log = self._subscription.log
            assert run_log is not None  # only a log ends
            try:
                state = await self._subscription.read(
                    self._shared.states.at(self._asked.run, run_log.position, run_log)
                )
                data += ending(state).encode()
            except (RedisError, OSError):
                data += b"(ended)\n"
        await self._wire.finish(data)

    async def _farewell(self, reason: str, *, seconds: float) -> None:
        """Let the reader take its last bytes, then cut, so that it knows that the run goes on without it."""
        again = preamble(self._asked.format, retry=_jittered(1500)).removeprefix(b":ok\n")
        try:
            async with asyncio.timeout(seconds):
                await self._wire.write(comment(reason, self._asked.format) + again)
                while not self._subscription.closed:
                    await self._subscription.wait()
        except TimeoutError:
            pass
        self._wire.abort()
        self._subscription.close()

    async def _watch_hang_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._subscription.close()

    # -- time --------------------------------------------------------------------------------------------------

    async def _say(self, text: str) -> None:
        if said := comment(text, self._asked.format):
            await self._wire.write(said)

    @property
    def _interval(self) -> float:
        return min(self._shared.settings.heartbeat, self._shared.settings.write_timeout)

    def _tick(self, now: float) -> float | None:
        """Called by the wheel: wakes a silent reader for its heartbeat, lets one go that is gone or takes nothing."""
        wire, subscription, settings = self._wire, self._subscription, self._shared.settings
        if wire.gone:
            subscription.close()
            return None
        if wire.writing_since is not None and now - wire.writing_since >= settings.write_timeout:
            self._shared.dropped += 1
            log.info("reader takes nothing; dropped", run=self._asked.run)
            wire.abort()
            subscription.close()
            return None
        due = [now + self._interval, wire.wrote_at + settings.heartbeat]
        if self._absent_at is not None:
            due.append(self._absent_at + self._asked.wait)
        if self._ends_at is not None:
            due.append(self._ends_at)
        if subscription.waiting and any(now >= when for when in due):
            subscription.wake()
        return max(min(when for when in due if when > now) - now, 0)


def _headers(format: Format) -> list[Header]:
    return [
        (b"content-type", CONTENT_TYPES[format].encode()),
        (b"cache-control", b"no-store, no-transform"),
        (b"x-accel-buffering", b"no"),
        (b"x-content-type-options", b"nosniff"),
    ]


def _jittered(milliseconds: int) -> int:
    return int(milliseconds * random.uniform(0.75, 1.5))
