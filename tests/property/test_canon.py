"""Random batches against a small model of the order that one can rely on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from listeners.chain import (
    Allow,
    Approve,
    Deny,
    Edit,
    Function,
    Interrupt,
    LLMChain,
    Message,
    Reject,
    ToolCall,
    UpdateArguments,
)
from listeners.errors import ChainError, ToolError
from tests.support.chains import Recorder, chain_of
from tests.support.virtual_time import run_virtually

Body = Literal["ok", "error", "raise", "interrupt", "late", "unknown"]
Review = Literal["allow", "rewrite", "deny", "interrupt", "nothing"]
Human = Literal["approve", "edit", "reject"]

TIMEOUT = 5


@dataclass(frozen=True)
class Call:
    body: Body
    review: Review
    human: Human
    concurrent: bool
    takes: int


@dataclass(frozen=True)
class Batch:
    calls: tuple[Call, ...]
    decided: bool
    reviewed: bool
    # The handler of the n-th event that is told raises.
    raises_at: int | None


# The model: from a batch to what is told, what each call comes to, and the counter.


def model(batch: Batch) -> tuple[list[str], list[str], int]:
    told: list[str] = []
    known = [n for n, call in enumerate(batch.calls) if call.body != "unknown"]
    asked = [n for n in known if not (batch.decided and batch.calls[n].human == "reject")]
    verdicts: dict[int, Review] = {}
    if batch.reviewed:
        for n in asked:
            told.append(f"rev(c{n})")
            verdicts[n] = batch.calls[n].review
            if verdicts[n] == "nothing":
                return told, [], 0
    outcomes = [
        settled(call, decided=batch.decided, verdict=verdicts.get(n, "allow"))
        for n, call in enumerate(batch.calls)
    ]
    runs = [n for n in asked if verdicts.get(n, "allow") in ("allow", "rewrite")]
    if batch.decided:
        for n, outcome in enumerate(outcomes):
            if n in runs:
                told += [f"st(c{n})", f"pre(c{n})"]
            told += ending(n, outcome)
    else:
        told += [f"st(c{n})" for n in runs]
        beside = [n for n in runs if batch.calls[n].concurrent]
        told += [f"pre(c{n})" for n in beside]
        for n in sorted(beside, key=lambda n: (duration(batch.calls[n]), n)):
            told += ending(n, outcomes[n])
        for n in runs:
            if n not in beside:
                told += [f"pre(c{n})", *ending(n, outcomes[n])]
        for n, outcome in enumerate(outcomes):
            if n not in runs:
                told += ending(n, outcome)
    if held := [f"c{n}" for n, outcome in enumerate(outcomes) if outcome == "held"]:
        told.append(f"int({', '.join(held)})")
    message = ",".join(f"c{n}" for n in range(len(batch.calls)))
    told += [f"proc(T[{message}])", f"resp(T[{message}])"]
    return told, outcomes, int(any(outcome in ("error", "raised", "late", "unknown") for outcome in outcomes))


def settled(call: Call, *, decided: bool, verdict: Review) -> str:
    if decided and call.human == "reject":
        return "rejected"
    if call.body == "unknown":
        return "unknown"
    if verdict in ("deny", "interrupt"):
        return "denied" if verdict == "deny" else "held"
    return {"ok": "ok", "error": "error", "raise": "raised", "interrupt": "held", "late": "late"}[call.body]


def duration(call: Call) -> int:
    return TIMEOUT if call.body == "late" else call.takes


def ending(n: int, outcome: str) -> list[str]:
    if outcome in ("ok", "held"):
        return [f"ok(c{n})"] if outcome == "ok" else []
    return [f"fail(c{n})", f"exc(c{n})"] if outcome == "raised" else [f"fail(c{n})"]


# The real thing.


def function(n: int, call: Call) -> Function:
    async def body(arguments: dict[str, Any], context: Any) -> Any:
        expected = {"n": n} if "by" not in arguments else {"n": n, "by": arguments["by"]}
        assert arguments == expected
        await asyncio.sleep(60 if call.body == "late" else call.takes)
        if call.body == "error":
            raise ToolError("no")
        if call.body == "raise":
            raise RuntimeError("boom")
        return Interrupt("wait") if call.body == "interrupt" else "R"

    return Function(f"t{n}", body, concurrent=call.concurrent, timeout=TIMEOUT)


def verdict_of(call: Call, made: ToolCall) -> Any:
    return {
        "allow": Allow(),
        "rewrite": UpdateArguments({**made.arguments, "by": "review"}),
        "deny": Deny("not now"),
        "interrupt": Interrupt("sure?"),
        "nothing": None,
    }[call.review]


def decision_of(n: int, call: Call) -> Any:
    return {"approve": Approve(), "edit": Edit({"n": n, "by": "person"}), "reject": Reject()}[call.human]


async def execute(batch: Batch) -> tuple[list[str], LLMChain, Exception | None]:
    calls = [
        ToolCall(call_id=f"c{n}", name=f"t{n}", arguments={"n": n}, status="complete")
        for n in range(len(batch.calls))
    ]

    def review(chain: LLMChain, made: ToolCall, function: Any, context: Any) -> Any:
        n = made.arguments["n"]
        assert context.human_decision == (batch.calls[n].human if batch.decided else None)
        return verdict_of(batch.calls[n], made)

    record = Recorder(review=review if batch.reviewed else None)
    if batch.raises_at is not None:
        raising(record, batch.raises_at)
    tools = [function(n, call) for n, call in enumerate(batch.calls) if call.body != "unknown"]
    chain = chain_of((), *tools, last=Message.assistant("", calls), record=record)
    error = None
    try:
        if batch.decided:
            decisions = [decision_of(n, call) for n, call in enumerate(batch.calls)]
            await chain.execute_tool_calls_with_decisions(calls, decisions)
        else:
            await chain.execute_tool_calls()
    except ChainError as caught:
        error = caught
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return [short(line) for line in record.lines], chain, error


def raising(record: Recorder, at: int) -> None:
    def wrapped(handler: Any) -> Any:
        def handle(*args: Any) -> Any:
            answer = handler(*args)
            if len(record.lines) == at + 1:
                raise ValueError("BOOM")
            return answer

        return handle

    for event, handler in list(record.callbacks.items()):
        record.callbacks[event] = wrapped(handler)


def short(line: str) -> str:
    """``ok(c1, parts[R])`` as ``ok(c1)``."""
    return line if line.startswith(("int", "proc", "resp")) else line.split(",")[0].rstrip(")") + ")"


batches = st.builds(
    Batch,
    calls=st.lists(
        st.builds(
            Call,
            body=st.sampled_from(["ok", "ok", "error", "raise", "interrupt", "late", "unknown"]),
            review=st.sampled_from(["allow", "allow", "allow", "rewrite", "deny", "interrupt", "nothing"]),
            human=st.sampled_from(["approve", "edit", "reject"]),
            concurrent=st.booleans(),
            takes=st.integers(0, 3),
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
    decided=st.booleans(),
    reviewed=st.booleans(),
    raises_at=st.none() | st.integers(0, 12),
)


def outcome_of(result: Any) -> str:
    if result.is_interrupt:
        return "held"
    word = {None: "ok", "exception": "raised", "timeout": "late", "unknown_tool": "unknown"}
    return str(word.get(result.reason, result.reason))


@settings(max_examples=250, deadline=None)
@given(batch=batches)
def test_batches_follow_the_model(batch: Batch) -> None:
    """Order, one outcome a call, results in call order, a valid conversation, and nothing left running."""
    told, outcomes, count = model(batch)
    seen, chain, error = run_virtually(execute(batch))
    aborted = batch.reviewed and not outcomes
    if batch.raises_at is not None and batch.raises_at < len(told):
        # Whatever had begun beside the raising handler may still have been told that it begins, and no more.
        head = told[: batch.raises_at + 1]
        assert seen[: len(head)] == head
        assert all(line.startswith("pre(") for line in seen[len(head) :])
        aborted = True
    else:
        assert seen == told
    if not aborted:
        assert error is None
        answer = chain.messages[-1]
        assert [result.tool_call_id for result in answer.tool_results] == [
            f"c{n}" for n in range(len(batch.calls))
        ]
        assert [outcome_of(result) for result in answer.tool_results] == outcomes
        assert chain.failure_count == count
        return
    assert error is not None
    finished = bool(seen) and seen[-1].startswith(("proc", "resp"))
    assert (chain.messages[-1].role == "tool") == finished


@settings(max_examples=100, deadline=None)
@given(batch=batches, steps=st.integers(0, 40))
def test_cancelled_batches_stay_valid(batch: Batch, steps: int) -> None:
    """One outcome a call, told or not, and a result for each."""

    async def main() -> None:
        task = asyncio.create_task(execute_quietly(batch))
        for _ in range(steps):
            await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.wait([task])
        assert asyncio.all_tasks() == {asyncio.current_task()}
        if not task.cancelled():
            task.result()

    run_virtually(main())


async def execute_quietly(batch: Batch) -> None:
    calls = [
        ToolCall(call_id=f"c{n}", name=f"t{n}", arguments={"n": n}, status="complete")
        for n in range(len(batch.calls))
    ]
    record = Recorder()
    tools = [function(n, call) for n, call in enumerate(batch.calls) if call.body != "unknown"]
    chain = chain_of((), *tools, last=Message.assistant("", calls), record=record)
    try:
        await chain.execute_tool_calls()
    finally:
        if record.lines:
            answer = chain.messages[-1]
            assert [result.tool_call_id for result in answer.tool_results] == [made.call_id for made in calls]
            told = [short(line) for line in record.lines if line.startswith(("ok", "fail"))]
            held = [f"ok({result.tool_call_id})" for result in answer.tool_results if result.is_interrupt]
            assert len(told) == len(set(told)) and len(told) + len(held) == len(calls)
