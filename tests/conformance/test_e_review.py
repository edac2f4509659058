"""The E rows: review, before anything of a batch runs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from listeners.chain import (
    Allow,
    Approve,
    ContentPart,
    Deny,
    Edit,
    Interrupt,
    LLMChain,
    Message,
    Reject,
    ReviewContext,
    ToolCall,
    UpdateArguments,
)
from listeners.errors import ChainError
from tests.support.chains import Recorder, Yielding, atool, call, calls, chain_of, tool


class Ran:
    """A tool that keeps the arguments it was given."""

    def __init__(self, name: str = "ship", **options: Any) -> None:
        self.arguments: list[dict[str, Any]] = []
        self.tool = tool(name, self, display_text="Shipping", **options)

    def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        self.arguments.append(dict(arguments))
        return "R"


def parts(text: str) -> tuple[ContentPart, ...]:
    return (ContentPart("text", text),)


SHIP = calls(call("c1", "ship", amount=5000))
WHOLE = ["rev(c1)", "st(c1)", "pre(c1)", "ok(c1, parts[R])", "proc(T[c1])", "resp(T[c1])"]


async def test_e_01_allowed() -> None:
    """Runs with the model's arguments."""
    ran, record = Ran(), Recorder(review=Allow())
    await chain_of((), ran.tool, last=SHIP, record=record).execute_tool_calls()
    assert (record.lines, ran.arguments) == (WHOLE, [{"amount": 5000}])


async def test_e_02_without_a_review_handler() -> None:
    """As if there were no review."""
    record = Recorder()
    await chain_of((), Ran().tool, last=SHIP, record=record).execute_tool_calls()
    assert record.lines == WHOLE[1:]


async def test_e_03_denied() -> None:
    """The reason is told as it is, and is no error."""
    ran, record = Ran(), Recorder(review=Deny("over the store limit"))
    chain = chain_of((), ran.tool, last=SHIP, record=record)
    message = await chain.execute_tool_calls()
    assert record.lines == ["rev(c1)", "fail(c1, 'over the store limit')", "proc(T[c1])", "resp(T[c1])"]
    assert message is not None
    (result,) = message.tool_results
    assert (result.content, result.is_error, result.is_interrupt) == (
        parts("over the store limit"), False, False,
    )  # fmt: skip
    assert (result.tool_call_id, result.name, result.display_text) == ("c1", "ship", "Shipping")
    assert (result.reason, ran.arguments, chain.failure_count) == ("denied", [], 0)


async def test_e_05_arguments_are_rewritten() -> None:
    """For body, started, pre and completed; not in the conversation, nor where the call was identified."""
    ran = Ran()

    def review(chain: LLMChain, call: ToolCall, function: Any, context: Any) -> UpdateArguments:
        return UpdateArguments({**call.arguments, "warehouse": "north"})

    record = Recorder(review=review)
    chain = chain_of([SHIP, Message.assistant("done")], ran.tool, record=record)
    await chain.run()
    new = {"amount": 5000, "warehouse": "north"}
    for event in ("started", "pre", "completed"):
        name = {"pre": "on_tool_pre_execution"}.get(event, f"on_tool_execution_{event}")
        assert record.of(name)[0][0].arguments == new
    assert ran.arguments == [new]
    assert chain.messages[1].tool_calls[0].arguments == {"amount": 5000}
    assert record.of("on_tool_call_identified")[0][0].arguments == {"amount": 5000}


async def test_e_06_held() -> None:
    """Told as interrupted; the data is as it was given, and n stays."""
    ran, record = Ran(), Recorder(review=Interrupt("needs a manager", {"approver": "m"}))
    chain = chain_of((), ran.tool, last=SHIP, record=record)
    message = await chain.execute_tool_calls()
    assert record.lines == ["rev(c1)", "int(c1)", "proc(T[c1])", "resp(T[c1])"]
    assert message is not None
    (result,) = message.tool_results
    assert (result.is_interrupt, result.is_error, result.interrupt_data) == (True, False, {"approver": "m"})
    assert (result.content, ran.arguments, chain.failure_count) == (parts("needs a manager"), [], 0)
    assert record.of("on_tool_interrupted") == [([result],)]


NOTHING: Any = None


@pytest.mark.parametrize(
    "verdict",
    [
        "maybe",
        None,
        True,
        Allow,
        Deny(" "),
        Deny(NOTHING),
        Interrupt(""),
        Interrupt("x", cast(Any, 5)),
        UpdateArguments(cast(Any, [])),
    ],
)
async def test_e_07_silence_is_not_consent(verdict: Any) -> None:
    """Anything that is no verdict aborts the batch, before anything is told."""
    ran, record = Ran(), Recorder(review=lambda *args: verdict)
    chain = chain_of((), ran.tool, last=SHIP, record=record)
    with pytest.raises(ChainError, match='Unexpected on_tool_call_review result for tool "ship"') as caught:
        await chain.execute_tool_calls()
    assert caught.value.type is None
    assert (record.lines, ran.arguments) == (["rev(c1)"], [])
    outcome = await chain.run()
    assert outcome.error is not None and outcome.error.message == caught.value.message
    assert chain.last_message is not None and chain.last_message.is_tool_call


async def test_e_09_a_denied_async_tool() -> None:
    """No task is made for it."""
    record = Recorder(review=Deny("no"))
    body = atool("ship", lambda a, c: pytest.fail("it ran"))
    await chain_of((), body, last=SHIP, record=record).execute_tool_calls()
    assert record.lines == ["rev(c1)", "fail(c1, 'no')", "proc(T[c1])", "resp(T[c1])"]


async def test_e_10_a_second_handler_sees_what_the_first_made() -> None:
    ran = Ran()
    seen: list[Any] = []

    def second(chain: LLMChain, call: ToolCall, function: Any, context: ReviewContext) -> UpdateArguments:
        seen.append(call.arguments["step"])
        return UpdateArguments({"step": [*call.arguments["step"], "second"]})

    first: Any = {"on_tool_call_review": lambda *args: UpdateArguments({"step": ["first"]})}
    chain = chain_of((), ran.tool, last=SHIP, callbacks=[first, {"on_tool_call_review": second}])
    await chain.execute_tool_calls()
    assert (seen, ran.arguments) == ([["first"]], [{"step": ["first", "second"]}])


async def test_e_11_a_settled_call_is_reviewed_no_further() -> None:
    first: Any = {"on_tool_call_review": lambda *args: Deny("first")}
    second: Any = {"on_tool_call_review": lambda *args: pytest.fail("it was asked")}
    chain = chain_of((), Ran().tool, last=SHIP, callbacks=[first, second])
    message = await chain.execute_tool_calls()
    assert message is not None and message.tool_results[0].content == parts("first")


async def test_e_13_one_of_two_is_denied() -> None:
    """The other runs."""
    kept = Ran("keep")
    record = Recorder(review=lambda chain, call, f, r: Deny("no") if call.name == "ship" else Allow())
    last = calls(call("c1", "ship"), call("c2", "keep"))
    message = await chain_of((), Ran().tool, kept.tool, last=last, record=record).execute_tool_calls()
    assert record.lines == [
        "rev(c1)", "rev(c2)", "st(c2)", "pre(c2)", "ok(c2, parts[R])", "fail(c1, 'no')",
        "proc(T[c1,c2])", "resp(T[c1,c2])",
    ]  # fmt: skip
    assert message is not None
    assert [(r.tool_call_id, r.content) for r in message.tool_results] == [
        ("c1", parts("no")), ("c2", parts("R")),
    ]  # fmt: skip


async def test_e_15_an_unknown_tool_between_two() -> None:
    """Isn't reviewed; it is told of after those that ran."""
    record = Recorder(review=Allow())
    last = calls(call("c1", "a"), call("c2", "zzz"), call("c3", "c"))
    chain = chain_of((), tool("a"), tool("c"), last=last, record=record)
    message = await chain.execute_tool_calls()
    assert record.lines == [
        "rev(c1)", "rev(c3)", "st(c1)", "st(c3)",
        "pre(c1)", "ok(c1, parts[R])", "pre(c3)", "ok(c3, parts[R])",
        "fail(c2, 'Tool call made to zzz but tool not found')", "proc(T[c1,c2,c3])", "resp(T[c1,c2,c3])",
    ]  # fmt: skip
    assert message is not None
    assert [result.is_error for result in message.tool_results] == [False, True, False]
    assert chain.failure_count == 1


async def reviewed(decision: Any = None) -> ReviewContext | ToolCall | None:
    """What a review is told on the direct path, or with a decision: the context, and the call for an edit."""
    seen: list[Any] = []

    def review(chain: LLMChain, call: ToolCall, function: Any, context: ReviewContext) -> Allow:
        seen.append((context, call))
        return Allow()

    chain = chain_of((), Ran().tool, last=SHIP, record=Recorder(review=review), custom_context={"t": 1})
    if decision is None:
        await chain.execute_tool_calls()
    else:
        await chain.execute_tool_calls_with_decisions(SHIP.tool_calls, [decision])
    return seen[0] if seen else None


async def test_e_17_what_a_review_is_told() -> None:
    """No decision yet, and the chain's context."""
    context, _ = await reviewed()  # type: ignore[misc]  # a pair
    assert (context.human_decision, context.custom_context) == (None, {"t": 1})


async def test_e_18_on_approve() -> None:
    context, _ = await reviewed(Approve())  # type: ignore[misc]  # a pair
    assert (context.human_decision, context.custom_context) == ("approve", {"t": 1})


async def test_e_19_on_edit() -> None:
    """With the person's arguments."""
    context, call = await reviewed(Edit({"amount": 1}))  # type: ignore[misc]  # a pair
    assert (context.human_decision, call.arguments) == ("edit", {"amount": 1})


async def test_e_20_on_reject() -> None:
    """Nobody is asked."""
    assert await reviewed(Reject()) is None


async def test_e_21_denied_although_approved() -> None:
    """Policy goes before the person."""
    ran, record = Ran(), Recorder(review=Deny("store policy"))
    chain = chain_of((), ran.tool, last=SHIP, record=record)
    message = await chain.execute_tool_calls_with_decisions(SHIP.tool_calls, [Approve()])
    assert record.lines == ["rev(c1)", "fail(c1, 'store policy')", "proc(T[c1])", "resp(T[c1])"]
    assert (message.tool_results[0].is_error, ran.arguments) == (False, [])


async def test_e_22_held_then_approved() -> None:
    """The second pass sees the decision; its result stands in the placeholder's place."""
    ran = Ran()

    def review(chain: LLMChain, call: ToolCall, function: Any, context: ReviewContext) -> Any:
        return Allow() if context.human_decision else Interrupt("sure?")

    record = Recorder(review=review)
    chain = chain_of((), ran.tool, last=SHIP, record=record)
    await chain.execute_tool_calls()
    assert record.lines == ["rev(c1)", "int(c1)", "proc(T[c1])", "resp(T[c1])"]
    record.lines.clear()
    message = await chain.execute_tool_calls_with_decisions(SHIP.tool_calls, [Approve()])
    assert record.lines == WHOLE
    (result,) = message.tool_results
    assert (result.is_interrupt, result.interrupt_data, result.tool_call_id) == (False, None, "c1")
    answers = [r for m in chain.messages for r in m.tool_results if r.tool_call_id == "c1"]
    assert answers == [result]
    assert chain.last_message == message and chain.exchanged_messages[-1] == message


async def test_e_24_a_model_that_is_always_denied() -> None:
    """Only the bound on model calls ends it: denials are no failures."""
    record = Recorder(review=Deny("no"))
    model = Yielding(*[[calls(call(f"c{n}", "ship"))] for n in range(30)])
    outcome = await chain_of(model, Ran().tool, record=record).run()
    one = [
        f"{line}" for n in range(25) for line in (
            f"id(c{n}:ship)", f"proc(A[c{n}:ship])", f"rev(c{n})", f"fail(c{n}, 'no')",
            f"proc(T[c{n}])", f"resp(T[c{n}])",
        )
    ]  # fmt: skip
    assert record.lines == [*one, "err(exceeded_max_runs)"]
    assert set(record.counts) == {0} and model.requests == 25
    assert outcome.error is not None
    assert outcome.error.message == "Exceeded maximum number of runs (25/25)"


async def test_e_26_a_rewrite_that_drops_a_required_argument() -> None:
    """Started, but the body doesn't run."""
    schema = {"type": "object", "properties": {"amount": {}}, "required": ["amount"]}
    ran, record = Ran(parameters=schema), Recorder(review=UpdateArguments({}))
    await chain_of((), ran.tool, last=SHIP, record=record).execute_tool_calls()
    text = "Missing required parameters: amount. Accepted parameters: amount. Received parameters: none."
    assert record.lines == [
        "rev(c1)", "st(c1)", "pre(c1)", f"fail(c1, parts[{text}])", "proc(T[c1])", "resp(T[c1])",
    ]  # fmt: skip
    assert ran.arguments == []


@pytest.mark.parametrize("in_run", [False, True])
async def test_e_28_one_of_three_is_held(in_run: bool) -> None:
    """The others run in this pass; in a run the outcome is interrupted with one held call."""
    record = Recorder(review=lambda chain, call, f, r: Interrupt("sure?") if call.name == "b" else Allow())
    last = calls(call("c1", "a"), call("c2", "b", x=1), call("c3", "c"))
    chain = chain_of((), tool("a"), tool("b"), tool("c"), last=last, record=record)
    if in_run:
        outcome = await chain.run()
        assert outcome.status == "interrupted"
        (held,) = outcome.interrupts
        assert (held.tool_call_id, held.message, held.data) == ("c2", "sure?", {"tool_call_id": "c2"})
        assert held.call.arguments == {"x": 1}
    else:
        await chain.execute_tool_calls()
    assert record.lines == [
        "rev(c1)", "rev(c2)", "rev(c3)", "st(c1)", "st(c3)",
        "pre(c1)", "ok(c1, parts[R])", "pre(c3)", "ok(c3, parts[R])", "int(c2)",
        "proc(T[c1,c2,c3])", "resp(T[c1,c2,c3])",
    ]  # fmt: skip
    assert [result.is_interrupt for result in chain.messages[-1].tool_results] == [False, True, False]
