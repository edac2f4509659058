"""A whole run, read from its log by who joins or resumes it (contract §3)."""

from __future__ import annotations

from dataclasses import dataclass

from listeners.contract.checkpoint import folding
from listeners.contract.exchange import Exchange
from listeners.contract.keys import Keys
from listeners.contract.position import Position
from listeners.contract.state import RunState

__all__ = ["KnownRun", "reading"]


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as its log tells it: ``waiting`` and without calls if there is none. ``keys`` are those of its calls.

    ``questions`` holds, by the call's key, the position of the last ``tool_interrupted`` that nothing but a decision
    has followed: the call waits for an answer, or for being started with the one it has got.
    """

    state: RunState
    questions: dict[str, Position]
    keys: frozenset[str]


def reading(keys: Keys) -> Exchange[KnownRun]:
    """Read and fold the log, a page a command."""
    folded = yield from folding(keys)
    return KnownRun(folded.folding.state, folded.questions, frozenset(folded.keys))
