"""The state of a run at a position: the fold of its log, kept for the next who asks.

One mechanism serves snapshots and ``GET /runs/{run}``: fold on from the last state, over entries in memory if they
are there, else over pages of the stream from the last checkpoint on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.fanout.history import History
from gateway.fanout.runlog import RunLog
from listeners.contract.events import InvalidEvent, decode, encode, format_time
from listeners.contract.fold import RunState, SnapshotReason, snapshot_event, waiting
from listeners.contract.folding import Folding
from listeners.contract.log import Entry
from listeners.contract.position import Position

__all__ = ["States"]

KEPT: Final = 512
"""Runs whose last state is remembered."""


class States:
    """States of runs, folded on demand."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._states: OrderedDict[str, RunState] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}
        self._beginnings: dict[str, Position] = {}
        self._snapshots: OrderedDict[tuple[str, str, str, bool], Entry] = OrderedDict()

    async def at(self, run: str, position: Position, run_log: RunLog | None = None) -> RunState:
        """Return the state at ``position``; raises a ``RedisError`` or ``OSError`` while Redis is away and needed."""
        state = self._states.get(run)
        if state is not None and state.position == str(position):
            return state
        lock = self._locks.setdefault(run, asyncio.Lock())
        try:
            async with lock:
                return await self._fold_to(run, position, run_log)
        finally:
            if not lock.locked():
                self._locks.pop(run, None)

    async def snapshot(
        self,
        run: str,
        run_log: RunLog,
        *,
        reason: SnapshotReason,
        calls: bool,
        now: float,
        seq: int | None = None,
    ) -> tuple[Entry, int]:
        """Return the snapshot a reader begins with, and the ``seq`` it stands for: ``seq``, else the head.

        Of an ended run it stands at most for the position before the terminal event, which follows (contract §4).
        """
        position = Position(run_log.epoch, run_log.last_before_end if seq is None else seq)
        key = (run, str(position), reason, calls)
        entry = self._snapshots.get(key)
        if entry is None:
            state = await self.at(run, position, run_log)
            entry = self._snapshots.get(key)  # whoever waited for the same fold may have been first
        if entry is None:
            event = snapshot_event(state, reason, format_time(now), with_calls=calls)
            # Where the log was trimmed behind the position, the state is a later one's.
            place = Position.parse(state.position) or position
            entry = self._snapshots[key] = Entry(place, "snapshot", encode(event))
            # A thousand readers joining at once ask for the same few; more would be memory for nobody.
            while len(self._snapshots) > 16:
                self._snapshots.popitem(last=False)
        return entry, entry.position.seq

    async def beginning(self, run: str, run_log: RunLog) -> int | None:
        """Return the ``seq`` behind the event or events that began this epoch, ``None`` if they are gone.

        Who comes from an epoch that was lost gets a snapshot of that place, and then everything that followed.
        """
        if (known := self._beginnings.get(run)) is not None and known.epoch == run_log.epoch:
            return min(known.seq, run_log.last_before_end)
        if run_log.holds(0):
            entries = run_log.entries(0)
        else:
            entries = await self._history.page(run, Position(run_log.epoch, 0))
        if not entries or entries[0].position.seq != 1:
            return None
        seq = 1
        while seq < len(entries) and entries[seq].type == "run_restored":
            seq += 1
        # Kept for the thousand readers who come at once; and bounded.
        if len(self._beginnings) >= KEPT:
            self._beginnings.clear()
        self._beginnings[run] = Position(run_log.epoch, seq)
        return min(seq, run_log.last_before_end)

    async def known(self, run: str, run_log: RunLog) -> RunState:
        """Return the state at the head of a log that Redis has lost: the fold of what was kept of it here."""
        state, position = self._states.get(run), run_log.position
        start = Position.parse(state.position) if state is not None else None
        usable = start is not None and start.epoch == position.epoch and run_log.holds(start.seq)
        if state is None or start is None or not usable or start.seq > position.seq:
            # Steps before the first one that is held are missing, which the fold tolerates.
            state, start = waiting(run), Position(position.epoch, run_log.oldest - 1)
        return _fold_entries(state, run_log.entries(start.seq), position)

    async def _fold_to(self, run: str, position: Position, run_log: RunLog | None) -> RunState:
        state = self._states.get(run)
        start = Position.parse(state.position) if state is not None else None
        if state is None or start is None or start.epoch != position.epoch or start.seq > position.seq:
            state, start = await self._first(run, position, run_log)
        while start.seq < position.seq:
            entries: Sequence[Entry]
            if run_log is not None and run_log.epoch == start.epoch and run_log.holds(start.seq):
                entries = run_log.entries(start.seq)
            else:
                entries = await self._history.page(run, start)
                if not entries or entries[0].position.seq != start.seq + 1:
                    # Trimmed meanwhile, behind a checkpoint.
                    kept = await self._checkpoint(run, position.epoch)
                    if kept is not None and kept[1].seq > start.seq:
                        state, start = kept
                        continue
            if not entries:
                break
            # Kept at each step: whoever is cut off here has not worked for nothing.
            state = self._states[run] = _fold_entries(state, entries, position)
            start = min(entries[-1].position, position)
            await asyncio.sleep(0)  # ten thousand entries must not hold up who is being served
        self._states[run] = state
        self._states.move_to_end(run)
        while len(self._states) > KEPT:
            self._states.popitem(last=False)
        return state

    async def _first(self, run: str, position: Position, run_log: RunLog | None) -> tuple[RunState, Position]:
        """Return a state to fold on from: of the checkpoint, unless all of the log is in memory or lies before it."""
        nothing = waiting(run), Position(position.epoch, 0)
        if run_log is not None and run_log.epoch == position.epoch and run_log.holds(0):
            return nothing
        kept = await self._checkpoint(run, position.epoch)
        if kept is None:
            return nothing
        if kept[1].seq > position.seq:
            entries = await self._history.page(run, nothing[1])
            if entries and entries[0].position.seq == 1:
                return nothing
        return kept

    async def _checkpoint(self, run: str, epoch: int) -> tuple[RunState, Position] | None:
        state = await self._history.checkpoint(run)
        position = Position.parse(state.position) if state is not None else None
        return (
            (state, position)
            if state is not None and position is not None and position.epoch == epoch
            else None
        )


def _fold_entries(state: RunState, entries: Sequence[Entry], until: Position) -> RunState:
    folding = Folding(state)
    for entry in entries:
        if entry.position.seq > until.seq:
            break
        try:
            event = decode(entry.event)
        except InvalidEvent:
            continue
        folding.add(entry.position, event)
    return folding.state
