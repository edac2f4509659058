"""Several runs on one connection: what one reader of all of them is given next (contract §4, ``GET /events``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.fanout.hub import Subscription
from gateway.http.asked import Asked
from gateway.http.problems import Problem
from gateway.http.reading import Reading, Streams
from gateway.http.wire import Wire

__all__ = ["SeveralReadings"]

_ENDED: Final = b"id: ended\n"
"""The one id of the stream, given with its last event: a reconnect that names it is told that nothing follows."""


class SeveralReadings:
    """The readings of a connection, in turns: a busy run holds no other one up. Used like a single
    :class:`~gateway.http.reading.Reading`."""

    __slots__ = ("_asked", "_open", "_readings", "_shared", "over")

    def __init__(self, shared: Streams, asked: Sequence[Asked], wire: Wire) -> None:
        self._shared = shared
        self._asked = asked
        self._readings = [Reading(shared, one, wire, alone=False) for one in asked]
        # Those that have not ended; the next one's turn stands first.
        self._open = list(self._readings)
        self.over = False

    @property
    def closed(self) -> bool:
        """Whether the reader is gone, or shall go."""
        return self._readings[0].closed

    @property
    def waiting(self) -> bool:
        """Whether the reader has everything there is."""
        return any(reading.waiting for reading in self._open)

    def stop(self) -> None:
        """The reader is gone, or shall go."""
        for reading in self._readings:
            reading.stop()

    def on_drain(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when the gateway stops."""
        self._readings[0].on_drain(call)

    def wake(self) -> None:
        """Have :meth:`next` look whether it is time for something."""
        for reading in self._readings:
            reading.wake()

    def close(self) -> None:
        """Give everything back."""
        for reading in self._readings:
            reading.close()

    def due(self, now: float) -> float:
        """Seconds from ``now`` until the reader must be woken whatever happens; 0 if it must be now."""
        return min(reading.due(now) for reading in self._open or self._readings)

    async def nothing_left(self) -> bool:
        """Tell whether the answer is 204: of every run the reader has the end.

        Raises :class:`Problem` 503 while Redis is away or too many wait; an unknown run is told as absent.
        """
        for reading in self._readings:
            try:
                if await reading.nothing_left():
                    self._open.remove(reading)
            except Problem as problem:
                if problem.status != 404:
                    raise
        return not self._open

    async def next(self) -> bytes:
        """Return what to write next; empty after a silence, which ends when something may have changed."""
        before = self._changes()
        for reading in tuple(self._open):
            data = await reading.next()
            if reading.over:
                self._open.remove(reading)
                data += await reading.ending()
            elif data:
                self._open.remove(reading)
                self._open.append(reading)
            self.over = not self._open
            if data or self.over:
                return self._marked(data, reading)
        quiet = all(reading.quiet for reading in self._open)
        if quiet and self._changes() == before and not self._shared.hub.draining:
            await self.wait()
            await self._readings[0].beat()
        return b""

    async def wait(self) -> None:
        """Return when something may have changed."""
        await Subscription.wait_for_any([reading.subscription for reading in self._open or self._readings])

    async def ending(self) -> bytes:
        """Return what is said once nothing follows: each run's has been."""
        return b""

    def _changes(self) -> int:
        # What a run brings while another one is asked for wakes nobody.
        return sum(reading.subscription.watch.changes for reading in self._open)

    def _marked(self, data: bytes, reading: Reading) -> bytes:
        format = self._asked[0].format
        if format == "text" and data:
            run = self._asked[self._readings.index(reading)].run.encode()
            return b"".join(b"%b  %b" % (run, line) for line in data.splitlines(keepends=True))
        if format == "sse-runs" and self.over and data:
            last = data.rfind(b"\n\n", 0, -2) + 2 if b"\n\n" in data[:-2] else 0
            return data[:last] + _ENDED + data[last:]
        return data
