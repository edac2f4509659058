"""Pieces of a reply put together, and which call a fragment belongs to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listeners.chain import ContentPart, Function, InvalidCall, Message, MessageDelta, TokenUsage, ToolCall
from listeners.chain.deltas import Merging
from tests.support.chains import tool


def merging(*tools: str) -> Merging:
    functions: dict[str, Function] = {name: tool(name) for name in tools}
    return Merging(functions, lambda call: f"k{int(call.index)}")


def merged(*deltas: MessageDelta, tools: tuple[str, ...] = ()) -> Any:
    made = merging(*tools)
    for delta in deltas:
        made.merge(delta)
    return made.merged


def fragment(name: str | None = None, text: str = "", id: str | None = None, **members: Any) -> MessageDelta:
    return MessageDelta(tool_calls=(ToolCall(name=name, arguments_text=text, call_id=id, **members),))


RULES = {
    "the call with its id": (
        [fragment("a", id="x", index=0), fragment("b", id="y", index=1), fragment(text="1", id="x", index=1)],
        [("x", "a", "1", 0), ("y", "b", "", 1)],
    ),
    "an unknown id at an index whose call has none yet": (
        [fragment("a", index=0), fragment(text="1", id="x", index=0)],
        [("x", "a", "1", 0)],
    ),
    "any other unknown id is a new call, even on a used index, which gets the next free one": (
        [fragment("a", id="x", index=0), fragment("b", id="y", index=0), fragment("c", id="z", index=2)],
        [("x", "a", "", 0), ("y", "b", "", 1), ("z", "c", "", 2)],
    ),
    "an unknown id without an index is a new call": (
        [fragment("a", id="x"), fragment("b", id="y")],
        [("x", "a", "", 0), ("y", "b", "", 1)],
    ),
    "no id but an index: the call opened last at it": (
        [fragment("a", id="x", index=0), fragment("b", id="y", index=0), fragment(text="1", index=0)],
        [("x", "a", "", 0), ("y", "b", "1", 1)],
    ),
    "no id, and an index nobody has": (
        [fragment("a", index=3), fragment(text="1", index=3), fragment("b", index=1)],
        [(None, "a", "1", 3), (None, "b", "", 1)],
    ),
    "neither, with a name: opens a call": (
        [fragment("a"), fragment("b")],
        [(None, "a", "", 0), (None, "b", "", 1)],
    ),
    "neither, without a name: the call opened last": (
        [fragment("a", id="x", index=0), fragment("b", id="y", index=1), fragment(text="1")],
        [("x", "a", "", 0), ("y", "b", "1", 1)],
    ),
    "neither, before any call": ([fragment(text="1")], [(None, None, "1", 0)]),
    "sent again": (
        [
            fragment("a", "{", id="x", index=0),
            fragment("a", "{", id="x", index=0),
            fragment(text="}", index=0),
        ],
        [("x", "a", "{}", 0)],
    ),
    "folded in one delta": (
        [
            MessageDelta(
                tool_calls=(ToolCall(index=0, name="se"), ToolCall(index=0, name="arch", arguments_text="1"))
            )
        ],
        [(None, "search", "1", 0)],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_which_call_a_fragment_belongs_to(rule: str) -> None:
    deltas, expected = RULES[rule]
    seen = [(call.call_id, call.name, call.arguments_text, call.index) for call in merged(*deltas).tool_calls]
    assert seen == expected


def test_whole_arguments_replace_and_end() -> None:
    """Text that comes later is dropped; a call doesn't become incomplete again."""
    whole = ToolCall(index=0, status="complete", arguments={"x": 1})
    deltas = [
        fragment("a", '{"y"', index=0),
        MessageDelta(tool_calls=(whole,)),
        fragment(text=":2}", index=0),
    ]
    (call,) = merged(*deltas).tool_calls
    assert (call.arguments, call.arguments_text, call.status) == ({"x": 1}, '{"y"', "complete")


def test_metadata_and_display_texts() -> None:
    """Merged; a text that is given stands."""
    deltas = [
        fragment("a", index=0, metadata={"x": 1}, display_text="Mine"),
        fragment(index=0, metadata={"y": 2}),
    ]
    (call,) = merged(*deltas, tools=("a",)).tool_calls
    assert (call.metadata, call.display_text) == ({"x": 1, "y": 2}, "Mine")


def test_content_by_index() -> None:
    """Parts in the order of their indexes; empty text makes none; gaps are closed."""
    thought = [ContentPart("thinking", "Hm"), ContentPart("thinking", "m", options={"signature": "s"})]
    made = merged(
        MessageDelta("b", index=5),
        MessageDelta(thought[0], index=0),
        MessageDelta(thought[1], index=0),
        MessageDelta("", index=2),
        MessageDelta("c", index=5),
        MessageDelta(ContentPart("image", "x"), index=5),
    )
    assert made.content == (
        ContentPart("thinking", "Hmm", options={"signature": "s"}),
        ContentPart("text", "bc"),
        ContentPart("image", "x"),
    )
    assert made.text == "bc"


def test_status_and_usage() -> None:
    """The first end wins; usage is summed, or replaced by a cumulative one."""
    made = merging()
    for delta in (MessageDelta(status="length"), MessageDelta(status="complete")):
        made.merge(delta)
    made.add_usage(TokenUsage(1, None, {"a": 1, "b": "x"}))
    made.add_usage(TokenUsage(2, 3, {"a": 2, "b": "y"}))
    assert (made.merged.status, made.merged.usage) == ("length", TokenUsage(3, 3, {"a": 3, "b": "y"}))
    made.add_usage(TokenUsage(9, 9, cumulative=True))
    assert made.merged.usage == TokenUsage(9, 9, cumulative=True)
    assert made.merged.usage.total == 18


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "invalid json"),
        ('{"x": NaN}', "invalid json"),
        ('{"x": "\ud800"}', "invalid json"),
        ("[" * 100_000, "invalid json"),
        ("[1]", "a json object is expected for tool arguments"),
        ("5", "a json object is expected for tool arguments"),
    ],
)
def test_arguments_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(InvalidCall, match=f"tool call 'a': {problem}"):
        merged(fragment("a", text, index=0), MessageDelta(status="complete")).to_message()


@pytest.mark.parametrize(("text", "arguments"), [("", {}), ("null", {}), (' {"x": 1} ', {"x": 1})])
def test_arguments_that_are_some(text: str, arguments: dict[str, Any]) -> None:
    made = merged(fragment("a", text, index=0), MessageDelta(status="complete")).to_message()
    assert (made.tool_calls[0].arguments, made.tool_calls[0].status) == (arguments, "complete")


def test_a_call_without_a_name() -> None:
    with pytest.raises(InvalidCall, match="a name is required"):
        merged(fragment(text="{}", index=0), MessageDelta(status="complete")).to_message()


def test_what_has_not_ended_is_no_message() -> None:
    with pytest.raises(ValueError, match="the reply has not ended"):
        merged(MessageDelta("x")).to_message()


cuts = st.lists(st.integers(0, 40), max_size=4)


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(ends)] or [""]


@given(
    made=st.lists(
        st.tuples(
            st.sampled_from(["search", "fetch_page", "write"]),
            st.sampled_from(['{"q":"x"}', "{}", '{"a":[1,{}]}']),
            cuts,
            cuts,
        ),
        min_size=1,
        max_size=3,
    ),
    by=st.sampled_from(["index", "id", "both"]),
    data=st.data(),
)
def test_any_cut_and_any_interleaving_gives_the_same_calls(
    made: list[tuple[str, str, list[int], list[int]]], by: str, data: st.DataObject
) -> None:
    """Identified once each, with their whole names."""
    queues = []
    for at, (name, text, name_cuts, text_cuts) in enumerate(made):
        where: dict[str, Any] = {
            **({"index": at} if by != "id" else {}),
            **({"id": f"c{at}"} if by != "index" else {}),
        }
        # A piece that equals the whole name so far is taken for the name sent again: not a cut that occurs.
        named = [fragment(piece, **where) for piece in cut(name, name_cuts)]
        queues.append([*named, *(fragment(text=piece, **where) for piece in cut(text, text_cuts))])
    merger = merging("search", "fetch_page", "write")
    identified: list[tuple[str | None, str]] = []
    while any(queues):
        at = data.draw(st.sampled_from([n for n, queue in enumerate(queues) if queue]))
        _, found = merger.merge(queues[at].pop(0))
        identified += [(call.name, call.key) for call, _ in found]
    merger.merge(MessageDelta(status="complete"))
    message = merger.merged.to_message()
    whole = Message.assistant("", [ToolCall(name=name, arguments_text=text) for name, text, _, _ in made])
    assert sorted((call.name or "", repr(call.arguments)) for call in message.tool_calls) == sorted(
        (call.name or "", repr(call.arguments)) for call in whole.tool_calls
    )
    assert sorted(name or "" for name, _ in identified) == sorted(name for name, *_ in made)
    assert len({key for _, key in identified}) == len(made)
