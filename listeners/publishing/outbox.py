"""What waits to be sent, bounded: order kept, fragments dropped first, a cut batch frozen until it is answered.

When dropping fragments isn't enough, all that waits is: the run's state, told as a whole, takes its place.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from typing import Final

from listeners.contract.events import TERMINAL_TYPES
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
_ENDS: Final = frozenset({"tool_execution_completed", "tool_execution_failed"})
_KEPT: Final = BEGINNINGS | TERMINAL_TYPES
# A run that never begins or never ends for its readers would be worse than one event too many.


class Queued:
    """One event on its way out: its type, its JSON, the key of its call, and the one whose progress it tells, if that
    is all it does.

    ``restates``: it tells again what was told before. ``spared``: it stayed when what waited with it was dropped.
    """

    __slots__ = ("call", "event", "number", "progress_of", "restates", "spared", "type")

    def __init__(
        self,
        type: str,
        event: bytes,
        *,
        call: str | None = None,
        progress_of: str | None = None,
        restates: bool = False,
    ) -> None:
        self.type = type
        self.event = event
        self.call = call
        self.progress_of = progress_of
        self.restates = restates
        self.spared = False
        self.number = 0


_Queue = OrderedDict[int, Queued]


class Outbox:
    """A queue of events with a bound, which only the beginning and the end of a run, and the ends of calls that were
    begun before it, may exceed.

    ``dropped`` counts by type what was thrown away for want of room; ``coalesced`` how many reports of progress gave
    way to a later one of the same call. ``overflowed``: more than fragments was dropped since :meth:`restate`. Not
    thread-safe: its owner locks.
    """

    def __init__(self, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._frozen: tuple[Queued, ...] = ()
        self._waiting: _Queue = OrderedDict()
        # Those of them that are given up first.
        self._fragments: _Queue = OrderedDict()
        self._latest_progress: dict[str, Queued] = {}
        # Calls whose end has not left yet, though something of them has: a state that is told may be too full for
        # them, and they would never end for who reads.
        self._begun: set[str] = set()
        self._number = 0
        self._size = 0
        self.dropped: Counter[str] = Counter()
        self.coalesced = 0
        self.overflowed = False

    def __len__(self) -> int:
        # The state that is owed for what was dropped counts as one.
        return len(self._frozen) + len(self._waiting) + self.overflowed

    @property
    def size(self) -> int:
        """Bytes of JSON that wait, those of the frozen batch included."""
        return self._size

    @property
    def frozen(self) -> bool:
        """Whether a batch was cut and is not answered."""
        return bool(self._frozen)

    def put(self, queued: Queued) -> bool:
        """Take an event in; returns ``False`` if that cost more than fragments."""
        self._coalesce(queued)
        whole = True
        while (
            len(self._frozen) + len(self._waiting) >= self._max_events
            or self._size + len(queued.event) > self._max_bytes
        ):
            if self._fragments:
                victim = next(iter(self._fragments.values()))
                self._take(victim)
                self.dropped[victim.type] += 1
            elif queued.type in FRAGMENTS:
                self.dropped[queued.type] += 1
                return True
            elif self._collapse():
                whole = False
            elif self._keeps(queued):
                break
            else:
                self.dropped[queued.type] += 1
                self.overflowed = True
                return False
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

    def queued(self) -> list[Queued]:
        """Return all that waits, the frozen batch included."""
        return [*self._frozen, *self._waiting.values()]

    def told(self) -> list[Queued]:
        """Return what waits and counts, the frozen batch included: all since the last start of the run, without what
        tells again what was told before."""
        told = [queued for queued in self.queued() if not queued.restates]
        starts = [at for at, queued in enumerate(told) if queued.type == "run_started"]
        return told[starts[-1] :] if starts else told

    def restate(self, state: Iterable[Queued], calls: Collection[str] = ()) -> None:
        """Put ``state`` in front of what is :meth:`told`, all of which is to be cut and numbered anew.

        It stands behind the start of the run, if that still waits. ``calls`` are those it tells, whose ends need no
        more be spared.
        """
        told = [queued for queued in self.told() if not (queued.spared and queued.call in calls)]
        given_up = Counter(q.type for q in self.queued() if not q.restates)
        self.dropped += given_up - Counter(queued.type for queued in told)
        first = 1 if told and told[0].type == "run_started" else 0
        self.empty()
        for queued in (*told[:first], *state, *told[first:]):
            self._append(queued)

    def empty(self) -> Counter[str]:
        """Throw everything away and return how many of which type that was."""
        lost = Counter(queued.type for queued in self.queued())
        for queue in (self._waiting, self._fragments):
            queue.clear()
        self._latest_progress.clear()
        self._frozen = ()
        self._size = 0
        self.overflowed = False
        return lost

    def _collapse(self) -> bool:
        """Drop every step that waits, until :meth:`restate` tells what they came to; ``False``: there is none."""
        waiting = list(self._waiting.values())
        last_start = max((at for at, queued in enumerate(waiting) if queued.type == "run_started"), default=0)
        kept = [queued for queued in waiting[last_start:] if self._keeps(queued)]
        if len(kept) == len(waiting):
            return False
        self._waiting.clear()
        self._size = sum(len(queued.event) for queued in self._frozen)
        kept_numbers = {queued.number for queued in kept}
        self.dropped.update(
            queued.type for queued in waiting if not queued.restates and queued.number not in kept_numbers
        )
        for queued in kept:
            queued.spared = True
            self._append(queued)
        self.overflowed = True
        return True

    def _keeps(self, queued: Queued) -> bool:
        return queued.type in _KEPT or (queued.type in _ENDS and queued.call in self._begun)

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
        self._waiting[queued.number] = queued
        if queued.type in FRAGMENTS:
            self._fragments[queued.number] = queued
        self._size += len(queued.event)
        if queued.progress_of is not None:
            self._latest_progress[queued.progress_of] = queued

    def _take(self, queued: Queued) -> None:
        del self._waiting[queued.number]
        self._fragments.pop(queued.number, None)
        self._size -= len(queued.event)
        if queued.progress_of is not None and self._latest_progress.get(queued.progress_of) is queued:
            del self._latest_progress[queued.progress_of]

    def _freeze(self, batch: list[Queued]) -> None:
        self._frozen = tuple(batch)
        for queued in batch:
            if queued.type == "run_started":
                self._begun.clear()
            elif queued.call is not None and queued.type in _ENDS:
                self._begun.discard(queued.call)
            elif queued.call is not None:
                self._begun.add(queued.call)
        self._size += sum(len(queued.event) for queued in batch)
