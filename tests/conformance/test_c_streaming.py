"""The C rows: replies that come in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from listeners.chain import (
    Headers,
    LLMChain,
    Message,
    MessageDelta,
    RateLimit,
    ScriptedChat,
    TokenUsage,
    ToolCall,
)
from listeners.errors import ChainError
from tests.support.chains import Recorder, Yielding, chain_of, tool

END = MessageDelta(status="complete")
HEAD = [Headers({}), RateLimit({})]


def piece(name: str | None = None, text: str = "", id: str | None = None, **members: Any) -> MessageDelta:
    """A delta with one fragment of a call."""
    return MessageDelta(tool_calls=(ToolCall(name=name, arguments_text=text, call_id=id, **members),))


@pytest.mark.parametrize("apart", [False, True])
async def test_c_01_text_in_three_chunks(apart: bool) -> None:
    """Usage is no delta: a chunk of it alone isn't told."""
    record = Recorder(pieces=True)
    usage = TokenUsage(10, 15)
    last: list[Any] = [[MessageDelta("lo"), END], [usage]] if apart else [MessageDelta("lo"), [END, usage]]
    chain = chain_of([[*HEAD, MessageDelta("Hel"), *last]], record=record)
    outcome = await chain.run(mode="once")
    deltas = (
        ["delta('Hel')", "delta('lo', complete)"]
        if apart
        else [
            "delta('Hel')",
            "delta('lo')",
            "delta(complete)",
        ]
    )
    assert record.lines == ["headers", "ratelimit", *deltas, 'proc(A"Hello")', "use(10,15)"]
    assert (outcome.text, outcome.usage) == ("Hello", usage)


async def test_c_02_identified_while_the_arguments_arrive() -> None:
    """Right after the chunk that names the call."""
    record = Recorder(pieces=True)
    chunks = [piece("a", id="c1", index=0), piece(text='{"x":1}', index=0), END]
    chain = chain_of([chunks], tool("a"), record=record)
    await chain.run(mode="once")
    assert record.lines == [
        "delta(incomplete)", "id(c1:a)", "delta(incomplete)", "delta(complete)", "proc(A[c1:a])",
    ]  # fmt: skip
    assert record.of("on_llm_new_delta")[0][0][0].tool_calls[0].display_text == "A"
    assert chain.messages[-1].tool_calls[0].arguments == {"x": 1}


async def merged(chain: LLMChain, *deltas: MessageDelta) -> ToolCall:
    await chain.merge_deltas(deltas)
    assert chain.delta is not None
    return chain.delta.tool_calls[-1]


async def test_c_03_a_host_s_own_deltas() -> None:
    """Identified at once, and no new_delta is told."""
    record = Recorder(pieces=True)
    chain = chain_of((), tool("search_web", display_text="Searching web"), record=record)
    await chain.merge_deltas([piece("search_web", index=0)])
    assert record.lines == ["id(m1.0:search_web)"]
    told = record.of("on_tool_call_identified")[0][0]
    assert (told.call_id, told.arguments, told.arguments_text, told.display_text) == (
        None, {}, "", "Searching web",
    )  # fmt: skip


async def test_c_03_in_a_run() -> None:
    """After the new_delta of its chunk."""
    record = Recorder(pieces=True)
    chain = chain_of([[piece("search_web", index=0), END]], tool("search_web"), record=record)
    await chain.run(mode="once")
    assert record.lines[:2] == ["delta(incomplete)", "id(m1.0:search_web)"]


async def test_c_04_the_same_name_again() -> None:
    """Neither another identification nor a doubled name."""
    record = Recorder()
    chain = chain_of((), tool("search_web"), record=record)
    await chain.merge_deltas([piece("search_web", index=0)])
    call = await merged(chain, piece("search_web", '{"path":', index=0))
    assert (call.name, call.arguments_text) == ("search_web", '{"path":')
    assert record.lines == ["id(m1.0:search_web)"]


async def test_c_05_the_id_comes_later() -> None:
    """The call at its index takes it up; its key stays."""
    record = Recorder()
    chain = chain_of((), tool("search_web"), record=record)
    await chain.merge_deltas([piece("search_web", index=0), piece(id="c1", index=0)])
    call = await merged(chain, piece(text="{}", index=0))
    assert (call.call_id, call.key, call.arguments_text) == ("c1", "m1.0", "{}")
    assert record.lines == ["id(m1.0:search_web)"]


async def test_c_06_an_unknown_tool() -> None:
    """Isn't identified; its display text is the name's so far."""
    record = Recorder(pieces=True)
    chain = chain_of([[piece("web_", index=0), piece("look", index=0), END]], tool("a"), record=record)
    await chain.run(mode="once")
    assert [line for line in record.lines if line.startswith("id")] == []
    told = [deltas[0].tool_calls[0].display_text for (deltas,) in record.of("on_llm_new_delta")[:2]]
    assert told == ["Web ", "Web look"]
    assert chain.messages[-1].tool_calls[0].display_text == "Web look"


async def test_c_07_a_name_in_pieces() -> None:
    """Identified when it is whole, with the function's text."""
    record = Recorder(pieces=True)
    chain = chain_of(
        [[piece("sea", index=0), piece("rch", index=0), END]],
        tool("search", display_text="Searching"),
        record=record,
    )
    await chain.run(mode="once")
    assert record.lines == [
        "delta(incomplete)", "delta(incomplete)", "id(m1.0:search)", "delta(complete)",
        "proc(A[call_1_0:search])",
    ]  # fmt: skip
    assert record.of("on_tool_call_identified")[0][0].display_text == "Searching"
    assert chain.messages[-1].tool_calls[0].display_text == "Searching"


async def test_c_09_indexes_out_of_order() -> None:
    """One each, as they arrive; the list stands in that order."""
    record = Recorder()
    chain = chain_of(
        [[piece("b", index=1, id="c2"), piece("a", index=0, id="c1"), END]],
        tool("a"),
        tool("b"),
        record=record,
    )
    await chain.run(mode="once")
    assert record.lines == ["id(c2:b)", "id(c1:a)", "proc(A[c2:b,c1:a])"]


async def test_c_12_calls_without_index() -> None:
    """Are two calls."""
    record = Recorder()
    chain = chain_of(
        [[piece("a"), piece(text='{"x":1}'), piece("b"), piece(text="{}"), END]],
        tool("a"),
        tool("b"),
        record=record,
    )
    await chain.run(mode="once")
    assert record.lines == ["id(m1.0:a)", "id(m1.1:b)", "proc(A[call_1_0:a,call_1_1:b])"]
    assert [made.arguments for made in chain.messages[-1].tool_calls] == [{"x": 1}, {}]


async def test_c_13_processing_does_not_identify_again() -> None:
    record = Recorder()
    chain = chain_of([[piece("a", "{}", id="c1", index=0), END]], tool("a"), record=record)
    await chain.run(mode="once")
    assert record.lines == ["id(c1:a)", "proc(A[c1:a])"]


@pytest.mark.parametrize("text", ["Hel", ""])
async def test_c_16_a_stream_that_just_ends(text: str) -> None:
    """Is a failed attempt; its text is kept for the reader, and the next run asks again."""
    record = Recorder()
    chain = chain_of([[MessageDelta(text)], Message.assistant("again")], record=record)
    outcome = await chain.run()
    assert record.lines == ["lerr(incomplete_response)", "err(incomplete_response)"]
    assert chain.needs_response and chain.delta is None
    kept = chain.messages[1:]
    if text:
        assert [(m.text, m.status, m.metadata) for m in kept] == [
            ("Hel", "cancelled", {"streaming_error": outcome.error})
        ]
    else:
        assert kept == ()
    assert (await chain.run()).text == "again"
    assert isinstance(chain.llm, ScriptedChat)
    assert [m.text for m in chain.llm.requests[-1]] == ["hi"]


async def test_c_17_cut_off_inside_a_call() -> None:
    """response_truncated: the text is kept, the call isn't."""
    record = Recorder()
    chunks = [MessageDelta("So"), piece("a", '{"x":', id="c1", index=0), MessageDelta(status="length")]
    chain = chain_of([chunks], tool("a"), record=record)
    outcome = await chain.run()
    assert record.lines == ["id(c1:a)", "lerr(response_truncated)", "err(response_truncated)"]
    kept = chain.messages[-1]
    assert (kept.text, kept.status, kept.tool_calls) == ("So", "length", ())
    assert (outcome.status, chain.failure_count, chain.needs_response) == ("error", 0, True)


async def test_c_18_an_error_in_the_middle() -> None:
    """Ends the run; what had arrived is kept."""
    record = Recorder(pieces=True)
    error = ChainError("overloaded", "Overloaded")
    chain = chain_of([[MessageDelta("Par"), error]], record=record)
    outcome = await chain.run()
    assert record.lines == ["delta('Par')", "lerr(overloaded)", "err(overloaded)"]
    kept = chain.messages[-1]
    assert (kept.text, kept.status, kept.metadata) == ("Par", "cancelled", {"streaming_error": error})
    assert outcome.error is error and outcome.exchanged_messages == (kept,)


async def test_c_18_with_another_model() -> None:
    """Nothing of the attempt is kept."""
    record = Recorder()
    error = ChainError("overloaded", "Overloaded")
    chain = chain_of(ScriptedChat([[MessageDelta("Par"), error]], retry_on={"overloaded"}), record=record)
    outcome = await chain.run(with_fallbacks=[ScriptedChat([Message.assistant("whole")])])
    assert record.lines == ["lerr(overloaded)", 'proc(A"whole")']
    assert (outcome.text, [m.text for m in chain.messages]) == ("whole", ["hi", "whole"])


@pytest.mark.parametrize("reply", [ChainError("e", "E"), [ChainError("e", "E"), MessageDelta("x")]])
async def test_c_19_an_error_before_anything(reply: Any) -> None:
    """Nothing is added, whichever way it arrives."""
    record = Recorder(pieces=True)
    chain = chain_of([reply], record=record)
    await chain.run()
    assert record.lines == ["lerr(e)", "err(e)"]
    assert len(chain.messages) == 1


async def test_c_21_empty_deltas() -> None:
    """Are told; an empty list isn't."""
    record = Recorder(pieces=True)
    chain = chain_of(Yielding([[MessageDelta("")], [], [MessageDelta()], [END]]), record=record)
    outcome = await chain.run()
    assert record.lines == ["delta('')", "delta(incomplete)", "delta(complete)", 'proc(A"")']
    assert (outcome.status, chain.messages[-1].content) == ("ok", ())


async def test_c_23_text_after_whole_arguments() -> None:
    """Is dropped."""
    record = Recorder()
    whole = ToolCall(name="a", call_id="c1", index=0, status="complete", arguments={"x": 1})
    chain = chain_of(
        [[MessageDelta(tool_calls=(whole,)), piece(text='{"y":', index=0), END]], tool("a"), record=record
    )
    await chain.run(mode="once")
    assert record.lines == ["id(c1:a)", "proc(A[c1:a])"]
    assert chain.messages[-1].tool_calls[0].arguments == {"x": 1}


# Rules without a row


async def test_a_name_that_grows_into_another_tool_s() -> None:
    """Is told once more, for the same call."""
    record = Recorder()
    chain = chain_of(
        [[piece("search", index=0, id="c1"), piece("_web", index=0), END]],
        tool("search"),
        tool("search_web"),
        record=record,
    )
    await chain.run(mode="once")
    assert record.lines == ["id(c1:search)", "id(c1:search_web)", "proc(A[c1:search_web])"]
    keys = [call.key for call, _ in record.of("on_tool_call_identified")]
    assert keys == ["c1", "c1"]


async def test_malformed_arguments_are_asked_for_again() -> None:
    """At once, counted, in every mode; each attempt identifies, with a key of its own."""
    record = Recorder()
    bad = [piece("a", '{"x":', index=0), END]
    chain = chain_of(
        [bad, [piece("a", "[1]", index=0), END], [piece("a", "{}", index=0), END]], tool("a"), record=record
    )
    outcome = await chain.run(mode="once")
    assert record.lines == [
        "id(m1.0:a)", "lerr(delta_conversion_failed)",
        "id(m1.0~2:a)", "lerr(delta_conversion_failed)",
        "id(m1.0~3:a)", "proc(A[call_1_0:a])",
    ]  # fmt: skip
    assert record.counts == [0, 0, 1, 1, 2, 2]
    told = [str(error) for (error,) in record.of("on_llm_error")]
    assert told == [
        "tool call 'a': invalid json", "tool call 'a': a json object is expected for tool arguments",
    ]  # fmt: skip
    assert outcome.status == "ok"


async def test_malformed_arguments_to_the_limit() -> None:
    """retries_exceeded, and the error is the conversion's own."""
    record = Recorder()
    bad = [piece("a", "{", index=0, id="c"), END]
    chain = chain_of([bad, bad, bad], tool("a"), record=record)
    outcome = await chain.run()
    assert record.lines[-3:] == ["lerr(delta_conversion_failed)", "rx", "err(delta_conversion_failed)"]
    assert (chain.failure_count, len(chain.messages)) == (3, 1)
    assert outcome.error is not None and outcome.error.type == "delta_conversion_failed"


async def test_a_length_reply_without_calls_is_a_message() -> None:
    record = Recorder()
    chain = chain_of([[MessageDelta("So"), MessageDelta(status="length")]], record=record)
    outcome = await chain.run()
    assert record.lines == ['proc(A"So")']
    assert (outcome.text, chain.messages[-1].status, chain.needs_response) == ("So", "length", False)


async def test_the_delta_of_a_run_is_seen_by_handlers() -> None:
    """By new_delta's as it was before the chunk, by identified's as it is after it, and it is gone afterwards."""
    seen: list[object] = []

    def see(chain: LLMChain, *rest: object) -> None:
        seen.append(None if chain.delta is None else chain.delta.text)

    chain = chain_of(
        [[MessageDelta("a"), [MessageDelta("b"), piece("a", index=0)], END]],
        tool("a"),
        callbacks=[{"on_llm_new_delta": see, "on_tool_call_identified": see}],
    )
    await chain.run(mode="once")
    assert seen == [None, "a", "ab", "ab"]
    assert chain.delta is None
