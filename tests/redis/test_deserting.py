"""A run that nobody holds is ended for its owner, once; what Redis has lost of it begins a new epoch."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from redis import Redis

from listeners.contract.checkpoint import folding
from listeners.contract.deserting import deserting
from listeners.contract.events import CallRef
from listeners.contract.exchange import carry_out
from listeners.contract.keys import Keys
from listeners.contract.log import Limits, read_entries
from listeners.contract.position import ABSENT, Position
from listeners.contract.state import RunState
from tests.support.servers import wait_until
from tests.support.writing import Writer

KEYS = Keys("run_1")
NOW = "2026-11-30T19:47:18.123Z"
CALL = CallRef(key="call_A", name="web_search", title="Searching…", attempt=1)


def begun(redis: Redis, *, lease: float = 0.2) -> Writer:
    writer = Writer(redis, "run_1", limits=Limits(lease=lease))
    writer.start("A title")
    writer.append(writer.event("tool_execution_started", call=CALL))
    return writer


def state(redis: Redis) -> RunState:
    return carry_out(folding(KEYS), redis.execute_command).folding.state


def events(redis: Redis) -> list[tuple[Position, str, dict[str, Any]]]:
    entries = read_entries(redis.xrange(KEYS.log))
    return [(entry.position, entry.type, json.loads(entry.event).get("data", {})) for entry in entries]


def end(redis: Redis, known: RunState, head: Position | None = None, *, name: str = "gateway") -> str | None:
    at = head or Position.parse(known.position)
    assert at is not None
    return carry_out(deserting(KEYS, known, at, writer=name, time=NOW), redis.execute_command)


def lease_is_over(redis: Redis) -> None:
    wait_until("the lease has run out", lambda: not redis.exists(KEYS.lease))


def test_a_run_whose_lease_has_run_out_is_ended_once(redis: Redis) -> None:
    begun(redis)
    known = state(redis)
    lease_is_over(redis)
    assert [end(redis, known, name=name) for name in ("one", "two", "three")] == ["failed", None, None]
    assert [type for _, type, _ in events(redis)] == [
        "run_started",
        "tool_execution_started",
        "tool_execution_failed",
        "run_failed",
    ]
    assert events(redis)[-1][2]["code"] == "publisher_lost"
    assert events(redis)[-2][2]["reason"] == "cancelled"


def test_a_run_that_is_held_or_went_on_is_not_ended(redis: Redis) -> None:
    writer = begun(redis, lease=30)
    known = state(redis)
    assert end(redis, known) is None
    writer.limits = Limits(lease=0.1)
    writer.append(writer.event("x_a"))
    lease_is_over(redis)
    assert end(redis, known) is None, "the head is not the one that the end was made for"


def test_a_lease_that_was_evicted_before_its_time_still_stands(redis: Redis) -> None:
    """A Redis that is short of memory takes first what would expire first, and that is leases."""
    writer = begun(redis, lease=1)
    known = state(redis)
    redis.delete(KEYS.lease)
    assert end(redis, known) is None
    writer.append()
    assert redis.exists(KEYS.lease)
    redis.delete(KEYS.lease)
    time.sleep(0.5)
    assert end(redis, known) is None, "it was renewed half a second ago"
    wait_until("its time is over", lambda: end(redis, known) == "failed", seconds=3)


@pytest.mark.parametrize("left", ["nothing", "less", "only meta"])
def test_what_redis_has_lost_begins_a_new_epoch_and_ends(redis: Redis, left: str) -> None:
    writer = begun(redis)
    meta = redis.dump(KEYS.meta)
    log = redis.dump(KEYS.log)
    writer.append(writer.event("tool_execution_completed", call=CALL, result_summary="9 items"))
    known = state(redis)
    redis.delete(KEYS.log, KEYS.lease)
    head = ABSENT
    if left == "nothing":
        redis.delete(KEYS.meta)
    elif left == "less":
        redis.restore(KEYS.meta, 0, meta, replace=True)
        redis.restore(KEYS.log, 0, log, replace=True)
        head = Position(writer.epoch or 0, 2)
    time.sleep(0.25)
    assert end(redis, known, head) == "failed"
    found = events(redis)
    assert [type for _, type, _ in found] == ["run_restored", "run_failed"]
    assert found[0][0].epoch > (writer.epoch or 0)
    assert found[0][2]["title"] == "A title" and found[0][2]["calls"][0]["state"] == "completed"
    assert state(redis).status == "failed"


def test_a_lost_run_that_was_interrupted_goes_on_waiting(redis: Redis) -> None:
    """It needs no owner: whoever has the answer takes it up again."""
    writer = begun(redis)
    writer.ask("call_B")
    writer.append(writer.event("run_interrupted"))
    known = state(redis)
    redis.flushall()
    assert end(redis, known, ABSENT) == "interrupted"
    restored = state(redis)
    assert restored.status == "interrupted" and restored.calls[1].interrupt is not None
    assert redis.hget(KEYS.questions, "call_B") == restored.calls[1].interrupt.position.encode()
    resumed = Writer(redis, "run_1", name="next")
    resumed.append(resumed.event("run_resumed"))
    assert state(redis).status == "running"


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("run_completed", {"result": {"answer": 42}}),
        ("run_failed", {"code": "x", "message": "y"}),
        ("run_cancelled", {}),
    ],
)
def test_a_lost_run_that_had_ended_ends_as_it_did(redis: Redis, type: str, data: dict[str, Any]) -> None:
    writer = begun(redis)
    writer.append(writer.event("tool_execution_completed", call=CALL), writer.event(type, **data))
    known = state(redis)
    redis.flushall()
    assert end(redis, known, ABSENT) == type.removeprefix("run_")
    again = state(redis)
    assert (again.status, again.result, again.error) == (known.status, known.result, known.error)
    assert again.ended_at == known.ended_at and again.calls == known.calls
