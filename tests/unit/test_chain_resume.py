"""Held runs: what resuming takes, what it does, and that it may happen in another process."""

from __future__ import annotations

from typing import Any

import pytest

from listeners.chain import (
    Allow,
    Approve,
    Edit,
    Interrupt,
    LLMChain,
    Message,
    Reject,
    ReviewContext,
    RunOptions,
    ScriptedChat,
    dump_messages,
    load_messages,
)
from tests.support.chains import Recorder, call, calls, chain_of, tool

DONE = Message.assistant("done")
TWO = calls(call("c1", "a", x=1), call("c2", "b"), call("c3", "a", x=3))


def ask_first(chain: LLMChain, call: Any, function: Any, context: ReviewContext) -> Any:
    if call.name == "b" or context.human_decision:
        return Allow()
    return Interrupt(f"run {call.call_id}?", {"path": call.call_id})


def held_chain(record: Recorder | None = None, *replies: Any) -> LLMChain:
    record = record or Recorder(review=ask_first)
    return chain_of(
        [TWO, *(replies or [DONE])], tool("a", lambda a, c: f"x={a['x']}"), tool("b"), record=record
    )


async def test_a_held_run_goes_on() -> None:
    """Decisions, reviews, then the calls in order; finished siblings aren't run again; the run goes on."""
    record = Recorder(ours=True, review=ask_first)
    chain = held_chain(record)
    outcome = await chain.run()
    assert outcome.status == "interrupted"
    assert [held.tool_call_id for held in outcome.interrupts] == ["c1", "c3"]
    record.lines.clear()
    outcome = await chain.resume([Approve(), Reject("no")])
    assert record.lines == [
        "decision(c1, Approve)", "decision(c3, Reject)", "rev(c1)", "reviewed(c1, Allow)",
        "st(c1)", "pre(c1)", "ok(c1, parts[x=1])",
        "fail(c3, \"Tool call 'a' was rejected by a human reviewer: no\")",
        "proc(T[c1,c2,c3])", "resp(T[c1,c2,c3])", 'proc(A"done")', "end(ok)",
    ]  # fmt: skip
    assert (outcome.status, outcome.text) == ("ok", "done")
    assert [m.role for m in chain.messages] == ["user", "assistant", "tool", "assistant"]
    assert outcome.exchanged_messages == chain.messages[1:]
    texts = [result.content[0].content for result in chain.messages[2].tool_results]
    assert texts == ["x=1", "R", "Tool call 'a' was rejected by a human reviewer: no"]


async def test_decisions_by_id() -> None:
    chain = held_chain()
    await chain.run()
    await chain.resume({"c3": Edit({"x": 30}), "c1": Approve()})
    assert [r.content[0].content for r in chain.messages[2].tool_results] == ["x=1", "R", "x=30"]
    # What the model said stays what it said.
    assert chain.messages[1].tool_calls[2].arguments == {"x": 3}


@pytest.mark.parametrize(
    "decisions",
    [
        [],
        [Approve()],
        [Approve()] * 3,
        {"c1": Approve()},
        {"c1": Approve(), "c2": Approve()},
        ["yes", "no"],
        [None, None],
    ],
)
async def test_exactly_one_decision_each(decisions: Any) -> None:
    """Else nothing runs, and the chain is still held."""
    record = Recorder(ours=True, review=ask_first)
    chain = held_chain(record)
    await chain.run()
    told, before = list(record.lines), chain.messages
    with pytest.raises(ValueError):
        await chain.resume(decisions)
    assert (record.lines, chain.messages) == (told, before)
    assert (await chain.resume([Approve(), Approve()])).text == "done"


async def test_nothing_is_held() -> None:
    chain = chain_of([DONE])
    with pytest.raises(ValueError, match="no call of this chain is held"):
        await chain.resume([])


async def test_held_again() -> None:
    """By a review that doesn't look at the decision."""
    record = Recorder(review=Interrupt("never"))
    chain = held_chain(record)
    await chain.run()
    outcome = await chain.resume([Approve()] * 3)
    assert outcome.status == "interrupted" and len(outcome.interrupts) == 3
    assert isinstance(chain.llm, ScriptedChat) and len(chain.llm.requests) == 1


async def test_resuming_keeps_the_run_s_options() -> None:
    """Unless others are given."""
    options: RunOptions = {"mode": "until_tool_used", "until_tool": "a"}
    chain = held_chain()
    await chain.run(**options)
    outcome = await chain.resume([Approve(), Approve()])
    assert outcome.tool_result is not None and outcome.tool_result.tool_call_id == "c1"
    assert isinstance(chain.llm, ScriptedChat) and len(chain.llm.requests) == 1
    other = held_chain()
    await other.run(**options)
    assert (await other.resume([Approve(), Approve()], mode="while_needs_response")).text == "done"


async def test_a_resumed_step_is_a_step() -> None:
    """The model isn't asked in it."""
    chain = held_chain()
    await chain.run(mode="step", should_continue=lambda chain: not chain.messages[-1].tool_results)
    outcome = await chain.resume([Approve(), Approve()])
    assert outcome.status == "ok" and chain.messages[-1].role == "tool"


async def test_resuming_with_fallbacks_runs_the_tools_once() -> None:
    """The next model starts from after the decisions."""
    ran: list[Any] = []
    first = ScriptedChat([calls(call("c1", "a")), RuntimeError("down")])
    chain = chain_of(
        first,
        tool("a", lambda a, c: ran.append(a)),
        record=Recorder(review=lambda ch, c, f, r: Allow() if r.human_decision else Interrupt("?")),
    )
    await chain.run(with_fallbacks=[ScriptedChat([DONE])])
    outcome = await chain.resume([Approve()])
    assert (outcome.text, len(ran)) == ("done", 1)


async def test_in_another_process() -> None:
    """From the messages alone: what was asked, and with which arguments."""
    chain = held_chain()
    before = await chain.run()
    messages = load_messages(dump_messages(chain.messages))
    assert tuple(messages) == chain.messages
    record = Recorder(review=ask_first)
    again = LLMChain(
        ScriptedChat([DONE]),
        tools=[tool("a", lambda a, c: f"x={a['x']}"), tool("b")],
        messages=messages,
        callbacks=[record.callbacks],
    )
    outcome = await again.run()
    assert (outcome.status, record.lines) == ("interrupted", [])
    assert outcome.interrupts == before.interrupts
    assert outcome.interrupts[0].data == {"path": "c1", "tool_call_id": "c1"}
    assert (await again.resume([Approve(), Approve()])).text == "done"
