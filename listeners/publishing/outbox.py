"""What waits to be sent, bounded: order kept, fragments dropped first, a cut batch frozen until it is answered."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from listeners.contract.log import BATCH_BYTES, BATCH_EVENTS

__all__ = ["BEGINNINGS", "FRAGMENTS", "MAX_BYTES", "MAX_EVENTS", "Outbox", "Queued"]

MAX_EVENTS: Final = 10_000
"""Events that wait at most."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of JSON that wait at most."""
BEGINNINGS: Final = frozenset({"run_started", "run_resumed"})
"""The types that make their writer the run's owner: the script takes them at the head of a batch alone."""
FRAGMENTS: Final = frozenset({"tool_progress", "tool_call_arguments", "llm_new_delta"})
"""The types that go first when room is needed: pieces of something that a later event says as a whole."""


class Queued:
    """One event on its way out: its type, its JSON, and the call whose progress it tells, if that is all it does."""

    __slots__ = ("event", "number", "progress_of", "type")

    def __init__(self, type: str, event: bytes, *, progress_of: str | None = None) -> None:
        self.type = type
        self.event = event
        self.progress_of = progress_of
        self.number = 0


_Queue = OrderedDict[int, Queued]


class Outbox:
    """A queue of events with a bound.

    ``dropped`` counts by type what was thrown away for want of room; ``coalesced`` how many reports of progress gave
    way to a later one of the same call. Not thread-safe: its owner locks.
    """

    def __init__(self, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._frozen: tuple[Queued, ...] = ()
        self._waiting: _Queue = OrderedDict()
        # The same events again, by how easily they are given up.
        self._fragments: _Queue = OrderedDict()
        self._steps: _Queue = OrderedDict()
        self._turns: _Queue = OrderedDict()
        self._latest_progress: dict[str, Queued] = {}
        self._number = 0
        self._size = 0
        self.dropped: Counter[str] = Counter()
        self.coalesced = 0

    def __len__(self) -> int:
        return len(self._frozen) + len(self._waiting)

    @property
    def size(self) -> int:
        """Bytes of JSON that wait, those of the frozen batch included."""
        return self._size

    def put(self, queued: Queued) -> bool:
        """Take an event in; returns ``False`` if that cost a step or a turn of the run, not only fragments."""
        self._coalesce(queued)
        whole = True
        while len(self) >= self._max_events or self._size + len(queued.event) > self._max_bytes:
            if self._fragments:
                victim = next(iter(self._fragments.values()))
            elif queued.type in FRAGMENTS or not self._waiting:
                self.dropped[queued.type] += 1
                return whole and queued.type in FRAGMENTS
            else:
                # The place of run_restored: it will stand for everything that waits. Until then the oldest step of
                # a call goes, and what the run itself did goes last, since a run that never ends is worse.
                victim = next(iter((self._steps or self._turns).values()))
                whole = False
            self._take(victim)
            self.dropped[victim.type] += 1
        self._append(queued)
        return whole

    def cut(self) -> tuple[tuple[str, bytes], ...]:
        """Return the next batch as (type, JSON) pairs, the same one until it is acknowledged; empty: nothing waits.

        At most 500 events and 1 MiB (one larger event goes alone); what gives a run its owner only as the first.
        """
        if not self._frozen:
            batch: list[Queued] = []
            size = 0
            for queued in self._waiting.values():
                size += len(queued.event)
                if batch and (size > BATCH_BYTES or queued.type in BEGINNINGS):
                    break
                batch.append(queued)
                if len(batch) == BATCH_EVENTS:
                    break
            for queued in batch:
                self._take(queued)
            self._freeze(batch)
        return tuple((queued.type, queued.event) for queued in self._frozen)

    def acknowledge(self) -> None:
        """Forget the frozen batch: it was answered, or given up."""
        self._size -= sum(len(queued.event) for queued in self._frozen)
        self._frozen = ()

    def restart(self, *first: Queued) -> None:
        """Take the frozen batch back to the front of the queue, behind ``first``, to be cut and numbered anew."""
        again = [*first, *self._frozen, *self._waiting.values()]
        self.empty()
        for queued in again:
            self._append(queued)

    def empty(self) -> Counter[str]:
        """Throw everything away and return how many of which type that was."""
        lost = Counter(queued.type for queued in (*self._frozen, *self._waiting.values()))
        for queue in (self._waiting, self._fragments, self._steps, self._turns):
            queue.clear()
        self._latest_progress.clear()
        self._frozen = ()
        self._size = 0
        return lost

    def _coalesce(self, queued: Queued) -> None:
        """Let the latest report of a call's progress take the place of the one before, once room gets scarce."""
        if queued.progress_of is None:
            return
        before = self._latest_progress.get(queued.progress_of)
        scarce = 2 * len(self) > self._max_events or 2 * self._size > self._max_bytes
        if scarce and before is not None:
            self._take(before)
            self.coalesced += 1

    def _append(self, queued: Queued) -> None:
        queued.number = self._number = self._number + 1
        self._waiting[queued.number] = self._tier(queued.type)[queued.number] = queued
        self._size += len(queued.event)
        if queued.progress_of is not None:
            self._latest_progress[queued.progress_of] = queued

    def _take(self, queued: Queued) -> None:
        del self._waiting[queued.number], self._tier(queued.type)[queued.number]
        self._size -= len(queued.event)
        if queued.progress_of is not None and self._latest_progress.get(queued.progress_of) is queued:
            del self._latest_progress[queued.progress_of]

    def _freeze(self, batch: list[Queued]) -> None:
        self._frozen = tuple(batch)
        self._size += sum(len(queued.event) for queued in batch)

    def _tier(self, type: str) -> _Queue:
        if type in FRAGMENTS:
            return self._fragments
        return self._turns if type.startswith("run_") else self._steps
