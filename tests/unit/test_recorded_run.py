"""A run as the agent writes it, seen through a recording: which events, in which order, holding what."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from listeners import RunPublisher, ToolError, progress
from listeners.contract.events import Event, encode
from listeners.publishing.current import current_call, current_run
from listeners.testing import RecordedRun, recorded


def keys(run: RecordedRun) -> list[str]:
    return [event.call.key for event in run.events if event.call and event.type != "tool_progress"]


def by_type(run: RecordedRun, type: str) -> list[Event]:
    return [event for event in run.events if event.type == type]


# --- The run ---


def test_a_block_is_a_run() -> None:
    with recorded(title="Which modules?", agent="librarian", thread="t1") as run:
        assert current_run.get() is run
        assert run.state.status == "running" and run.state.title == "Which modules?"
    assert current_run.get() is None
    assert run.types == ["run_started", "run_completed"]
    assert run.events[0].data == {"title": "Which modules?", "agent": "librarian", "thread": "t1"}
    assert run.state.status == "completed"


def test_an_exception_fails_the_run_and_goes_on() -> None:
    """Its text was not written for people."""
    with pytest.raises(RuntimeError, match="secret"), recorded() as run:
        raise RuntimeError("postgres://app:secret@db")
    assert run.types[-1] == "run_failed"
    assert run.events[-1].data == {"code": "exception", "message": "unexpected error"}


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, GeneratorExit])
def test_a_cancellation_cancels_the_run(kind: type[BaseException]) -> None:
    with pytest.raises(kind), recorded() as run:
        raise kind
    assert run.types == ["run_started", "run_cancelled"]


def test_leaving_the_process_fails_the_run() -> None:
    with pytest.raises(SystemExit), recorded() as run:
        raise SystemExit(3)
    assert run.types == ["run_started", "run_failed"]


def test_an_explicit_end_is_the_only_one() -> None:
    with recorded() as run:
        run.complete(result={"answer": 42, "token": "t"})
        run.fail("late", "too late")
    assert run.types == ["run_started", "run_completed"]
    assert run.events[-1].data == {"result": {"answer": 42, "token": "[redacted]"}}
    with recorded() as run:
        run.fail("quota", "The quota is used up.")
    assert run.events[-1].data == {"code": "quota", "message": "The quota is used up."}
    with recorded() as run:
        run.cancel("Stop was pressed")
    assert run.events[-1].data == {"reason": "Stop was pressed"}
    with recorded() as run:
        run.cancel()
    assert run.events[-1].data == {}


def test_an_interrupted_run_is_not_ended() -> None:
    with recorded() as run:
        run.interrupt([{"key": "c", "message": "Delete?"}])
    assert run.types == ["run_started", "run_interrupted"]
    assert run.state.status == "interrupted" and run.state.interrupts is not None


def test_the_end_closes_the_calls_that_are_open() -> None:
    """No widget spins for ever: identified or running, each gets its own end first."""
    with recorded() as run:
        run.identified("a", id="1")
        run.call("b", id="2").start()
    assert run.types[-3:] == ["tool_execution_failed", "tool_execution_failed", "run_completed"]
    assert [event.data["reason"] for event in by_type(run, "tool_execution_failed")] == ["cancelled"] * 2
    assert [call.state for call in run.state.calls] == ["cancelled", "cancelled"]


def test_blocks_nest_and_each_is_the_current_run_inside() -> None:
    with recorded("outer") as outer:
        with recorded("inner") as inner:
            assert current_run.get() is inner
        assert current_run.get() is outer


def test_a_block_cannot_be_entered_twice_at_a_time() -> None:
    with recorded() as run, pytest.raises(RuntimeError, match="give each block a RunPublisher of its own"):
        run.__enter__()
    with run:
        pass
    assert run.types == ["run_started", "run_completed"] * 2
    assert run.state.status == "completed"


def test_a_block_may_be_left_in_another_context() -> None:
    """As generator-based dependencies of web frameworks do."""
    run = RecordedRun("r")
    contextvars.copy_context().run(run.__enter__)
    run.__exit__(None, None, None)
    assert run.types == ["run_started", "run_completed"] and current_run.get() is None


async def test_an_async_block_is_a_run() -> None:
    async with RecordedRun("r") as run:
        await asyncio.gather(asyncio.to_thread(lambda: run.publish("x_a")), asyncio.sleep(0))
    assert run.types == ["run_started", "x_a", "run_completed"]


async def test_tasks_and_threads_inherit_the_run() -> None:
    async def task() -> object:
        return current_run.get()

    with recorded() as run:
        assert await asyncio.gather(asyncio.create_task(task()), asyncio.to_thread(current_run.get)) == [
            run,
            run,
        ]


def test_bind_takes_the_run_into_threads_that_inherit_nothing() -> None:
    def work(number: int) -> tuple[object, int]:
        progress(number)
        return current_run.get(), number

    with recorded() as run, run.call("t"), ThreadPoolExecutor(4) as pool:
        assert pool.submit(current_run.get).result() is None
        assert list(pool.map(run.bind(work), range(20))) == [(run, n) for n in range(20)]
    assert len(by_type(run, "tool_progress")) == 20


async def test_bind_keeps_a_coroutine_function_one() -> None:
    async def work() -> object:
        return current_run.get()

    run = RecordedRun("r")
    assert await run.bind(work)() is run
    assert current_run.get() is None


# --- Calls ---


def test_a_call_tells_started_progress_completed() -> None:
    with recorded() as run, run.call("web_search", id="call_A", arguments={"q": "solar"}) as call:
        call.progress(2, 5, "page 2")
        call.result = ["queue.py", "sched.py"]
    assert run.types == [
        "run_started",
        "tool_execution_started",
        "tool_progress",
        "tool_execution_completed",
        "run_completed",
    ]
    started, told, completed = run.events[1:4]
    assert started.call is not None and started.call.key == started.call.id == "call_A"
    assert started.call.name == "web_search" and started.call.attempt == 1
    assert started.data == {"arguments_summary": "q: solar"}
    assert told.data == {"progress": 2, "total": 5, "message": "page 2"}
    assert completed.data["result_summary"] == "2 items: queue.py, sched.py"
    assert isinstance(completed.data["duration_ms"], int)
    assert told.call == started.call


def test_a_call_that_raises_has_failed_and_the_exception_goes_on() -> None:
    error = RuntimeError("postgres://app:secret@db")
    with recorded() as run:
        with pytest.raises(RuntimeError) as caught, run.call("t"):
            raise error
        with pytest.raises(ToolError), run.call("t"):
            raise ToolError("no such city")
    assert caught.value is error
    first, second = by_type(run, "tool_execution_failed")
    assert (first.data["message"], first.data["reason"]) == ("unexpected error", "exception")
    assert (second.data["message"], second.data["reason"]) == ("no such city", "error")
    everything = b"".join(encode(event) for event in run.events)
    assert all(
        word not in everything for word in (b"secret", b"RuntimeError", b".py", b"tool_execution_exception")
    )


def test_exposed_exceptions_follow_the_failure() -> None:
    with recorded(expose_exceptions=True) as run, pytest.raises(RuntimeError), run.call("t"):
        raise RuntimeError("boom")
    assert run.types[2:4] == ["tool_execution_failed", "tool_execution_exception"]
    assert run.events[3].data["exception"] == "RuntimeError"


async def test_a_cancelled_call_says_so() -> None:
    with recorded() as run, pytest.raises(asyncio.CancelledError):
        async with run.call("t"):
            raise asyncio.CancelledError
    assert by_type(run, "tool_execution_failed")[0].data["reason"] == "cancelled"
    assert run.types[-1] == "run_completed"


def test_identified_then_called_is_one_call() -> None:
    with recorded() as run:
        identified = run.identified("web_search", id="call_A", index=1)
        with run.call("web_search", id="call_A", arguments={}) as call:
            pass
    assert call is identified
    assert run.types[1:4] == ["tool_call_identified", "tool_execution_started", "tool_execution_completed"]
    assert keys(run) == ["call_A"] * 3
    first = run.events[1].call
    assert first is not None and first.index == 1 and first.title == "Web search" and first.attempt is None


def test_the_same_identification_twice_is_told_once() -> None:
    """Unless the name has become another tool's meanwhile."""
    with recorded() as run:
        assert run.identified("web", id="a") is run.identified("web", id="a")
        run.identified("web_search", id="a")
    names = [event.call.name for event in by_type(run, "tool_call_identified") if event.call]
    assert names == ["web", "web_search"]
    assert len(run.state.calls) == 1


def test_two_turns_with_the_same_provider_id_are_two_calls() -> None:
    with recorded() as run:
        for _ in range(3):
            run.identified("t", id="call_0")
            with run.call("t", id="call_0"):
                pass
    assert [call.key for call in run.state.calls] == ["call_0", "call_0~2", "call_0~3"]
    assert {call.id for call in run.state.calls} == {"call_0"}


def test_two_calls_at_a_time_with_the_same_id_are_two_calls() -> None:
    with recorded() as run:
        for _ in range(2):
            run.call("t", id="a").start()
    assert [call.key for call in run.state.calls] == ["a", "a~2"]


@pytest.mark.parametrize("id", ["x" * 65, "a b", "é", "", "-a", "a/b", "</script>"])
def test_an_id_that_cannot_be_a_key_is_kept_beside_one(id: str) -> None:
    with recorded() as run, run.call("t", id=id) as call:
        pass
    assert call.key == "w1"
    assert run.state.calls[0].id == id


def test_made_up_keys_never_meet_a_providers_id() -> None:
    with recorded() as run:
        for id in ("w1", None, "w2"):
            run.call("t", id=id).start()
    assert [call.key for call in run.state.calls] == ["w1", "w2", "w2~2"]


def test_a_call_inside_a_call_is_nested() -> None:
    """A nested agent's keys begin with the call that started it, which stands in the envelope."""
    with recorded() as run, run.call("agent", id="a"), run.call("t", id="b"), run.call("t"):
        pass
    assert [call.key for call in run.state.calls] == ["a", "a.b", "a.b.w1"]
    assert [call.parent for call in run.state.calls] == [None, "a", "a.b"]


def test_very_deep_nesting_still_gives_usable_keys() -> None:
    def deeper(run: RecordedRun, depth: int) -> None:
        with run.call("t", id=f"call_{depth:02}_xxxxxxxxxxxx"):
            if depth:
                deeper(run, depth - 1)

    with recorded() as run:
        deeper(run, 30)
    assert len({call.key for call in run.state.calls}) == 31
    assert all(len(call.key) <= 256 for call in run.state.calls)


def test_progress_reaches_the_call_whose_body_runs() -> None:
    with recorded() as run:
        progress(0)
        with run.call("t", id="a"):
            progress(1, 2, "half", chunk="text")
            with run.call("t", id="b"):
                progress(2)
            progress(3)
        progress(4)
    told = [(event.call.key, event.data) for event in by_type(run, "tool_progress") if event.call]
    assert told == [
        ("a", {"progress": 1, "total": 2, "message": "half", "chunk": "text"}),
        ("a.b", {"progress": 2}),
        ("a", {"progress": 3}),
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "three", object(), None])
def test_progress_that_is_no_number_is_left_out(value: Any) -> None:
    with recorded() as run, run.call("t"):
        progress(value, 5)
    assert by_type(run, "tool_progress")[0].data == {"total": 5}


def test_progress_after_the_end_is_not_told() -> None:
    """A thread that goes on after its call was cancelled reports into nothing."""
    with recorded() as run:
        with run.call("t") as call:
            pass
        call.progress(1)
        call.complete("again")
    assert run.types == ["run_started", "tool_execution_started", "tool_execution_completed", "run_completed"]


def test_a_held_call_is_started_again() -> None:
    with recorded() as run:
        call = run.call(
            "delete", id="a", arguments={"path": "/x"}, title=("Deleting…", "Deleted", "x", "Delete {path}?")
        )
        call.start()
        run.publish("tool_interrupted", call=call, data={"message": "Sure?", "arguments": call.arguments})
        run.publish("tool_decision", call=call, data={"decision": "approve"})
        with run.call("delete", id="a") as again:
            assert again is call
    attempts = [event.call.attempt for event in run.events if event.call]
    assert attempts == [1, 1, 1, 2, 2]
    titles = [event.call.title for event in run.events if event.call]
    assert titles == ["Deleting…", "Delete /x?", "Deleting…", "Deleting…", "Deleted"]
    assert run.state.calls[0].attempt == 2


def test_titles_follow_the_call() -> None:
    forms = ("Searching for “{q}”…", "Searched for “{q}”", "Couldn't search for “{q}”")
    with recorded(redact=["q"]) as run, run.call("t", arguments={"q": "secret"}, title=forms):
        pass
    titles = [event.call.title for event in run.events if event.call]
    assert titles == ["Searching for “[redacted]”…", "Searched for “[redacted]”"]
    with recorded() as run:
        run.identified("t", id="a", title=forms)
        with pytest.raises(ToolError), run.call("t", id="a", arguments={"q": "x"}):
            raise ToolError("no")
    titles = [event.call.title for event in run.events if event.call]
    assert titles == ["T", "Searching for “x”…", "Couldn't search for “x”"]


def test_a_run_of_many_calls_keeps_little_of_those_that_ended() -> None:
    """Keys stay unique; what a call held is let go."""
    with recorded() as run:
        for n in range(3_000):
            with run.call("t", id=f"c{n}", arguments={"n": n}) as call:
                call.result = n
        with run.call("t", id="c0") as again:
            pass
    assert again.key == "c0~2" and call.arguments is None and call.result == 2_999
    assert run.composer._calls._latest == {} and run.composer._calls.open == []
    assert len(run.state.calls) == 2_000 and run.state.calls_dropped == 1_001


def test_a_call_may_be_left_in_another_context() -> None:
    with recorded() as run:
        call = run.call("t")
        contextvars.copy_context().run(call.__enter__)
        call.__exit__(None, None, None)
    assert run.state.calls[0].state == "completed" and current_call.get() is None


# --- Events ---


def test_any_event_can_be_published() -> None:
    with recorded() as run:
        run.publish("x_mine", data={"n": 1, "nothing": None})
        run.publish("llm_token_usage", data={"input": 1, "output": 2, "total": 3})
        run.publish("llm_new_delta", data={"text": "hidden by default"})
    assert run.types == ["run_started", "x_mine", "llm_token_usage", "run_completed"]
    assert run.events[1].data == {"n": 1}
    assert run.state.usage is not None and run.state.usage.total == 3


@pytest.mark.parametrize("type", ["mine", "error", "on_run_started", "x_", "X_a", "", "run_exploded"])
def test_an_unknown_type_is_refused(type: str) -> None:
    with recorded() as run, pytest.raises(ValueError, match="unknown event type"):
        run.publish(type)


def test_a_tool_event_needs_its_call() -> None:
    with recorded() as run, pytest.raises(ValueError, match="give call="):
        run.publish("tool_progress")


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    "value",
    [
        Hostile(),
        LOOP,
        {Hostile(): 1},
        "\ud800",
        float("nan"),
        [object()] * 3,
        "x" * 200_000,
        {"a": {1, 2}},
        iter([]),
    ],
    ids=["hostile", "loop", "key", "half", "nan", "objects", "long", "set", "iterator"],
)
@pytest.mark.parametrize("level", ["full", "summary"])
def test_no_value_keeps_an_event_from_being_published(value: Any, level: Any) -> None:
    with recorded(arguments=level, results=level) as run:
        with run.call("t", arguments={"v": value}) as call:
            call.result = value
        run.publish("x_mine", data={"v": value})
    assert run.types == [
        "run_started",
        "tool_execution_started",
        "tool_execution_completed",
        "x_mine",
        "run_completed",
    ]
    assert all(len(event) <= 65_536 and b"\n" not in event for event in run._recording.events)


def test_half_a_character_anywhere_does_no_harm() -> None:
    with recorded(title="a\ud800") as run, run.call("n\ud800", id="i\ud800", title="t\ud800"):
        pass
    assert run.state.status == "completed" and len(run.types) == 4


def test_values_that_change_afterwards_do_not_change_what_was_published() -> None:
    value = {"a": [1]}
    with recorded(results="full") as run, run.call("t") as call:
        call.result = value
    value["a"].append(2)
    assert run.state.calls[0].result == {"a": [1]}


def test_markup_is_data() -> None:
    """A result holding markup leaves as the text it is."""
    evil = "</script><img src=x onerror=alert(1)>"
    with recorded(results="full") as run, run.call("t") as call:
        call.result = evil
    assert run.state.calls[0].result == evil


def test_many_threads_publish_in_one_order() -> None:
    """Every event once; the events of one call in the order of their thread."""

    def work(number: int) -> None:
        for turn in range(50):
            with run.call("t", id=f"{number}_{turn}") as call:
                call.progress(turn)

    with recorded() as run:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(run.types) == 2 + 8 * 50 * 3
    assert len(run.state.calls) == 400
    assert all(call.state == "completed" for call in run.state.calls)


def test_a_recording_opens_nothing() -> None:
    before = threading.active_count()
    with recorded() as run:
        assert run.flush() and run.stats.published == 1 and run.stats.waiting == 0
    assert threading.active_count() == before
    assert isinstance(run, RunPublisher) and current_call.get() is None


def test_calls_that_have_ended_are_let_go() -> None:
    with recorded() as run:
        kept = run.call("t", id="a", arguments={"q": "x"})
        kept.start()
        with run.call("t", id="b") as call:
            call.result = object()
        gone = weakref.ref(call)
        del call
        assert gone() is None and kept.arguments == {"q": "x"}
        kept.cancel()
    assert kept.arguments is None


# --- What tools hold ---


@dataclass
class Connection:
    host: str
    password: str


def test_titles_show_no_secret_inside_of_an_object() -> None:
    with (
        recorded() as run,
        run.call("connect", arguments={"to": Connection("db", "s3cret")}, title="To {to}"),
    ):
        pass
    assert by_type(run, "tool_execution_started")[0].call.title == "To {host: db, password: [redacted]}"  # type: ignore[union-attr]  # a tool event has its call


def test_what_a_generator_yields_is_redacted_and_withheld_like_a_result() -> None:
    with recorded() as run, run.call("read") as call:
        call.chunk({"password": "s3cret", "line": 1})
    assert [event.data for event in by_type(run, "tool_progress")] == [
        {"chunk": '{"password":"[redacted]","line":1}'}
    ]
    with recorded(results={"read": "none"}) as run, run.call("read") as call:
        call.chunk("a line")
    assert by_type(run, "tool_progress") == []
