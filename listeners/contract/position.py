"""Where an event stands: ``<epoch>-<seq>``, the Redis stream id, the SSE id and ``Last-Event-ID`` in one.

``epoch`` names this incarnation of the log, ``seq`` counts 1, 2, 3 … without a hole. Epochs are compared for
equality only (contract §1).
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["ABSENT", "Position"]

# Redis stream ids are two unsigned 64-bit integers; twenty digits hold the largest.
_PATTERN = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")


class Position(NamedTuple):
    """A place in a run's log: ``epoch`` (milliseconds, opaque) and ``seq`` (1 for the first event)."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Read ``<epoch>-<seq>``; ``None`` for anything else, since a position is never bad input."""
        match = _PATTERN.fullmatch(text) if len(text) <= 41 else None
        return cls(int(match[1]), int(match[2])) if match else None


ABSENT = Position(0, 0)
"""The id of a snapshot that stands for no log: of a run that is absent, expired or deleted."""
