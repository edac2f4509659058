"""A whole run, read from its log by who joins or resumes it (contract §3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from listeners.contract.events import InvalidEvent, decode
from listeners.contract.exchange import Exchange
from listeners.contract.fold import fold
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from listeners.contract.position import Position
from listeners.contract.state import RunState, waiting

__all__ = ["KnownRun", "reading"]

_PAGE: Final = 1_000
_SETTLES: Final = frozenset({"tool_execution_started", "tool_execution_completed", "tool_execution_failed"})


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as its log tells it: ``waiting`` and without calls if there is none. ``keys`` are those of all its calls.

    ``questions`` holds, by the call's key, the position of the last ``tool_interrupted`` that nothing but a decision
    has followed: the call waits for an answer, or for being started with the one it has got.
    """

    state: RunState
    questions: dict[str, Position]
    keys: frozenset[str]


def reading(keys: Keys) -> Exchange[KnownRun]:
    """Read and fold the log, a page a command."""
    state = waiting(keys.run)
    questions: dict[str, Position] = {}
    calls: set[str] = set()
    first = "-"
    while True:
        reply = yield ("XRANGE", keys.log, first, "+", "COUNT", _PAGE)
        for entry in read_entries(reply):
            try:
                event = decode(entry.event)
            except InvalidEvent:
                continue
            state = fold(state, entry.position, event)
            if event.call is None:
                continue
            calls.add(event.call.key)
            if event.type == "tool_interrupted":
                questions[event.call.key] = entry.position
            elif event.type in _SETTLES:
                questions.pop(event.call.key, None)
        if len(reply or ()) < _PAGE:
            return KnownRun(state, questions, frozenset(calls))
        first = f"({reply[-1][0].decode()}"
