"""What can't be is refused before anything runs, with what to do."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace
from typing import Annotated, Any

import pytest

from listeners.chain import (
    Approve,
    Function,
    Interrupt,
    LLMChain,
    Message,
    MessageDelta,
    Outcome,
    ScriptedChat,
    ToolContext,
    ToolResult,
    modes,
)
from tests.support.chains import call, calls, chain_of, tool

ONE = calls(call("c1", "f"))
REFUSED = (TypeError, ValueError)


@pytest.mark.parametrize(
    "options",
    [
        {"tool_timeout": "5"},
        {"tool_timeout": -1},
        {"tool_timeout": float("nan")},
        {"tool_timeout": 0},
        {"max_retry_count": "3"},
        {"max_retry_count": 0},
    ],
    ids=str,
)
def test_a_chain_that_cannot_be_is_refused_when_it_is_made(options: Any) -> None:
    with pytest.raises(REFUSED, match=next(iter(options))):
        chain_of([], **options)


def test_a_handler_in_the_place_of_the_list_of_handlers_is_refused() -> None:
    handler: Any = {"on_error": lambda chain, error: None}
    with pytest.raises(TypeError, match="list of handlers"):
        LLMChain(ScriptedChat([]), callbacks=handler)


@pytest.mark.parametrize(
    "options",
    [
        {"with_fallbacks": ScriptedChat([])},
        {"with_fallbacks": [None]},
        {"before_fallback": 3, "with_fallbacks": []},
        {"should_continue": 3, "mode": "step"},
        {"until_tool": ["f", 3], "mode": "until_tool_used"},
        {"until_tool": "f"},
        {"should_continue": lambda chain: True},
    ],
    ids=",".join,
)
async def test_options_that_cannot_be_are_refused_and_nobody_is_told(options: Any) -> None:
    told: list[Any] = []
    chain = chain_of([Message.assistant("x")], tool("f"), callbacks=[{"on_run_started": told.append}])
    with pytest.raises(REFUSED, match=next(iter(options))):
        await chain.run(**options)
    assert not told


async def test_a_run_may_be_resumed_in_another_mode_than_the_one_it_was_held_in() -> None:
    """The options of the old mode are not taken over."""
    chain = chain_of([ONE, Message.assistant("x")], tool("f", Interrupt("May it?")))
    held = await chain.run(mode="until_tool_used", until_tool="f")
    assert held.status == "interrupted"
    again = await chain.resume([Approve()], mode="once")
    assert again.status == "interrupted"


async def test_should_continue_may_be_async() -> None:
    async def no(chain: LLMChain) -> bool:
        return False

    model = ScriptedChat([Message.assistant("a")] * 3)
    await chain_of(model).run(mode="step", should_continue=no)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    "schema", [{"required": "path"}, {"required": ["a", 1]}, {"properties": [{"name": "a"}]}], ids=str
)
def test_a_schema_that_cannot_be_one_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(schema))):
        tool("f", parameters={"type": "object", **schema})


def test_the_index_of_a_delta_is_a_number() -> None:
    index: Any = None
    with pytest.raises(TypeError, match="index"):
        MessageDelta("a", index=index)


@pytest.mark.parametrize("decisions", [None, Approve(), {"c1": Approve(), 3: Approve()}], ids=str)
async def test_decisions_that_cannot_be_are_a_value_error(decisions: Any) -> None:
    chain = chain_of([ONE], tool("f", Interrupt("May it?")))
    await chain.run()
    with pytest.raises(ValueError, match="decisions"):
        await chain.resume(decisions)


async def test_calls_to_decide_on_are_tool_calls() -> None:
    ids: Any = ["c1"]
    with pytest.raises(ValueError, match="ToolCalls"):
        await chain_of([], tool("f")).execute_tool_calls_with_decisions(ids, [Approve()])


async def test_a_mode_cannot_end_a_run_as_cancelled() -> None:
    async def mode(chain: LLMChain) -> Outcome:
        return replace(modes.done(chain), status="cancelled")

    assert (await chain_of([]).run(mode=mode)).status == "error"


async def test_a_held_result_has_a_question() -> None:
    """As ``Interrupt("")``: a blank one is an error result."""
    chain = chain_of([ONE, Message.assistant("x")], tool("f", ToolResult(" ", is_interrupt=True)))
    assert (await chain.run()).status == "ok"
    assert chain.messages[2].tool_results[0].is_error


async def test_a_coroutine_that_a_thread_returns_too_late_is_closed(recwarn: pytest.WarningsRecorder) -> None:
    ending = threading.Event()

    async def inner() -> None: ...

    def slow(arguments: Any, context: Any) -> Any:
        ending.wait(5)
        return inner()

    await chain_of([ONE, Message.assistant("x")], tool("f", slow, timeout=0.02)).run()
    ending.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "tool f"]:
        await asyncio.to_thread(thread.join, 5)
    await asyncio.sleep(0)
    gc.collect()
    assert not [warning for warning in recwarn if "never awaited" in str(warning.message)]


def optional(ctx: ToolContext | None = None, q: str = "") -> str:
    return q


def described(ctx: Annotated[ToolContext, "the call"], q: str = "") -> str:
    return q


@pytest.mark.parametrize("function", [optional, described])
def test_the_context_is_injected_however_it_is_annotated(function: Any) -> None:
    assert list(Function.from_callable(function).parameters["properties"]) == ["q"]


def test_an_object_may_be_anything() -> None:
    def anything(x: object) -> str:
        return str(x)

    assert Function.from_callable(anything).parameters["properties"] == {"x": {}}


async def test_a_further_argument_of_another_type_is_not_called_unrecognised() -> None:
    def rest(**kw: int) -> str:
        return str(kw)

    chain = chain_of([], Function.from_callable(rest), last=calls(call("c1", "rest", a="x")))
    message = await chain.execute_tool_calls()
    assert message is not None
    text = message.tool_results[0].content[0].content
    assert "Parameter a" in text and "Unrecognised" not in text and "none" not in text
