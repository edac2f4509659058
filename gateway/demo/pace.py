"""How fast the demo goes: quick work is stretched to a length that a person can follow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["Pace"]

T = TypeVar("T")


class Pace:
    """Seconds of the demo as they pass at ``speed`` (2: twice as fast); work that takes longer is never hurried.

    Raises ``ValueError`` for a speed that isn't above 0.
    """

    def __init__(self, speed: float = 1.0) -> None:
        if not 0 < speed < float("inf"):
            raise ValueError(f"speed is {speed}, but must be a number above 0: 1 as meant, 2 twice as fast")
        self._speed = speed
        self._stopped = threading.Event()

    async def rest(self, seconds: float) -> None:
        """Let ``seconds`` of the demo pass."""
        await asyncio.sleep(seconds / self._speed)

    def dwell(self, seconds: float) -> None:
        """Let ``seconds`` of the demo pass; for a tool in its thread, as :meth:`spread` is."""
        self._wait(seconds / self._speed)

    def spread(self, items: Sequence[T], seconds: float) -> Iterator[T]:
        """Yield ``items`` so that working through them takes ``seconds`` of the demo at least.

        Raises ``asyncio.CancelledError`` once :meth:`stop` was called.
        """
        started, share = time.monotonic(), seconds / self._speed / max(1, len(items))
        for done, item in enumerate(items, 1):
            yield item
            self._wait(started + done * share - time.monotonic())

    def stop(self) -> None:
        """Let no tool go on: called from any thread when the run is cancelled."""
        self._stopped.set()

    def _wait(self, seconds: float) -> None:
        if self._stopped.wait(max(0.0, seconds)):
            # A thread can't be cancelled from outside, so it hears of it here.
            raise asyncio.CancelledError
