"""``RedisListener``: wrapped tools and a chain's callbacks, as the events of the current run."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from listeners import RedisListener, RunPublisher, progress, wrap, wrap_all
from listeners.chain import (
    ChainError,
    ContentPart,
    Function,
    LLMChain,
    Outcome,
    ScriptedChat,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from listeners.chain.review import HeldCall
from listeners.contract.events import encode
from listeners.testing import RecordedRun, recorded

TITLES = {"search": ("Searching for “{q}”…", "Searched for “{q}”", "Couldn't search for “{q}”")}
LISTENER = RedisListener(titles=TITLES)


def search(q: str, limit: int = 5) -> list[str]:
    progress(1, 2, "half")
    return [q, "b"]


async def fetch(path: str) -> str:
    await asyncio.sleep(0)
    return path.upper()


def failing() -> None:
    raise RuntimeError("postgres://app:secret@db")


def counting(n: int) -> Iterator[object]:
    for i in range(n):
        progress(i)
        yield {"i": i} if i % 2 else str(i)


async def acounting(n: int) -> AsyncIterator[str]:
    for i in range(n):
        yield str(i)


SEARCH, FETCH, FAILING, COUNTING, ACOUNTING = wrap_all(
    [search, fetch, failing, counting, acounting], LISTENER
)  # type: ignore[list-item]  # one listener, tools of every kind


def told(run: RecordedRun) -> list[tuple[str, str]]:
    return [(event.type.removeprefix("tool_"), event.call.key) for event in run.events if event.call]


# --- Wrapped tools ---


def test_a_wrapped_tool_is_a_call_of_the_current_run() -> None:
    with recorded() as run:
        assert SEARCH("solar") == ["solar", "b"]
    assert told(run) == [("execution_started", "w1"), ("progress", "w1"), ("execution_completed", "w1")]
    started, _, completed = run.events[1:4]
    assert started.data == {"arguments_summary": "q: solar"}
    assert started.call is not None and started.call.title == "Searching for “solar”…"
    assert completed.data["result_summary"] == "2 items: solar, b"
    assert completed.call is not None and completed.call.title == "Searched for “solar”"


def test_without_a_run_tools_just_run(caplog: pytest.LogCaptureFixture) -> None:
    assert SEARCH("solar") == ["solar", "b"]
    assert list(COUNTING(2)) == ["0", {"i": 1}]
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


def test_an_explicit_run_wins() -> None:
    mine = RecordedRun("mine")
    tool = wrap(search, RedisListener(mine))
    with recorded() as current:
        tool("x")
    assert "tool_execution_completed" in mine.types and current.types == ["run_started", "run_completed"]


async def test_coroutines_generators_and_their_yields() -> None:
    with recorded() as run:
        assert await FETCH("a") == "A"
        assert list(COUNTING(2)) == ["0", {"i": 1}]
        assert [item async for item in ACOUNTING(1)] == ["0"]
    assert told(run) == [
        ("execution_started", "w1"),
        ("execution_completed", "w1"),
        ("execution_started", "w2"),
        *[("progress", "w2")] * 4,
        ("execution_completed", "w2"),
        ("execution_started", "w3"),
        ("progress", "w3"),
        ("execution_completed", "w3"),
    ]
    chunks = [event.data["chunk"] for event in run.events if "chunk" in event.data]
    assert chunks == ["0", '{"i":1}', "0"]
    assert run.state.calls[1].result_summary == "2 items: 0, {i: 1}"


def test_between_the_steps_of_a_generator_its_caller_is_itself() -> None:
    with recorded() as run, run.call("outer", id="o"):
        for _ in COUNTING(1):
            progress(message="from outside")
    outside = [event for event in run.events if event.data.get("message") == "from outside"]
    assert [event.call.key for event in outside if event.call] == ["o"]


def test_a_failing_tool_leaves_neither_text_nor_type_nor_place() -> None:
    with recorded() as run, pytest.raises(RuntimeError, match="secret"):
        FAILING()
    everything = b"".join(encode(event) for event in run.events)
    assert all(
        word not in everything for word in (b"secret", b"postgres", b"RuntimeError", b".py", b"Traceback")
    )
    assert run.state.calls[0].error is not None
    assert run.state.calls[0].error.message == "unexpected error"


async def test_a_cancelled_tool_says_so() -> None:
    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    with recorded() as run:
        task = asyncio.create_task(wrap(forever, LISTENER)())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert run.state.calls[0].state == "cancelled"


def test_a_generator_closed_half_way_is_cancelled() -> None:
    with recorded() as run:
        steps = COUNTING(5)
        next(steps)
        steps.close()  # type: ignore[attr-defined]
    assert run.state.calls[0].state == "cancelled"


def test_a_wrapped_tool_takes_up_the_oldest_identified_call_of_its_name() -> None:
    with recorded() as run:
        run.identified("search", id="a")
        run.identified("other", id="b")
        run.identified("search", id="c")
        SEARCH("one")
        SEARCH("two")
        SEARCH("three")
    states = {call.key: (call.state, call.arguments_summary) for call in run.state.calls}
    assert states == {
        "a": ("completed", "q: one"),
        "b": ("cancelled", None),
        "c": ("completed", "q: two"),
        "w1": ("completed", "q: three"),
    }


def test_a_wrapped_tool_as_the_body_of_a_call_is_told_once() -> None:
    """Its progress and its titles count; a second one inside is a call of its own."""
    with recorded() as run, run.call("search", id="a", arguments={"q": "x"}) as call:
        call.result = SEARCH("x")
        SEARCH("y")
    assert told(run) == [
        ("execution_started", "a"),
        ("progress", "a"),
        ("execution_started", "a.w1"),
        ("progress", "a.w1"),
        ("execution_completed", "a.w1"),
        ("execution_completed", "a"),
    ]
    assert run.state.calls[0].title == "Searched for “x”"


def test_a_tool_that_calls_itself_is_told_each_time() -> None:
    def deeper(n: int) -> int:
        return n and tool(n - 1)

    tool = wrap(deeper, LISTENER)
    with recorded() as run:
        tool(2)
    assert [call.key for call in run.state.calls] == ["w1", "w1.w2", "w1.w2.w3"]


async def test_a_hundred_concurrent_runs_over_one_set_of_tools_stay_apart() -> None:
    """Wrapped once at import; every event lands in its own run."""

    async def one(number: int) -> RecordedRun:
        async with RecordedRun(f"run_{number}") as run:
            await asyncio.gather(
                FETCH(f"only {number}"),
                asyncio.to_thread(SEARCH, f"only {number}"),
                asyncio.create_task(FETCH(f"only {number}")),
            )
            list(COUNTING(3))
        return run

    runs = await asyncio.gather(*(one(number) for number in range(100)))
    for number, run in enumerate(runs):
        assert all(event.run == f"run_{number}" for event in run.events)
        assert [call.state for call in run.state.calls] == ["completed"] * 4
        seen = {call.arguments_summary for call in run.state.calls}
        assert seen == {f"path: only {number}", f"q: only {number}", "n: 3"}


def test_a_listener_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordedRun):
        @property
        def composer(self) -> Any:
            raise RuntimeError("broken")

        @composer.setter
        def composer(self, value: object) -> None:
            pass

    run = Broken("r")
    tool = wrap(search, RedisListener(run))
    with caplog.at_level(logging.ERROR, "listeners"):
        assert tool("x") == tool("x") == ["x", "b"]
        RedisListener(run).on_run_ended(CHAIN, ended("ok"))
    assert {record.levelname for record in caplog.records} == {"ERROR"}


def test_a_summary_says_once_how_to_publish_the_whole(caplog: pytest.LogCaptureFixture) -> None:
    tool = wrap(lambda: [1], LISTENER, name="rare_tool")
    with caplog.at_level(logging.INFO, "listeners"), recorded(), recorded():
        tool()
        tool()
    assert [record.getMessage() for record in caplog.records] == [
        "results of rare_tool are published as a summary; to publish them whole: "
        'RunPublisher(…, results={"rare_tool": "full"})'
    ]


# --- A chain's callbacks ---


def a_chain() -> LLMChain:
    return LLMChain(ScriptedChat([]))


def ended(status: Any, error: ChainError | None = None, *held: HeldCall) -> Outcome:
    return Outcome(
        status=status, chain=CHAIN, llm=CHAIN.llm, error=error, interrupts=held, usage=TokenUsage()
    )


CHAIN = a_chain()
FUNCTION = Function(
    "search", lambda arguments, context: None, display_text=("Doing {q}…", "Did {q}", "Failed {q}")
)


def tool_call(key: str = "call_A", **changes: Any) -> ToolCall:
    return ToolCall(**({"key": key, "name": "search", "call_id": key} | changes))


def run_call(listener: RedisListener, call: ToolCall, result: ToolResult | None = None) -> None:
    result = result or ToolResult("found", processed_content=["x"])
    listener.on_tool_call_identified(CHAIN, call, FUNCTION)
    listener.on_tool_execution_started(CHAIN, call, FUNCTION)
    listener.on_tool_execution_completed(CHAIN, call, result)


def test_callbacks_become_events() -> None:
    listener = RedisListener()
    with recorded() as run:
        listener.on_run_started(CHAIN)
        listener.on_tool_call_identified(CHAIN, tool_call(index=1), FUNCTION)
        complete = tool_call(index=1, status="complete", arguments={"q": "solar"})
        listener.on_tool_execution_started(CHAIN, complete, FUNCTION)
        listener.on_tool_execution_completed(
            CHAIN, complete, ToolResult("text", processed_content=["a", "b"])
        )
        listener.on_run_ended(CHAIN, ended("ok"))
    assert run.types == [
        "run_started",
        "tool_call_identified",
        "tool_execution_started",
        "tool_execution_completed",
        "run_completed",
    ]
    titles = [event.call.title for event in run.events if event.call]
    assert titles == ["Search", "Doing solar…", "Did solar"]
    assert run.events[1].call is not None and run.events[1].call.index == 1
    assert run.events[3].data["result_summary"] == "2 items: a, b"


def test_a_listeners_titles_win() -> None:
    with recorded() as run:
        LISTENER.on_tool_execution_started(CHAIN, tool_call(arguments={"q": "x"}), FUNCTION)
    assert run.events[1].call is not None and run.events[1].call.title == "Searching for “x”…"


def test_a_result_without_a_native_value_is_its_text() -> None:
    parts = [ContentPart("text", "one"), ContentPart("image", "…"), ContentPart("text", "two")]
    with recorded(results="full") as run:
        run_call(RedisListener(), tool_call(), ToolResult(parts))
    assert run.state.calls[0].result == "one\ntwo"


def test_two_turns_with_the_same_key_are_two_calls() -> None:
    with recorded() as run:
        run_call(RedisListener(), tool_call("call_0"))
        run_call(RedisListener(), tool_call("call_0"))
    assert [call.key for call in run.state.calls] == ["call_0", "call_0~2"]


def test_two_chains_of_one_run_may_count_alike() -> None:
    listener, other = RedisListener(), a_chain()
    with recorded() as run:
        for chain in (CHAIN, other):
            listener.on_tool_call_identified(chain, tool_call("m1.0", call_id=None), FUNCTION)
        for chain in (CHAIN, other):
            listener.on_tool_execution_started(chain, tool_call("m1.0", call_id=None), FUNCTION)
        for chain in (other, CHAIN):
            listener.on_tool_execution_completed(chain, tool_call("m1.0", call_id=None), ToolResult("x"))
    assert [(call.key, call.state) for call in run.state.calls] == [
        ("m1.0", "completed"),
        ("m1.0~2", "completed"),
    ]
    assert told(run)[-2:] == [("execution_completed", "m1.0~2"), ("execution_completed", "m1.0")]


@pytest.mark.parametrize(
    ("reason", "state", "message"),
    [
        ("error", "failed", "what the model sees"),
        ("denied", "denied", "what the model sees"),
        ("timeout", "failed", "what the model sees"),
        ("cancelled", "cancelled", "what the model sees"),
        ("exception", "failed", "unexpected error"),
    ],
)
def test_failures_have_a_reason(reason: Any, state: str, message: str) -> None:
    result = ToolResult("what the model sees", is_error=True, reason=reason)
    listener, call = RedisListener(), tool_call(result=result)
    with recorded() as run:
        listener.on_tool_execution_started(CHAIN, call, FUNCTION)
        listener.on_tool_execution_failed(CHAIN, call, "what the model sees")
    told_call = run.state.calls[0]
    assert told_call.state == state and told_call.error is not None
    assert (told_call.error.reason, told_call.error.message) == (reason, message)


def test_a_failures_text_without_a_reason_is_not_published() -> None:
    with recorded() as run:
        RedisListener().on_tool_execution_failed(
            CHAIN, tool_call(), [ContentPart("text", "ERROR: (E) secret")]
        )
        RedisListener().on_tool_execution_failed(CHAIN, tool_call("b"), "no such city")
    errors = [call.error.message for call in run.state.calls if call.error]
    assert errors == ["unexpected error", "unexpected error"]


def test_exceptions_are_told_only_if_exposed() -> None:
    def tell(run: RecordedRun) -> None:
        with run:
            listener, call = (
                RedisListener(),
                tool_call(result=ToolResult("x", is_error=True, reason="exception")),
            )
            listener.on_tool_execution_started(CHAIN, call, FUNCTION)
            listener.on_tool_execution_failed(CHAIN, call, "ERROR: (ValueError) boom")
            try:
                raise ValueError("boom")
            except ValueError as error:
                trace = sys.exc_info()[2]
                assert trace is not None
                listener.on_tool_execution_exception(CHAIN, call, error, trace)

    hidden, shown = RecordedRun("r"), RecordedRun("r", expose_exceptions=True)
    tell(hidden)
    tell(shown)
    assert "tool_execution_exception" not in hidden.types
    assert shown.types[2:4] == ["tool_execution_failed", "tool_execution_exception"]
    assert shown.events[3].data["exception"] == "ValueError"
    assert shown.events[3].call is not None and shown.events[3].call.key == "call_A"
    assert len(shown.state.calls) == 1


def test_a_held_call_is_a_question() -> None:
    listener = RedisListener()
    call = tool_call(status="complete", arguments={"path": "/x", "token": "t"})
    result = ToolResult(
        "Delete /x?", is_interrupt=True, interrupt_data={"risk": "high"}, tool_call_id="call_A", name="search"
    )
    with recorded() as run:
        listener.on_tool_call_identified(CHAIN, call, FUNCTION)
        listener.on_tool_interrupted(CHAIN, [result, ToolResult("?", tool_call_id="b", name="other")])
        held = HeldCall("call_A", call, "Delete /x?", {"tool_call_id": "call_A"})
        listener.on_run_ended(CHAIN, ended("interrupted", None, held))
    assert run.types == ["run_started", "tool_call_identified", *["tool_interrupted"] * 2, "run_interrupted"]
    assert run.events[2].data == {
        "message": "Delete /x?",
        "arguments": {"path": "/x", "token": "[redacted]"},
        "editable": False,
        "interrupt": {"risk": "high"},
    }
    assert [call.state for call in run.state.calls] == ["interrupted", "interrupted"]
    assert run.state.interrupts is not None and run.state.interrupts[0].key == "call_A"


def test_the_run_of_a_publisher_without_a_block_is_the_chains() -> None:
    for outcome, last in (
        (ended("ok"), "run_completed"),
        (ended("cancelled"), "run_cancelled"),
        (ended("error", ChainError("unknown_error", "secret")), "run_failed"),
        (ended("interrupted"), "run_interrupted"),
        (ended("paused"), "run_started"),
    ):
        run = RecordedRun("r")
        listener = RedisListener(run)
        listener.on_run_started(CHAIN)
        listener.on_run_ended(CHAIN, outcome)
        assert run.types[0] == "run_started" and run.types[-1] == last
        assert b"secret" not in b"".join(encode(event) for event in run.events)


def test_in_a_block_the_last_outcome_decides_how_it_ends() -> None:
    listener = RedisListener()
    with recorded() as run:
        listener.on_run_ended(CHAIN, ended("error", ChainError("exceeded_max_runs", "secret")))
    assert run.events[-1].data == {
        "code": "exceeded_max_runs",
        "message": "the model was asked as often as it may be",
    }
    with recorded() as run:
        listener.on_run_ended(CHAIN, ended("error", ChainError("exceeded_max_runs", "secret")))
        listener.on_run_ended(CHAIN, ended("ok"))
    assert run.types == ["run_started", "run_completed"]


def test_calls_that_will_not_run_are_closed_when_the_chain_ends() -> None:
    listener = RedisListener()
    with recorded() as run:
        listener.on_tool_call_identified(CHAIN, tool_call(), FUNCTION)
        listener.on_run_ended(CHAIN, ended("ok"))
        assert run.types[-1] == "tool_execution_failed"
    assert run.state.calls[0].state == "cancelled"


def test_a_chain_inside_a_tool_neither_begins_nor_ends_the_run() -> None:
    run, other = RecordedRun("r"), a_chain()
    listener = RedisListener(run)
    listener.on_run_started(CHAIN)
    with run.call("agent", id="a"):
        listener.on_run_started(other)
        run_call(listener, tool_call("b"))
        listener.on_run_ended(other, ended("error", ChainError(None, "x")))
    listener.on_run_ended(CHAIN, ended("ok"))
    assert [type for type in run.types if type.startswith("run_")] == ["run_started", "run_completed"]
    assert [call.key for call in run.state.calls] == ["a", "a.b"]


def test_callbacks_without_a_run_do_nothing() -> None:
    listener = RedisListener()
    listener.on_run_started(CHAIN)
    run_call(listener, tool_call())
    listener.on_tool_interrupted(CHAIN, [ToolResult("?")])
    listener.on_run_ended(CHAIN, ended("ok"))


def test_a_publisher_is_a_run_publisher() -> None:
    assert isinstance(RecordedRun("r"), RunPublisher)
