"""Handlers: what is refused when they are registered, and what becomes of one that raises, wherever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from listeners import ToolCallListener
from listeners.callbacks import EVENTS, ChainListener
from listeners.chain import (
    Allow,
    Approve,
    Halt,
    Headers,
    Interrupt,
    LLMChain,
    Message,
    MessageDelta,
    Outcome,
    RateLimit,
    ScriptedChat,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from listeners.dispatch import Handlers
from listeners.errors import HandlerError
from tests.support.chains import Recorder, atool, call, calls, chain_of, tool
from tests.unit.test_chain_cancellation import check_transcript

# Registration


def refusal(handlers: Any) -> str:
    with pytest.raises(ValueError) as caught:
        Handlers().add(handlers)
    return str(caught.value)


def typos(event: str) -> list[str]:
    """A letter left out, two swapped, one doubled, no ``on_``, another separator."""
    return [
        event[:-2] + event[-1],
        event[:4] + event[5] + event[4] + event[6:],
        event + "s",
        event.removeprefix("on_"),
    ]


@pytest.mark.parametrize("event", EVENTS)
def test_a_typo_is_refused_with_the_right_name(event: str) -> None:
    """In a mapping, and (with ``on_``) as a method."""
    for typo in typos(event):
        if typo in EVENTS:
            continue
        assert (
            refusal({typo: lambda *args: None})
            == f"key {typo!r} is no event of a chain; did you mean {event}?"
        )
        if typo.startswith("on_"):
            listener = type("Mine", (ChainListener,), {typo: lambda self, *args: None})()
            assert refusal(listener) == f"Mine.{typo} is no event of a chain; did you mean {event}?"


@pytest.mark.parametrize("event", EVENTS)
def test_a_wrong_number_of_arguments_is_refused_with_the_right_signature(event: str) -> None:
    signature = f"{event}({', '.join(EVENTS[event])})"
    for wrong in (lambda: None, lambda a, b, c, d, e: None, lambda *, chain: None):
        assert refusal({event: wrong}).endswith(f"but is called as {signature}")
    listener = type("Mine", (ChainListener,), {event: lambda self: None})()
    assert refusal(listener) == f"Mine.{event} takes (), but is called as {signature}"


@pytest.mark.parametrize(
    "handlers",
    [
        {"on_error": lambda *args: None},
        {"on_error": lambda chain, error, more=1: None},
        {"on_error": print},
        {"on_error": None},
        {},
    ],
)
def test_what_can_be_called_is_taken(handlers: Any) -> None:
    Handlers().add(handlers)


class Silent(ChainListener):
    pass


class Told(ChainListener):
    async def on_error(self, chain: LLMChain, error: Exception, /) -> None:
        pass


class Wrapping(ToolCallListener):
    pass


@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        (Silent(), "Silent handles no event: give a mapping of events to functions, or a ChainListener"),
        (object(), "object handles no event"),
        (5, "int handles no event"),
        (Told, "Told is a class: give an instance, Told(…)"),
        (Wrapping(), "Wrapping is a ToolCallListener, which observes wrapped tools: give it to wrap_all"),
        ({"on_error": 5}, "'on_error' is 5, which can't be called: give a function on_error(chain, error)"),
        (
            {"xyz": print},
            "key 'xyz' is no event of a chain; the events are on_error, on_error_message_created",
        ),
        ({5: print}, "key 5 is no event of a chain; the events are"),
    ],
)
def test_what_would_never_be_told_is_refused(handlers: Any, message: str) -> None:
    assert refusal(handlers).startswith(message)


def test_a_generator_function_is_refused() -> None:
    """It would never run."""

    def handler(chain: object, error: object) -> Any:
        yield

    assert "generator function, which would never run" in refusal({"on_error": handler})


def test_nothing_of_a_refused_mapping_is_registered() -> None:
    handlers = Handlers()
    with pytest.raises(ValueError):
        handlers.add({"on_error": print, "on_eror": print})
    assert (handlers.given, handlers.of("on_error")) == ((), ())


async def test_only_overridden_methods_are_called() -> None:
    """Plain and async ones; a review method that isn't overridden isn't asked."""
    told: list[str] = []

    class Mine(ChainListener):
        def on_tool_execution_started(self, chain: LLMChain, call: ToolCall, function: Any, /) -> None:
            told.append("started")

        async def on_run_ended(self, chain: LLMChain, outcome: Outcome, /) -> None:
            await asyncio.sleep(0)
            told.append(outcome.status)

    chain = chain_of([calls(call("c1", "a")), Message.assistant("done")], tool("a"), callbacks=[Mine()])
    await chain.run()
    assert told == ["started", "ok"]


async def test_a_callback_added_meanwhile_counts_from_the_next_event() -> None:
    told: list[str] = []

    def late(name: str) -> Any:
        return {"on_message_processed": lambda chain, message: told.append(name)}

    def adding(chain: LLMChain, message: Message) -> None:
        told.append("first")
        chain.add_callback(late("added"))

    chain = chain_of(
        [Message.assistant("1"), Message.assistant("2")], callbacks=[{"on_message_processed": adding}]
    )
    await chain.run()
    assert told == ["first"]
    chain.add_message(Message.user("again"))
    await chain.run()
    assert told == ["first", "first", "added"]


async def test_each_handler_and_body_has_its_own_arguments() -> None:
    """What one changes nobody else sees, nor the conversation."""
    seen: list[Any] = []

    def spoil(chain: LLMChain, call: ToolCall, *rest: Any) -> None:
        seen.append(call.arguments)
        assert call.arguments == {"x": [1]}
        call.arguments["x"].append(2)

    def body(arguments: dict[str, Any], context: Any) -> None:
        assert arguments == {"x": [1]}
        arguments["x"].append(3)

    def spoil_message(chain: LLMChain, message: Message) -> None:
        for made in message.tool_calls:
            made.arguments["x"].append(4)

    handlers: Any = {
        "on_message_processed": spoil_message,
        **dict.fromkeys(
            [
                "on_tool_call_identified",
                "on_tool_execution_started",
                "on_tool_pre_execution",
                "on_tool_execution_completed",
            ],
            spoil,
        ),
    }
    last = calls(call("c1", "a", x=[1]))
    chain = chain_of([last, Message.assistant("done")], tool("a", body), callbacks=[handlers, handlers])
    assert (await chain.run()).text == "done"
    assert len(seen) == 8 and chain.messages[1].tool_calls[0].arguments == {"x": [1]}


# A handler that raises


class Boom(Exception):
    pass


def boom(*args: Any) -> Any:
    raise Boom("BOOM")


def piece(id: str, name: str, text: str) -> MessageDelta:
    return MessageDelta(tool_calls=(ToolCall(call_id=id, name=name, arguments_text=text),))


def grand_tour(handlers: Any, **options: Any) -> LLMChain:
    """A chain whose run tells every event but those of held calls: three failures in a row, of different kinds."""
    end = MessageDelta(status="complete")
    model = ScriptedChat(
        [
            Message.assistant("bad"),
            [
                Headers({}), RateLimit({}),
                piece("c1", "a", "{}"), piece("c2", "b", "{}"), piece("c3", "c", "{}"),
                [end, TokenUsage(1, 2)],
            ],
            [piece("c4", "a", "{"), end],
        ],
        retry_on=["delta_conversion_failed"],
    )  # fmt: skip

    def picky(chain: LLMChain, message: Message) -> Message | Halt:
        return Halt(Message.user("again")) if message.text == "bad" else message

    return chain_of(
        model,
        atool("a"),
        atool("b", RuntimeError("boom")),
        tool("c", in_thread=False),
        callbacks=handlers,
        message_processors=[picky],
        **options,
    )


HELD = {"on_tool_interrupted", "on_tool_decision"}


async def test_the_grand_tour_tells_everything() -> None:
    record = Recorder(ours=True, pieces=True, review=Allow())
    outcome = await grand_tour([record.callbacks]).run()
    assert set(EVENTS) - {event for event, _ in record.told} == HELD
    assert outcome.error is not None and outcome.error.type == "delta_conversion_failed"


@pytest.mark.parametrize("fallbacks", [False, True])
@pytest.mark.parametrize("event", sorted(set(EVENTS) - HELD))
async def test_a_raising_handler_ends_the_run(event: str, fallbacks: bool) -> None:
    """With its error, at once, with no further model, nothing left running, and the messages from before."""
    record = Recorder(ours=True, pieces=True, review=Allow(), does={event: boom})
    # After all of the first model's attempts the other one is tried, and has nothing to say either.
    other = ScriptedChat([])
    chain = grand_tour([record.callbacks])
    before = chain.messages
    run = chain.run(with_fallbacks=[other] if fallbacks else None)
    if event in ("on_error", "on_run_ended"):
        with pytest.raises(HandlerError) as caught:
            await run
        assert caught.value.event == event
    else:
        outcome = await run
        assert isinstance(outcome.error, HandlerError)
        assert (outcome.error.event, type(outcome.error.original)) == (event, Boom)
        assert chain.messages == before
        check_transcript(outcome.exchanged_messages)
        told = [event for event, _ in record.told]
        assert told[-2:] == ["on_error", "on_run_ended"]
        if event not in ("on_llm_error", "on_retries_exceeded"):
            assert "on_llm_error" not in told
        assert other.requests == []
    assert [event for event, _ in record.told].count("on_error") <= 1
    assert asyncio.all_tasks() == {asyncio.current_task()}
    chain.add_message(Message.user("the chain is idle"))


BATCH = [
    "on_tool_call_review",
    "on_tool_call_reviewed",
    "on_tool_execution_started",
    "on_tool_pre_execution",
    "on_tool_execution_completed",
    "on_tool_execution_failed",
    "on_tool_execution_exception",
    "on_tool_interrupted",
    "on_message_processed",
    "on_tool_response_created",
]


@pytest.mark.parametrize("make", [tool, atool])
@pytest.mark.parametrize("event", BATCH)
async def test_a_raising_handler_leaves_a_direct_execution(event: str, make: Callable[..., Any]) -> None:
    """To the host: on_error isn't told."""
    record = Recorder(ours=True, review=Allow(), does={event: boom})
    last = calls(call("c1", "a"), call("c2", "b"), call("c3", "c"))
    chain = chain_of(
        (), make("a"), make("b", RuntimeError("boom")), make("c", Interrupt("?")), last=last, record=record
    )
    with pytest.raises(HandlerError) as caught:
        await chain.execute_tool_calls()
    assert (caught.value.event, type(caught.value.__cause__)) == (event, Boom)
    assert not {"on_error", "on_run_ended"} & {event for event, _ in record.told}
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("event", [*BATCH, "on_tool_decision"])
async def test_a_raising_handler_leaves_the_decision_path(event: str) -> None:
    """And ends a resumed run, which can be resumed again."""
    made = [call("c1", "a"), call("c2", "b"), call("c3", "c")]
    held = [ToolResult("?", is_interrupt=True, tool_call_id=one.call_id or "") for one in made]
    for resumed in (False, True):
        record = Recorder(ours=True, review=Allow(), does={event: boom})
        chain = chain_of(
            (),
            tool("a"),
            tool("b", RuntimeError("boom")),
            tool("c", Interrupt("?")),
            last=calls(*made),
            record=record,
        )
        chain.add_message(Message("tool", tool_results=held))
        before = chain.messages
        if resumed:
            outcome = await chain.resume([Approve()] * 3)
            assert isinstance(outcome.error, HandlerError) and outcome.error.event == event
            assert chain.messages == before
        else:
            with pytest.raises(HandlerError):
                await chain.execute_tool_calls_with_decisions(made, [Approve()] * 3)


@pytest.mark.parametrize("event", ["on_tool_pre_execution", "on_tool_execution_completed"])
async def test_siblings_of_a_raising_handler_are_stopped(event: str) -> None:
    """Cancelled and awaited; calls that come later don't start."""
    stopped: list[str] = []
    sibling_waits = asyncio.Event()

    async def forever(arguments: Any, context: Any) -> None:
        try:
            sibling_waits.set()
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            stopped.append("stopped")
            raise

    async def pre(chain: LLMChain, made: ToolCall, *rest: Any) -> None:
        if made.name == "b":
            await sibling_waits.wait()
            raise Boom("BOOM")

    record = Recorder(does={event: pre})
    last = calls(call("c1", "a"), call("c2", "b"), call("c3", "c"))
    chain = chain_of(
        (),
        atool("a", forever),
        atool("b"),
        tool("c", lambda a, c: pytest.fail("it ran")),
        last=last,
        record=record,
    )
    with pytest.raises(HandlerError, match="BOOM"):
        await chain.execute_tool_calls()
    assert stopped == ["stopped"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_several_raising_handlers_are_one_error_with_notes() -> None:
    """No exception group leaves the chain."""

    def pre(chain: LLMChain, made: ToolCall, *rest: Any) -> None:
        raise Boom(f"from {made.name}")

    chain = chain_of(
        (),
        atool("a"),
        atool("b"),
        atool("c"),
        last=calls(call("c1", "a"), call("c2", "b"), call("c3", "c")),
        callbacks=[{"on_tool_pre_execution": pre}],
    )
    with pytest.raises(HandlerError, match="from a") as caught:
        await chain.execute_tool_calls()
    assert [note.rsplit(" ", 1)[-1] for note in caught.value.__notes__] == ["b", "c"]


async def test_the_work_of_tools_that_ran_is_kept_in_the_outcome() -> None:
    """The conversation goes back to where it was."""

    def once_only(chain: LLMChain, made: ToolCall, *rest: Any) -> None:
        if made.name == "b":
            raise Boom("BOOM")

    chain = chain_of(
        [calls(call("c1", "a"), call("c2", "b"), call("c3", "c"))],
        *[tool(name, name) for name in "abc"],
        callbacks=[{"on_tool_execution_completed": once_only}],
    )
    outcome = await chain.run()
    results = outcome.exchanged_messages[-1].tool_results
    assert [(r.content[0].content, r.reason) for r in results] == [
        ("a", None), ("b", None), ("Tool call 'c' was cancelled.", "cancelled"),
    ]  # fmt: skip
    assert [m.role for m in chain.messages] == ["user"] and chain.failure_count == 0


async def test_another_chain_s_handler_error_in_a_tool_is_a_failed_tool() -> None:
    """Told by where it was raised, never by its class."""

    async def nested(arguments: Any, context: Any) -> Any:
        inner = chain_of([Message.assistant("x")], callbacks=[{"on_message_processed": boom}])
        return (await inner.run()).text

    record = Recorder()
    chain = chain_of([calls(call("c1", "a")), Message.assistant("done")], atool("a", nested), record=record)
    outcome = await chain.run()
    assert outcome.text == "done"
    assert "exc(c1, HandlerError)" in record.lines


# One operation at a time


@pytest.mark.parametrize(
    "attempt",
    [
        lambda chain: chain.run(),
        lambda chain: chain.resume([]),
        lambda chain: chain.execute_tool_calls(),
        lambda chain: chain.execute_tool_calls_with_decisions([call("c1", "a")], [Approve()]),
        lambda chain: chain.merge_deltas([MessageDelta("x")]),
        lambda chain: chain.add_message(Message.user("x")),
        lambda chain: setattr(chain, "llm", ScriptedChat([])),
    ],
)
async def test_a_busy_chain_refuses(attempt: Callable[[LLMChain], Any]) -> None:
    errors: list[Exception] = []

    async def body(arguments: Any, context: Any) -> str:
        try:
            attempted = attempt(chain)
            if attempted is not None:
                await attempted
        except RuntimeError as error:
            errors.append(error)
        return "R"

    record = Recorder()
    chain = chain_of([calls(call("c1", "a")), Message.assistant("done")], atool("a", body), record=record)
    outcome = await chain.run()
    assert outcome.text == "done" and len(outcome.exchanged_messages) == 3
    assert "has to wait: this chain is busy with run" in str(errors[0])


async def test_the_context_is_read_when_a_batch_begins() -> None:
    seen: list[Any] = []

    def body(arguments: Any, context: Any) -> None:
        seen.append(context)
        chain.custom_context = f"after {len(seen)}"

    last = calls(call("c1", "a"), call("c2", "a"))
    chain = chain_of(
        [last, calls(call("c3", "a")), Message.assistant("done")], tool("a", body), custom_context="first"
    )
    await chain.run()
    assert seen == ["first", "first", "after 2"]


def test_messages_can_be_replaced() -> None:
    """Whatever else they hold."""
    message = replace(Message.user("x"), metadata={"a": 1})
    assert (message.text, message.metadata) == ("x", {"a": 1})
