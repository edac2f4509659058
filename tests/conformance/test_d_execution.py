"""The D rows: the calls of the last message are executed directly."""

from __future__ import annotations

import asyncio
import datetime
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from listeners.chain import (
    Allow,
    ContentPart,
    Interrupt,
    Message,
    ToolResult,
)
from listeners.errors import HandlerError, ToolError
from tests.support.chains import Recorder, atool, call, calls, chain_of, tool
from tests.support.virtual_time import run_virtually

OBJECT = {"type": "object", "properties": {"city": {}, "unit": {}}, "required": ["city"]}


def results_of(message: Message | None) -> tuple[ToolResult, ...]:
    assert message is not None
    return message.tool_results


async def executed(
    does: Any, *, arguments: dict[str, Any] | None = None, **options: Any
) -> tuple[Recorder, Any]:
    """Execute one call of a tool that ``does`` this; returns the record and the result."""
    record = Recorder()
    last = calls(call("c1", "a", **(arguments or {})))
    chain = chain_of((), tool("a", does, display_text="Doing A", **options), last=last, record=record)
    message = await chain.execute_tool_calls()
    (result,) = results_of(message)
    assert chain.last_message == message
    assert record.counts[-1] == chain.failure_count == int(result.is_error)
    return record, result


def lines(*middle: str) -> list[str]:
    return ["st(c1)", "pre(c1)", *middle, "proc(T[c1])", "resp(T[c1])"]


@pytest.mark.parametrize("last", [None, Message.assistant("text")])
async def test_d_01_nothing_to_execute(last: Message | None) -> None:
    """Nothing is told and nothing changes."""
    record = Recorder()
    chain = chain_of((), tool("a"), last=last, record=record)
    before = chain.messages
    assert await chain.execute_tool_calls() is None
    assert (record.lines, chain.messages) == ([], before)


async def test_d_02_one_call() -> None:
    """Started, run, completed, answered."""
    record, result = await executed("R")
    assert record.lines == lines("ok(c1, parts[R])")
    assert result == ToolResult("R", tool_call_id="c1", name="a", display_text="Doing A")
    told = record.of("on_tool_execution_completed")[0]
    assert told[0].result == told[1] == result


async def test_d_03_two_calls_one_by_one() -> None:
    """Both are announced first."""
    record = Recorder()
    last = calls(call("c1", "a"), call("c2", "b"))
    chain = chain_of((), tool("a"), tool("b"), last=last, record=record)
    await chain.execute_tool_calls()
    assert record.lines == [
        "st(c1)", "st(c2)", "pre(c1)", "ok(c1, parts[R])", "pre(c2)", "ok(c2, parts[R])",
        "proc(T[c1,c2])", "resp(T[c1,c2])",
    ]  # fmt: skip


async def test_d_04_a_tool_error() -> None:
    """Is an error result, and no exception."""
    record, result = await executed(ToolError("no"))
    assert record.lines == lines("fail(c1, parts[no])")
    assert (result.is_error, result.reason) == (True, "error")


async def test_d_05_an_exception() -> None:
    """Failed, then exception; no location in the text."""
    error = RuntimeError("boom")
    record, result = await executed(error)
    assert record.lines == lines("fail(c1, parts[ERROR: (RuntimeError) boom])", "exc(c1, RuntimeError)")
    assert (result.name, result.display_text, result.reason) == ("a", "Doing A", "exception")
    _, raised, trace = record.of("on_tool_execution_exception")[0]
    assert raised is error and trace is error.__traceback__


async def test_d_06_a_native_value() -> None:
    """Beside the text that the model sees."""
    date = datetime.date(2024, 11, 1)
    record, result = await executed(lambda a, c: ToolResult("2024-11-01", processed_content=date))
    assert record.lines == lines("ok(c1, parts[2024-11-01])")
    assert result.processed_content is date


async def test_d_07_a_result_of_its_own() -> None:
    """Is filled in, and otherwise left alone."""
    parts = [ContentPart("text", "x"), ContentPart("image", "aGk=")]
    _, result = await executed(lambda a, c: ToolResult(parts, options={"cache": True}, tool_call_id="zzz"))
    assert result == ToolResult(
        parts, options={"cache": True}, tool_call_id="c1", name="a", display_text="Doing A"
    )


@pytest.mark.parametrize("value", ["text", [ContentPart("text", "text")]])
async def test_d_09_a_text_or_parts(value: Any) -> None:
    """Are a success."""
    record, _ = await executed(lambda a, c: value)
    assert record.lines == lines("ok(c1, parts[text])")


async def test_d_11_a_tool_error_of_anything() -> None:
    """Is told as it is written."""
    record, _ = await executed(ToolError(("a", 1)))
    assert record.lines == lines("fail(c1, parts[('a', 1)])")


@pytest.mark.parametrize("value", [Interrupt(42, {}), Interrupt(" "), Interrupt("x", 5), object()])  # type: ignore[arg-type]  # what is refused
async def test_d_12_what_no_result_can_be_made_of(value: Any) -> None:
    """Is an error result, and no exception."""
    record, result = await executed(lambda a, c: value)
    assert record.lines == lines("fail(c1, parts[An unexpected response was returned from the tool.])")
    assert result.is_error and not result.is_interrupt


async def test_d_13_an_unknown_tool() -> None:
    """Neither reviewed nor started; the text itself is told."""
    record = Recorder(review=lambda *args: pytest.fail("it was reviewed"))
    chain = chain_of((), tool("a"), last=calls(call("c1", "zzz")), record=record)
    (result,) = results_of(await chain.execute_tool_calls())
    assert record.lines == [
        "fail(c1, 'Tool call made to zzz but tool not found')", "proc(T[c1])", "resp(T[c1])",
    ]  # fmt: skip
    assert (result.name, result.display_text, result.is_error) == ("zzz", None, True)
    assert (result.reason, chain.failure_count) == ("unknown_tool", 1)


async def test_d_15_a_required_parameter_is_missing() -> None:
    """The body doesn't run; the text says what is missing, what is wrong and what there is."""
    record, result = await executed(
        lambda a, c: pytest.fail("it ran"), arguments={"citty": "Oslo"}, parameters=OBJECT
    )
    text = (
        "Missing required parameters: city. Unrecognised parameters: citty (did you mean city?). "
        "Accepted parameters: city, unit. Received parameters: citty."
    )
    assert record.lines == lines(f"fail(c1, parts[{text}])")
    assert result.reason == "invalid_arguments"


async def test_d_16_parse_args_says_no() -> None:
    """With its text; the body doesn't run."""

    def parse(arguments: dict[str, Any]) -> dict[str, Any]:
        raise ToolError("device_task_id is required")

    record, _ = await executed(lambda a, c: pytest.fail("it ran"), parse_args=parse)
    assert record.lines == lines("fail(c1, parts[device_task_id is required])")


async def test_d_17_parse_args_raises() -> None:
    """Failed, then exception; the body doesn't run."""

    def parse(arguments: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("x")

    record, _ = await executed(lambda a, c: pytest.fail("it ran"), parse_args=parse)
    assert record.lines == lines("fail(c1, parts[ERROR: (KeyError) 'x'])", "exc(c1, KeyError)")


async def test_d_19_a_missing_optional_argument_is_read() -> None:
    """The text names the parameters."""
    record, _ = await executed(
        lambda arguments, context: arguments["unit"], arguments={"city": "Oslo"}, parameters=OBJECT
    )
    text = "ERROR: (KeyError) 'unit'. Accepted parameters: city, unit. Received parameters: city."
    assert record.lines == lines(f"fail(c1, parts[{text}])", "exc(c1, KeyError)")


async def test_d_21_the_context_of_the_chain() -> None:
    """With the call's id."""
    seen: list[Any] = []
    chain = chain_of(
        (), tool("a", lambda a, c: seen.append(c)), last=calls(call("c1", "a")), custom_context={"t": 1}
    )
    await chain.execute_tool_calls()
    assert seen == [{"t": 1, "tool_call_id": "c1"}]


async def test_d_22_a_context_of_the_batch() -> None:
    """Goes before the chain's, for bodies and reviews."""
    seen: list[Any] = []

    def review(chain: Any, call: Any, function: Any, context: Any) -> Allow:
        seen.append(context.custom_context)
        return Allow()

    record = Recorder(review=review)
    chain = chain_of(
        (),
        tool("a", lambda a, c: seen.append(c)),
        last=calls(call("c1", "a")),
        custom_context={"t": 1},
        record=record,
    )
    await chain.execute_tool_calls({"t": 2})
    assert seen == [{"t": 2}, {"t": 2, "tool_call_id": "c1"}]


setting: ContextVar[str] = ContextVar("setting", default="nothing")


@pytest.mark.parametrize("make", [tool, atool])
async def test_d_23_pre_and_body_share_a_task(make: Any) -> None:
    """And a context that nobody else has; what a sync body runs in is a thread with a copy of it."""
    seen: dict[str, Any] = {}

    def see(place: str) -> None:
        task = asyncio.current_task() if threading.current_thread() is threading.main_thread() else "thread"
        seen[place] = (task, setting.get())

    def pre(*args: Any) -> None:
        setting.set("by pre")
        see("pre")

    record = Recorder(
        does={
            "on_tool_execution_started": lambda *args: see("started"),
            "on_tool_pre_execution": pre,
            "on_tool_execution_completed": lambda *args: see("completed"),
        }
    )
    chain = chain_of((), make("a", lambda a, c: see("body")), last=calls(call("c1", "a")), record=record)
    await chain.execute_tool_calls()
    parent = asyncio.current_task()
    assert seen["started"] == seen["completed"] == (parent, "nothing")
    assert seen["pre"][0] not in (parent, "thread") and seen["pre"][1] == "by pre"
    assert seen["body"] == ("thread" if make is tool else seen["pre"][0], "by pre")
    assert record.lines == lines("ok(c1, parts[null])")


async def test_d_25_the_second_finishes_first() -> None:
    """And is told first; results stand in call order."""
    first_may_end = asyncio.Event()
    record = Recorder(does={"on_tool_execution_completed": lambda *args: first_may_end.set()})

    async def first(arguments: Any, context: Any) -> str:
        await first_may_end.wait()
        return "1"

    chain = chain_of(
        (), atool("a", first), atool("b", "2"), last=calls(call("c1", "a"), call("c2", "b")), record=record
    )
    results = results_of(await chain.execute_tool_calls())
    assert record.lines == [
        "st(c1)", "st(c2)", "pre(c1)", "pre(c2)", "ok(c2, parts[2])", "ok(c1, parts[1])",
        "proc(T[c1,c2])", "resp(T[c1,c2])",
    ]  # fmt: skip
    assert [result.tool_call_id for result in results] == ["c1", "c2"]


@pytest.mark.parametrize("concurrent", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_d_27_a_tool_that_takes_too_long(concurrent: bool, own: bool) -> None:
    """Is an error result, and no exception; a thread is left behind, and told so."""
    left: list[bool] = []

    async def main() -> tuple[Recorder, Any, Any]:
        record = Recorder()
        options = {"timeout": 5} if own else {}
        if concurrent:
            late = atool("a", lambda a, c: asyncio.sleep(60), **options)
        else:
            gate = threading.Event()
            late = tool("a", lambda a, c: left.append(gate.wait(0.01)), **options)
        chain = chain_of(
            (), late, last=calls(call("c1", "a")), record=record, tool_timeout=99 if own else 5.0
        )
        (result,) = results_of(await chain.execute_tool_calls())
        return record, result, chain

    record, result, chain = run_virtually(main())
    text = "Tool 'a' did not finish within 5 s."
    assert record.lines == lines(f"fail(c1, parts[{text}])")
    assert (result.is_error, result.reason, chain.failure_count) == (True, "timeout", 1)


async def test_d_28_a_tool_interrupts() -> None:
    """Held: neither failed nor completed, nor counted."""
    record, result = await executed(lambda a, c: Interrupt("wait", {"k": 1}))
    assert record.lines == lines("int(c1)")
    assert (result.is_interrupt, result.interrupt_data, result.is_error) == (True, {"k": 1}, False)
    assert result.content == (ContentPart("text", "wait"),)
    assert record.of("on_tool_interrupted") == [([result],)]


async def test_d_29_one_interrupts_one_does_not() -> None:
    record = Recorder()
    chain = chain_of(
        (),
        tool("a", Interrupt("wait")),
        tool("b"),
        last=calls(call("c1", "a"), call("c2", "b")),
        record=record,
    )
    await chain.execute_tool_calls()
    assert record.lines == [
        "st(c1)", "st(c2)", "pre(c1)", "pre(c2)", "ok(c2, parts[R])", "int(c1)",
        "proc(T[c1,c2])", "resp(T[c1,c2])",
    ]  # fmt: skip


async def test_d_30_both_interrupt() -> None:
    """One telling, of both."""
    record = Recorder()
    chain = chain_of(
        (), tool("a", Interrupt("wait")), last=calls(call("c1", "a"), call("c2", "a")), record=record
    )
    results = results_of(await chain.execute_tool_calls())
    assert record.lines[-3:] == ["int(c1, c2)", "proc(T[c1,c2])", "resp(T[c1,c2])"]
    assert record.of("on_tool_interrupted") == [(list(results),)]


async def test_d_32_success_resets_the_counter() -> None:
    answers = iter([ToolError("1"), ToolError("2"), "R"])

    def does(arguments: Any, context: Any) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    chain = chain_of((), tool("a", does), last=calls(call("c1", "a")))
    counts = []
    for number in (1, 2, 3):
        await chain.execute_tool_calls()
        counts.append(chain.failure_count)
        chain.add_message(calls(call(f"c{number + 1}", "a")))
    assert counts == [1, 2, 0]


async def test_d_34_a_handler_raises_after_the_first_call() -> None:
    """The tool's work is done; there is no tool message, and the second call doesn't run."""
    ran: list[str] = []

    def boom(*args: Any) -> None:
        raise ValueError("BOOM")

    record = Recorder(does={"on_tool_execution_completed": boom})
    last = calls(call("c1", "a"), call("c2", "b"))
    chain = chain_of(
        (),
        tool("a", lambda a, c: ran.append("a")),
        tool("b", lambda a, c: ran.append("b")),
        last=last,
        record=record,
    )
    with pytest.raises(HandlerError, match="on_tool_execution_completed raised an exception"):
        await chain.execute_tool_calls()
    assert record.lines == ["st(c1)", "st(c2)", "pre(c1)", "ok(c1, parts[null])"]
    assert ran == ["a"]
    assert chain.last_message is not None and chain.last_message.is_tool_call


async def test_d_36_the_same_tool_twice() -> None:
    """Two calls like any."""
    record = Recorder()
    chain = chain_of((), tool("a"), last=calls(call("c1", "a"), call("c2", "a")), record=record)
    results = results_of(await chain.execute_tool_calls())
    assert record.lines == [
        "st(c1)", "st(c2)", "pre(c1)", "ok(c1, parts[R])", "pre(c2)", "ok(c2, parts[R])",
        "proc(T[c1,c2])", "resp(T[c1,c2])",
    ]  # fmt: skip
    assert [result.tool_call_id for result in results] == ["c1", "c2"]
