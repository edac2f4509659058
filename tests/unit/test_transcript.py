"""Conversations as bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listeners.chain import (
    ContentPart,
    Message,
    TokenUsage,
    ToolCall,
    ToolResult,
    dump_messages,
    load_messages,
)
from listeners.errors import ChainError

plain: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
mappings = st.dictionaries(st.text(max_size=3), plain.filter(lambda value: value is not None), max_size=2)
parts = st.builds(ContentPart, st.sampled_from(["text", "image"]), st.text(max_size=5), options=mappings)
made_calls = st.builds(
    ToolCall,
    key=st.sampled_from(["", "c1", "m1.0"]),
    name=st.text(min_size=1, max_size=5),
    call_id=st.text(min_size=1, max_size=5),
    index=st.integers(0, 3),
    display_text=st.none() | st.text(min_size=1, max_size=5),
    arguments=mappings,
    metadata=mappings,
)
made_results = st.builds(
    ToolResult,
    st.lists(parts, max_size=2),
    processed_content=plain,
    is_error=st.booleans(),
    is_interrupt=st.booleans(),
    interrupt_data=st.none() | mappings,
    options=mappings,
    tool_call_id=st.text(max_size=5),
    name=st.none() | st.text(min_size=1, max_size=5),
    reason=st.sampled_from([None, "error", "timeout"]),
)
metadata = mappings | st.builds(
    lambda usage: {"usage": usage}, st.builds(TokenUsage, st.none() | st.integers(0, 9))
)
conversations = st.lists(
    st.builds(
        Message,
        st.sampled_from(["system", "user", "assistant", "tool"]),
        st.lists(parts, max_size=2),
        tool_calls=st.lists(made_calls, max_size=2),
        tool_results=st.lists(made_results, max_size=2),
        name=st.none() | st.text(min_size=1, max_size=5),
        index=st.none() | st.integers(0, 3),
        metadata=metadata,
    ),
    max_size=3,
)


@given(conversations)
def test_a_round_trip(messages: list[Message]) -> None:
    """What JSON can carry comes back as it was."""
    assert load_messages(dump_messages(messages)) == messages


def test_what_json_cannot_carry_is_left_out() -> None:
    """And nothing else with it."""
    result = ToolResult(
        "x", processed_content=object(), interrupt_data={"a": 1, "b": object()}, is_interrupt=True
    )
    (loaded,) = load_messages(dump_messages([Message("tool", tool_results=[result])]))
    assert loaded.tool_results[0] == ToolResult("x", interrupt_data={"a": 1}, is_interrupt=True)


def test_what_was_cut_off_stays_so() -> None:
    """Its error is one again, so that no model is sent it."""
    kept = Message("assistant", "Par", status="cancelled", metadata={"streaming_error": ChainError("x", "y")})
    (loaded,) = load_messages(dump_messages([kept]))
    error = loaded.metadata["streaming_error"]
    assert loaded.is_cut_off and (error.type, error.message) == ("x", "y")


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'{"version":1}', b'{"version":1,"messages":[{}]}', b'{"version":9,"messages":[]}'],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a conversation of dump_messages"):
        load_messages(data)


def test_half_a_character_is_replaced_and_costs_nothing_else() -> None:
    """Models and tools cut texts inside an emoji; a pair in two halves is one again."""
    half = "a\ud83d"
    messages = [
        Message.user(half),
        Message.user("\ud83d\ude00"),
        Message.assistant(
            "",
            [ToolCall(name="f", call_id="c1", arguments={half: [half, {"n": 1}]}, status="complete")],
        ),
        Message("tool", tool_results=[ToolResult(half, tool_call_id="c1", processed_content=[half, 1])]),
        Message("assistant", "x", metadata={half: half, "streaming_error": ChainError(None, half)}),
    ]
    user, pair, made, answer, cut = load_messages(dump_messages(messages))
    assert (user.text, pair.text) == ("a\ufffd", "\U0001f600")
    assert made.tool_calls[0].arguments == {"a\ufffd": ["a\ufffd", {"n": 1}]}
    assert answer.tool_results[0].content[0].content == "a\ufffd"
    assert answer.tool_results[0].processed_content == ["a\ufffd", 1]
    assert cut.metadata["a\ufffd"] == "a\ufffd" and cut.metadata["streaming_error"].message == "a\ufffd"
