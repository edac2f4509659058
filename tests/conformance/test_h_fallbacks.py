"""The H rows: other models, and who is told of errors."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from listeners.chain import LLMChain, Message, MessageDelta, ScriptedChat
from listeners.errors import ChainError, HandlerError
from tests.support.chains import Recorder, Yielding, call, calls, chain_of, tool

OK = Message.assistant("ok")
BUSY = ChainError("too_many_requests", "Too many")
OVERLOADED = ChainError("overloaded", "Overloaded")
RETRY = {"too_many_requests", "overloaded"}


def failing(error: Exception, **options: Any) -> ScriptedChat:
    return ScriptedChat([error], **{"retry_on": RETRY, **options})


async def test_h_01_the_second_model_answers() -> None:
    record = Recorder()
    first, second = failing(BUSY), ScriptedChat([OK])
    chain = chain_of(first, record=record)
    outcome = await chain.run(with_fallbacks=[second])
    assert record.lines == ["lerr(too_many_requests)", 'proc(A"ok")']
    assert (outcome.text, outcome.llm, chain.llm) == ("ok", second, first)


async def test_h_02_both_fail() -> None:
    record = Recorder()
    chain = chain_of(failing(BUSY), record=record)
    outcome = await chain.run(with_fallbacks=[failing(OVERLOADED)])
    assert record.lines == ["lerr(too_many_requests)", "lerr(overloaded)", "err(all_fallbacks_failed)"]
    assert outcome.error is not None and outcome.error.original is OVERLOADED
    assert outcome.error.message == "Failed all attempts to generate response"


async def test_h_03_an_error_that_another_model_will_not_mend() -> None:
    record = Recorder()
    other = ScriptedChat([OK])
    chain = chain_of(failing(ChainError("authentication_error", "No")), record=record)
    await chain.run(with_fallbacks=[other])
    assert record.lines == ["lerr(authentication_error)", "err(authentication_error)"]
    assert other.requests == []


async def test_h_05_before_fallback() -> None:
    """Also before the first attempt, with that attempt's model; what it changes stays."""
    first, second = failing(BUSY), ScriptedChat([OK])
    seen: list[object] = []

    async def change(chain: LLMChain) -> None:
        seen.append(chain.llm)
        chain.add_message(Message.user(f"attempt {len(seen)}"))

    chain = chain_of(first)
    outcome = await chain.run(with_fallbacks=[second], before_fallback=change)
    assert (seen, outcome.text) == ([first, second], "ok")
    assert [m.text for m in chain.messages] == ["hi", "attempt 1", "attempt 2", "ok"]


async def test_h_06_a_model_that_raises_something_else() -> None:
    """The next one is tried, whatever it says itself."""
    record = Recorder()
    chain = chain_of(Yielding([RuntimeError("boom")], retry=False), record=record)
    outcome = await chain.run(with_fallbacks=[ScriptedChat([OK])])
    assert (record.lines, outcome.text) == (["lerr(unknown_error)", 'proc(A"ok")'], "ok")


async def test_h_08_no_other_model() -> None:
    record = Recorder()
    outcome = await chain_of(failing(BUSY), record=record).run(with_fallbacks=[])
    assert record.lines == ["lerr(too_many_requests)", "err(all_fallbacks_failed)"]
    assert outcome.error is not None and outcome.error.original is BUSY


async def test_h_10_until_a_tool_was_used() -> None:
    """Fallbacks count in every mode."""
    chain = chain_of(failing(BUSY), tool("do"))
    outcome = await chain.run(
        mode="until_tool_used", until_tool="do", with_fallbacks=[ScriptedChat([calls(call("c1", "do"))])]
    )
    assert outcome.status == "ok" and outcome.tool_result is not None


async def test_h_11_an_error_without_a_type() -> None:
    """Is final."""
    record = Recorder()
    other = ScriptedChat([OK])
    chain = chain_of(Yielding([ChainError(None, "just a text")], retry=True), record=record)
    await chain.run(with_fallbacks=[other])
    assert record.lines == ["lerr(just a text)", "err(just a text)"]
    assert other.requests == []


def boom(*args: Any) -> None:
    raise ValueError("BOOM")


async def test_h_12_on_error_itself_raises() -> None:
    """It is told once, and its error leaves run."""
    record = Recorder(does={"on_error": boom}, ours=True)
    chain = chain_of(failing(BUSY), record=record)
    with pytest.raises(HandlerError, match="on_error raised"):
        await chain.run()
    assert record.lines == ["begin", "lerr(too_many_requests)", "err(too_many_requests)", "end(error)"]


@pytest.mark.parametrize("fallbacks", [None, [ScriptedChat([OK])]])
async def test_h_13_a_handler_raises_in_the_middle_of_a_stream(fallbacks: Any) -> None:
    """No failed attempt and no other model; the stream is closed first."""
    record = Recorder(does={"on_llm_new_delta": boom}, pieces=True)
    model = Yielding(
        [[MessageDelta("a")], [MessageDelta("b")], [MessageDelta(status="complete")]], retry=True
    )
    record_closed: list[int] = []
    record.callbacks["on_error"] = lambda chain, error: record_closed.append(model.closed)
    chain = chain_of(model, record=record)
    outcome = await chain.run(with_fallbacks=fallbacks)
    assert record.lines == ["delta('a')"]
    assert isinstance(outcome.error, HandlerError) and record_closed == [1]
    assert ([m.text for m in chain.messages], outcome.exchanged_messages) == (["hi"], ())


async def test_h_14_a_handler_raises_after_the_reply() -> None:
    """The messages are those from before the run; the outcome keeps what was exchanged."""
    record = Recorder(does={"on_message_processed": boom})
    chain = chain_of([OK], record=record)
    before = chain.messages
    outcome = await chain.run()
    assert record.lines == [
        'proc(A"ok")',
        "err(Callback handler for on_message_processed raised an exception: (ValueError) BOOM)",
    ]
    assert isinstance(outcome.error, HandlerError)
    assert (chain.messages, chain.needs_response) == (before, True)
    assert [m.text for m in outcome.exchanged_messages] == ["ok"]


# Rules without a row


async def test_an_attempt_s_work_is_discarded() -> None:
    """The next one starts from before it: messages, results and counter."""
    record = Recorder()
    first = ScriptedChat([calls(call("c1", "a")), BUSY], retry_on=RETRY)
    second = ScriptedChat([OK])
    chain = chain_of(first, tool("a", RuntimeError("boom")), record=record)
    outcome = await chain.run(with_fallbacks=[second])
    assert [m.text for m in second.requests[0]] == ["hi"]
    assert [m.text for m in chain.messages] == ["hi", "ok"]
    assert (outcome.text, chain.failure_count) == ("ok", 0)
    assert [m.text for m in outcome.exchanged_messages] == ["ok"]


async def test_before_fallback_that_raises_is_the_run_s_error() -> None:
    record = Recorder()
    other = ScriptedChat([OK])
    outcome = await chain_of([OK], record=record).run(with_fallbacks=[other], before_fallback=boom)
    assert record.lines == ["err(exception)"]
    assert outcome.error is not None and isinstance(outcome.error.original, ValueError)
    assert other.requests == []


async def test_a_handler_error_that_a_model_swallows_ends_the_run() -> None:
    """Remembered by the run, whatever the model makes of it."""

    class Swallows:
        async def stream(self, messages: Any, tools: Any, hooks: Any) -> Any:
            with contextlib.suppress(Exception):
                await hooks.response_headers({})
            yield OK

        def retry_on_fallback(self, error: ChainError) -> bool:
            return True

    record = Recorder(does={"on_llm_response_headers": boom})
    chain = chain_of(Swallows(), record=record)
    outcome = await chain.run(with_fallbacks=[ScriptedChat([OK])])
    assert isinstance(outcome.error, HandlerError)
    assert [line.split("(")[0] for line in record.lines] == ["headers", "err"]


async def test_a_handler_error_that_a_model_wraps_ends_the_run() -> None:
    class Wraps:
        async def stream(self, messages: Any, tools: Any, hooks: Any) -> Any:
            try:
                await hooks.ratelimit_info({})
            except Exception as error:
                raise RuntimeError("the SDK's own") from error
            yield OK

        def retry_on_fallback(self, error: ChainError) -> bool:
            return True

    record = Recorder(does={"on_llm_ratelimit_info": boom})
    outcome = await chain_of(Wraps(), record=record).run(with_fallbacks=[ScriptedChat([OK])])
    assert isinstance(outcome.error, HandlerError) and "lerr" not in str(record.lines)


async def test_an_attempt_that_the_model_repeats_itself_is_told() -> None:
    async def repeats(hooks: Any) -> None:
        await hooks.attempt_failed(BUSY)

    record = Recorder()
    outcome = await chain_of(Yielding([repeats, OK]), record=record).run()
    assert (record.lines, outcome.status) == (["lerr(too_many_requests)", 'proc(A"ok")'], "ok")


async def test_before_fallback_may_choose_the_model_itself() -> None:
    """And that one is asked whether to go on; after the run the chain has its own again."""
    first, chosen, other = ScriptedChat([]), failing(BUSY), ScriptedChat([OK])

    def change(chain: LLMChain) -> None:
        if chain.llm is first:
            chain.llm = chosen

    chain = chain_of(first)
    outcome = await chain.run(with_fallbacks=[other], before_fallback=change)
    assert (outcome.text, len(chosen.requests), first.requests, chain.llm) == ("ok", 1, [], first)


async def test_the_last_attempt_s_work_is_kept() -> None:
    """No other model starts from before it: what its tools did stands, and the text that had arrived."""
    last = ScriptedChat([calls(call("c1", "a")), [MessageDelta("Par"), BUSY]], retry_on=RETRY)
    chain = chain_of(failing(BUSY), tool("a"))
    outcome = await chain.run(with_fallbacks=[last])
    assert outcome.error is not None and outcome.error.type == "all_fallbacks_failed"
    assert [m.role for m in chain.messages] == ["user", "assistant", "tool", "assistant"]
    assert chain.messages[-1].is_cut_off and chain.needs_response
