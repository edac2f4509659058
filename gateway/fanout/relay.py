"""Redis into the hub: pub/sub for what happens, the stream for what was missed.

A run is watched in this order: subscribe to its channel, wait for Redis to confirm, read the log up to its head, then
follow the channel. What arrives while the log is being read waits its turn; what was read twice is recognised by its
position; a hole sends the relay back to the stream. History and live events meet without a seam that way.

After an outage all of that happens again, for every run. A connection that only looks alive is noticed by a PING.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.fanout.catching_up import catch_up
from gateway.fanout.history import History
from gateway.fanout.hub import Watch
from listeners.contract.keys import Keys, runs_channel
from listeners.contract.log import Entry, read_message
from listeners.contract.position import Position

__all__ = ["Relay"]

PENDING_EVENTS: Final = 5_000
"""Events kept aside while a log is read; more than that and the stream is read again instead."""
RECONNECT_MOST: Final = 2.0
"""Seconds between two tries at Redis, at most."""
JOINED_AGAIN: Final = 0.25
"""Seconds between two looks at a run because somebody has joined it."""
PING_EVERY: Final = 10.0
"""Seconds between two proofs that the connection brings what is published."""
PING_ANSWER: Final = 2.0
"""Seconds that a proof may take."""

log = structlog.get_logger("toolcast.relay")
_REDIS_TROUBLE = (RedisError, OSError, asyncio.TimeoutError)


@dataclass(slots=True)
class _Following:
    """What the relay remembers about a watched run beyond its log."""

    watch: Watch
    channel: str
    task: asyncio.Task[None] | None = None
    pending: list[tuple[Position, str, bytes | None]] = field(default_factory=list)
    again: bool = False
    checked_at: float = 0.0


class Relay:
    """Follows the watched runs on one pub/sub connection; ``history`` says what was before and what was missed.

    ``memory`` bounds the bytes of JSON a run keeps in this process.
    """

    def __init__(self, url: str, namespace: str, history: History, *, memory: int = 1024 * 1024) -> None:
        self._url = url
        self._namespace = namespace
        self._memory = memory
        self._history = history
        self._following: dict[str, _Following] = {}
        self._channels: dict[bytes, _Following] = {}
        self._pubsub: PubSub | None = None
        self._runner: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._alive = asyncio.Event()
        self.down_since: float | None = None
        """``time.time()``-like seconds since when Redis is away; ``None`` while the relay stands."""
        self.stood = False
        """Whether the relay has ever stood."""
        self.connections = 0
        """How often it has come to stand."""

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self, clock: Callable[[], float]) -> None:
        """Begin; ``clock`` tells seconds since 1970."""
        self._clock = clock
        self._runner = asyncio.create_task(self._run(), name="toolcast relay")

    async def stop(self) -> None:
        """End every task and connection."""
        tasks = [*self._tasks, *([self._runner] if self._runner else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._runner = None

    async def _run(self) -> None:
        attempt = 0
        while True:
            stood = self.connections
            connection = Redis.from_url(
                self._url, socket_timeout=None, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
            )
            pubsub = connection.pubsub()
            try:
                await pubsub.subscribe(runs_channel(self._namespace))
                # From here on whoever begins to watch subscribes; what is watched already is subscribed next.
                self._pubsub = pubsub
                if self._following:
                    await pubsub.subscribe(*(following.channel for following in self._following.values()))
                await self._first_of(self._listen(pubsub), self._prove(pubsub))
            except Exception as error:
                # A mistake of ours must not leave every reader deaf: it is loud, and the relay comes back.
                if not isinstance(error, _REDIS_TROUBLE):
                    log.exception("the relay failed")
                self._went_down(error)
            finally:
                self._pubsub = None
                with suppress(*_REDIS_TROUBLE):
                    await pubsub.aclose()  # type: ignore[no-untyped-call]  # redis-py leaves it without types
                    await connection.aclose()
            attempt = 1 if self.connections > stood else attempt + 1
            # Jittered, so that a fleet of gateways doesn't return to Redis in one step.
            await asyncio.sleep(min(RECONNECT_MOST, 0.05 * 2**attempt) * random.uniform(0.5, 1))

    def _went_down(self, error: BaseException) -> None:
        if self.down_since is None:
            self.down_since = self._clock()
            log.warning("redis is away; streams stay open", error=str(error) or type(error).__name__)
            for following in self._following.values():
                following.watch.brought()

    def _came_up(self) -> None:
        if self.down_since is not None:
            log.info("redis is back", away_s=round(self._clock() - self.down_since, 1))
        self.down_since = None
        self.stood = True
        self.connections += 1

    async def _first_of(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        """Run them side by side until one ends, which none does without an error, and raise that."""
        tasks = [asyncio.create_task(one) for one in coroutines]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _prove(self, pubsub: PubSub) -> None:
        while True:
            self._alive.clear()
            async with asyncio.timeout(PING_ANSWER):
                await pubsub.ping()
                await self._alive.wait()
            await asyncio.sleep(PING_EVERY)

    async def _listen(self, pubsub: PubSub) -> None:
        announcement = runs_channel(self._namespace).encode()
        while True:
            message: dict[str, Any] | None = await pubsub.get_message(timeout=None)
            if message is None:
                continue
            # Whatever has come proves as much as a pong, which may stand behind thousands of messages.
            self._alive.set()
            if message["type"] == "message":
                following = self._channels.get(message["channel"])
                if following is not None:
                    self._heard(following, message["data"])
            elif message["type"] == "subscribe":
                if message["channel"] == announcement:
                    self._came_up()
                elif (following := self._channels.get(message["channel"])) is not None:
                    self._catch_up(following)

    # -- runs ---------------------------------------------------------------------------------------------------

    def watch(self, watch: Watch) -> None:
        """Follow ``watch.run`` (:class:`~gateway.fanout.hub.Source`)."""
        following = _Following(watch, Keys(watch.run, self._namespace).channel)
        self._following[watch.run] = following
        self._channels[following.channel.encode()] = following
        # Without a connection there is nothing to do: the next one subscribes to whatever is followed then.
        if self._pubsub is not None:
            self._own(self._subscribe(self._pubsub, following))

    def joined(self, watch: Watch) -> None:
        """Make sure that the end of ``watch.run`` wasn't missed (:class:`~gateway.fanout.hub.Source`)."""
        following = self._following.get(watch.run)
        now = asyncio.get_running_loop().time()
        # Of a thousand who come at once one is enough.
        if following is not None and now - following.checked_at > JOINED_AGAIN and self.down_since is None:
            following.checked_at = now
            self._catch_up(following)

    def unwatch(self, watch: Watch) -> None:
        """Let ``watch.run`` go (:class:`~gateway.fanout.hub.Source`)."""
        following = self._following.pop(watch.run)
        del self._channels[following.channel.encode()]
        if following.task is not None:
            following.task.cancel()
        if self._pubsub is not None:
            self._own(self._unsubscribe(self._pubsub, watch.run, following.channel))

    def look_again(self, watch: Watch) -> None:
        """Ask Redis anew where the run stands; :meth:`Watch.brought` follows."""
        following = self._following.get(watch.run)
        if following is not None:
            watch.loaded = False
            self._catch_up(following)

    def missed(self, watch: Watch) -> None:
        """Redis holds something else than ``watch`` does, and the channel didn't bring it: subscribe once more, and
        catch up."""
        following = self._following.get(watch.run)
        if following is not None:
            if self._pubsub is not None:
                self._own(self._subscribe(self._pubsub, following))
            self._catch_up(following)

    async def _subscribe(self, pubsub: PubSub, following: _Following) -> None:
        # A broken connection is noticed by who listens on it; it subscribes anew.
        with suppress(*_REDIS_TROUBLE):
            await pubsub.subscribe(following.channel)

    async def _unsubscribe(self, pubsub: PubSub, run: str, channel: str) -> None:
        with suppress(*_REDIS_TROUBLE):
            if run not in self._following:
                await pubsub.unsubscribe(channel)

    def _own(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _heard(self, following: _Following, message: bytes) -> None:
        read = read_message(message)
        if read is None:
            return
        if following.task is None:
            self._take(following, *read)
        elif len(following.pending) < PENDING_EVENTS:
            following.pending.append(read)
        else:
            following.again = True

    def _take(self, following: _Following, position: Position, type: str, event: bytes | None) -> None:
        run_log = following.watch.log
        if run_log is not None and run_log.epoch == position.epoch and not following.watch.missing:
            if position.seq <= run_log.head:
                return
            if position.seq == run_log.head + 1 and event is not None:
                run_log.append(Entry(position, type, event))
                following.watch.brought()
                return
        self._catch_up(following)

    # -- history ------------------------------------------------------------------------------------------------

    def _catch_up(self, following: _Following) -> None:
        """Read from the stream what is missing; one reader of the stream a run at a time."""
        if following.task is None:
            following.task = self._own(self._read_up(following))
        else:
            following.again = True

    async def _read_up(self, following: _Following) -> None:
        watch = following.watch
        try:
            while True:
                following.again = False
                await catch_up(watch, self._history, memory=self._memory)
                if not following.again:
                    break
        except Exception as error:
            # The pub/sub connection has its own ways to notice; without this a hole would stay until the next event,
            # and after a mistake of ours the run would be deaf for good.
            log.warning("could not read a run's log", run=watch.run, error=str(error) or type(error).__name__)
            following.pending.clear()
            await asyncio.sleep(random.uniform(0.1, 0.5))
            following.task = None
            if self._following.get(watch.run) is following:
                self._catch_up(following)
            return
        following.task = None
        watch.loaded = True
        pending, following.pending = following.pending, []
        for i, held in enumerate(pending):
            if following.task is not None:
                following.pending += pending[i:]
                break
            self._take(following, *held)
        watch.brought()
