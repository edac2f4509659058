"""What a body may return, and where it runs."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import sqlite3
import threading
import time
from contextvars import ContextVar
from typing import Any

import msgspec
import pydantic
import pytest

from listeners.chain import ContentPart, Function, Message, ToolContext, ToolResult
from listeners.errors import ToolError
from listeners.publishing.current import current_call
from tests.support.chains import Recorder, atool, call, calls, chain_of, tool
from tests.support.virtual_time import run_virtually


async def result_of(tool: Function, **options: Any) -> ToolResult:
    message = await chain_of((), tool, last=calls(call("c1", tool.name)), **options).execute_tool_calls()
    assert message is not None
    return message.tool_results[0]


class Model(pydantic.BaseModel):
    x: int


@dataclasses.dataclass
class Data:
    inner: Any


class Struct(msgspec.Struct):
    x: int


UNEXPECTED = "An unexpected response was returned from the tool."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (5, "5"),
        (True, "true"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([], "[]"),
        (("x", 1), '["x",1]'),
        ([ContentPart("text", "x"), "y"], '[{"type":"text","content":"x","options":{}},"y"]'),
        (Model(x=1), '{"x":1}'),
        ({"deep": [Data(Model(x=1))]}, '{"deep":[{"inner":{"x":1}}]}'),
        (Struct(1), '{"x":1}'),
        (datetime.date(2024, 1, 2), '"2024-01-02"'),
    ],
)
@pytest.mark.parametrize("make", [tool, atool])
async def test_plain_data_is_a_success(make: Any, value: Any, text: str) -> None:
    """Its JSON is what the model sees, the value itself is beside it."""
    result = await result_of(make("a", lambda a, c: value))
    assert (result.content, result.is_error) == ((ContentPart("text", text),), False)
    assert result.processed_content is value


@pytest.mark.parametrize("value", ["", "  ", "text"])
async def test_a_text_is_itself(value: str) -> None:
    result = await result_of(tool("a", lambda a, c: value))
    assert (result.content, result.processed_content) == ((ContentPart("text", value),), None)


def cyclic() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize("value", [object(), int, ValueError("x"), {"a": object()}, {object(): 1}, lambda: 1])
async def test_what_json_cannot_carry_is_an_error(value: Any) -> None:
    result = await result_of(tool("a", lambda a, c: value))
    assert (result.content[0].content, result.reason) == (UNEXPECTED, "error")


async def test_a_value_that_holds_itself_is_an_error() -> None:
    assert (await result_of(tool("a", lambda a, c: cyclic()))).content[0].content == UNEXPECTED


async def test_a_result_that_says_it_failed() -> None:
    """Its own reason stays; an error without one gets one."""
    assert (await result_of(tool("a", ToolResult("x", is_error=True)))).reason == "error"
    assert (await result_of(tool("a", ToolResult("x", is_error=True, reason="timeout")))).reason == "timeout"
    assert (await result_of(tool("a", ToolResult("x", reason="denied")))).reason is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("boom"), "ERROR: (RuntimeError) boom"),
        (RuntimeError(), "ERROR: (RuntimeError)"),
        (StopIteration("x"), "ERROR: (StopIteration) x"),
        (TimeoutError("its own"), "ERROR: (TimeoutError) its own"),
        (KeyError("x"), "ERROR: (KeyError) 'x'"),
        (ToolError("for people"), "for people"),
    ],
)
@pytest.mark.parametrize("in_thread", [True, False])
async def test_what_a_body_raises(error: Exception, text: str, in_thread: bool) -> None:
    """StopIteration is an exception like any other, a time-out of its own too."""
    result = await result_of(tool("a", error, in_thread=in_thread, timeout=5))
    assert (result.content[0].content, result.is_error) == (text, True)


async def test_an_awaitable_is_awaited() -> None:
    """On the loop, whatever returned it."""

    async def later() -> str:
        return threading.current_thread().name

    result = await result_of(tool("a", lambda a, c: later()))
    assert result.content[0].content == threading.current_thread().name


async def test_parse_args() -> None:
    """What it returns is what the body gets; anything but a mapping is an error."""
    good = tool("a", lambda a, c: a["y"], parse_args=lambda arguments: {"y": arguments.get("x", 7)})
    assert (await result_of(good)).content[0].content == "7"
    bad = tool("a", "never", parse_args=lambda arguments: [1])
    result = await result_of(bad)
    assert result.content[0].content == "parse_args returned unexpected shape: [1]"


async def test_a_blocking_body_does_not_block_the_loop() -> None:
    """It has a thread of its own, however many there are."""
    barrier = threading.Barrier(41)
    names: list[str] = []

    def body(arguments: Any, context: Any) -> None:
        names.append(threading.current_thread().name)
        assert threading.current_thread().daemon
        barrier.wait(10)

    made = [call(f"c{n}", "a") for n in range(40)]
    chain = chain_of((), tool("a", body, concurrent=True), last=calls(*made))
    execution = asyncio.create_task(chain.execute_tool_calls())
    ticks = 0
    while barrier.n_waiting < 40:
        await asyncio.sleep(0)
        ticks += 1
    await asyncio.to_thread(barrier.wait, 10)
    await execution
    assert ticks > 1 and names == ["tool a"] * 40


async def test_on_the_loop_for_objects_bound_to_a_thread() -> None:
    """in_thread=False."""
    connection = sqlite3.connect(":memory:")
    query = tool("a", lambda a, c: connection.execute("select 42").fetchone()[0], in_thread=False)
    assert (await result_of(query)).content[0].content == "42"
    connection.close()


setting: ContextVar[str] = ContextVar("setting", default="outer")


@pytest.mark.parametrize("make", [tool, atool])
async def test_what_pre_sets_is_seen_by_the_body_and_nobody_else(make: Any) -> None:
    seen: list[str] = []

    async def pre(chain: Any, made: Any, function: Any) -> None:
        assert setting.get() == "mine"
        setting.set(made.call_id)

    record = Recorder(does={"on_tool_pre_execution": pre})
    setting.set("mine")
    chain = chain_of(
        (),
        make("a", lambda a, c: seen.append(setting.get())),
        last=calls(call("c1", "a"), call("c2", "a")),
        record=record,
    )
    await chain.execute_tool_calls()
    assert sorted(seen) == ["c1", "c2"] and setting.get() == "mine"


# Generators


class Told:
    """Stands where a publisher's call does."""

    def __init__(self) -> None:
        self.chunks: list[object] = []

    def chunk(self, item: object) -> None:
        self.chunks.append(item)


@pytest.mark.parametrize("kind", ["generator", "async", "thread", "loop"])
async def test_a_generator_reports_what_it_yields(kind: str) -> None:
    """As progress; its value is what it returned, else the list of what it yielded."""
    told = Told()

    def steps(arguments: Any, context: Any) -> Any:
        yield "a"
        yield {"b": 1}

    async def async_steps(arguments: Any, context: Any) -> Any:
        yield "a"
        yield {"b": 1}

    body: Any = {"async": async_steps}.get(kind, steps)
    if kind == "thread":
        body = lambda a, c: steps(a, c)  # noqa: E731  # a plain function that returns a generator
    record = Recorder(does={"on_tool_pre_execution": lambda *args: current_call.set(told)})  # type: ignore[arg-type]  # what yielded() finds
    function = Function("a", body, in_thread=kind != "loop")
    result = await result_of(function, record=record)
    assert told.chunks == ["a", {"b": 1}]
    assert result.content[0].content == '["a",{"b":1}]'


def test_a_late_generator_is_stopped() -> None:
    """After its time nothing it yields is told, and it is closed."""
    told, closed, released = Told(), threading.Event(), threading.Event()

    def steps(arguments: Any, context: Any) -> Any:
        try:
            yield "a"
            released.wait(10)
            yield "too late"
        finally:
            closed.set()

    async def main() -> ToolResult:
        record = Recorder(does={"on_tool_pre_execution": lambda *args: current_call.set(told)})  # type: ignore[arg-type]  # as above
        return await result_of(Function("a", steps, timeout=5), record=record)

    result = run_virtually(main())
    released.set()
    assert result.reason == "timeout" and closed.wait(10)
    assert "too late" not in told.chunks


def test_what_a_late_body_makes_of_it_comes_too_late() -> None:
    """A value, or an exception: it has timed out."""

    async def stubborn(arguments: Any, context: Any) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if arguments.get("raise"):
                raise ValueError("no") from None
        return "anyway"

    async def main() -> list[ToolResult]:
        made = [call("c1", "a"), ToolCallOf("c2")]
        chain = chain_of((), atool("a", stubborn, timeout=5), last=calls(*made))
        message = await chain.execute_tool_calls()
        assert message is not None
        return list(message.tool_results)

    assert [result.reason for result in run_virtually(main())] == ["timeout", "timeout"]


def ToolCallOf(id: str) -> Any:
    return call(id, "a", **{"raise": True})


def test_a_late_thread_is_told_that_it_is() -> None:
    seen: list[bool] = []
    done = threading.Event()

    def body(context: ToolContext) -> None:
        seen.append(context.cancelled.wait(10))
        done.set()

    async def main() -> None:
        function = Function.from_callable(body, timeout=5)
        assert (await result_of(function)).reason == "timeout"

    run_virtually(main())
    assert done.wait(10) and seen == [True]


def test_the_loop_may_be_gone_when_a_thread_ends() -> None:
    """Nobody waits, and nothing is said."""
    release, ended = threading.Event(), threading.Event()

    def body(arguments: Any, context: Any) -> None:
        release.wait(10)
        ended.set()

    asyncio.run(one(body))
    release.set()
    assert ended.wait(10)
    # The thread's last step, after the body: give it the chance to complain.
    deadline = time.monotonic() + 10
    while any(thread.name == "tool late" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the thread should have ended"
        time.sleep(0.001)


async def one(body: Any) -> None:
    assert (await result_of(Function("late", body, timeout=0.01))).reason == "timeout"


async def test_messages_in_a_chain_s_own_words() -> None:
    """The unsplit text of several parts."""
    assert (
        Message.user([ContentPart("text", "a"), ContentPart("image", "x"), ContentPart("text", "b")]).text
        == "ab"
    )
