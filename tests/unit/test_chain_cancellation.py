"""A run that is cancelled, wherever it is: nothing is left running, and the conversation stays one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from listeners.callbacks import EVENTS
from listeners.chain import (
    Allow,
    Approve,
    Interrupt,
    LLMChain,
    Message,
    MessageDelta,
    ScriptedChat,
    ToolCall,
    ToolContext,
    ToolResult,
)
from tests.support.chains import SHORT, Recorder, atool, call, calls, chain_of, tool
from tests.support.virtual_time import run_virtually


def check_transcript(messages: Sequence[Message]) -> None:
    """Each message with calls is followed by one with a result for each, in call order."""
    for at, message in enumerate(messages):
        if message.is_tool_call:
            answer = messages[at + 1]
            assert answer.role == "tool"
            wanted = [made.call_id for made in message.tool_calls]
            assert [result.tool_call_id for result in answer.tool_results] == wanted


class Slow:
    """Handlers of every event that wait a moment, and record."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.callbacks: Any = {event: self._handler(event) for event in EVENTS}

    def _handler(self, event: str) -> Callable[..., Any]:
        async def handler(*args: Any) -> Any:
            self.told.append((SHORT[event], args[1] if len(args) > 1 else None))
            await asyncio.sleep(0)
            return Allow()

        return handler

    def outcomes(self) -> list[str]:
        ended = [about.key for name, about in self.told if name in ("ok", "fail")]
        held = [result.tool_call_id for name, about in self.told if name == "int" for result in about]
        return sorted([*ended, *held])


def fragments(*made: tuple[str, str]) -> list[Any]:
    deltas = [
        MessageDelta(tool_calls=(ToolCall(index=at, call_id=id, name=name, arguments_text="{}"),))
        for at, (id, name) in enumerate(made)
    ]
    return [MessageDelta("Let me see"), *deltas, MessageDelta(status="complete")]


def chain_with_everything(slow: Slow) -> LLMChain:
    async def pause(arguments: Any, context: Any) -> str:
        for _ in range(4):
            await asyncio.sleep(0)
        return "R"

    async def refuse(arguments: Any, context: Any) -> str:
        raise RuntimeError("boom")

    model = ScriptedChat(
        [
            fragments(("c1", "a"), ("c2", "b"), ("c3", "c"), ("c4", "zzz"), ("c5", "i")),
            Message.assistant("done"),
        ]
    )
    return chain_of(
        model,
        atool("a", pause),
        atool("b", refuse),
        tool("c", "R", in_thread=False),
        atool("i", Interrupt("sure?")),
        callbacks=[slow.callbacks],
    )


def test_cancelled_at_any_await() -> None:
    """Of a run that streams, is reviewed, and runs every kind of call."""

    async def one(steps: int) -> bool:
        slow = Slow()
        chain = chain_with_everything(slow)
        run = asyncio.create_task(chain.run())
        for _ in range(steps):
            await asyncio.sleep(0)
            if run.done():
                return False
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == {asyncio.current_task()}
        check_transcript(chain.messages)
        called = [made.key for message in chain.messages for made in message.tool_calls]
        assert slow.outcomes() == sorted(called), steps
        names = [name for name, _ in slow.told]
        if names != ["begin"] and names:
            assert names[-1] == "end" and names.count("end") == 1
            assert slow.told[-1][1].status in ("cancelled", "interrupted")
        assert "err" not in names
        # The chain is idle, and its conversation one that can go on.
        chain.add_message(Message.user("go on"))
        return True

    steps = 0
    while run_virtually(one(steps)):
        steps += 1
    assert steps > 40


def test_cancelled_while_decisions_are_acted_on() -> None:
    """At any await: each call has one answer, in the placeholder's place."""

    async def one(steps: int) -> bool:
        slow = Slow()
        made = [call("c1", "a"), call("c2", "b")]
        held = Message(
            "tool",
            tool_results=[ToolResult("?", is_interrupt=True, tool_call_id=id) for id in ("c1", "c2")],
        )
        chain = chain_of(
            [Message.assistant("done")], atool("a"), atool("b"), last=calls(*made), callbacks=[slow.callbacks]
        )
        chain.add_message(held)
        run = asyncio.create_task(chain.resume([Approve(), Approve()]))
        for _ in range(steps):
            await asyncio.sleep(0)
            if run.done():
                return False
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == {asyncio.current_task()}
        check_transcript(chain.messages)
        assert slow.outcomes() == (["c1", "c2"] if slow.told else [])
        return True

    steps = 0
    while run_virtually(one(steps)):
        steps += 1
    assert steps > 15


async def test_what_a_cancelled_run_tells() -> None:
    """Calls that had ended keep their results, the others failed; then the run has ended."""
    record = Recorder(ours=True)
    waiting = asyncio.Event()

    async def wait(arguments: Any, context: Any) -> None:
        waiting.set()
        await asyncio.sleep(60)

    made = calls(call("c1", "a"), call("c2", "b"), call("c3", "c"))
    chain = chain_of([made], atool("a"), atool("b", wait), tool("c"), record=record)
    run = asyncio.create_task(chain.run())
    await waiting.wait()
    run.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await run
    assert record.lines == [
        "begin", "id(c1:a)", "id(c2:b)", "id(c3:c)", "proc(A[c1:a,c2:b,c3:c])",
        "st(c1)", "st(c2)", "st(c3)", "pre(c1)", "pre(c2)", "ok(c1, parts[R])",
        "fail(c2, parts[Tool call 'b' was cancelled.])", "fail(c3, parts[Tool call 'c' was cancelled.])",
        "end(cancelled)",
    ]  # fmt: skip
    results = chain.messages[-1].tool_results
    assert [(r.tool_call_id, r.is_error, r.reason) for r in results] == [
        ("c1", False, None), ("c2", True, "cancelled"), ("c3", True, "cancelled"),
    ]  # fmt: skip
    (outcome,) = record.of("on_run_ended")[0]
    assert (outcome.status, outcome.error) == ("cancelled", None)


async def test_what_a_handler_raises_meanwhile_is_a_note() -> None:
    """The cancellation goes on."""
    waiting = asyncio.Event()

    async def wait(arguments: Any, context: Any) -> None:
        waiting.set()
        await asyncio.sleep(60)

    def boom(*args: Any) -> None:
        raise ValueError("BOOM")

    record = Recorder(ours=True, does={"on_tool_execution_failed": boom, "on_run_ended": boom})
    chain = chain_of([calls(call("c1", "a"))], atool("a", wait), record=record)
    run = asyncio.create_task(chain.run())
    await waiting.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert len(caught.value.__notes__) == 2 and "BOOM" in caught.value.__notes__[0]
    assert record.lines[-2:] == ["fail(c1, parts[Tool call 'a' was cancelled.])", "end(cancelled)"]


async def test_a_cancelled_thread_is_left_behind_and_told_so() -> None:
    """Nobody waits for it, and nothing it does is used."""
    started, release, finished = threading.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    def slow(context: ToolContext) -> str:
        started.set()
        release.wait(10)
        seen.append(context.cancelled.is_set())
        finished.set()
        return "too late"

    record = Recorder()
    chain = LLMChain(
        ScriptedChat([calls(call("c1", "slow"))]),
        tools=[slow],
        messages=[Message.user("hi")],
        callbacks=[record.callbacks],
    )
    run = asyncio.create_task(chain.run())
    assert await asyncio.to_thread(started.wait, 10)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    messages = chain.messages
    release.set()
    assert await asyncio.to_thread(finished.wait, 10)
    assert seen == [True]
    assert chain.messages == messages and messages[-1].tool_results[0].reason == "cancelled"


async def test_a_tool_that_cancels_itself() -> None:
    """Is that call's error result; nothing was raised, and the run goes on."""
    record = Recorder()
    chain = chain_of(
        [calls(call("c1", "a")), Message.assistant("done")],
        atool("a", asyncio.CancelledError()),
        record=record,
    )
    outcome = await chain.run()
    assert record.lines[4] == "fail(c1, parts[Tool call 'a' was cancelled.])"
    assert outcome.text == "done" and "exc" not in str(record.lines)
    assert chain.messages[2].tool_results[0].reason == "cancelled"


async def test_a_base_exception_is_never_swallowed() -> None:
    """It leaves run, with the conversation closed."""

    class Stop(BaseException):
        pass

    for make in (tool, atool):
        chain = chain_of([calls(call("c1", "a"), call("c2", "a"))], make("a", Stop()))
        with pytest.raises(Stop):
            await chain.run()
        check_transcript(chain.messages)
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_a_direct_execution() -> None:
    """The same, without a run that could end."""
    waiting = asyncio.Event()

    async def wait(arguments: Any, context: Any) -> None:
        waiting.set()
        await asyncio.sleep(60)

    record = Recorder(ours=True)
    chain = chain_of((), atool("a", wait), last=calls(call("c1", "a")), record=record)
    execution = asyncio.create_task(chain.execute_tool_calls())
    await waiting.wait()
    execution.cancel()
    with pytest.raises(asyncio.CancelledError):
        await execution
    assert record.lines == ["st(c1)", "pre(c1)", "fail(c1, parts[Tool call 'a' was cancelled.])"]
    check_transcript(chain.messages)


async def test_a_time_out_around_the_run() -> None:
    """Is an ordinary cancellation."""

    async def wait(arguments: Any, context: Any) -> None:
        await asyncio.sleep(60)

    chain = chain_of([calls(call("c1", "a"))], atool("a", wait))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await chain.run()
    check_transcript(chain.messages)


async def test_cancelled_while_siblings_of_a_raising_handler_stop() -> None:
    """The cancellation goes before the handler's error, and is not swallowed."""
    stopping = asyncio.Event()

    async def slow_to_stop(arguments: Any, context: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopping.set()
            for _ in range(3):
                await asyncio.sleep(0)
            raise

    def boom(chain: Any, made: ToolCall, result: Any) -> None:
        raise ValueError("BOOM")

    chain = chain_of(
        [calls(call("c1", "a"), call("c2", "b"))],
        atool("a", slow_to_stop),
        atool("b"),
        callbacks=[{"on_tool_execution_completed": boom}],
    )
    run = asyncio.create_task(chain.run())
    await stopping.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.all_tasks() == {asyncio.current_task()}
    check_transcript(chain.messages)


@pytest.mark.parametrize("cancel", [True, False])
async def test_a_model_that_fails_to_close(cancel: bool) -> None:
    """Neither swallows a cancellation nor takes a handler's place."""
    waiting = asyncio.Event()

    class Fails:
        async def stream(self, messages: Any, tools: Any, hooks: Any) -> Any:
            try:
                yield [MessageDelta("x")]
                waiting.set()
                await asyncio.sleep(60)
            finally:
                raise RuntimeError("can't close")

        def retry_on_fallback(self, error: Exception) -> bool:
            return False

    def boom(*args: Any) -> None:
        raise ValueError("BOOM")

    chain = chain_of(Fails(), callbacks=[] if cancel else [{"on_llm_new_delta": boom}])
    run = asyncio.create_task(chain.run())
    if not cancel:
        assert "BOOM" in str((await run).error)
        return
    await waiting.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def started_and_cancelled(*ending: Any) -> tuple[asyncio.Task[Any], Any]:
    """A run that was cancelled in a tool, with these handlers of its end."""
    started = asyncio.Event()

    async def wait(arguments: Any, context: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    handlers: Any = [{"on_run_ended": handler} for handler in ending]
    chain = chain_of([calls(call("c1", "f"))], atool("f", wait), callbacks=handlers)
    task = asyncio.create_task(chain.run())
    await started.wait()
    task.cancel()
    return task, chain


async def test_everybody_is_told_of_the_end_of_a_run_that_is_cancelled_twice() -> None:
    ended: list[str] = []
    waiting = asyncio.Event()

    async def slow(chain: Any, outcome: Any) -> None:
        waiting.set()
        await asyncio.Event().wait()

    task, chain = await started_and_cancelled(slow, lambda chain, outcome: ended.append(outcome.status))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]
    check_transcript(chain.messages)


async def test_everybody_is_told_of_the_end_of_a_cancelled_run_when_one_raises_there() -> None:
    ended: list[str] = []

    def bad(chain: Any, outcome: Any) -> None:
        raise RuntimeError("BOOM!")

    task, _ = await started_and_cancelled(bad, lambda chain, outcome: ended.append(outcome.status))
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert ended == ["cancelled"] and "BOOM!" in caught.value.__notes__[0]


async def test_a_body_that_raises_generator_exit_ends_the_run_for_everybody() -> None:
    record = Recorder(ours=True)
    chain = chain_of([calls(call("c1", "f"))], tool("f", GeneratorExit()), record=record)
    with pytest.raises(GeneratorExit):
        await chain.run()
    assert record.lines[-2:] == ["fail(c1, parts[Tool call 'f' was cancelled.])", "end(cancelled)"]
    check_transcript(chain.messages)
