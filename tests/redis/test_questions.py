"""Questions and answers on a real server: one question, one answer, and every key with a time to live."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from redis import Redis

from listeners.contract.deciding import (
    MAX_DECISION_BYTES,
    EditRefused,
    QuestionNotOpen,
    RunNotFound,
    deciding,
    read_answers,
)
from listeners.contract.decisions import Answer, Approve, Decision, Edit, Reject
from listeners.contract.events import CallRef, Event, decode
from listeners.contract.exchange import carry_out
from listeners.contract.keys import KEEP_STUB, Keys
from listeners.contract.log import Limits, read_entries
from listeners.contract.position import Position
from tests.support.writing import Writer

KEYS = Keys("run_1")
NOW = "2026-11-30T19:47:18.123Z"
CALL = CallRef(key="a", name="delete_file", title="Deleting…", attempt=1)


def owner(redis: Redis, **options: Any) -> Writer:
    writer = Writer(redis, "run_1", **options)
    writer.start()
    return writer


def answer(
    redis: Redis, decision: Decision, call: str = "a", *, writer: str = "person", **options: Any
) -> Position:
    steps = deciding(KEYS, call, decision, writer=writer, time=NOW, **options)
    return carry_out(steps, redis.execute_command)


def questions(redis: Redis) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in redis.hgetall(KEYS.questions).items()}


def log_of(redis: Redis) -> list[Event]:
    return [decode(entry.event) for entry in read_entries(redis.xrange(KEYS.log))]


def test_a_decision_closes_its_question_and_goes_back_to_the_agent(redis: Redis) -> None:
    """One script call: the question goes, the event stands in the log, the answer in ``decisions``."""
    running = owner(redis)
    asked = running.ask("a", arguments={"path": "a.txt"})
    assert questions(redis) == {"a": str(asked)}
    position = answer(redis, Edit({"path": "b.txt"}), by="ana")
    assert questions(redis) == {}
    event = log_of(redis)[-1]
    assert event.type == "tool_decision" and position == Position(asked.epoch, asked.seq + 1)
    assert event.call is not None and (event.call.key, event.call.name) == ("a", "delete_file")
    assert event.data == {"decision": "edit", "arguments": {"path": "b.txt"}, "by": "ana"}
    (given,) = read_answers(redis.xrange(KEYS.decisions))
    assert (given.position, given.question, given.call) == (position, asked, "a")
    assert given.answer == Answer(Edit({"path": "b.txt"}), "ana")


def test_a_reason_goes_to_the_agent_alone(redis: Redis) -> None:
    owner(redis).ask("a")
    answer(redis, Reject("not that one"))
    assert log_of(redis)[-1].data == {"decision": "reject"}
    assert read_answers(redis.xrange(KEYS.decisions))[0].answer.decision == Reject("not that one")


def test_whoever_watches_is_told_of_a_decision(redis: Redis) -> None:
    owner(redis).ask("a")
    with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(KEYS.channel)
        pubsub.get_message(timeout=5)
        answer(redis, Approve())
        message = None
        while message is None:
            message = pubsub.get_message(timeout=5)
    assert b" tool_decision {" in message["data"]


def test_the_second_answer_hears_who_was_first(redis: Redis) -> None:
    owner(redis).ask("a")
    answer(redis, Approve(), by="ana")
    before = log_of(redis)
    with pytest.raises(QuestionNotOpen, match="call a of run run_1 was approved already by ana") as refused:
        answer(redis, Reject(), writer="another")
    assert refused.value.open is None and refused.value.answer == Answer(Approve(), "ana")
    assert log_of(redis) == before and redis.xlen(KEYS.decisions) == 1


def test_an_answer_to_an_older_question_changes_nothing(redis: Redis) -> None:
    """What the person was shown is not what would happen; the error says what is asked now."""
    running = owner(redis)
    first = running.ask("a")
    running.append(running.event("tool_execution_started", call=CALL))
    second = running.ask("a")
    with pytest.raises(QuestionNotOpen, match=f"another question by now, at {second}") as refused:
        answer(redis, Approve(), question=first)
    assert refused.value.open == second
    assert questions(redis) == {"a": str(second)} and redis.xlen(KEYS.decisions) == 0
    answer(redis, Approve(), question=second)


def test_a_question_that_changed_in_between_is_not_answered(redis: Redis) -> None:
    """Between looking and answering the call asks anew: the script sees it."""
    running = owner(redis)
    running.ask("a")
    steps = deciding(KEYS, "a", Approve(), writer="person", time=NOW)
    command = next(steps)
    with pytest.raises(QuestionNotOpen) as refused:
        while True:
            reply = redis.execute_command(*command)
            if command[0] == "XRANGE":
                second = running.ask("a")
            command = steps.send(reply)
    assert refused.value.open == second and redis.xlen(KEYS.decisions) == 0


def test_the_same_command_again_is_answered_the_same(redis: Redis) -> None:
    """Its answer got lost on the way: nobody answers twice, and nobody is told that somebody else was first."""
    owner(redis).ask("a")
    steps = deciding(KEYS, "a", Approve(), writer="person", time=NOW)
    command = next(steps)
    with pytest.raises(StopIteration) as end:
        while True:
            reply = redis.execute_command(*command)
            if command[0] == "EVAL":
                reply = redis.execute_command(*command)
            command = steps.send(reply)
    assert end.value.value == read_answers(redis.xrange(KEYS.decisions))[0].position
    assert redis.xlen(KEYS.decisions) == 1


@pytest.mark.parametrize(
    ("settles", "data"),
    [
        ("tool_decision", {"decision": "approve"}),
        ("tool_execution_started", {}),
        ("tool_execution_completed", {}),
        ("tool_execution_failed", {"message": "called off", "reason": "cancelled"}),
    ],
)
def test_what_the_agent_does_itself_settles_a_question(
    redis: Redis, settles: str, data: dict[str, Any]
) -> None:
    running = owner(redis)
    running.ask("a")
    other = running.ask("b")
    running.append(running.event(settles, call=CALL, **data))
    assert questions(redis) == {"b": str(other)}
    with pytest.raises(QuestionNotOpen, match="holds no open question; these do: b"):
        answer(redis, Approve())


def test_progress_settles_nothing(redis: Redis) -> None:
    running = owner(redis)
    asked = running.ask("a")
    running.append(running.event("tool_progress", call=CALL), running.event("x_a", call=CALL))
    assert questions(redis) == {"a": str(asked)}


@pytest.mark.parametrize("end", ["run_completed", "run_failed", "run_cancelled"])
def test_an_ended_run_asks_nothing(redis: Redis, end: str) -> None:
    running = owner(redis)
    running.ask("a")
    running.append(running.event(end))
    assert not redis.exists(KEYS.questions)
    with pytest.raises(QuestionNotOpen, match="the run has ended") as refused:
        answer(redis, Approve())
    assert refused.value.status == end.removeprefix("run_")


def test_a_run_that_begins_anew_has_neither_questions_nor_answers(redis: Redis) -> None:
    running = owner(redis)
    first = running.ask("a")
    running.ask("b")
    answer(redis, Approve(), "b")
    owner(redis, name="another")
    assert not redis.exists(KEYS.questions) and not redis.exists(KEYS.decisions)
    with pytest.raises(QuestionNotOpen):
        answer(redis, Approve(), question=first)


def test_an_unknown_run_is_said_apart(redis: Redis) -> None:
    with pytest.raises(RunNotFound, match="there is no run run_1: check the id, the Redis URL"):
        answer(redis, Approve())
    assert redis.keys() == []


def test_a_run_that_goes_away_in_between_is_said_apart(redis: Redis) -> None:
    owner(redis).ask("a")
    steps = deciding(KEYS, "a", Approve(), writer="person", time=NOW)
    command = next(steps)
    with pytest.raises(RunNotFound):
        while True:
            reply = redis.execute_command(*command)
            if command[0] == "XRANGE":
                redis.flushall()
            command = steps.send(reply)
    assert redis.keys() == []


def test_what_was_shown_cut_or_redacted_is_not_edited(redis: Redis) -> None:
    running = owner(redis)
    running.ask("a", arguments={"token": "[redacted]"}, editable=False)
    with pytest.raises(EditRefused, match="approve or reject it"):
        answer(redis, Edit({"token": "x"}))
    answer(redis, Approve())


def test_a_question_too_old_to_be_read_is_approved_but_not_edited(redis: Redis) -> None:
    """The log was trimmed behind it: the call's key is all that is known."""
    running = owner(redis)
    asked = running.ask("a")
    redis.xtrim(KEYS.log, maxlen=0)
    running.append(running.event("x_a"))
    assert questions(redis) == {"a": str(asked)}
    with pytest.raises(EditRefused):
        answer(redis, Edit({}))
    answer(redis, Approve())
    event = log_of(redis)[-1]
    assert event.type == "tool_decision" and event.call == CallRef(key="a")


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Edit({"path": object()}), "not JSON"),
        (Edit({"path": "x" * MAX_DECISION_BYTES}), "at most"),
        ("approve", "is no decision"),
    ],
)
def test_what_can_not_travel_is_refused_before_anything_is_sent(
    redis: Redis, decision: Any, message: str
) -> None:
    asked = owner(redis).ask("a")
    with pytest.raises(ValueError, match=message):
        answer(redis, decision)
    assert questions(redis) == {"a": str(asked)}


def test_every_key_has_a_ttl_and_an_answer_leaves_how_long_to_the_owner(redis: Redis) -> None:
    limits = Limits(keep_open=1000, keep_interrupted=2000, keep_done=500)
    running = owner(redis, limits=limits)

    def check(ttl: int, *expected: str) -> None:
        keys = {key.decode() for key in redis.scan_iter("toolcast:{*")} - {KEYS.lease}
        assert keys == set(expected)
        assert all(ttl - 5 < redis.ttl(key) <= ttl for key in keys - {KEYS.meta})
        assert redis.ttl(KEYS.meta) > KEEP_STUB

    running.ask("a")
    check(1000, KEYS.log, KEYS.meta, KEYS.questions)
    running.ask("b")
    running.append(running.event("run_interrupted"))
    check(2000, KEYS.log, KEYS.meta, KEYS.questions)
    answer(redis, Approve())
    check(2000, KEYS.log, KEYS.meta, KEYS.questions, KEYS.decisions)
    running.append(running.event("run_resumed"))
    check(1000, KEYS.log, KEYS.meta, KEYS.questions, KEYS.decisions)
    running.end()
    check(500, KEYS.log, KEYS.meta, KEYS.decisions)


def test_answers_are_bounded(redis: Redis) -> None:
    """The newest thousand are kept; people's writers don't count among the run's thousand."""
    running = owner(redis)
    for n in range(1010):
        running.ask("a")
        answer(redis, Approve(), writer=f"person {n}")
    assert redis.xlen(KEYS.decisions) == 1000
    assert redis.hget(KEYS.meta, "writers") == b"1"


def test_of_many_that_answer_at_once_one_wins(redis: Redis, redis_url: str) -> None:
    """Whatever they answer: one event, one answer, and the others hear of it."""
    running = owner(redis)
    for turn in range(20):
        asked = running.ask("a")
        won: list[Position] = []
        lost: list[QuestionNotOpen] = []
        barrier = threading.Barrier(4)

        def person(
            name: str,
            won: list[Position] = won,
            lost: list[QuestionNotOpen] = lost,
            barrier: threading.Barrier = barrier,
        ) -> None:
            with Redis.from_url(redis_url) as client:
                barrier.wait(10)
                try:
                    won.append(answer(client, Approve(), writer=name, by=name))
                except QuestionNotOpen as refused:
                    lost.append(refused)

        threads = [threading.Thread(target=person, args=(f"p{turn}{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(won) == 1 and len(lost) == 3
        given = read_answers(redis.xrange(KEYS.decisions))
        assert [one.position for one in given if one.question == asked] == won
        assert {error.answer for error in lost} == {given[-1].answer}
    assert [event.type for event in log_of(redis)].count("tool_decision") == 20
