"""The state of a run at a position: the fold of its log, kept for the next who asks.

One mechanism serves snapshots and ``GET /runs/{run}``: fold on from the last state, over entries in memory if they
are there, else over pages of the stream.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.fanout.history import History
from gateway.fanout.runlog import RunLog
from listeners.contract.events import InvalidEvent, decode, encode, format_time
from listeners.contract.fold import RunState, SnapshotReason, fold, snapshot_event, waiting
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
        self, run: str, run_log: RunLog, *, reason: SnapshotReason, calls: bool, now: float
    ) -> tuple[Entry, int]:
        """Return the snapshot a reader begins with, and the ``seq`` it stands for.

        Of an ended run it stands for the position before the terminal event, which follows (contract §4).
        """
        position = Position(run_log.epoch, run_log.last_before_end)
        key = (run, str(position), reason, calls)
        entry = self._snapshots.get(key)
        if entry is None:
            state = await self.at(run, position, run_log)
            entry = self._snapshots.get(key)  # whoever waited for the same fold may have been first
        if entry is None:
            event = snapshot_event(state, reason, format_time(now), with_calls=calls)
            entry = self._snapshots[key] = Entry(position, "snapshot", encode(event))
            # A thousand readers joining at once ask for the same few; more would be memory for nobody.
            while len(self._snapshots) > 16:
                self._snapshots.popitem(last=False)
        return entry, position.seq

    async def _fold_to(self, run: str, position: Position, run_log: RunLog | None) -> RunState:
        state = self._states.get(run)
        start = Position.parse(state.position) if state is not None else None
        if state is None or start is None or start.epoch != position.epoch or start.seq > position.seq:
            state, start = waiting(run), Position(position.epoch, 0)
        while start.seq < position.seq:
            entries: Sequence[Entry]
            if run_log is not None and run_log.epoch == start.epoch and run_log.holds(start.seq):
                entries = run_log.entries(start.seq)
            else:
                entries = await self._history.page(run, start)
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


def _fold_entries(state: RunState, entries: Sequence[Entry], until: Position) -> RunState:
    for entry in entries:
        if entry.position.seq > until.seq:
            break
        try:
            event = decode(entry.event)
        except InvalidEvent:
            continue
        state = fold(state, entry.position, event)
    return state
