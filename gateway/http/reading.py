"""What one reader is given next: its first place, history, live events, snapshots, silence (contract §4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from redis.exceptions import RedisError

from gateway.fanout.frames import HEARTBEATS, comment, frame
from gateway.fanout.history import History
from gateway.fanout.hub import Hub
from gateway.fanout.relay import Relay
from gateway.fanout.runlog import encode_entries
from gateway.fanout.standing import stub_reason, stub_state
from gateway.fanout.states import States
from gateway.fanout.text import ending
from gateway.fanout.wheel import Wheel
from gateway.http.asked import Asked
from gateway.http.connections import Connections
from gateway.http.problems import Problem
from gateway.http.wire import Wire
from gateway.settings import Settings
from listeners.contract.events import encode, format_time
from listeners.contract.fold import RunState, SnapshotReason, snapshot_event, waiting
from listeners.contract.log import Entry
from listeners.contract.position import ABSENT, Position

__all__ = ["Reading", "Streams"]

LOOK_UP: Final = 2.0
"""Seconds to ask Redis where a run stands before the headers are sent, for answers that depend on it."""


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


class Reading:
    """One reader's way through its run. It writes comments and heartbeats by itself, what it returns is for its
    stream to write; :attr:`over` tells that nothing follows. Not ``alone`` it never waits for its
    run, and :attr:`quiet` tells that it would."""

    __slots__ = (
        "_absent_at",
        "_alone",
        "_asked",
        "_events_given",
        "_followed",
        "_rest",
        "_shared",
        "_told_away",
        "_wire",
        "over",
        "quiet",
        "subscription",
    )

    def __init__(self, shared: Streams, asked: Asked, wire: Wire, *, alone: bool = True) -> None:
        self._shared = shared
        self._asked = asked
        self._alone = alone
        self._wire = wire
        self.subscription = shared.hub.attach(asked.run, asked.format, asked.types)
        self.over = False
        self.quiet = False
        self._followed = False
        self._told_away = False
        self._absent_at: float | None = None
        self._events_given = False
        self._rest: Sequence[Entry] = ()

    @property
    def closed(self) -> bool:
        """Whether the reader is gone, or shall go."""
        return self.subscription.closed

    @property
    def waiting(self) -> bool:
        """Whether the reader has everything there is."""
        return self.subscription.waiting

    def stop(self) -> None:
        """The reader is gone, or shall go."""
        self.subscription.close()

    def on_drain(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when the gateway stops."""
        self.subscription.on_drain = call

    def wake(self) -> None:
        """Have :meth:`next` look whether it is time for something."""
        self.subscription.wake()

    async def wait(self) -> None:
        """Return when something may have changed."""
        await self.subscription.wait()

    def close(self) -> None:
        """Give everything back."""
        self.subscription.closed = True
        self._present()
        self._shared.hub.detach(self.subscription)

    # -- before the headers -------------------------------------------------------------------------------------

    async def nothing_left(self) -> bool:
        """Tell whether the answer is 204; asks Redis only where the answer's status depends on it.

        Raises :class:`Problem`: 404 for a run that nobody waits for, 503 while Redis is away or too many wait.
        """
        asked, watch = self._asked, self.subscription.watch
        crowded = 0 < self._shared.settings.max_waiting <= self._shared.waiting
        if asked.after is None and asked.wait > 0 and not crowded:
            return False
        if not await watch.ready(LOOK_UP):
            if asked.wait == 0:
                again = [(b"retry-after", b"2")]
                raise Problem(503, "Redis is away", "The log can't be read now; try again.", headers=again)
            return False
        if watch.log is not None:
            return watch.log.ended and asked.after == watch.log.position
        if asked.after == ABSENT:
            return True
        if watch.standing is not None and watch.standing.stub:
            return False
        if asked.wait == 0:
            raise Problem(404, "No such run", f"Nobody has published run {asked.run!r}.")
        if crowded:
            detail = (
                f"{self._shared.waiting} streams wait for runs that nobody has published; try again, "
                "or raise TOOLCAST_MAX_WAITING."
            )
            raise Problem(503, "Too many waiting streams", detail, headers=[(b"retry-after", b"5")])
        return False

    # -- the next bytes -----------------------------------------------------------------------------------------

    async def next(self) -> bytes:
        """Return what to write next; empty after a silence, which ends when something may have changed."""
        subscription = self.subscription
        self.quiet = False
        if subscription.log is None:
            return await self._first()
        if subscription.behind:
            data = await self._page()
        else:
            self._rest = ()  # what memory holds too would be out of place the next time
            data = subscription.take(self._shared.settings.write)
        self.over = subscription.ended
        if data or self.over:
            self._events_given = True
        elif subscription.superseded or subscription.overtaken:
            return await self._snapshot("restarted")
        elif subscription.idle:
            if subscription.watch.missing and self._is_given_up():
                return self._gone()
            await self._silence()
        return data

    async def _first(self) -> bytes:
        """Find the reader's first place, or wait for Redis, or for the run."""
        asked, watch, subscription = self._asked, self.subscription.watch, self.subscription
        if not watch.loaded:
            if self._shared.relay.down_since is not None:
                return await self._pause()
            await self._silence()
            return b""
        self._told_away = False
        run_log = watch.log
        if run_log is None:
            return self._gone() if self._is_given_up() else await self._absent()
        waited = self._present()
        self._followed = self._followed or waited
        after = asked.after
        if after is None:
            # A run that begins under a reader's eyes begins with its first event, whatever `from` says.
            if asked.origin != "start" and not waited:
                return await self._snapshot("join")
            subscription.move(run_log, 0)
            return b""
        if after == "garbage" or after == ABSENT:
            return await self._snapshot("join")
        if after.epoch != run_log.epoch:
            return await self._snapshot("restarted")
        if after.seq > run_log.head:
            # Memory may lag behind what another gateway has served.
            self._shared.relay.look_again(watch)
            await watch.ready(LOOK_UP)
        subscription.move(run_log, after.seq)
        return b""

    def _is_given_up(self) -> bool:
        """Whether nothing but a stub is left of the run, and nobody will go on with it: what was running is restored
        by its publisher, or ended by the gateways that still know it."""
        standing, held_here = self.subscription.watch.standing, self.subscription.log is not None
        if standing is None or not standing.stub:
            return False
        return standing.status != "running" or (standing.held == 0 and not held_here)

    def _gone(self) -> bytes:
        """Return the last frame of a run whose log is gone."""
        standing = self.subscription.watch.standing
        return self._last(stub_reason(standing), stub_state(self._asked.run, standing))

    def _last(self, reason: SnapshotReason, state: RunState) -> bytes:
        """Return the frame that a run without a log ends with."""
        self.over = True
        event = snapshot_event(state, reason, format_time(self._shared.clock()))
        return frame(Entry(ABSENT, "snapshot", encode(event)), self._asked.format)

    @property
    def _patience(self) -> float:
        """Seconds to wait for a run of which Redis knows nothing."""
        return self._shared.settings.restore_wait if self._has_read else self._asked.wait

    @property
    def _has_read(self) -> bool:
        """Whether the reader knows more than Redis: it came with a position."""
        return isinstance(self._asked.after, Position) and self._asked.after != ABSENT

    async def _absent(self) -> bytes:
        """Wait for a run nobody has published yet, or that Redis has lost; the last frame if that takes too long."""
        now = self._shared.wheel.now()
        if self._absent_at is None:
            self._absent_at = now
            self._shared.waiting += 1
            await self._say(f"waiting for run {self._asked.run}")
        elif now - self._absent_at >= self._patience:
            if self._has_read:
                return self._gone()
            return self._last("absent", waiting(self._asked.run))
        await self._silence()
        return b""

    def _present(self) -> bool:
        """The reader waits no longer; tells whether it did."""
        waited = self._absent_at is not None
        if waited:
            self._absent_at = None
            self._shared.waiting -= 1
        return waited

    async def _snapshot(self, reason: SnapshotReason) -> bytes:
        run_log = self.subscription.watch.log
        if run_log is None:
            return b""
        calls = self._asked.origin != "now" or reason != "join"
        run, now, states = self._asked.run, self._shared.clock(), self._shared.states
        read = self.subscription.read
        try:
            # Who comes from an epoch that was lost has seen nothing of this one: all of it follows. Of a run that had
            # ended before the reader came its end is what counts.
            anew = reason == "restarted" and not self.subscription.overtaken
            anew = anew and (self._followed or self._events_given or not run_log.ended)
            place = await read(states.beginning(run, run_log)) if anew else None
            entry, seq = await read(
                states.snapshot(run, run_log, reason=reason, calls=calls, now=now, seq=place)
            )
        except (RedisError, OSError):
            return await self._pause()
        self.subscription.move(run_log, seq)
        return frame(entry, self._asked.format)

    async def _page(self) -> bytes:
        """Read on for a reader whose place has left memory; a snapshot if Redis has lost it too."""
        subscription = self.subscription
        run_log = subscription.log
        assert run_log is not None  # `behind` has just said so
        if not self._rest:
            place = Position(run_log.epoch, subscription.seq)
            try:
                self._rest = await subscription.read(self._shared.history.page(self._asked.run, place))
            except (RedisError, OSError):
                return await self._pause()
        if not self._rest or self._rest[0].position.seq != subscription.seq + 1:
            self._rest = ()
            if run_log is not subscription.watch.log:
                return await self._snapshot("restarted")
            return await self._snapshot("lagged" if self._events_given else "trimmed")
        limit = self._shared.settings.write
        data, seq = encode_entries(self._rest, self._asked.format, self._asked.types, limit=limit)
        self._rest = self._rest[seq - subscription.seq :]
        subscription.seq = seq
        return data

    # -- silence ------------------------------------------------------------------------------------------------

    def due(self, now: float) -> float:
        """Seconds from ``now`` until the reader must be woken whatever happens; 0 if it must be now."""
        heartbeat = self._wire.wrote_at + self._shared.settings.heartbeat
        end = heartbeat if self._absent_at is None else min(heartbeat, self._absent_at + self._patience)
        return max(end - now, 0)

    async def _silence(self) -> None:
        """Wait until something may have changed; one of several readings leaves that to who reads them all."""
        self.quiet = not self._alone
        if self._shared.hub.draining or self.quiet:
            return  # whoever wasn't waiting yet has missed its wake-up
        await self.subscription.wait(self._pass_on if self._wire.steps else None)
        await self._wire.settle()
        await self.beat()

    async def beat(self) -> None:
        """Break a silence that has lasted too long."""
        now = self._shared.wheel.now()
        if now - self._wire.wrote_at >= self._shared.settings.heartbeat and not self.subscription.closed:
            self._wire.wrote_at = now
            if beat := HEARTBEATS[self._asked.format]:
                await self._wire.write(beat)

    async def ending(self) -> bytes:
        """Return what is said once nothing follows."""
        run_log = self.subscription.log
        if self._asked.format != "text" or run_log is None:
            return b""
        state = self._shared.states.at(self._asked.run, run_log.position, run_log)
        try:
            return ending(await self.subscription.read(state)).encode()
        except (RedisError, OSError):
            return b"(ended)\n"

    def _pass_on(self) -> bool:
        """Write what has come while the reader's coroutine sleeps; tells whether it may sleep on."""
        subscription = self.subscription
        if not subscription.follows:
            return False
        data = subscription.take(self._shared.settings.write)
        if data:
            self._events_given = True
            if not self._wire.try_write(data):
                return False
        return subscription.idle

    async def _pause(self) -> bytes:
        """Redis is away and the reader needs it: wait for the wheel or the relay, whoever is first."""
        if not self._told_away:
            self._told_away = True
            await self._say("redis is away, waiting")
        await self._silence()
        return b""

    async def _say(self, text: str) -> None:
        if said := comment(text, self._asked.format):
            await self._wire.write(said)
