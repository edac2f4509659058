"""Whether a subscription has seen a run whole: every position from 1 to the terminal event, in order, once."""

from __future__ import annotations

from listeners.contract.events import TERMINAL_TYPES
from listeners.contract.position import Position

__all__ = ["Witness"]


class Witness:
    """Looks at the events of one run as a reader gets them."""

    def __init__(self) -> None:
        self.ended = False
        """The terminal event has been seen."""
        self._last: Position | None = None
        self._last_type = ""
        self.fault: str | None = None
        """What was wrong with what was seen so far, as a clause."""

    @property
    def position(self) -> Position | None:
        """The position seen last, from which a reader goes on."""
        return self._last

    def see(self, position: Position, type: str) -> None:
        """Take note of the next event."""
        self.fault = self.fault or self._fault(position, type)
        self._last, self._last_type = position, type
        self.ended = type in TERMINAL_TYPES

    @property
    def missing(self) -> str | None:
        """What was missing or wrong, as a clause; ``None`` if the run was seen whole."""
        if self._last is None:
            return "no event of it arrived"
        if self.fault is not None:
            return self.fault
        if not self.ended:
            return f"its end is missing: event {self._last.seq}, {self._last_type}, was the last"
        return None

    def _fault(self, position: Position, type: str) -> str | None:
        if type == "snapshot":
            return "a snapshot stood for events that were no longer there"
        if self._last is not None and position.epoch != self._last.epoch:
            return f"it was started again after event {self._last.seq}"
        if self.ended:
            return f"event {position.seq} came after its end"

        due = 1 if self._last is None else self._last.seq + 1
        if position.seq < due:
            return f"event {position.seq} came again"
        if position.seq == due + 1:
            return f"event {due} is missing"
        return f"events {due} to {position.seq - 1} are missing" if position.seq > due else None
