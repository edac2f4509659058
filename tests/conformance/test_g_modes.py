"""The G rows: how a run goes on, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from listeners.chain import (
    Allow,
    Interrupt,
    LLMChain,
    Message,
    Outcome,
    RunOptions,
    ScriptedChat,
    ToolResult,
    modes,
)
from listeners.chain.modes import (
    call_llm,
    check_pause,
    check_tool_interrupts,
    continue_or_done,
    execute_tools,
)
from listeners.errors import ToolError
from tests.conformance.test_b_replies import with_usage
from tests.support.chains import Recorder, call, calls, chain_of, tool

A1 = calls(call("c1", "a"))
DONE = Message.assistant("done")
BATCH = ["st(c1)", "pre(c1)", "ok(c1, parts[R])", "proc(T[c1])", "resp(T[c1])"]


def requests(chain: LLMChain) -> int:
    assert isinstance(chain.llm, ScriptedChat)
    return len(chain.llm.requests)


def failing_first(times: int) -> Any:
    left = [times]

    def does(arguments: Any, context: Any) -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise ToolError("no")
        return "R"

    return does


async def test_g_01_while_needs_response() -> None:
    """Calls are executed, the model is asked again, and answers."""
    record = Recorder(review=Allow())
    chain = chain_of([A1, with_usage(DONE)], tool("a"), record=record)
    outcome = await chain.run()
    assert record.lines == [
        "id(c1:a)", "proc(A[c1:a])", "rev(c1)", *BATCH, 'proc(A"done")', "use(10,15)",
    ]  # fmt: skip
    assert (outcome.status, outcome.text, chain.failure_count) == ("ok", "done", 0)
    assert outcome.exchanged_messages == chain.messages[1:]
    assert [m.role for m in outcome.exchanged_messages] == ["assistant", "tool", "assistant"]
    assert (outcome.llm, outcome.message, outcome.interrupts) == (chain.llm, chain.last_message, ())


async def test_g_02_a_tool_that_always_fails() -> None:
    """Three failures in a row end the run, before the model is asked again."""
    record = Recorder()
    chain = chain_of([A1] * 9, tool("a", ToolError("no")), record=record)
    outcome = await chain.run(mode="while_needs_response")
    one = [
        "id(c1:a)", "proc(A[c1:a])", "st(c1)", "pre(c1)", "fail(c1, parts[no])", "proc(T[c1])", "resp(T[c1])",
    ]  # fmt: skip
    assert record.lines == [*one * 3, "rx", "err(exceeded_failure_count)"]
    assert record.counts[6::7] == [1, 2, 3]
    assert requests(chain) == 3
    assert outcome.error is not None and isinstance(outcome.error.original, ToolError)


async def test_g_03_until_success() -> None:
    """Ends with the tool message that has no error."""
    record = Recorder()
    chain = chain_of([A1, A1, DONE], tool("a", failing_first(1)), record=record)
    outcome = await chain.run(mode="until_success")
    assert record.lines == [
        "id(c1:a)", "proc(A[c1:a])", "st(c1)", "pre(c1)", "fail(c1, parts[no])", "proc(T[c1])", "resp(T[c1])",
        "id(c1:a)", "proc(A[c1:a])", *BATCH,
    ]  # fmt: skip
    assert record.counts == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    assert (outcome.status, requests(chain)) == ("ok", 2)
    assert chain.last_message is not None and chain.last_message.role == "tool"


async def test_g_06_until_success_with_a_text() -> None:
    record = Recorder()
    outcome = await chain_of([DONE], tool("a"), record=record).run(mode="until_success")
    assert (record.lines, outcome.status) == (['proc(A"done")'], "ok")


async def test_g_07_a_step_asks_the_model() -> None:
    record = Recorder()
    chain = chain_of([A1], tool("a"), record=record)
    outcome = await chain.run(mode="step")
    assert record.lines == ["id(c1:a)", "proc(A[c1:a])"]
    assert (outcome.status, chain.needs_response) == ("ok", True)


async def test_g_08_a_step_executes() -> None:
    record = Recorder()
    chain = chain_of((), tool("a"), last=A1, record=record)
    assert (await chain.run(mode="step")).status == "ok"
    assert (record.lines, requests(chain)) == (BATCH, 0)


async def test_g_09_steps_until_nothing_is_needed() -> None:
    record = Recorder()
    chain = chain_of([A1, DONE], tool("a"), record=record)
    outcome = await chain.run(mode="step", should_continue=lambda chain: chain.needs_response)
    assert record.lines == ["id(c1:a)", "proc(A[c1:a])", *BATCH, 'proc(A"done")']
    assert len(outcome.exchanged_messages) == 3


GREET, DO = calls(call("c1", "greet")), calls(call("c2", "do"))


async def test_g_10_until_a_tool_was_used() -> None:
    """Ends with its result; the model isn't asked a third time."""
    chain = chain_of([GREET, DO, DONE], tool("greet"), tool("do", "did"))
    outcome = await chain.run(mode="until_tool_used", until_tool="do")
    assert (outcome.status, requests(chain)) == ("ok", 2)
    assert outcome.tool_result == ToolResult("did", tool_call_id="c2", name="do", display_text="Do")
    assert chain.last_message is not None and chain.last_message.role == "tool"


async def test_g_11_the_tool_is_never_used() -> None:
    record = Recorder()
    chain = chain_of([GREET] * 9, tool("greet"), tool("do"), record=record)
    outcome = await chain.run(mode="until_tool_used", until_tool=["do"], max_runs=3)
    assert requests(chain) == 3 and record.lines[-1] == "err(exceeded_max_runs)"
    assert outcome.error is not None
    assert outcome.error.message == "Exceeded maximum number of runs (3/3)"


async def test_g_12_used_on_the_last_run() -> None:
    """Success goes before the bound."""
    chain = chain_of([DO], tool("do"))
    outcome = await chain.run(mode="until_tool_used", until_tool="do", max_runs=1)
    assert outcome.status == "ok" and outcome.tool_result is not None


@pytest.mark.parametrize(
    ("names", "text"),
    [("zzz", "Tool name 'zzz' not found"), (["do", "x", "y"], "Tool names 'x, y' not found")],
)
async def test_g_13_a_tool_nobody_has(names: Any, text: str) -> None:
    """An error outcome; the model isn't asked."""
    record = Recorder()
    chain = chain_of([DO], tool("do"), record=record)
    outcome = await chain.run(mode="until_tool_used", until_tool=names)
    assert (record.lines, requests(chain)) == (["err(invalid_tool_name)"], 0)
    assert outcome.error is not None and outcome.error.message == f"{text} in available tools"


async def test_g_14_a_text_instead_of_the_tool() -> None:
    outcome = await chain_of([DONE], tool("do")).run(mode="until_tool_used", until_tool="do")
    assert (outcome.status, outcome.text, outcome.tool_result) == ("ok", "done", None)


async def custom(chain: LLMChain) -> Outcome:
    while True:
        for step in (execute_tools, check_tool_interrupts, call_llm, continue_or_done):
            if outcome := await step(chain):
                return outcome


async def test_g_16_a_custom_mode_with_an_interrupt() -> None:
    """Interrupted with one held call; neither on_error nor fallbacks."""
    record = Recorder()
    other = ScriptedChat([DONE])
    chain = chain_of([A1], tool("a", Interrupt("sure?", {"path": "p"})), record=record)
    outcome = await chain.run(mode=custom, with_fallbacks=[other])
    assert record.lines == [
        "id(c1:a)", "proc(A[c1:a])", "st(c1)", "pre(c1)", "int(c1)", "proc(T[c1])", "resp(T[c1])",
    ]  # fmt: skip
    assert outcome.status == "interrupted"
    (held,) = outcome.interrupts
    assert (held.tool_call_id, held.message, held.data) == (
        "c1", "sure?", {"path": "p", "tool_call_id": "c1"},
    )  # fmt: skip
    assert held.call.name == "a" and other.requests == []


async def test_g_17_two_held_calls() -> None:
    """Each with its data and id."""
    last = calls(call("c1", "a"), call("c2", "a"))
    chain = chain_of([last], tool("a", Interrupt("sure?", {"path": "p"})))
    outcome = await chain.run(mode=custom)
    assert [held.data for held in outcome.interrupts] == [
        {"path": "p", "tool_call_id": "c1"}, {"path": "p", "tool_call_id": "c2"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "while_needs_response"},
        {"mode": "step", "should_continue": lambda chain: True},
        {"mode": "until_success"},
        {"mode": "until_tool_used", "until_tool": "a"},
    ],
)
async def test_g_19_built_in_modes_and_an_interrupt(options: RunOptions) -> None:
    """Interrupted before the model is asked again; a run on the held chain says so at once, and tells nobody."""
    record = Recorder(ours=True)
    chain = chain_of([A1, DONE], tool("a", Interrupt("sure?")), record=record)
    outcome = await chain.run(**options)
    assert (outcome.status, requests(chain)) == ("interrupted", 1)
    assert record.lines[-3:] == ["proc(T[c1])", "resp(T[c1])", "end(interrupted)"]
    told = list(record.lines)
    again = await chain.run(mode="once")
    assert (again.status, again.interrupts, record.lines) == ("interrupted", outcome.interrupts, told)
    # A user's message makes the placeholders the answers.
    chain.add_message(Message.user("never mind"))
    assert (await chain.run()).text == "done"


async def test_g_20_pause() -> None:
    record = Recorder()

    async def mode(chain: LLMChain) -> Outcome:
        outcome = await call_llm(chain) or await check_pause(chain, lambda chain: True)
        assert outcome is not None
        return outcome

    outcome = await chain_of([A1], tool("a"), record=record).run(mode=mode)
    assert (outcome.status, outcome.error) == ("paused", None)
    assert record.lines == ["id(c1:a)", "proc(A[c1:a])"]


async def test_g_21_once_with_pending_calls() -> None:
    """One request; the calls are left alone."""
    record = Recorder()
    chain = chain_of([DONE], tool("a"), last=A1, record=record)
    outcome = await chain.run(mode="once")
    assert (record.lines, requests(chain), outcome.status) == (['proc(A"done")'], 1, "ok")


# Rules without a row


async def test_pending_calls_are_executed_first() -> None:
    record = Recorder()
    chain = chain_of([DONE], tool("a"), last=A1, record=record)
    await chain.run()
    assert record.lines == [*BATCH, 'proc(A"done")']


async def test_max_runs_counts_from_0_in_each_run() -> None:
    chain = chain_of([A1, A1, A1, A1, DONE], tool("a"))
    first = await chain.run(max_runs=2)
    assert first.error is not None and first.error.type == "exceeded_max_runs"
    # All calls that were made have their results, and the next run goes on from there.
    assert chain.messages[-1].role == "tool"
    second = await chain.run(max_runs=3)
    assert (second.status, second.text) == ("ok", "done")


async def test_no_bound() -> None:
    chain = chain_of([*[A1] * 30, DONE], tool("a"))
    assert (await chain.run(max_runs=None)).text == "done"


async def test_a_custom_mode_bounds_itself() -> None:
    async def mode(chain: LLMChain) -> Outcome:
        while True:
            if outcome := await modes.check_max_runs(chain, 2) or await call_llm(chain):
                return outcome
            await execute_tools(chain)

    outcome = await chain_of([A1] * 5, tool("a")).run(mode=mode)
    assert outcome.error is not None and "(2/2)" in outcome.error.message


async def test_until_success_gives_up() -> None:
    """It tells retries_exceeded too."""
    record = Recorder()
    chain = chain_of([A1] * 5, tool("a", ToolError("no")), record=record)
    await chain.run(mode="until_success")
    assert record.lines[-2:] == ["rx", "err(exceeded_failure_count)"]
    assert requests(chain) == 3


async def test_until_success_takes_what_is_there() -> None:
    """An assistant message is an answer, even with pending calls; what was cut off isn't."""
    chain = chain_of((), tool("a"), last=A1)
    assert (await chain.run(mode="until_success")).status == "ok"
    assert chain.last_message == A1 or (chain.last_message is not None and chain.last_message.is_tool_call)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"mode": "never"}, ValueError, "mode is 'never', but must be one of once"),
        ({"mode": "until_tool_used"}, ValueError, "needs until_tool="),
        ({"max_run": 3}, TypeError, "run has no option max_run; there are mode"),
        ({"max_runs": 0}, ValueError, "max_runs is 0"),
        ({"max_runs": "3"}, ValueError, "max_runs is '3'"),
    ],
)
async def test_wrong_options_raise_and_tell_nobody(options: Any, error: type[Exception], text: str) -> None:
    record = Recorder(ours=True)
    chain = chain_of([DONE], record=record)
    with pytest.raises(error, match=text):
        await chain.run(**options)
    assert record.lines == []
    assert (await chain.run()).text == "done"


async def test_a_step_outside_of_a_run() -> None:
    with pytest.raises(RuntimeError, match="a step belongs in a mode"):
        await call_llm(chain_of([DONE]))


@pytest.mark.parametrize("where", ["should_continue", "mode", "no outcome"])
async def test_an_exception_in_the_host_s_own_code_is_the_run_s_error(where: str) -> None:
    """Of type exception; pending calls are answered."""
    record = Recorder()

    async def mode(chain: LLMChain) -> Any:
        await call_llm(chain)
        if where == "mode":
            raise KeyError("x")

    def should_continue(chain: LLMChain) -> bool:
        raise KeyError("x")

    options: Any = (
        {"mode": "step", "should_continue": should_continue} if where == "should_continue" else {"mode": mode}
    )
    chain = chain_of([A1], tool("a"), record=record)
    outcome = await chain.run(**options)
    assert record.lines == ["id(c1:a)", "proc(A[c1:a])", "err(exception)"]
    assert outcome.error is not None and outcome.error.original is not None
    assert isinstance(outcome.error.original, TypeError if where == "no outcome" else KeyError)
    assert chain.messages[-1].role == "tool" and chain.messages[-1].tool_results[0].is_error


async def test_our_four_events_stand_around_the_others() -> None:
    record = Recorder(ours=True, review=Allow())
    chain = chain_of([A1, DONE], tool("a"), record=record)
    outcome = await chain.run()
    assert record.lines == [
        "begin", "id(c1:a)", "proc(A[c1:a])", "rev(c1)", "reviewed(c1, Allow)", *BATCH, 'proc(A"done")', "end(ok)",
    ]  # fmt: skip
    assert record.of("on_run_ended") == [(outcome,)]
