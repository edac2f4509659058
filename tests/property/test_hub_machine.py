"""Run log, hub and subscriptions against plain lists: whatever is trimmed, shed or begun anew, a reader is given
exactly what follows its place, once and in order, or is told that it isn't here any more."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from gateway.fanout.frames import Format, frame
from gateway.fanout.hub import Hub, Subscription, Watch
from gateway.fanout.runlog import RunLog
from gateway.fanout.wheel import Wheel
from listeners.contract.log import Entry
from listeners.contract.position import Position

EXAMPLES = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "faults" else 500
TYPES = ("x_a", "x_b", "tool_progress")


class Source:
    """Notes who is watched."""

    def __init__(self) -> None:
        self.watched: list[Watch] = []

    def watch(self, watch: Watch) -> None:
        self.watched.append(watch)

    def joined(self, watch: Watch) -> None:
        pass

    def unwatch(self, watch: Watch) -> None:
        self.watched.remove(watch)


class Reader:
    """A subscription, and what it must be given next: the entries of its epoch from ``at`` on."""

    def __init__(self, subscription: Subscription, wanted: Any) -> None:
        self.subscription = subscription
        self.wanted = wanted
        self.epoch = 0
        self.at = 0


class FanOut(RuleBasedStateMachine):
    """One hub, a few runs, some readers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wheel = Wheel(lambda: self.now)
        self.source = Source()
        self.hub = Hub(self.source, self.wheel, linger=2, memory=4_000)
        self.entries: dict[tuple[str, int], list[Entry]] = {}
        self.epochs: dict[str, int] = {}
        self.readers: list[Reader] = []

    def _log(self, watch: Watch) -> RunLog:
        if watch.log is None:
            self._begin(watch)
        assert watch.log is not None
        return watch.log

    def _begin(self, watch: Watch) -> None:
        epoch = self.epochs[watch.run] = self.epochs.get(watch.run, 0) + 1
        self.entries[watch.run, epoch] = []
        watch.log = RunLog(epoch, memory=1_500)
        watch.loaded = True

    @rule(
        run=st.sampled_from("ab"),
        format=st.sampled_from(["sse", "sse-runs", "ndjson"]),
        types=st.sampled_from([None, {"x_a"}, {"x_b", "tool_progress"}]),
        place=st.integers(0, 50),
    )
    def attach(self, run: str, format: Format, types: set[str] | None, place: int) -> None:
        subscription = self.hub.attach(run, format, None if types is None else types.__contains__)
        log = self._log(subscription.watch)
        reader = Reader(subscription, types)
        reader.epoch, reader.at = log.epoch, min(place, log.head)
        subscription.move(log, reader.at)
        self.readers.append(reader)

    @rule(
        run=st.sampled_from("ab"),
        type=st.sampled_from(TYPES),
        sizes=st.lists(st.integers(0, 600), max_size=6),
    )
    def bring(self, run: str, type: str, sizes: list[int]) -> None:
        watch = self.hub.watch_of(run)
        if watch is None:
            return
        log = self._log(watch)
        for size in sizes:
            event = b'{"type":"%b","n":"%b"}' % (type.encode(), b"x" * size)
            entry = Entry(Position(log.epoch, log.head + 1), type, event)
            log.append(entry)
            self.entries[run, log.epoch].append(entry)

    @rule(run=st.sampled_from("ab"))
    def begin_anew(self, run: str) -> None:
        if (watch := self.hub.watch_of(run)) is not None:
            self._begin(watch)

    @rule(run=st.sampled_from("ab"), gone=st.integers(1, 9))
    def skip(self, run: str, gone: int) -> None:
        """Entries that Redis has trimmed before they were read."""
        watch = self.hub.watch_of(run)
        if watch is None or watch.log is None:
            return
        log = watch.log
        for seq in range(log.head + 1, log.head + gone + 1):
            self.entries[run, log.epoch].append(Entry(Position(log.epoch, seq), "gone", b"{}"))
        log.skip(log.head + gone)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), limit=st.integers(1, 2_000))
    def read(self, data: st.DataObject, limit: int) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        subscription = reader.subscription
        entries = self.entries[subscription.watch.run, reader.epoch]
        if subscription.behind:
            # Served from Redis, at most up to what memory holds.
            assert subscription.log is not None
            reader.at = data.draw(st.integers(subscription.log.oldest - 1, subscription.log.head))
            subscription.move(subscription.log, reader.at)
            return
        given = subscription.take(limit)
        passed = entries[reader.at : subscription.seq]
        told = [e for e in passed if reader.wanted is None or e.type in reader.wanted]
        assert given == b"".join(frame(entry, subscription.format) for entry in told)
        assert len(given) <= limit or len(told) == 1
        assert "gone" not in {entry.type for entry in passed}
        assert subscription.seq > reader.at or subscription.idle
        assert subscription.idle == (subscription.seq == len(entries))
        assert subscription.superseded == (
            subscription.idle and reader.epoch != self.epochs[subscription.watch.run]
        )
        reader.at = subscription.seq

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def detach(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        self.readers.remove(reader)
        self.hub.detach(reader.subscription)

    @rule(seconds=st.integers(1, 4))
    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.wheel.turn()

    @rule()
    def shed(self) -> None:
        self.hub.shed(self.now)
        assert sum(watch.log.size for watch in self.hub.watches() if watch.log) <= 4_000 + 2 * 700

    def teardown(self) -> None:
        for reader in self.readers:
            self.hub.detach(reader.subscription)
        self.pass_time(5)
        assert self.source.watched == [] and self.hub.readers == 0 and len(self.wheel) == 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_whatever_is_trimmed_or_begun_anew_readers_are_given_what_follows() -> None:
    run_state_machine_as_test(
        FanOut, settings=settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
    )
