"""What holds for every log, whatever stands in it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import playwright
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listeners.contract.events import EVENT_TYPES, TERMINAL_TYPES, CallRef, Event, decode
from listeners.contract.fold import MAX_CALLS, RunState, fold, is_ended, is_open, snapshot_event, waiting
from listeners.contract.folding import Folding
from listeners.contract.position import Position

RUN = "run_8f2c"
TIME = "2026-11-30T19:47:18.123Z"
FOLD_LINES = Path(__file__).parent.parent / "web" / "fold-lines.js"
PLAYWRIGHTS_NODE = Path(playwright.__file__).parent / "driver" / "node"
Log = list[tuple[Position, dict[str, Any]]]

numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
words = st.sampled_from(
    ["", "a", "b", "reason", "denied", "cancelled", "Looking…", "…", "__proto__", "constructor"]
)
scalars = st.none() | st.booleans() | numbers | words | st.text(max_size=5)
json_values = (
    scalars
    | st.lists(scalars, max_size=2)
    | st.dictionaries(words, scalars | st.lists(scalars, max_size=2), max_size=2)
)
keys = st.sampled_from(["a", "b", "c", "__proto__"])
calls = st.fixed_dictionaries(
    {"key": keys},
    optional={
        "id": words,
        "name": st.sampled_from(["", "web_search", "_x-", "école"]),
        "title": words,
        "index": st.integers(-1, 3),
        "attempt": st.integers(-1, 3),
    },
)


def objects(
    members: dict[str, st.SearchStrategy[Any]], required: dict[str, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    """A few of the members, each now and then with a value that doesn't belong there."""
    some = [st.tuples(st.just(name), values | values | json_values) for name, values in members.items()]
    always = st.fixed_dictionaries(required or {})
    return st.tuples(always, st.lists(st.one_of(some), max_size=5)).map(
        lambda drawn: drawn[0] | dict(drawn[1])
    )


counts = st.sampled_from([0, 1, 7, 2**53 - 1])
failures = objects({"code": words, "message": words, "reason": words})
questions = objects(
    {"position": words, "message": words, "arguments": json_values, "editable": st.booleans()}
)
progress = objects({"progress": numbers, "total": numbers, "message": words, "chunk": words})
usages = objects({"input": counts, "output": counts, "total": counts})
call_states = objects(
    {
        "state": st.sampled_from(
            ["identified", "running", "interrupted", "completed", "failed", "denied", "cancelled"]
        ),
        "title": words,
        "name": words,
        "attempt": st.sampled_from([1, 2]),
        "index": counts,
        "progress": progress,
        "error": failures,
        "interrupt": questions,
        "truncated": st.just(True),
        "result": json_values,
        "ended_at": words,
        "duration_ms": numbers,
    },
    required={"key": keys},
)
interrupts = objects({"message": words, "data": json_values}, required={"key": keys})
data = objects(
    {
        "status": st.sampled_from(["waiting", "running", "interrupted", "completed", "failed", "cancelled"]),
        "reason": st.sampled_from(["error", "denied", "rejected", "cancelled", "timeout", "join"]),
        "calls": st.lists(call_states | json_values, max_size=3),
        "interrupts": st.lists(interrupts | json_values, max_size=2),
        "usage": usages,
        "calls_dropped": counts,
        "input": counts,
        "output": counts,
        "total": counts,
        "progress": numbers,
        "chunk": words,
        "duration_ms": numbers,
        "editable": st.booleans(),
        "title": words,
        "agent": words,
        "arguments": json_values,
        "arguments_summary": words,
        "result": json_values,
        "result_summary": words,
        "message": words,
        "code": words,
        "error": failures,
    }
)
types = st.sampled_from(
    [
        *EVENT_TYPES,
        *["tool_execution_started", "tool_interrupted"] * 3,
        "x_own",
        "run_of_tomorrow",
        "constructor",
    ]
)
events = st.fixed_dictionaries(
    {"type": types, "run": st.just(RUN), "time": st.just(TIME)},
    optional={
        "call": calls,
        "data": data | st.dictionaries(words, json_values),
        "parent": words,
        "agent": words,
    },
)
tool_events = st.fixed_dictionaries(
    {
        "type": st.sampled_from([type for type in EVENT_TYPES if type.startswith("tool_")]),
        "run": st.just(RUN),
        "time": st.just(TIME),
        "call": calls,
        "data": data,
    }
)
snapshots = st.fixed_dictionaries(
    {"type": st.just("snapshot"), "run": st.just(RUN), "time": st.just(TIME), "data": data}
)
positions = st.builds(Position, st.sampled_from([0, 7, 8]), st.integers(0, 12))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log as Redis keeps it: one epoch, dense."""
    drawn = draw(st.lists(tool_events | events, max_size=12))
    return [(Position(7, seq), event) for seq, event in enumerate(drawn, 1)]


streams = st.lists(st.tuples(positions, tool_events | events | snapshots), max_size=12) | logs()
"""Anything that may ever arrive, in any order."""


unhurried = settings(deadline=None)
"""A machine that does other things, too, is no failure."""


def as_event(event: dict[str, Any]) -> Event:
    return decode(json.dumps(event))


def folded(log: Log, state: RunState | None = None) -> RunState:
    state = waiting(RUN) if state is None else state
    for position, event in log:
        state = fold(state, position, as_event(event))
    return state


def parsed(text: bytes | str) -> Any:
    # JavaScript writes 6.01e16 as a whole number, which Python would take for a more exact one.
    return json.loads(text, parse_int=float)


@unhurried
@given(streams)
def test_the_fold_never_raises_and_gives_json(stream: Log) -> None:
    state = folded(stream)
    assert state == msgspec.json.decode(msgspec.json.encode(state), type=RunState)


@unhurried
@given(logs())
def test_repeats_change_nothing(log: Log) -> None:
    state = folded(log)
    assert folded(log, state) is state


@unhurried
@given(logs(), st.integers(0, 12))
def test_a_snapshot_and_the_rest_is_the_whole(log: Log, at: int) -> None:
    before = folded(log[:at])
    if before.position == "0-0":
        return
    position = Position.parse(before.position)
    assert position is not None
    snapshot = fold(waiting(RUN), position, decode(msgspec.json.encode(snapshot_event(before, "join", TIME))))
    assert before == snapshot
    assert folded(log) == folded(log[at:], snapshot)


@unhurried
@given(streams, st.sets(st.integers(0, 20)))
def test_who_writes_a_log_folds_it_to_the_same_state(log: Log, looks: set[int]) -> None:
    """Whenever it is looked at."""
    folding = Folding(waiting(RUN))
    for at, (position, event) in enumerate(log):
        folding.add(position, as_event(event))
        if at in looks:
            assert folding.state == folded(log[: at + 1])
        assert folding.status == folded(log[: at + 1]).status
    assert folding.state == folded(log)


def test_who_writes_thousands_of_calls_keeps_the_same_ones() -> None:
    folding, state = Folding(waiting(RUN)), waiting(RUN)
    for n in range(MAX_CALLS + 20):
        for type in ("tool_execution_started", "tool_execution_completed")[: 1 if n % 7 == 0 else 2]:
            position = Position(1, folding.position.seq + 1)
            event = Event(type=type, run=RUN, time=TIME, call=CallRef(key=f"c{n}", name="a", attempt=1))
            folding.add(position, event)
            state = fold(state, position, event)
    assert folding.state == state and state.calls_dropped == 20


@unhurried
@given(streams)
def test_no_call_is_open_when_the_run_has_ended(stream: Log) -> None:
    state = waiting(RUN)
    for position, event in stream:
        state = fold(state, position, as_event(event))
        if is_ended(state):
            assert not any(map(is_open, state.calls))


@unhurried
@given(logs(), st.sampled_from(sorted(TERMINAL_TYPES)))
def test_a_terminal_event_ends_every_run(log: Log, type: str) -> None:
    state = fold(folded(log), Position(7, 99), Event(type=type, run=RUN, time=TIME))
    assert is_ended(state)
    assert not any(map(is_open, state.calls))


@unhurried
@given(streams)
def test_a_question_is_there_only_while_it_is_open(stream: Log) -> None:
    assert all(call.state == "interrupted" for call in folded(stream).calls if call.interrupt is not None)


@pytest.fixture(scope="module")
def node() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [shutil.which("node") or PLAYWRIGHTS_NODE, FOLD_LINES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stream=streams)
def test_python_and_javascript_agree(node: subprocess.Popen[str], stream: Log) -> None:
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(json.dumps([(str(position), event) for position, event in stream]) + "\n")
    node.stdin.flush()
    assert parsed(msgspec.json.encode(folded(stream))) == parsed(node.stdout.readline())
