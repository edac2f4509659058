"""One epoch of one run's log as this process holds it: its newest entries, their frames encoded once.

Everybody who reads the run reads this one list; a reader is a number in it (no I/O).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gateway.fanout.frames import Format, frame
from listeners.contract.events import TERMINAL_TYPES
from listeners.contract.log import Entry
from listeners.contract.position import Position

__all__ = ["Chunk", "RunLog", "TypeFilter", "encode_entries"]

TypeFilter = Callable[[str], bool]
SHARED_CHUNKS: Final = 8
"""Joined chunks kept for who stands at the same place; readers at many places must not multiply the log."""

Chunk = tuple[bytes, int]
"""Bytes to write, and the ``seq`` a reader stands at once it has them (the bytes may be empty under a filter)."""


class RunLog:
    """The entries ``oldest … head`` of one epoch, without a hole; ``memory`` bounds the bytes of JSON kept."""

    __slots__ = ("_chunks", "_entries", "_frames", "ended", "epoch", "head", "memory", "size")

    def __init__(self, epoch: int, *, head: int = 0, memory: int = 1024 * 1024) -> None:
        self.epoch = epoch
        self.head = head
        self.memory = memory
        self.size = 0
        self.ended = False
        self._entries: list[Entry] = []
        self._frames: dict[Format, list[bytes | None]] = {}
        # Readers that stand at the same place get the same bytes object: a burst is joined once, not once a reader.
        self._chunks: dict[tuple[int, Format, int], Chunk] = {}

    @property
    def oldest(self) -> int:
        """The smallest ``seq`` kept here; ``head + 1`` if nothing is."""
        return self.head + 1 - len(self._entries)

    @property
    def position(self) -> Position:
        """The head."""
        return Position(self.epoch, self.head)

    @property
    def last_before_end(self) -> int:
        """The ``seq`` a snapshot stands for: the head, or of an ended run the one before its terminal event."""
        return self.head - 1 if self.ended else self.head

    def append(self, entry: Entry) -> None:
        """Add the entry after the head; ``ValueError`` if it is another one, since a hole would never be noticed."""
        if entry.position != (self.epoch, self.head + 1):
            raise ValueError(f"{entry.position} does not follow {self.position}")
        self._entries.append(entry)
        for frames in self._frames.values():
            frames.append(None)
        self._chunks.clear()
        self.head += 1
        self.size += len(entry.event)
        self.ended = entry.type in TERMINAL_TYPES
        if self.size > self.memory:
            self._trim()

    def skip(self, seq: int) -> None:
        """Go on behind ``seq``: what lies between is no longer to be had. Who stands before it isn't held here."""
        self._drop(len(self._entries))
        self.head = seq

    def ends_with(self, entry: Entry) -> bool:
        """Tell whether ``entry`` is the head, to the letter."""
        return bool(self._entries) and self._entries[-1] == entry

    def holds(self, after: int) -> bool:
        """Tell whether everything that follows ``after`` is here."""
        return after + 1 >= self.oldest

    def entries(self, after: int) -> Sequence[Entry]:
        """Return what follows ``after``; it must be held."""
        return self._entries[max(0, after + 1 - self.oldest) :]

    def read(self, after: int, format: Format, *, limit: int) -> Chunk | None:
        """Return the next bytes for a reader at ``after``: at most ``limit``, or one frame; ``None``: nothing yet.

        What follows ``after`` must be held here.
        """
        if after >= self.head:
            return None
        key = (after, format, limit)
        chunk = self._chunks.get(key)
        if chunk is None:
            if len(self._chunks) >= SHARED_CHUNKS:
                self._chunks.clear()
            chunk = self._chunks[key] = self._join(after, format, limit)
        return chunk

    def shed(self) -> int:
        """Keep the newest entry only; returns the bytes that were given up."""
        before = self.size
        self._drop(len(self._entries) - 1)
        return before - self.size

    def _join(self, after: int, format: Format, limit: int) -> Chunk:
        frames = self._frames.get(format)
        if frames is None:
            frames = self._frames[format] = [None] * len(self._entries)
        parts: list[bytes] = []
        size = 0
        start = after + 1 - self.oldest
        for index in range(start, len(self._entries)):
            part = frames[index]
            if part is None:
                part = frames[index] = frame(self._entries[index], format)
            if parts and size + len(part) > limit:
                break
            parts.append(part)
            size += len(part)
        return (parts[0] if len(parts) == 1 else b"".join(parts)), after + len(parts)

    def _trim(self) -> None:
        # A quarter at a time: moving the list for every single entry would cost more than the entries do.
        drop, size = 0, self.size
        while drop < len(self._entries) - 1 and size > self.memory * 3 // 4:
            size -= len(self._entries[drop].event)
            drop += 1
        self._drop(drop)

    def _drop(self, count: int) -> None:
        self.size -= sum(len(entry.event) for entry in self._entries[:count])
        del self._entries[:count]
        for frames in self._frames.values():
            del frames[:count]
        self._chunks.clear()


def encode_entries(
    entries: Sequence[Entry], format: Format, types: TypeFilter | None, *, limit: int
) -> Chunk:
    """Join the frames of ``entries`` that pass ``types``: at most ``limit`` bytes, or one frame."""
    parts: list[bytes] = []
    size = 0
    seq = 0
    for entry in entries:
        if types is None or types(entry.type):
            part = frame(entry, format)
            if parts and size + len(part) > limit:
                break
            parts.append(part)
            size += len(part)
        seq = entry.position.seq
    return b"".join(parts), seq
