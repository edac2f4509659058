"""The outbox against a plain list: order, bounds, nothing twice, everything counted."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from listeners.publishing.outbox import FRAGMENTS, Outbox, Queued

TYPES = st.sampled_from(
    ["run_started", "run_completed", "tool_progress", "llm_new_delta", "tool_execution_started", "x_a"]
)
PUTS = st.tuples(TYPES, st.integers(1, 40), st.sampled_from(["a", "b", None]))
STEPS = st.lists(st.one_of(PUTS, st.sampled_from(["cut", "acknowledge", "restart"])), max_size=80)


@given(steps=STEPS, max_events=st.integers(1, 12), max_bytes=st.integers(40, 200))
def test_whatever_happens_order_bounds_and_counts_hold(
    steps: list[tuple[str, int, str | None] | str], max_events: int, max_bytes: int
) -> None:
    outbox = Outbox(max_events=max_events, max_bytes=max_bytes)
    put: Counter[str] = Counter()
    sent: list[int] = []
    kinds: dict[int, str] = {}
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            type, size, call = step
            kinds[number] = type
            put[type] += 1
            progress_of = call if type == "tool_progress" else None
            outbox.put(Queued(type, str(number).encode().ljust(size), progress_of=progress_of))
        elif step == "restart":
            outbox.restate([])
        else:
            batch = outbox.cut()
            assert batch == outbox.cut()
            assert all(type != "run_started" for type, _ in batch[1:])
            if step == "acknowledge":
                sent += [int(event) for _, event in batch]
                outbox.acknowledge()
        # Beginnings and ends are kept whatever the bound: at most a start and an end, as a state replaces the rest.
        kept = sum(queued.type in ("run_started", "run_completed") for queued in outbox.queued())
        assert len(outbox) <= max_events + kept + outbox.overflowed
        assert 0 <= outbox.size <= max_bytes + 40 * kept
    outbox.restate([])
    while batch := outbox.cut():
        sent += [int(event) for _, event in batch]
        outbox.acknowledge()

    assert sent == sorted(set(sent))
    assert len(outbox) == 0 and outbox.size == 0
    gone = outbox.dropped.total() + outbox.coalesced
    assert put.total() == len(sent) + gone
    assert all(put[type] >= count for type, count in outbox.dropped.items())
    if any(kind not in FRAGMENTS for kind in outbox.dropped) and "restart" not in steps:
        assert max_events <= put.total() or max_bytes <= 40 * put.total()
