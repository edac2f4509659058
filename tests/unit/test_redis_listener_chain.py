"""``RedisListener`` on a real chain: what a run of it looks like to readers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from listeners import RedisListener, progress, wrap
from listeners.chain import (
    Allow,
    Approve,
    ChainError,
    Deny,
    Edit,
    Function,
    Halt,
    Interrupt,
    LLMChain,
    Message,
    MessageDelta,
    Reject,
    ScriptedChat,
    TokenUsage,
    ToolCall,
    UpdateArguments,
    dump_messages,
    load_messages,
)
from listeners.chain.models.scripted import Headers, RateLimit
from listeners.contract.events import encode
from listeners.testing import RecordedRun, recorded
from tests.support.chains import atool, call, calls, chain_of, tool

LISTENER = RedisListener()
DONE = Message.assistant("done")


def told(run: RecordedRun) -> list[str]:
    """What stands in the log, each call's events with its key."""
    return [event.type + (f"({event.call.key})" if event.call else "") for event in run.events]


def data_of(run: RecordedRun, type: str) -> list[dict[str, Any]]:
    return [event.data for event in run.events if event.type == type]


def observed(*replies: Any, tools: Any = (), **options: Any) -> LLMChain:
    callbacks = [LISTENER, *options.pop("callbacks", ())]
    return chain_of(list(replies), *tools, callbacks=callbacks, **options)


def streamed(*pieces: ToolCall, usage: bool = False) -> list[Any]:
    """A reply that consists of these fragments, one a chunk."""
    return [
        *(MessageDelta(tool_calls=(piece,)) for piece in pieces),
        *(
            [[MessageDelta(status="complete"), TokenUsage(3, 4)]]
            if usage
            else [MessageDelta(status="complete")]
        ),
    ]


# --- A run ---


async def test_a_run() -> None:
    """Without a block the chain is the run."""
    reply = streamed(
        ToolCall(index=0, name="search"), ToolCall(index=0, call_id="c1", arguments_text="{}"), usage=True
    )
    run = RecordedRun("r")
    await chain_of([reply, DONE], tool("search"), callbacks=[RedisListener(run)]).run()
    assert told(run) == [
        "run_started",
        "tool_call_identified(m1.0)",
        "llm_token_usage",
        "tool_execution_started(m1.0)",
        "tool_execution_completed(m1.0)",
        "run_completed",
    ]
    # Its id was on its way when it was identified.
    assert [event.call.id for event in run.events if event.call] == [None, "c1", "c1"]
    assert data_of(run, "llm_token_usage") == [{"input": 3, "output": 4, "total": 7}]


async def test_in_a_block_the_last_run_decides() -> None:
    error = ChainError("overloaded", "the provider's words")
    with recorded() as run:
        await observed(DONE).run()
        outcome = await observed(error).run()
        assert outcome.error is error and run.types == ["run_started", "llm_error"]
    assert data_of(run, "llm_error") == data_of(run, "run_failed")
    assert run.events[-1].data == {"code": "overloaded", "message": "the model has too much to do"}


async def test_a_failed_handler_leaves_no_call_running() -> None:
    """Its text is somebody's exception, and stays."""

    def broken(*args: Any) -> None:
        raise RuntimeError("secret")

    never = threading.Event()
    chain = observed(
        calls(call("a", "slow"), call("b", "quick")),
        tools=[Function("slow", lambda a, c: never.wait(10), concurrent=True), atool("quick")],
        callbacks=[{"on_tool_execution_completed": broken}],
    )
    with recorded() as run:
        outcome = await chain.run()
        assert outcome.status == "error"
        never.set()
        assert [known.state for known in run.state.calls] == ["cancelled", "completed"]
    assert run.types[-1] == "run_failed"
    assert b"secret" not in b"".join(map(encode, run.events))


async def test_cancelled() -> None:
    started = asyncio.Event()

    async def forever(*args: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    run = RecordedRun("r")
    chain = chain_of([calls(call("a", "slow"))], atool("slow", forever), callbacks=[RedisListener(run)])
    running = asyncio.create_task(chain.run())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert told(run)[-2:] == ["tool_execution_failed(a)", "run_cancelled"]
    assert run.state.calls[0].state == "cancelled"


# --- Calls that will not run ---


async def test_a_reply_that_was_cut_off_closes_its_calls() -> None:
    """The next model's call of that id is another."""
    cut: Any = [
        MessageDelta(tool_calls=(ToolCall(index=0, call_id="c1", name="a"),)),
        ChainError("overloaded", "x"),
    ]
    with recorded() as run:
        chain = observed(cut, tools=[tool("a")])
        chain.llm = ScriptedChat([cut], retry_on=["overloaded"])
        await chain.run(with_fallbacks=[ScriptedChat([calls(call("c1", "a")), DONE])])
    assert told(run)[1:-1] == [
        "tool_call_identified(c1)",
        "llm_error",
        "tool_execution_failed(c1)",
        "tool_call_identified(c1~2)",
        "tool_execution_started(c1~2)",
        "tool_execution_completed(c1~2)",
    ]
    assert [known.state for known in run.state.calls] == ["cancelled", "completed"]


async def test_a_rejected_reply_closes_its_calls() -> None:
    def halt(chain: LLMChain, message: Message) -> Message | Halt:
        return Halt(Message.user("no")) if message.tool_calls else message

    with recorded(publish="full") as run:
        await observed(calls(call("c1", "a")), DONE, tools=[tool("a")], message_processors=[halt]).run()
    assert told(run)[1:-1] == [
        "llm_new_message",
        "tool_call_identified(c1)",
        "message_processing_error",
        "tool_execution_failed(c1)",
        "error_message_created",
        "llm_new_message",
        "message_processed",
    ]
    # The text may be an exception's.
    assert data_of(run, "error_message_created") == [{"message": {"role": "user", "status": "complete"}}]


async def test_an_unknown_tool_with_an_id_that_was_used_before() -> None:
    replies = [calls(call("call_0", "a")), calls(call("call_0", "zzz")), DONE]
    with recorded() as run:
        await observed(*replies, tools=[tool("a")]).run()
    assert [(known.key, known.name, known.state) for known in run.state.calls] == [
        ("call_0", "a", "completed"),
        ("call_0~2", "zzz", "failed"),
    ]
    assert data_of(run, "tool_execution_failed")[0]["reason"] == "unknown_tool"


async def test_two_chains_at_a_time_close_their_own() -> None:
    """One ends while a call of the other has only been identified."""
    named, ended = asyncio.Event(), asyncio.Event()
    slow: Any = [
        MessageDelta(tool_calls=(ToolCall(index=0, name="a"),)),
        1.0,
        MessageDelta(status="complete"),
    ]

    async def wait(seconds: float) -> None:
        await ended.wait()

    with recorded() as run:
        identified: Any = {"on_tool_call_identified": lambda *args: named.set()}
        model = ScriptedChat([slow, DONE], sleep=wait)
        running = asyncio.create_task(chain_of(model, tool("a"), callbacks=[LISTENER, identified]).run())
        await asyncio.wait_for(named.wait(), 10)
        await observed(calls(call(None, "a")), DONE, tools=[tool("a")]).run()
        ended.set()
        await running
    assert {known.state for known in run.state.calls} == {"completed"} and len(run.state.calls) == 2


# --- Progress ---


@pytest.mark.parametrize("concurrent", [True, False])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_progress_goes_to_the_call_whose_body_reports(kind: str, concurrent: bool) -> None:
    def body(arguments: dict[str, Any], context: Any) -> str:
        progress(message=arguments["x"])
        return "R"

    async def abody(arguments: dict[str, Any], context: Any) -> str:
        await asyncio.sleep(0)
        return body(arguments, context)

    function = Function("a", body if kind == "sync" else abody, concurrent=concurrent)
    with recorded() as run:
        await observed(calls(call("1", "a", x="one"), call("2", "a", x="two")), DONE, tools=[function]).run()
    reports = [
        (event.call.key, event.data["message"])
        for event in run.events
        if event.type == "tool_progress" and event.call
    ]
    assert sorted(reports) == [("1", "one"), ("2", "two")]


async def test_what_a_generator_yields_obeys_the_policy_and_is_told_once() -> None:
    """A wrapped one too."""

    def steps() -> Iterator[Any]:
        yield "a"
        yield {"n": 1, "password": "p"}

    for tools in ([steps], [wrap(steps, LISTENER)]):
        with recorded() as run:
            await observed(calls(call("1", "steps")), DONE, tools=tools).run()
        chunks = [data["chunk"] for data in data_of(run, "tool_progress")]
        assert chunks == ["a", '{"n":1,"password":"[redacted]"}']
        assert {event.call.key for event in run.events if event.call} == {"1"}
        with recorded(results="none") as run:
            await observed(calls(call("1", "steps")), DONE, tools=tools).run()
        assert "tool_progress" not in run.types


async def test_a_wrapped_tool_of_a_chain_is_told_once() -> None:
    """Whether it is the tool, or only its body; what it calls inside is a call of its own."""

    def inner(q: str) -> str:
        progress(message=q)
        return q

    wrapped = wrap(inner, LISTENER)

    def outer() -> str:
        return wrapped("from outer")

    def body(arguments: dict[str, Any], context: Any) -> str:
        return wrapped(**arguments)

    tools = [wrapped, wrap(outer, LISTENER), wrap(Function("made", body), LISTENER)]
    with recorded() as run:
        replies = calls(call("1", "inner", q="x"), call("2", "outer"), call("3", "made", q="y"))
        await observed(replies, DONE, tools=tools).run()
    starts = [event.call.key for event in run.events if event.type == "tool_execution_started" and event.call]
    assert sorted(starts) == ["1", "2", "2.w1", "3", "3.w2"]
    assert {known.state for known in run.state.calls} == {"completed"}


async def test_reports_after_a_time_out_are_dropped() -> None:
    gone, reported = threading.Event(), threading.Event()

    def body(arguments: dict[str, Any], context: Any) -> None:
        gone.wait(10)
        progress(message="too late")
        reported.set()

    with recorded() as run:
        function = Function("a", body, timeout=0.01)
        await observed(calls(call("1", "a")), DONE, tools=[function]).run()
        gone.set()
        assert await asyncio.to_thread(reported.wait, 10)
    assert "tool_progress" not in run.types
    assert run.state.calls[0].error is not None and run.state.calls[0].error.reason == "timeout"


async def test_a_chain_inside_a_tool_has_the_calls_key_before_its_own() -> None:
    async def agent(arguments: dict[str, Any], context: Any) -> str:
        inside = observed(calls(call(None, "b")), DONE, tools=[tool("b")])
        return (await inside.run()).text

    with recorded() as run:
        await observed(calls(call("1", "a")), DONE, tools=[atool("a", agent)]).run()
    assert [(known.key, known.parent, known.state) for known in run.state.calls] == [
        ("1", None, "completed"),
        ("1.call_1_0", "1", "completed"),
    ]
    assert [type for type in run.types if type.startswith("run_")] == ["run_started", "run_completed"]


# --- Review and decisions ---


@pytest.mark.parametrize(
    ("verdict", "data", "last"),
    [
        (Allow(), {"outcome": "allowed"}, "tool_execution_completed"),
        (UpdateArguments({"x": 2}), {"outcome": "updated"}, "tool_execution_completed"),
        (Deny("not on Sundays"), {"outcome": "denied", "reason": "not on Sundays"}, "tool_execution_failed"),
    ],
)
async def test_a_review(verdict: Any, data: dict[str, Any], last: str) -> None:
    with recorded(arguments="full") as run:
        review: Any = {"on_tool_call_review": lambda *args: verdict}
        await observed(calls(call("1", "a", x=1)), DONE, tools=[tool("a")], callbacks=[review]).run()
    assert data_of(run, "tool_call_review") == [data]
    assert run.types[-2] == last
    if verdict == UpdateArguments({"x": 2}):
        assert run.state.calls[0].arguments == {"x": 2}


def held(*, id: str | None = "c1", block: RecordedRun | None = None) -> LLMChain:
    """A chain whose call ``a`` is held until somebody has decided; its id comes after its name."""

    def review(chain: LLMChain, call: ToolCall, function: Function, context: Any) -> Any:
        return Allow() if context.human_decision else Interrupt("Really?", {"risk": "high"})

    named = streamed(
        ToolCall(index=0, name="a"),
        ToolCall(index=0, call_id=id, arguments_text='{"x":1}'),
        ToolCall(index=1, name="b", call_id="other", arguments_text="{}"),
    )
    reviewed: Any = {
        "on_tool_call_review": lambda chain, call, *rest: (
            review(chain, call, *rest) if call.name == "a" else Allow()
        )
    }
    return observed(named, DONE, tools=[tool("a"), tool("b")], callbacks=[reviewed])


@pytest.mark.parametrize("id", ["c1", None])
@pytest.mark.parametrize(
    ("decision", "data", "state", "arguments"),
    [
        (Approve(), {"decision": "approve"}, "completed", {"x": 1}),
        (Edit({"x": 2}), {"decision": "edit", "arguments": {"x": 2}}, "completed", {"x": 2}),
        (Reject("no"), {"decision": "reject"}, "denied", None),
    ],
)
async def test_a_held_call(
    decision: Any, data: dict[str, Any], state: str, arguments: Any, id: str | None
) -> None:
    """Is one call from its name to its end, whenever its id has come."""
    with recorded(arguments="full") as run:
        chain = held(id=id)
        outcome = await chain.run()
        assert run.state.status == "interrupted" and run.state.interrupts is not None
        assert [one.key for one in run.state.interrupts] == ["m1.0"]
        assert data_of(run, "tool_interrupted") == [
            {"message": "Really?", "arguments": {"x": 1}, "interrupt": {"risk": "high"}}
        ]
        await chain.resume({outcome.interrupts[0].tool_call_id: decision})
    assert data_of(run, "tool_decision") == [data]
    by_key = {known.key: known for known in run.state.calls}
    assert set(by_key) == {"m1.0", "other"}
    assert (by_key["m1.0"].state, by_key["m1.0"].arguments) == (state, arguments)
    assert run.types.count("run_resumed") == 1 and run.types[-1] == "run_completed"


@pytest.mark.parametrize("decision", [Approve(), Edit({"x": 2}), Reject("no")])
async def test_a_decision_that_stands_in_the_log_is_not_told_again(decision: Any) -> None:
    with recorded() as run:
        chain = held()
        await chain.run()
        run.decide("m1.0", decision)
        await chain.resume([await run.decision("m1.0")])
    assert run.types.count("tool_decision") == run.types.count("run_resumed") == 1
    assert {known.key: known.state for known in run.state.calls} == {
        "m1.0": "denied" if isinstance(decision, Reject) else "completed",
        "other": "completed",
    }


async def test_a_held_call_goes_on_in_a_chain_made_of_its_messages() -> None:
    with recorded() as run:
        kept = dump_messages((await held().run()).chain.messages)
        again = LLMChain(
            ScriptedChat([DONE]),
            tools=[tool("a"), tool("b")],
            messages=load_messages(kept),
            callbacks=[LISTENER],
        )
        await again.resume([Approve()])
    assert {(known.key, known.state) for known in run.state.calls} == {
        ("m1.0", "completed"),
        ("other", "completed"),
    }


async def test_a_body_that_holds_its_call() -> None:
    """Shows what it was started with, and starts a second time."""
    answers = iter([Interrupt("Which one?"), "R"])
    chain = observed(calls(call("1", "a", x=1)), DONE, tools=[tool("a", lambda *args: next(answers))])
    with recorded(arguments="full") as run:
        await chain.run()
        assert data_of(run, "tool_interrupted") == [{"message": "Which one?", "arguments": {"x": 1}}]
        await chain.resume([Approve()])
    assert [(known.key, known.state, known.attempt) for known in run.state.calls] == [("1", "completed", 2)]


# --- What only publish="full" tells ---


async def test_everything() -> None:
    reply = [
        Headers({"x": ["y"]}),
        RateLimit({"remaining": ["1"], "token": "t"}),
        MessageDelta("Hel"),
        *streamed(ToolCall(index=0, call_id="c1", name="a"), ToolCall(index=0, arguments_text="{}")),
    ]
    with recorded(publish="full") as run:
        await observed(reply, DONE, tools=[tool("a")]).run()
    assert told(run)[1:-1] == [
        "llm_ratelimit_info",
        "llm_new_delta",
        "llm_new_delta",
        "tool_call_identified(c1)",
        "llm_new_delta",
        "llm_new_delta",
        "message_processed",
        "tool_execution_started(c1)",
        "tool_pre_execution(c1)",
        "tool_execution_completed(c1)",
        "message_processed",
        "tool_response_created",
        "llm_new_message",
        "message_processed",
    ]
    assert data_of(run, "llm_ratelimit_info") == [{"info": {"remaining": ["1"], "token": "[redacted]"}}]
    assert data_of(run, "llm_new_delta") == [{"text": "Hel"}, {}, {}, {}]
    assert data_of(run, "tool_response_created") == [
        {"results": [{"id": "c1", "name": "a", "is_error": False, "is_interrupt": False}]}
    ]
    assert data_of(run, "message_processed")[0] == {
        "message": {
            "role": "assistant",
            "status": "complete",
            "text": "Hel",
            "calls": [{"key": "c1", "id": "c1", "name": "a"}],
        }
    }


async def test_retries_exceeded() -> None:
    with recorded() as run:
        replies = [calls(call(str(n), "a")) for n in range(2)]
        await observed(*replies, tools=[tool("a", ValueError("secret"))], max_retry_count=2).run()
    assert run.types[-2:] == ["retries_exceeded", "run_failed"]
    assert run.events[-1].data == {"code": "exceeded_failure_count", "message": "too many failures in a row"}


async def pieces_of(*texts: str, **options: Any) -> list[tuple[str, int]]:
    reply = streamed(
        ToolCall(index=0, call_id="c1", name="a", arguments_text=texts[0]),
        *(ToolCall(index=0, arguments_text=text) for text in texts[1:]),
    )
    with recorded(publish="full", **options) as run:
        await observed(reply, DONE, tools=[tool("a", parameters=None)]).run()
    assert {event.call.key for event in run.events if event.call} == {"c1"}
    return [(data["delta"], data["offset"]) for data in data_of(run, "tool_call_arguments")]


async def test_streamed_arguments() -> None:
    """Each piece at once, the first with the identification; an offset counts characters."""
    texts = ['{"q"', ': "ä', '€"', "}"]
    assert await pieces_of(*texts, arguments="full") == [
        (texts[0], 0),
        (texts[1], 4),
        (texts[2], 8),
        ("}", 10),
    ]
    # They leave whole only where arguments do.
    assert await pieces_of(*texts) == []


@pytest.mark.parametrize("name", ['"token"', '"tok\\u0065n"', '"a": "\\\\", "api_key"', '"x": {"password"'])
async def test_streamed_arguments_stop_before_what_is_hidden(name: str) -> None:
    """Wherever the stream is cut: not one character of the value leaves."""
    text = "{" + name + ' : "hunter2"' + "}" * name.count("{") + "}"
    for width in range(1, 6):
        texts = [text[at : at + width] for at in range(0, len(text), width)]
        shown = "".join(piece for piece, _ in await pieces_of(*texts, arguments="full"))
        assert text.startswith(shown) and "h" not in shown
    hidden = await pieces_of('{"q": ', '"x"}', arguments="full", redact=lambda name, value: value)
    assert hidden == []
