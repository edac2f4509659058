"""The fold of a log by who writes it: the same state as :func:`fold`'s, each event in constant time (contract §5)."""

from __future__ import annotations

from msgspec.structs import replace

from listeners.contract.events import Event
from listeners.contract.fold import CALL_TYPES, MAX_CALLS, RUN_TYPES, fold, fold_call
from listeners.contract.position import ABSENT, Position
from listeners.contract.state import CallState, RunState, RunStatus, is_open

__all__ = ["Folding"]


class Folding:
    """The state that a log has come to. A run of thousands of calls is not copied for each of their steps."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._calls: dict[str, CallState] = {}
        self._position = ABSENT
        self._dropped = 0
        self._behind = False
        self._begin(state)

    @property
    def state(self) -> RunState:
        """The state after all that was added."""
        if self._behind:
            self._state = replace(
                self._state,
                position=str(self._position),
                calls=tuple(self._calls.values()),
                calls_dropped=self._dropped,
            )
            self._behind = False
        return self._state

    @property
    def status(self) -> RunStatus:
        """The state's status."""
        return self._state.status

    @property
    def position(self) -> Position:
        """The state's position."""
        return self._position

    def add(self, position: Position, event: Event) -> None:
        """Take in the event at ``position``."""
        follows = position.epoch == self._position.epoch and position.seq > self._position.seq
        if event.type in RUN_TYPES or self._state.status not in ("running", "interrupted") or not follows:
            self._begin(fold(self.state, position, event))
            return
        self._position = position
        self._behind = True
        if event.call is None or event.type not in CALL_TYPES:
            return
        key = event.call.key
        known = self._calls.get(key)
        if known is None and len(self._calls) >= MAX_CALLS:
            calls = self._calls.values()
            oldest = next((call for call in calls if not is_open(call)), next(iter(calls)))
            del self._calls[oldest.key]
            self._dropped += 1
        self._calls[key] = fold_call(known, position, event)

    def _begin(self, state: RunState) -> None:
        self._state = state
        self._position = Position.parse(state.position) or ABSENT
        self._calls = {call.key: call for call in state.calls}
        self._dropped = state.calls_dropped
        self._behind = False
