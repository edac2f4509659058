"""The F rows: calls are executed as a person decided."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from listeners.chain import (
    Allow,
    Approve,
    Deny,
    Edit,
    Interrupt,
    Message,
    Reject,
    ToolCall,
    ToolResult,
    parse_decision,
    replace_tool_result,
)
from listeners.errors import HandlerError
from tests.support.chains import Recorder, atool, call, calls, chain_of, tool

C1 = call("c1", "a", name="Alice")


def greet(arguments: dict[str, Any], context: Any) -> str:
    return f"Hi {arguments['name']}!"


async def decided(
    decision: Any, does: Any = "R", *, made: ToolCall = C1, record: Recorder | None = None, make: Any = tool
) -> tuple[list[str], ToolResult, Any]:
    """Decide about one call; returns what was told, the result and the chain."""
    record = record or Recorder()
    chain = chain_of((), make("a", does, display_text="Doing A"), last=calls(made), record=record)
    message = await chain.execute_tool_calls_with_decisions([made], [decision])
    (result,) = message.tool_results
    return record.lines, result, chain


def lines(*middle: str) -> list[str]:
    return [*middle, "proc(T[c1])", "resp(T[c1])"]


async def test_f_01_approve() -> None:
    told, _, chain = await decided(Approve(), record=Recorder(review=Allow()))
    assert told == lines("rev(c1)", "st(c1)", "pre(c1)", "ok(c1, parts[R])")
    assert chain.failure_count == 0


async def test_f_02_edit() -> None:
    """Everybody sees the person's arguments."""
    record = Recorder()
    told, result, _ = await decided(Edit({"name": "Bob"}), greet, record=record)
    assert told == lines("st(c1)", "pre(c1)", "ok(c1, parts[Hi Bob!])")
    assert result.content[0].content == "Hi Bob!"
    for event in ("on_tool_execution_started", "on_tool_pre_execution", "on_tool_execution_completed"):
        assert record.of(event)[0][0].arguments == {"name": "Bob"}


@pytest.mark.parametrize(("reason", "end"), [(None, "."), ("too dear", ": too dear")])
async def test_f_03_reject(reason: str | None, end: str) -> None:
    """No error, no display text, no failure; a reason is added."""
    told, result, chain = await decided(Reject(reason), record=Recorder(review=Deny("never asked")))
    text = f"Tool call 'a' was rejected by a human reviewer{end}"
    assert told == lines(f"fail(c1, {text!r})")
    assert (result.is_error, result.display_text, result.reason) == (False, None, "rejected")
    assert (result.content[0].content, chain.failure_count) == (text, 0)


async def test_f_05_an_unknown_tool() -> None:
    """The text is that of the direct path."""
    await unknown(Approve())


async def test_f_06_an_unknown_tool_edited() -> None:
    """The call keeps the model's arguments."""
    await unknown(Edit({"x": 1}))


async def unknown(decision: Any) -> None:
    record = Recorder(review=Allow())
    told, result, chain = await decided(decision, made=call("c1", "zzz", y=2), record=record)
    assert told == lines("fail(c1, 'Tool call made to zzz but tool not found')")
    assert (result.is_error, chain.failure_count) == (True, 1)
    assert record.of("on_tool_execution_failed")[0][0].arguments == {"y": 2}


async def refused(made: list[ToolCall], decisions: list[Any]) -> str:
    """Why it is refused; nothing is told, and the chain is as it was."""
    record = Recorder()
    chain = chain_of((), tool("a"), last=calls(call("c1", "a"), call("c2", "a")), record=record)
    before = chain.messages
    with pytest.raises(ValueError) as caught:
        await chain.execute_tool_calls_with_decisions(made, decisions)
    assert (record.lines, chain.messages) == ([], before)
    return str(caught.value)


async def test_f_08_edit_without_arguments() -> None:
    assert "Edit.arguments must be a mapping" in await refused([C1], [Edit(None)])  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="needs the arguments"):
        parse_decision({"decision": "edit"})


async def test_f_09_not_one_decision_each() -> None:
    message = await refused([call("c1", "a"), call("c2", "a"), call("c3", "a")], [Approve(), Approve()])
    assert message == "3 calls but 2 decisions: give one for each"


@pytest.mark.parametrize("decision", ["approve", {"type": "maybe"}, {}, None, Approve])
async def test_f_10_what_is_no_decision(decision: Any) -> None:
    assert "is no decision" in await refused([C1], [decision])


@pytest.mark.parametrize(
    "wire", [{"decision": "maybe"}, {}, {"type": None}, {"decision": "reject", "reason": 5}]
)
def test_f_10_on_the_wire(wire: Any) -> None:
    with pytest.raises(ValueError):
        parse_decision(wire)


def test_decisions_on_the_wire() -> None:
    assert parse_decision({"decision": "approve", "by": "me"}) == Approve()
    assert parse_decision({"type": "edit", "arguments": {"x": 1}}) == Edit({"x": 1})
    assert parse_decision({"decision": "reject", "reason": "no"}) == Reject("no")
    assert parse_decision({"decision": "reject"}) == Reject()


async def test_f_11_an_approved_tool_raises() -> None:
    told, result, chain = await decided(Approve(), RuntimeError("boom"))
    assert told == lines(
        "st(c1)", "pre(c1)", "fail(c1, parts[ERROR: (RuntimeError) boom])", "exc(c1, RuntimeError)"
    )
    assert (result.is_error, chain.failure_count) == (True, 1)


async def test_f_12_an_approved_tool_interrupts() -> None:
    """Held again."""
    told, result, _ = await decided(Approve(), Interrupt("and now?"))
    assert told == lines("st(c1)", "pre(c1)", "int(c1)")
    assert result.is_interrupt


async def test_f_14_one_at_a_time() -> None:
    """Concurrent tools too, in call order, each in a task of its own."""
    running: list[str] = []

    async def body(arguments: dict[str, Any], context: Any) -> str:
        running.append(context["tool_call_id"])
        await asyncio.sleep(0)
        assert running == [context["tool_call_id"]]
        running.clear()
        return "R"

    record = Recorder()
    made = [call("c1", "a"), call("c2", "a")]
    chain = chain_of((), atool("a", body), last=calls(*made), record=record)
    await chain.execute_tool_calls_with_decisions(made, [Approve(), Approve()])
    assert record.lines == [
        "st(c1)", "pre(c1)", "ok(c1, parts[R])", "st(c2)", "pre(c2)", "ok(c2, parts[R])",
        "proc(T[c1,c2])", "resp(T[c1,c2])",
    ]  # fmt: skip


async def test_f_16_the_last_message_is_not_consulted() -> None:
    record = Recorder()
    chain = chain_of((), tool("a"), last=Message.user("and?"), record=record)
    message = await chain.execute_tool_calls_with_decisions([call("c9", "a")], [Approve()])
    assert record.lines == ["st(c9)", "pre(c9)", "ok(c9, parts[R])", "proc(T[c9])", "resp(T[c9])"]
    assert chain.last_message == message


def test_f_19_replacing_a_result_nobody_has() -> None:
    """Leaves the messages as they are."""
    messages = [Message.user("x"), Message("tool", tool_results=[ToolResult("old", tool_call_id="c1")])]
    assert replace_tool_result(messages, "zzz", ToolResult("new")) is messages
    replaced = replace_tool_result(messages, "c1", ToolResult("new"))
    assert replaced[1].tool_results == (ToolResult("new", tool_call_id="c1"),)
    assert messages[1].tool_results[0].content[0].content == "old"


async def test_f_20_a_handler_raises() -> None:
    """It reaches the host, and on_error isn't told."""

    def boom(*args: Any) -> None:
        raise ValueError("BOOM")

    record = Recorder(does={"on_tool_execution_completed": boom})
    with pytest.raises(HandlerError):
        await decided(Approve(), record=record)
    assert record.lines == ["st(c1)", "pre(c1)", "ok(c1, parts[R])"]


# Rules without a row


async def test_everything_of_a_call_is_told_in_call_order() -> None:
    """Denials, rejections and unknown names included; all reviews come first."""
    record = Recorder(
        ours=True, review=lambda chain, call, f, r: Deny("no") if call.call_id == "c2" else Allow()
    )
    made = [call("c1", "zzz"), call("c2", "a"), call("c3", "a"), call("c4", "a")]
    chain = chain_of((), tool("a"), last=calls(*made), record=record)
    await chain.execute_tool_calls_with_decisions(made, [Approve(), Approve(), Reject(), Edit({})])
    assert record.lines == [
        "decision(c1, Approve)", "decision(c2, Approve)", "decision(c3, Reject)", "decision(c4, Edit)",
        "rev(c2)", "rev(c4)", "reviewed(c2, Deny)", "reviewed(c4, Allow)",
        "fail(c1, 'Tool call made to zzz but tool not found')",
        "fail(c2, 'no')",
        "fail(c3, \"Tool call 'a' was rejected by a human reviewer.\")",
        "st(c4)", "pre(c4)", "ok(c4, parts[R])",
        "proc(T[c1,c2,c3,c4])", "resp(T[c1,c2,c3,c4])",
    ]  # fmt: skip


async def test_a_call_with_a_final_result_is_refused() -> None:
    record = Recorder()
    chain = chain_of((), tool("a"), last=calls(C1), record=record)
    await chain.execute_tool_calls()
    told = list(record.lines)
    with pytest.raises(ValueError, match=r"these calls have a result already: \['c1'\]"):
        await chain.execute_tool_calls_with_decisions([C1], [Approve()])
    assert record.lines == told


async def test_a_call_given_twice_is_refused() -> None:
    assert "given twice" in await refused([C1, C1], [Approve(), Reject()])


async def test_an_id_used_again_is_another_call() -> None:
    """Several providers count call_0 afresh every turn."""
    chain = chain_of((), tool("a", greet), last=calls(C1))
    await chain.execute_tool_calls()
    chain.add_message(calls(C1))
    message = await chain.execute_tool_calls_with_decisions([C1], [Edit({"name": "Bob"})])
    assert message.tool_results[0].content[0].content == "Hi Bob!"
    assert [m.role for m in chain.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [m.tool_calls[0].key for m in chain.messages if m.tool_calls] == ["c1", "c1~2"]


async def test_siblings_stay_answered_where_they_stand() -> None:
    """Only the held call's placeholder is replaced; the counter looks at the new result alone."""
    record = Recorder(
        review=lambda chain, c, f, r: Allow() if c.name == "a" or r.human_decision else Interrupt("?")
    )
    made = [call("c1", "a", name="x"), call("c2", "b")]
    chain = chain_of((), tool("a", RuntimeError("boom")), tool("b"), last=calls(*made), record=record)
    await chain.execute_tool_calls()
    assert chain.failure_count == 1
    message = await chain.execute_tool_calls_with_decisions([made[1]], [Approve()])
    assert [r.content[0].content for r in message.tool_results] == ["ERROR: (RuntimeError) boom", "R"]
    assert (chain.failure_count, len(chain.messages)) == (0, 3)
    assert record.lines[-2:] == ["proc(T[c1,c2])", "resp(T[c1,c2])"]


async def test_calls_that_are_incomplete_are_completed() -> None:
    """A host may have kept what was streamed."""
    made = ToolCall(call_id="c1", name="a", arguments_text='{"name":"Eve"}')
    chain = chain_of((), tool("a", greet))
    message = await chain.execute_tool_calls_with_decisions([made], [Approve()])
    assert message.tool_results[0].content[0].content == "Hi Eve!"
    with pytest.raises(ValueError, match="invalid json"):
        await chain.execute_tool_calls_with_decisions(
            [ToolCall(call_id="c2", name="a", arguments_text="{")], [Approve()]
        )
