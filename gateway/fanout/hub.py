"""Which runs are watched, and by whom.

The hub asks its :class:`Source` to watch a run while somebody reads it and a little longer, and wakes the readers
when the source brings something. It knows neither Redis nor HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from gateway.fanout.frames import Format
from gateway.fanout.runlog import Chunk, RunLog, TypeFilter, encode_entries
from gateway.fanout.standing import Standing
from gateway.fanout.wheel import Wheel

__all__ = ["Hub", "Source", "Subscription", "Watch"]

T = TypeVar("T")

SHED_EVERY: Final = 2.0
"""Seconds between two looks at the memory of all runs."""


class Source(Protocol):
    """Brings a run's events into its :class:`Watch`."""

    def watch(self, watch: Watch) -> None:
        """Begin to bring the run's history and what follows."""

    def joined(self, watch: Watch) -> None:
        """One more reads a run that is watched already: whatever was missed of it is due now."""

    def unwatch(self, watch: Watch) -> None:
        """Stop; nobody reads the run any more."""


class Watch:
    """One watched run. ``log`` is its present epoch, ``None`` while Redis has none; ``loaded`` tells that Redis
    has been asked.

    ``changes`` counts how often that changed. ``missing``: Redis holds less than ``log`` does, or nothing;
    ``standing`` is then what it holds of the run. ``read``: somebody has read since the hub last looked, and
    ``read_in`` the last of its looks before which somebody had.
    """

    __slots__ = (
        "_ready",
        "_release",
        "_telling",
        "_waiting",
        "changes",
        "loaded",
        "log",
        "missing",
        "read",
        "read_in",
        "readers",
        "run",
        "standing",
    )

    def __init__(self, run: str, release: Callable[[Watch], None]) -> None:
        self.run = run
        self._release = release
        self.log: RunLog | None = None
        self.loaded = False
        self.missing = False
        self.standing: Standing | None = None
        self.readers = 0
        self.changes = 0
        self.read = True
        self.read_in = 0
        self._ready: asyncio.Event | None = None
        self._waiting: set[Subscription] = set()
        self._telling = False

    def release(self, now: float) -> None:
        """Let the run go: nobody has read it for a while (a tick of the wheel)."""
        self._release(self)

    async def ready(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until Redis has been asked; tells whether it has."""
        if not self.loaded:
            self._ready = self._ready or asyncio.Event()
            try:
                async with asyncio.timeout(seconds):
                    await self._ready.wait()
            except TimeoutError:
                return False
        return True

    def brought(self) -> None:
        """Tell the readers that the log, or what is known of it, has changed."""
        self.changes += 1
        if self.loaded and self._ready is not None:
            self._ready.set()
            self._ready = None
        if self._waiting and not self._telling:
            self._telling = True
            # In the next turn of the loop, so that what came in at once goes out at once.
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        for subscription in tuple(self._waiting):
            subscription.tell()


class Subscription:
    """One reader: a position in a log plus a wake-up, never a queue. ``on_drain`` is called when the gateway stops."""

    __slots__ = (
        "_pass_on",
        "_reading",
        "_waker",
        "closed",
        "format",
        "log",
        "on_drain",
        "seq",
        "types",
        "watch",
    )

    def __init__(self, watch: Watch, format: Format, types: TypeFilter | None) -> None:
        self.watch = watch
        self.format: Format = format
        self.types = types
        self.log: RunLog | None = None
        self.seq = 0
        self.closed = False
        self._waker: asyncio.Future[None] | None = None
        self._pass_on: Callable[[], bool] | None = None
        self._reading: asyncio.Timeout | None = None
        self.on_drain: Callable[[], None] | None = None

    def move(self, log: RunLog, seq: int) -> None:
        """Stand behind ``seq`` of ``log``."""
        self.log, self.seq = log, seq

    @property
    def behind(self) -> bool:
        """Whether what comes next has left memory and must be read from Redis."""
        return self.log is not None and self.seq < self.log.head and not self.log.holds(self.seq)

    @property
    def idle(self) -> bool:
        """Whether the reader has everything its log holds."""
        return self.log is not None and self.seq >= self.log.head

    @property
    def follows(self) -> bool:
        """Whether what comes next is held in memory, of the present epoch, in Redis too, and not the end."""
        log, watch = self.log, self.watch
        return (
            log is not None and log is watch.log and not (watch.missing or log.ended) and log.holds(self.seq)
        )

    @property
    def superseded(self) -> bool:
        """Whether the run has begun a new epoch and this one holds nothing more for the reader."""
        return self.idle and self.log is not self.watch.log

    @property
    def overtaken(self) -> bool:
        """Whether the run has ended without ever reaching the position the reader came with."""
        return self.log is not None and self.log.ended and self.seq > self.log.head

    @property
    def ended(self) -> bool:
        """Whether the reader has been given the terminal event."""
        return self.log is not None and self.log.ended and self.seq == self.log.head

    def take(self, limit: int) -> bytes:
        """Return the next bytes held in memory, at most ``limit`` or one frame, and step behind them."""
        log = self.log
        if log is None or self.seq >= log.head:
            return b""
        self.watch.read = True
        chunk: Chunk | None
        if self.types is None:
            chunk = log.read(self.seq, self.format, limit=limit)
        else:
            chunk = encode_entries(log.entries(self.seq), self.format, self.types, limit=limit)
        if chunk is None:
            return b""
        data, self.seq = chunk
        return data

    async def wait(self, pass_on: Callable[[], bool] | None = None) -> None:
        """Return when something may have changed: an event, a hang-up, a tick of the wheel, a drain.

        When the run has brought something ``pass_on`` is asked first; if it returns true the wait goes on.
        """
        if self.closed:
            return
        self._waker = asyncio.get_running_loop().create_future()
        self._pass_on = pass_on
        self.watch._waiting.add(self)
        try:
            await self._waker
        finally:
            self._waker = self._pass_on = None
            self.watch._waiting.discard(self)

    def tell(self) -> None:
        """The run has brought something."""
        if self._waker is not None and not self._waker.done() and not (self._pass_on and self._pass_on()):
            self._waker.set_result(None)

    @staticmethod
    async def wait_for_any(subscriptions: Sequence[Subscription]) -> None:
        """Return when something may have changed for one of ``subscriptions``, as :meth:`wait` does for one."""
        if any(subscription.closed for subscription in subscriptions):
            return
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for subscription in subscriptions:
            subscription._waker = waker
            subscription.watch._waiting.add(subscription)
        try:
            await waker
        finally:
            for subscription in subscriptions:
                subscription._waker = None
                subscription.watch._waiting.discard(subscription)

    async def read(self, answer: Awaitable[T]) -> T:
        """Await ``answer`` of a server that may hang; raises ``TimeoutError`` once the gateway stops."""
        try:
            async with asyncio.timeout(None) as self._reading:
                return await answer
        finally:
            self._reading = None

    def drain(self) -> None:
        """End what the reader waits for, since the gateway stops."""
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())
        if self.on_drain is not None:
            self.on_drain()
        self.wake()

    def wake(self) -> None:
        """End the present :meth:`wait`, if there is one."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    @property
    def waiting(self) -> bool:
        """Whether the reader has everything there is."""
        return self._waker is not None

    def close(self) -> None:
        """The reader is gone or shall go."""
        self.closed = True
        self.wake()


class Hub:
    """The watched runs of one gateway. ``linger`` is how many seconds a run stays watched without readers, so that
    a reconnect finds its log in memory; ``memory`` bounds the bytes of JSON that all runs keep together."""

    def __init__(
        self, source: Source, wheel: Wheel, *, linger: float = 5.0, memory: int = 256 * 1024 * 1024
    ) -> None:
        self._source = source
        self._wheel = wheel
        self._linger = linger
        self._memory = memory
        self._watches: dict[str, Watch] = {}
        self._subscriptions: set[Subscription] = set()
        self._empty = asyncio.Event()
        self._looks = 0
        self.draining = False

    @property
    def readers(self) -> int:
        """Open streams."""
        return len(self._subscriptions)

    def watches(self) -> Iterator[Watch]:
        """All watched runs."""
        return iter(list(self._watches.values()))

    def watchers(self, run: str) -> int:
        """How many streams of this gateway read ``run``."""
        watch = self._watches.get(run)
        return watch.readers if watch is not None else 0

    def watch_of(self, run: str) -> Watch | None:
        """The watch of ``run``, if somebody reads it."""
        return self._watches.get(run)

    def attach(self, run: str, format: Format = "sse", types: TypeFilter | None = None) -> Subscription:
        """Open a subscription to ``run``; whoever opens it gives it back to :meth:`detach`."""
        watch = self._watches.get(run)
        if watch is None:
            watch = self._watches[run] = Watch(run, self._release)
            self._source.watch(watch)
        elif watch.loaded and watch.log is not None and not watch.log.ended:
            self._source.joined(watch)
        watch.read = True
        self._wheel.remove(watch.release)
        watch.readers += 1
        subscription = Subscription(watch, format, types)
        self._subscriptions.add(subscription)
        return subscription

    def detach(self, subscription: Subscription) -> None:
        """Give a subscription back; the last one of a run lets it go after a while."""
        self._subscriptions.discard(subscription)
        if self.draining and not self._subscriptions:
            self._empty.set()
        watch = subscription.watch
        watch.readers -= 1
        if watch.readers == 0:
            self._wheel.add(self._linger, watch.release)

    def shed(self, now: float) -> float:
        """Keep to the bound of memory (a tick of the wheel): the run that was read longest ago gives first.

        Its readers go on from Redis, where they stand.
        """
        self._looks += 1
        held = 0
        for watch in self._watches.values():
            if watch.read:
                watch.read, watch.read_in = False, self._looks
            held += watch.log.size if watch.log is not None else 0
        if held <= self._memory:
            return SHED_EVERY
        for watch in sorted(self._watches.values(), key=lambda watch: watch.read_in):
            if held <= self._memory:
                break
            if watch.log is not None:
                held -= watch.log.shed()
        return SHED_EVERY

    def drain(self) -> None:
        """Ask every stream to end; new ones are refused by whoever sees ``draining``."""
        self.draining = True
        for subscription in list(self._subscriptions):
            subscription.drain()
        if not self._subscriptions:
            self._empty.set()

    async def drained(self, seconds: float) -> bool:
        """Wait at most ``seconds`` after :meth:`drain` for the last stream to end; tells whether it has."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _release(self, watch: Watch) -> None:
        if watch.readers == 0:
            del self._watches[watch.run]
            self._source.unwatch(watch)
