"""Framing: whatever stands in an event, one block or one line comes out, and it reads back the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.fanout.frames import comment, frame, preamble
from listeners.contract.events import CallRef, Event, decode, encode
from listeners.contract.log import Entry
from listeners.contract.position import Position

TEXT = st.text(max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EVENTS = st.builds(
    Event,
    type=st.sampled_from(["x_n", "tool_progress", "run_started", "tool_execution_failed"]),
    run=st.just("run_1"),
    time=st.just("2026-11-30T19:47:18.123Z"),
    call=st.none() | st.builds(CallRef, key=st.just("k"), name=TEXT, title=TEXT),
    data=st.dictionaries(TEXT, JSON, max_size=4),
)
POSITIONS = st.builds(Position, epoch=st.integers(0, 2**64 - 1), seq=st.integers(0, 2**64 - 1))


def parse(block: str) -> list[tuple[str, str]]:
    """Read one block as the platform does: lines split at CR LF, CR or LF."""
    lines = block.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert lines[-2:] == ["", ""]
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines[:-2])]


@given(EVENTS, POSITIONS)
def test_an_sse_block_has_three_fields_and_reads_back(event: Event, position: Position) -> None:
    """No line break, NUL or mark inside an event can end its block or open a field."""
    block = frame(Entry(position, event.type, encode(event)), "sse").decode()
    assert "\r" not in block and "\x00" not in block
    fields = parse(block)
    assert [name for name, _ in fields] == ["id", "event", "data"]
    assert fields[0][1] == str(position) and Position.parse(fields[0][1]) == position
    assert fields[1][1] == event.type
    assert decode(fields[2][1]) == event


@given(EVENTS, POSITIONS)
def test_an_ndjson_line_is_the_envelope_with_the_position_first(event: Event, position: Position) -> None:
    """One line, ``id`` first, the rest untouched."""
    line = frame(Entry(position, event.type, encode(event)), "ndjson")
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    read = json.loads(line)
    assert next(iter(read)) == "id" and read.pop("id") == str(position)
    assert read == json.loads(encode(event))


@given(EVENTS, POSITIONS)
def test_a_line_for_people_never_steers_a_terminal(event: Event, position: Position) -> None:
    """What an agent puts into names and titles holds no escape, no direction mark, no line of its own."""
    text = frame(Entry(position, event.type, encode(event)), "text").decode()
    assert not any(
        (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or 0x202A <= ord(c) <= 0x202E for c in text
    )
    assert text.count("\n") <= 3


@given(st.text(max_size=20))
def test_positions_read_back_or_are_none(text: str) -> None:
    """Anything at all may come as a position; what is read is what was written."""
    position = Position.parse(text)
    assert position is None or str(position) == text


def test_the_preamble_opens_without_a_blank_line() -> None:
    """Some clients would deliver an empty event otherwise."""
    assert preamble("sse", retry=2137) == b":ok\nretry: 2137\n"
    assert comment("waiting", "sse") == b":waiting\n" and comment("waiting", "ndjson") == b""
