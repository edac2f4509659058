"""One timer for a whole process: heartbeats, write time-outs, waits and lingering share it (no I/O).

Ten thousand readers with a timer each would cost ten thousand heap entries and wake-ups; a wheel with one-second
spokes costs a table entry each and is late by at most a second, which none of its uses minds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import ceil

__all__ = ["Tick", "Wheel"]

Tick = Callable[[float], float | None]
"""Called with the present time; returns after how many seconds to be called again, ``None`` for never."""

log = logging.getLogger(__name__)


class Wheel:
    """Calls what is due. ``clock`` tells seconds; whoever owns the wheel turns it about once a second."""

    __slots__ = ("_clock", "_due", "_spokes", "_turned")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spokes: dict[int, dict[Tick, None]] = {}
        self._due: dict[Tick, int] = {}
        self._turned = int(clock())

    def __len__(self) -> int:
        return len(self._due)

    def now(self) -> float:
        """Seconds, as the clock tells them."""
        return self._clock()

    def add(self, seconds: float, tick: Tick) -> None:
        """Call ``tick`` in ``seconds``, rounded up to a whole second; a tick added twice counts once, as last said."""
        self.remove(tick)
        due = self._due[tick] = max(ceil(self._clock() + seconds), self._turned + 1)
        self._spokes.setdefault(due, {})[tick] = None

    def remove(self, tick: Tick) -> None:
        """Call ``tick`` no more."""
        due = self._due.pop(tick, None)
        if due is not None:
            # The spoke that is being turned right now has been taken off already.
            self._spokes.get(due, {}).pop(tick, None)

    def turn(self) -> None:
        """Call everything that is due; a tick that raises is logged and doesn't stop the others."""
        now = self._clock()
        while self._turned < int(now):
            self._turned += 1
            for tick in self._spokes.pop(self._turned, ()):
                # One that an earlier tick of this spoke has removed, or moved, isn't due any more.
                if self._due.get(tick) != self._turned:
                    continue
                del self._due[tick]
                try:
                    again = tick(now)
                except Exception:
                    log.exception("a timer failed")
                else:
                    if again is not None:
                        self.add(again, tick)
