from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from listeners.contract.events import CallRef, Event, decode
from listeners.contract.fold import MAX_CALLS, RunState, fold, is_open, snapshot_event, waiting
from listeners.contract.position import ABSENT, Position

RUN = "run_8f2c"
TIME = "2026-11-30T19:47:18.123Z"
VECTORS = Path(__file__).parent.parent / "vectors"
CASES = [
    pytest.param(case, id=f"{file.stem}: {case['name']}")
    for file in sorted(VECTORS.glob("*.json"))
    for case in json.loads(file.read_text(encoding="utf-8"))
]


def position(text: str) -> Position:
    parsed = Position.parse(text)
    assert parsed is not None
    return parsed


def event(type: str, key: str | None = None, attempt: int | None = None, **data: Any) -> Event:
    call = None if key is None else CallRef(key=key, name="look", title="Looking…", attempt=attempt)
    return Event(type=type, run=RUN, time=TIME, call=call, data=data)


def folded(*events: Event) -> RunState:
    state = waiting(RUN)
    for seq, each in enumerate(events, 1):
        state = fold(state, Position(7, seq), each)
    return state


def as_json(state: RunState) -> Any:
    return json.loads(msgspec.json.encode(state))


@pytest.mark.parametrize("case", CASES)
def test_a_vector_folds_to_its_state(case: dict[str, Any]) -> None:
    state = waiting(RUN)
    for entry in case["events"]:
        state = fold(state, position(entry["position"]), decode(json.dumps(entry["event"])))
    assert case["state"] == as_json(state)


def test_there_are_enough_vectors_and_each_has_a_name_of_its_own() -> None:
    names = [param.id for param in CASES]
    assert len(names) >= 50
    assert len(names) == len(set(names))


def test_a_repeat_gives_the_same_object() -> None:
    state = folded(event("run_started"), event("tool_execution_started", "a"))
    assert fold(state, Position(7, 1), event("run_failed")) is state
    assert fold(state, Position(8, 9), event("run_failed")) is state


def test_the_oldest_ended_calls_go_beyond_the_limit() -> None:
    """2,000 calls are kept; an open one stays however old it is."""
    state = folded(
        event("tool_execution_started", "open"),
        *(event("tool_execution_completed", f"call_{n}") for n in range(MAX_CALLS + 4)),
    )
    keys = [call.key for call in state.calls]
    assert len(keys) == MAX_CALLS
    assert keys[:2] == ["open", "call_5"]
    assert f"call_{MAX_CALLS + 3}" == keys[-1]
    assert state.calls_dropped == 5


def test_the_oldest_open_call_goes_when_none_has_ended() -> None:
    state = folded(*(event("tool_execution_started", f"call_{n}") for n in range(MAX_CALLS + 1)))
    assert (len(state.calls), state.calls[0].key, state.calls_dropped) == (MAX_CALLS, "call_1", 1)


def test_restored_calls_keep_to_the_limit() -> None:
    state = folded(*(event("tool_execution_completed", f"call_{n}") for n in range(MAX_CALLS - 1)))
    restored = event("run_restored", status="running", calls=[{"key": "a"}, {"key": "b"}, {"key": "c"}])
    state = fold(state, Position(7, MAX_CALLS), restored)
    assert [call.key for call in state.calls[:2]] == ["call_2", "call_3"]
    assert [call.key for call in state.calls[-3:]] == ["a", "b", "c"]
    assert (len(state.calls), state.calls_dropped) == (MAX_CALLS, 2)


def test_an_agents_own_not_a_number_is_no_progress() -> None:
    state = folded(
        event("tool_progress", "a", progress=float("nan"), total=float("inf"), message="m", huge=10**400)
    )
    assert state.calls[0].progress == {"message": "m", "huge": 10**400}


def test_members_stand_in_the_order_of_the_contract() -> None:
    state = folded(
        event("run_started", title="t", agent="a", thread="t"),
        event("llm_token_usage", input=1, output=1, total=2),
        event("tool_execution_started", "a", arguments={}),
        event("run_failed", code="c", message="m"),
    )
    assert [list(as_json(state)), list(as_json(state)["calls"][0])] == [
        [
            "run",
            "position",
            "status",
            "title",
            "agent",
            "thread",
            "started_at",
            "ended_at",
            "error",
            "usage",
            "calls",
        ],
        ["key", "name", "title", "attempt", "state", "arguments", "started_at", "ended_at"],
    ]


class TestSnapshot:
    def test_it_carries_the_whole_state(self) -> None:
        state = folded(
            event("run_started", title="t"), event("tool_execution_completed", "a", result={"n": [1]})
        )
        snapshot = snapshot_event(state, "join", TIME)
        assert (snapshot.type, snapshot.run, snapshot.time) == ("snapshot", RUN, TIME)
        assert {"reason": "join", **as_json(state)} == snapshot.data
        assert state == fold(waiting(RUN), position(state.position), snapshot)

    def test_of_an_absent_run_it_stands_nowhere(self) -> None:
        snapshot = snapshot_event(waiting(RUN), "absent", TIME)
        expected = {"reason": "absent", "run": RUN, "position": "0-0", "status": "waiting", "calls": []}
        assert expected == snapshot.data
        assert waiting(RUN) == fold(waiting(RUN), ABSENT, snapshot)

    def test_for_the_future_alone_it_has_no_calls(self) -> None:
        state = folded(event("run_started", title="t"), event("tool_execution_started", "a"))
        snapshot = snapshot_event(state, "join", TIME, with_calls=False)
        assert "calls" not in snapshot.data
        assert (
            (joined := fold(waiting(RUN), position(state.position), snapshot)).title,
            joined.calls,
        ) == ("t", ())

    def test_above_a_mebibyte_the_oldest_ended_calls_become_light(self) -> None:
        big = "x" * 60_000
        state = folded(
            event("tool_execution_started", "open", arguments={"text": big}),
            *(
                each
                for n in range(20)
                for each in (
                    event("tool_execution_started", f"call_{n}", arguments={"text": big}),
                    event("tool_execution_completed", f"call_{n}", result=f"{n}", result_summary="short"),
                )
            ),
        )
        snapshot = snapshot_event(state, "join", TIME)
        encoded = msgspec.json.encode(snapshot)
        assert len(encoded) <= 1024 * 1024
        calls = fold(waiting(RUN), position(state.position), snapshot).calls
        assert state.calls[0] == calls[0]
        light = [call for call in calls if call.truncated]
        assert [f"call_{n}" for n in range(4)] == [call.key for call in light]
        assert all(call.arguments is None and call.result is None for call in light)
        assert all(call.result_summary == "short" for call in light)
        assert state.calls[5:] == calls[5:]

    def test_a_truncated_call_that_starts_again_is_whole(self) -> None:
        restored = event("run_restored", calls=[{"key": "a", "state": "completed", "truncated": True}])
        state = folded(restored, event("tool_execution_started", "a", attempt=2, arguments={}))
        assert not state.calls[0].truncated

    def test_open_calls_alone_may_exceed_it(self) -> None:
        state = folded(
            *(event("tool_execution_started", f"c{n}", arguments={"text": "x" * 60_000}) for n in range(20))
        )
        snapshot = snapshot_event(state, "join", TIME)
        calls = fold(waiting(RUN), position(state.position), snapshot).calls
        assert all(map(is_open, calls))
        assert state.calls == calls
