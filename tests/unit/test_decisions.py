"""What a person answers, how it travels, and what a recorded run makes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from listeners import Approve, Decision, Edit, QuestionNotOpen, Reject, RunNotInterrupted
from listeners.contract.deciding import read_answers
from listeners.contract.decisions import Answer, check_decision, parse_decision
from listeners.contract.log import Appended
from listeners.contract.position import Position
from listeners.testing import RecordedRun, recorded

EVERY: list[tuple[Decision, dict[str, Any]]] = [
    (Approve(), {"decision": "approve"}),
    (Edit({"path": "b.txt"}), {"decision": "edit", "arguments": {"path": "b.txt"}}),
    (Reject(), {"decision": "reject"}),
    (Reject("no"), {"decision": "reject", "reason": "no"}),
]


@pytest.mark.parametrize(("decision", "wire"), EVERY)
@pytest.mark.parametrize("by", [None, "ana"])
def test_an_answer_travels_whole(decision: Decision, wire: dict[str, Any], by: str | None) -> None:
    answer = Answer(decision, by)
    assert answer.wire() == wire | ({"by": by} if by else {})
    assert Answer.decode(answer.encode()) == answer
    assert parse_decision(wire) == decision


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"decision":"maybe"}', b'{"decision":"edit"}', b"\xff"])
def test_what_is_no_answer_is_passed_over(data: bytes) -> None:
    assert Answer.decode(data) is None
    entry = (b"5-2", {b"question": b"5-1", b"call": b"a", b"writer": b"w", b"answer": data})
    assert read_answers([entry]) == []


def test_entries_of_another_kind_are_passed_over() -> None:
    """A newer publisher may send more than answers this way."""
    entry = (b"5-2", {b"cancel": b"1"})
    assert read_answers([entry, (b"5-3", {b"question": b"x", b"answer": Answer(Approve()).encode()})]) == []


@pytest.mark.parametrize("wrong", ["approve", None, Approve, Edit([1]), Edit({1: 2}), Reject(7)])
def test_what_is_no_decision_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        check_decision(wrong)


def test_places_pass_over_what_was_skipped() -> None:
    positions = (Position(5, 1), Position(5, 2))
    answer = Appended(5, positions, 3, "completed", True, (0, 2))
    assert list(answer.places()) == [(1, positions[0]), (3, positions[1])]
    assert list(Appended(5, None, 0, "running", False).places()) == []


# --- A recorded run ---


def hold(run: RecordedRun, id: str = "c1") -> None:
    call = run.call("delete_file", id=id, arguments={"path": "a.txt"})
    run.publish("tool_interrupted", call=call, data={"message": "Really?", "arguments": call.arguments})


async def test_a_test_answers_as_a_person_would() -> None:
    with recorded() as run:
        hold(run)
        waiting = asyncio.create_task(run.decision("c1"))
        await asyncio.sleep(0)
        run.decide("c1", Edit({"path": "b.txt"}), by="ana")
        assert await waiting == Edit({"path": "b.txt"})
        with run.call("delete_file", id="c1") as call:
            assert call.arguments == {"path": "b.txt"}
    assert run.types[1:4] == ["tool_interrupted", "tool_decision", "tool_execution_started"]
    assert run.events[2].data == {"decision": "edit", "arguments": {"path": "b.txt"}, "by": "ana"}


def test_an_answer_may_come_before_anybody_waits() -> None:
    with recorded() as run:
        hold(run)
        run.decide("c1", Reject("no"))
        assert run.wait_decision("c1", 1) == Reject("no")
        with pytest.raises(QuestionNotOpen):
            run.decide("c1", Approve())


def test_a_recorded_run_may_join_and_has_nothing_to_resume() -> None:
    with recorded(join=True) as run, run.call("t"):
        pass
    assert run.types == ["tool_execution_started", "tool_execution_completed"]
    with pytest.raises(RunNotInterrupted, match="there is no such run"), recorded(resume=True):
        pytest.fail("the block was entered")
