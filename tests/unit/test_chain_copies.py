"""Each handler and body has its own copies: what one of them does to its own, nobody else sees."""

from __future__ import annotations

from typing import Any

from listeners.chain import (
    Allow,
    Edit,
    Function,
    Interrupt,
    LLMChain,
    Message,
    MessageDelta,
    ScriptedChat,
    ToolCall,
    UpdateArguments,
)
from listeners.chain.copies import own_value
from tests.support.chains import call, calls

ONE = calls(call("c1", "f"))
DONE = Message.assistant("done")


def chain_with(replies: list[Any], body: Any, *callbacks: Any) -> LLMChain:
    return LLMChain(
        ScriptedChat(replies),
        tools=[Function("f", body)],
        messages=[Message.user("hi")],
        callbacks=list(callbacks),
    )


async def test_a_handler_cannot_change_what_a_person_decided() -> None:
    got: list[Any] = []

    def review(chain: Any, call: Any, function: Any, context: Any) -> Any:
        return Allow() if context.human_decision else Interrupt("May it?")

    def change(chain: Any, call: Any, decision: Any) -> None:
        decision.arguments["path"] = "changed"

    chain = chain_with(
        [ONE, DONE],
        lambda arguments, context: got.append(arguments),
        {"on_tool_call_review": review, "on_tool_decision": change},
    )
    await chain.run()
    await chain.resume([Edit({"path": "approved"})])
    assert got == [{"path": "approved"}]


async def test_a_handler_cannot_change_what_a_review_decided() -> None:
    got: list[Any] = []

    def change(chain: Any, call: Any, function: Any, verdict: Any) -> None:
        verdict.arguments["options"]["a"] = "changed"

    def body(arguments: dict[str, Any], context: Any) -> None:
        arguments["options"].update(a="by the body")
        got.append(arguments)

    decided = UpdateArguments({"options": {"a": 1}})
    chain = chain_with(
        [ONE, DONE],
        body,
        {"on_tool_call_review": lambda *told: decided, "on_tool_call_reviewed": change},
    )
    await chain.run()
    assert got == [{"options": {"a": "by the body"}}]
    assert decided.arguments == {"options": {"a": 1}}


async def test_each_handler_is_given_all_that_is_held() -> None:
    got: list[int] = []
    chain = chain_with(
        [ONE],
        lambda arguments, context: Interrupt("May it?"),
        {"on_tool_interrupted": lambda chain, results: results.clear()},
        {"on_tool_interrupted": lambda chain, results: got.append(len(results))},
    )
    await chain.run()
    assert got == [1]


async def test_each_handler_is_given_all_deltas() -> None:
    got: list[int] = []
    chain = chain_with(
        [[MessageDelta("a", status="complete")]],
        lambda arguments, context: None,
        {"on_llm_new_delta": lambda chain, deltas: deltas.clear()},
        {"on_llm_new_delta": lambda chain, deltas: got.append(len(deltas))},
    )
    await chain.run()
    assert got == [1]


async def test_nobody_can_change_the_data_of_a_held_call() -> None:
    given = {"deep": {"k": "mine"}}

    def change(chain: Any, told: Any) -> None:
        if isinstance(told, list):
            data: Any = told[0].interrupt_data
        elif isinstance(told, Message):
            data = told.tool_results[0].interrupt_data
        else:
            data = told.interrupts[0].data
        data["deep"]["k"] = "changed"

    chain = chain_with(
        [ONE],
        lambda arguments, context: Interrupt("May it?", given),
        {"on_tool_interrupted": change, "on_tool_response_created": change, "on_run_ended": change},
    )
    outcome = await chain.run()
    given["deep"]["k"] = "too late"
    assert outcome.interrupts[0].data == {"deep": {"k": "mine"}, "tool_call_id": "c1"}


async def test_arguments_may_be_nested_as_deep_as_they_can_be_read() -> None:
    """A model chooses the depth; a handler isn't blamed for it."""
    text = '{"a":' * 490 + "1" + "}" * 490
    fragment = ToolCall(name="f", call_id="c1", arguments_text=text)
    chain = chain_with(
        [[MessageDelta(tool_calls=(fragment,)), MessageDelta(status="complete")], DONE],
        lambda arguments, context: "ok",
        {"on_message_processed": lambda chain, message: None},
    )
    outcome = await chain.run()
    assert outcome.status == "ok", outcome.error


def test_a_value_inside_itself_is_copied_as_one() -> None:
    value: list[Any] = [{"a": 1}]
    value.append(value)
    copy = own_value(value)
    assert copy is not value and copy[1] is copy and copy[0] == {"a": 1} and copy[0] is not value[0]
