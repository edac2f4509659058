"""Events as lines for people."""

from __future__ import annotations

import pytest

from gateway.fanout.text import line
from listeners.contract.events import CallRef, Event, encode
from listeners.contract.log import Entry
from listeners.contract.position import Position

TIME = "2026-11-30T19:47:18.123Z"


def shown(type: str, *, title: str = "", **data: object) -> str:
    call = CallRef(key="a", name="read", title=title, attempt=1) if title else None
    event = Event(type=type, run="r", time=TIME, call=call, data=data)
    return line(Entry(Position(1, 1), type, encode(event)))


def test_a_call_that_runs_keeps_its_ellipsis() -> None:
    assert (
        shown("tool_execution_started", title="Reading x…")
        == "19:47:18.123Z  ▶ read              Reading x…\n"
    )


@pytest.mark.parametrize("type", ["tool_execution_completed", "tool_execution_failed"])
def test_a_title_that_says_how_it_ended_or_only_what_it_was_is_told_as_over(type: str) -> None:
    assert "  Reading x\n" in shown(type, title="Reading x…")
    assert "  Read x\n" in shown(type, title="Read x")


def test_a_snapshot_shows_which_calls_go_on() -> None:
    calls = [
        {"key": "a", "name": "read", "title": "Reading x…", "state": state}
        for state in ("running", "completed", "failed")
    ]
    lines = shown("snapshot", reason="join", started_at=TIME, calls=calls).splitlines()
    assert [text.strip() for text in lines[2:]] == [
        "▶ read              Reading x…",
        "✓ read              Reading x",
        "✗ read              Reading x",
    ]
