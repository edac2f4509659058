"""The shared log against a plain list: no gap, no duplicate, no reordering, whatever is trimmed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fanout.frames import Format, frame
from gateway.fanout.runlog import RunLog, encode_entries
from listeners.contract.log import Entry
from listeners.contract.position import Position

EPOCH = 1758000000000
FORMATS: list[Format] = ["sse", "ndjson"]


def entry(seq: int, size: int = 10, type: str = "x_n") -> Entry:
    return Entry(Position(EPOCH, seq), type, b'{"type":"%b","n":"%b"}' % (type.encode(), b"x" * size))


def read_all(log: RunLog, after: int, format: Format, limit: int) -> tuple[bytes, int]:
    data = b""
    while (chunk := log.read(after, format, limit=limit)) is not None:
        part, then = chunk
        assert then > after
        assert len(part) <= limit or then == after + 1
        data, after = data + part, then
    return data, after


@given(
    sizes=st.lists(st.integers(0, 300), max_size=60),
    memory=st.integers(1, 3000),
    limit=st.integers(1, 2000),
    format=st.sampled_from(FORMATS),
    first=st.integers(0, 5),
)
def test_reading_on_from_anywhere_held_gives_exactly_what_follows(
    sizes: list[int], memory: int, limit: int, format: Format, first: int
) -> None:
    """From every position that is held, in chunks of any size, the bytes are those of the list's tail."""
    log = RunLog(EPOCH, head=first, memory=memory)
    model: list[Entry] = []
    for size in sizes:
        added = entry(log.head + 1, size)
        log.append(added)
        model.append(added)
        # Read in between, so that frames and chunks made before are exercised after a trim.
        log.read(max(log.oldest - 1, log.head - 3), format, limit=limit)
    assert log.head == first + len(sizes)
    assert not sizes or log.oldest <= log.head
    for after in range(log.oldest - 1, log.head + 1):
        assert log.holds(after)
        data, end = read_all(log, after, format, limit)
        assert end == log.head
        assert data == b"".join(frame(e, format) for e in model[after - first :])
        assert list(log.entries(after)) == model[after - first :]
    assert log.oldest == first + 1 or not log.holds(log.oldest - 2)
    assert log.size <= memory or log.oldest == log.head


@given(st.integers(-2, 3).filter(lambda step: step != 1))
def test_a_hole_is_refused(step: int) -> None:
    """What doesn't follow the head would never be noticed later."""
    log = RunLog(EPOCH, head=4)
    with pytest.raises(ValueError, match="does not follow"):
        log.append(entry(4 + step))
    with pytest.raises(ValueError, match="does not follow"):
        log.append(Entry(Position(EPOCH + 1, 5), "x_n", b"{}"))


@given(
    types=st.lists(st.sampled_from(["x_a", "x_b", "tool_progress"]), min_size=1, max_size=40),
    wanted=st.sets(st.sampled_from(["x_a", "x_b"])),
    limit=st.integers(1, 400),
)
def test_a_filter_leaves_out_and_still_moves_on(types: list[str], wanted: set[str], limit: int) -> None:
    """In steps of any size a filtered reader gets all that it wants, and ends at the head."""
    entries = [entry(n, 5, type) for n, type in enumerate(types, 1)]
    data, after = b"", 0
    for _ in range(len(entries)):
        part, then = encode_entries(entries[after:], "sse", wanted.__contains__, limit=limit)
        data, after = data + part, then
        if after == len(entries):
            break
    assert after == len(entries)
    assert data == b"".join(frame(e, "sse") for e in entries if e.type in wanted)


def test_a_log_that_sheds_holds_its_newest_entry_and_goes_on() -> None:
    """Readers behind it are told that it isn't held; what follows is appended as before."""
    log = RunLog(EPOCH)
    for n in range(1, 50):
        log.append(entry(n))
    log.read(0, "sse", limit=65536)
    before = log.size
    assert log.shed() == before - log.size > 0
    assert (log.oldest, log.head) == (49, 49)
    assert log.holds(48) and not log.holds(47)
    log.append(entry(50))
    chunk = log.read(48, "sse", limit=65536)
    assert chunk is not None and chunk[1] == 50


def test_readers_at_many_places_do_not_multiply_the_log() -> None:
    """Joined chunks are shared at a few places and thrown away at the others."""
    log = RunLog(EPOCH)
    for n in range(1, 1000):
        log.append(entry(n, 50))
    chunks = [log.read(after, "sse", limit=65536) for after in range(500)]
    del chunks
    assert len(log._chunks) <= 8


def test_readers_at_one_place_share_one_bytes_object() -> None:
    """A burst is joined once, not once a reader."""
    log = RunLog(EPOCH)
    for n in range(1, 50):
        log.append(entry(n))
    one, other = log.read(0, "sse", limit=65536), log.read(0, "sse", limit=65536)
    assert one is not None and other is not None and one[0] is other[0]


def test_an_ended_log_stands_before_its_end_for_snapshots() -> None:
    """The terminal event follows the snapshot."""
    log = RunLog(EPOCH)
    log.append(entry(1))
    assert (log.last_before_end, log.ended) == (1, False)
    log.append(entry(2, type="run_completed"))
    assert (log.last_before_end, log.ended) == (1, True)
