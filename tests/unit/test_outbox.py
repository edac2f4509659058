"""The outbox: bounded, in order, fragments first, a cut batch frozen."""

from __future__ import annotations

from listeners.contract.log import BATCH_BYTES
from listeners.publishing.outbox import Outbox, Queued


def put(outbox: Outbox, *types: str, size: int = 10, call: str | None = None) -> list[bool]:
    return [outbox.put(Queued(type, type.encode().ljust(size, b"."), progress_of=call)) for type in types]


def types(batch: tuple[tuple[str, bytes], ...]) -> list[str]:
    return [type for type, _ in batch]


def test_events_leave_in_order_and_a_batch_is_frozen_until_it_is_acknowledged() -> None:
    outbox = Outbox()
    put(outbox, "run_started", "x_a")
    first = outbox.cut()
    put(outbox, "x_b")
    assert outbox.cut() == first and types(first) == ["run_started", "x_a"]
    assert len(outbox) == 3
    outbox.acknowledge()
    assert types(outbox.cut()) == ["x_b"]
    outbox.acknowledge()
    assert outbox.cut() == () and len(outbox) == 0 and outbox.size == 0


def test_a_batch_is_bounded_by_number_and_size() -> None:
    outbox = Outbox()
    put(outbox, *["x_a"] * 501)
    assert len(outbox.cut()) == 500
    outbox.acknowledge()
    assert len(outbox.cut()) == 1
    outbox.acknowledge()
    put(outbox, "x_a", "x_b", "x_c", size=BATCH_BYTES // 2)
    assert len(outbox.cut()) == 2


def test_an_event_larger_than_a_batch_goes_alone() -> None:
    outbox = Outbox()
    put(outbox, "x_a", "x_b", size=BATCH_BYTES + 1)
    assert types(outbox.cut()) == ["x_a"]


def test_a_start_begins_a_batch() -> None:
    """One batch lies in one epoch."""
    outbox = Outbox()
    put(outbox, "x_a", "run_started", "x_b", "run_started")
    cut = []
    for _ in range(3):
        cut.append(types(outbox.cut()))
        outbox.acknowledge()
    assert cut == [["x_a"], ["run_started", "x_b"], ["run_started"]]


def test_when_full_the_oldest_fragments_go_first_and_are_counted() -> None:
    outbox = Outbox(max_events=4)
    put(outbox, "tool_execution_started", "llm_new_delta", "tool_progress", "x_a")
    assert put(outbox, "x_b", "x_c") == [True, True]
    assert outbox.dropped == {"llm_new_delta": 1, "tool_progress": 1}
    assert types(outbox.cut()) == ["tool_execution_started", "x_a", "x_b", "x_c"]


def test_a_fragment_never_costs_a_step() -> None:
    outbox = Outbox(max_events=2)
    put(outbox, "x_a", "x_b")
    assert put(outbox, "tool_progress") == [True]
    assert outbox.dropped == {"tool_progress": 1}
    assert types(outbox.cut()) == ["x_a", "x_b"]


def test_when_fragments_are_not_enough_all_steps_go_and_the_state_is_to_be_told() -> None:
    """A run that never begins, or never ends, would be worse for its readers than one event too many."""
    outbox = Outbox(max_events=3)
    put(outbox, "run_started", "x_a", "x_b")
    assert put(outbox, "x_c", "run_completed") == [False, True]
    assert outbox.overflowed
    assert outbox.dropped == {"x_a": 1, "x_b": 1}
    outbox.restate([Queued("run_restored", b"{}", restates=True)])
    assert types(outbox.cut()) == ["run_started", "run_restored", "x_c", "run_completed"]
    assert not outbox.overflowed


def test_the_beginning_and_the_end_of_a_run_are_never_dropped() -> None:
    outbox = Outbox(max_events=2)
    put(outbox, "run_started", "run_interrupted", "x_a", "run_completed")
    assert types(outbox.cut()) == ["run_started", "run_completed"] and outbox.overflowed


def test_what_stands_before_the_last_start_of_a_run_goes_with_its_steps() -> None:
    """A publisher that begins its run again and again during an outage keeps no more than the last time."""
    outbox = Outbox(max_events=4)
    for _ in range(100):
        put(outbox, "run_started", "x_a", "run_completed")
    assert len(outbox) <= 5


def test_bytes_are_bounded_too() -> None:
    outbox = Outbox(max_bytes=100)
    put(outbox, "tool_progress", "x_a", size=40)
    put(outbox, "x_b", size=60)
    assert outbox.size == 100 and outbox.dropped == {"tool_progress": 1}


def test_a_frozen_batch_is_never_touched() -> None:
    outbox = Outbox(max_events=2)
    put(outbox, "tool_progress", "x_a")
    frozen = outbox.cut()
    assert put(outbox, "x_b", "tool_progress") == [False, True]
    assert outbox.cut() == frozen
    assert outbox.dropped == {"x_b": 1, "tool_progress": 1}


def test_progress_of_one_call_is_coalesced_once_room_gets_scarce() -> None:
    outbox = Outbox(max_events=10)
    put(outbox, "tool_progress", "tool_progress", "tool_progress", call="a")
    assert len(outbox) == 3 and outbox.coalesced == 0
    put(outbox, "x_a", "x_b", "x_c")
    put(outbox, "tool_progress", call="a")
    put(outbox, "tool_progress", call="b")
    put(outbox, "tool_progress", call="a")
    assert outbox.coalesced == 2 and outbox.dropped == {}
    assert types(outbox.cut()) == [*["tool_progress"] * 2, "x_a", "x_b", "x_c", *["tool_progress"] * 2]


def test_a_report_that_was_cut_is_not_replaced() -> None:
    outbox = Outbox(max_events=2)
    put(outbox, "tool_progress", call="a")
    frozen = outbox.cut()
    put(outbox, "tool_progress", "tool_progress", call="a")
    assert outbox.cut() == frozen
    outbox.acknowledge()
    assert len(outbox.cut()) == 1


def test_a_state_that_is_told_again_stands_before_the_frozen_batch() -> None:
    outbox = Outbox()
    put(outbox, "x_a", "x_b")
    outbox.cut()
    put(outbox, "x_c")
    outbox.restate([Queued("run_restored", b"{}", restates=True)])
    assert types(outbox.cut()) == ["run_restored", "x_a", "x_b", "x_c"]
    assert len(outbox) == 4 and outbox.size == 2 + 30


def test_a_state_that_is_told_once_more_takes_the_place_of_the_one_before() -> None:
    outbox = Outbox()
    put(outbox, "x_a")
    for n in range(3):
        outbox.restate([Queued("run_restored", str(n).encode(), restates=True)])
        assert outbox.cut() == (("run_restored", str(n).encode()), ("x_a", b"x_a......."))


def test_a_state_stands_behind_a_start_that_waits() -> None:
    outbox = Outbox()
    put(outbox, "x_old", "run_started", "x_a")
    assert [queued.type for queued in outbox.told()] == ["run_started", "x_a"]
    outbox.restate([Queued("run_restored", b"{}", restates=True)])
    assert types(outbox.cut()) == ["run_started", "run_restored", "x_a"]
    assert outbox.dropped == {"x_old": 1}


def test_emptying_counts_what_is_thrown_away() -> None:
    outbox = Outbox()
    put(outbox, "x_a", "x_b")
    outbox.cut()
    put(outbox, "x_b")
    assert outbox.empty() == {"x_a": 1, "x_b": 2}
    assert len(outbox) == 0 and outbox.size == 0 and outbox.cut() == ()


def test_memory_stays_bounded_however_much_is_published() -> None:
    """Coalesced and dropped events leave nothing behind."""
    outbox = Outbox(max_events=100)
    put(outbox, *["x_a"] * 60)
    for n in range(10_000):
        put(outbox, "tool_progress", call=f"call {n % 10}")
    assert len(outbox) <= 100
    assert sum(len(queue) for queue in (outbox._waiting, outbox._fragments)) <= 200
