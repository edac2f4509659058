"""The B rows: replies that come whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from listeners.chain import (
    Halt,
    Headers,
    LLMChain,
    Message,
    RateLimit,
    ScriptedChat,
    TokenUsage,
)
from listeners.errors import ChainError
from tests.support.chains import Recorder, Yielding, call, calls, chain_of, tool


def with_usage(message: Message, input: int = 10, output: int = 15) -> Message:
    return replace(message, metadata={"usage": TokenUsage(input, output)})


async def test_b_01_a_reply_with_usage() -> None:
    """Head, message, processed, usage."""
    record = Recorder(pieces=True)
    reply = with_usage(Message.assistant("Hi"))
    head = [Headers({"x-request-id": ["1"]}), RateLimit({"requests": 5})]
    chain = chain_of([[*head, reply]], record=record)
    outcome = await chain.run(mode="once")
    assert record.lines == ["headers", "ratelimit", 'new(A"Hi")', 'proc(A"Hi")', "use(10,15)"]
    assert record.of("on_llm_response_headers") == [({"x-request-id": ["1"]},)]
    assert record.of("on_llm_ratelimit_info") == [({"requests": 5},)]
    assert (outcome.status, outcome.text, outcome.usage) == ("ok", "Hi", TokenUsage(10, 15))
    assert (chain.needs_response, chain.failure_count) == (False, 0)


async def test_b_02_without_usage() -> None:
    """There is no event of it."""
    record = Recorder(pieces=True)
    chain = chain_of([Message.assistant("Hi")], record=record)
    await chain.run(mode="once")
    assert record.lines == ['new(A"Hi")', 'proc(A"Hi")']


async def test_b_03_calls_are_identified_and_not_executed() -> None:
    """Those whose tool is known; every call gets a display text."""
    record = Recorder()
    chain = chain_of(
        [calls(call("c1", "a"), call("c2", "zzz"))], tool("a", display_text="Doing A"), record=record
    )
    outcome = await chain.run(mode="once")
    assert record.lines == ["id(c1:a)", "proc(A[c1:a,c2:zzz])"]
    identified = record.of("on_tool_call_identified")[0][0]
    assert (identified.status, identified.arguments, identified.display_text) == ("complete", {}, "Doing A")
    assert chain.last_message is not None
    assert [made.display_text for made in chain.last_message.tool_calls] == ["Doing A", "Zzz"]
    assert (outcome.status, chain.needs_response) == ("ok", True)


def star(chain: LLMChain, message: Message) -> Message:
    return replace(message, processed_content=f"{message.processed_content} *")


async def test_b_06_processors_in_turn() -> None:
    """Each gets what the one before it made; the first, the text."""
    record = Recorder()

    async def slow_star(chain: LLMChain, message: Message) -> Message:
        return star(chain, message)

    reply = with_usage(Message.assistant("Initial"))
    chain = chain_of([reply], record=record, message_processors=[star, slow_star])
    await chain.run()
    assert record.lines == ['proc(A"Initial")', "use(10,15)"]
    assert record.of("on_message_processed")[0][0].processed_content == "Initial * *"


async def test_b_07_a_processor_halts() -> None:
    """The message and the answer are added, counted, and told; neither processed nor usage."""
    record = Recorder()
    halt = Halt(Message.user("X"))
    chain = chain_of(
        [with_usage(Message.assistant("Initial"))],
        record=record,
        message_processors=[star, lambda chain, message: halt, star],
    )
    outcome = await chain.run(mode="once")
    assert record.lines == ['perr(A"Initial")', 'emsg(U"X")']
    assert record.of("on_message_processing_error")[0][0].processed_content == "Initial *"
    assert [message.text for message in chain.messages] == ["hi", "Initial", "X"]
    assert (outcome.status, chain.failure_count, chain.needs_response) == ("ok", 1, True)


async def test_b_10_a_model_that_yields_two_messages() -> None:
    """Both are told, the first is the reply."""
    record = Recorder(pieces=True)
    chain = chain_of(Yielding([Message.assistant("m1"), Message.assistant("m2")]), record=record)
    await chain.run()
    assert record.lines == ['new(A"m1")', 'new(A"m2")', 'proc(A"m1")']
    assert [message.text for message in chain.messages] == ["hi", "m1"]


@pytest.mark.parametrize("item", ["text", 5, None, {"a": 1}, ["text"], Message.user("no")])
async def test_b_12_something_that_is_no_reply(item: Any) -> None:
    """Is a failed attempt of type unexpected_response."""
    record = Recorder()
    chain = chain_of(Yielding([item]), record=record)
    outcome = await chain.run()
    assert record.lines == ["lerr(unexpected_response)", "err(unexpected_response)"]
    assert (outcome.status, chain.failure_count, len(chain.messages)) == ("error", 0, 1)


async def test_b_14_a_model_s_error() -> None:
    """Is told as the model raised it."""
    record = Recorder()
    error = ChainError("overloaded_error", "Overloaded")
    chain = chain_of(Yielding([error]), record=record)
    outcome = await chain.run()
    assert record.lines == ["lerr(overloaded_error)", "err(overloaded_error)"]
    assert outcome.error is error and chain.failure_count == 0


async def test_b_15_the_same_error_is_told_twice() -> None:
    """As the failed attempt and as the run's; the messages are unchanged."""
    record = Recorder()
    error = ChainError("rate_limited", "Slow down")
    chain = chain_of([error], record=record)
    outcome = await chain.run()
    assert record.lines == ["lerr(rate_limited)", "err(rate_limited)"]
    assert record.of("on_llm_error") == record.of("on_error") == [(error,)]
    assert (outcome.status, outcome.error, len(chain.messages)) == ("error", error, 1)
    assert chain.failure_count == 0
    with pytest.raises(ChainError, match="Slow down"):
        outcome.text  # noqa: B018  # an unchecked failure can't be read as an empty answer
    with pytest.raises(ChainError):
        outcome.message  # noqa: B018  # as above
    with pytest.raises(ChainError):
        outcome.raise_for_error()


async def test_b_16_an_error_without_a_type() -> None:
    """Keeps its message."""
    record = Recorder()
    chain = chain_of([ChainError(None, "Something went wrong")], record=record)
    outcome = await chain.run()
    assert record.lines == ["lerr(Something went wrong)", "err(Something went wrong)"]
    assert outcome.error is not None and outcome.error.type is None


async def test_b_17_without_messages() -> None:
    """The model isn't asked."""
    record = Recorder()
    model = ScriptedChat([])
    chain = LLMChain(model, callbacks=[record.callbacks])
    outcome = await chain.run()
    assert record.lines == ["err(LLMChain cannot be run without messages)"]
    assert outcome.status == "error" and model.requests == []


async def test_b_18_a_model_that_raises_something_else() -> None:
    """Is a failed attempt of type unknown_error; nothing leaves run."""
    record = Recorder()
    error = RuntimeError("boom")
    chain = chain_of(Yielding([error]), record=record)
    outcome = await chain.run()
    assert record.lines == ["lerr(unknown_error)", "err(unknown_error)"]
    assert outcome.error is not None and outcome.error.original is error
    assert record.of("on_llm_error") == record.of("on_error")


async def test_b_20_nothing_to_answer() -> None:
    """The model isn't asked, and nothing is told."""
    record = Recorder(pieces=True)
    model = ScriptedChat([])
    chain = chain_of(model, last=Message.assistant("Hi"), record=record)
    outcome = await chain.run()
    assert (record.lines, outcome.status, outcome.text, model.requests) == ([], "ok", "Hi", [])


async def test_b_21_restored_history_is_no_news() -> None:
    """Nobody is told; a display text is set where there is none."""
    await restored(None, "Doing A")


async def test_b_22_a_display_text_that_is_stored() -> None:
    """Stays."""
    await restored("x", "x")


async def restored(stored: str | None, shown: str) -> None:
    record = Recorder()
    chain = chain_of((), tool("a", display_text="Doing A"), record=record)
    chain.add_message(calls(replace(call("c1", "a"), display_text=stored)))
    assert record.lines == []
    assert chain.last_message is not None
    assert chain.last_message.tool_calls[0].display_text == shown
    assert chain.last_message.tool_calls[0].key == "c1"


# Rules without a row


async def test_nothing_yielded_is_an_empty_response() -> None:
    record = Recorder()
    await chain_of(Yielding([]), record=record).run()
    assert record.lines == ["lerr(empty_response)", "err(empty_response)"]


async def test_a_processor_that_raises_answers_the_model() -> None:
    """With a user message that holds no location; the run goes on."""
    record = Recorder()

    def picky(chain: LLMChain, message: Message) -> Message:
        if message.text == "bad":
            raise ValueError("not good")
        return message

    chain = chain_of(
        [Message.assistant("bad"), Message.assistant("good")], record=record, message_processors=[picky]
    )
    outcome = await chain.run()
    text = "ERROR: An exception was raised! Exception: ValueError('not good')"
    assert record.lines == ['perr(A"bad")', f'emsg(U"{text}")', 'proc(A"good")']
    assert (outcome.text, chain.failure_count) == ("good", 0)
    assert record.counts == [1, 1, 0]


async def test_a_rejected_message_with_calls_is_answered() -> None:
    """Error results stand between it and the user's message; nobody is told, nothing else is counted."""
    record = Recorder()
    chain = chain_of(
        [calls(call("c1", "a"), call("c2", "zzz"))],
        tool("a"),
        record=record,
        message_processors=[lambda chain, message: Halt(Message.user("X"))],
    )
    await chain.run(mode="once")
    assert record.lines == ["id(c1:a)", "perr(A[c1:a,c2:zzz])", 'emsg(U"X")']
    assert [message.role for message in chain.messages] == ["user", "assistant", "tool", "user"]
    results = chain.messages[2].tool_results
    assert [(r.tool_call_id, r.is_error) for r in results] == [("c1", True), ("c2", True)]
    assert results[0].content[0].content == ("Tool call made to a was not run: its message was rejected.")
    assert chain.failure_count == 1


async def test_processors_that_always_reject_end_the_run() -> None:
    record = Recorder()
    chain = chain_of(
        [Message.assistant(str(i)) for i in range(9)],
        record=record,
        message_processors=[lambda chain, message: Halt(Message.user("X"))],
    )
    outcome = await chain.run()
    assert record.lines[-2:] == ["rx", "err(exceeded_failure_count)"]
    assert record.lines.count('emsg(U"X")') == 3
    assert outcome.error is not None and isinstance(outcome.error.original, ChainError)
    assert outcome.error.message == "Exceeded max failure count"
    assert outcome.error.original.message == "X"
