"""The ledger can fail: each kind of fault in what a reader saw is found, counted as what it is, and said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from listeners.contract.events import CallRef, Event
from listeners.contract.fold import fold, snapshot_event, waiting
from listeners.contract.position import Position
from tests.faults.ledger import Published, Seen, Verdict, compare, item_of

RUN = "run"
At = tuple[Position, Event]


def event(type: str, key: str | None = None, **data: Any) -> Event:
    call = None if key is None else CallRef(key=key, name="search", title="Search", attempt=1)
    return Event(type=type, run=RUN, time="2026-11-30T19:47:18.123Z", call=call, data=data)


def number(n: int, by: str = "a") -> Event:
    return event("x_n", by=by, n=n)


START, END = event("run_started", title="a"), event("run_completed")
CALL = [
    event("tool_call_identified", "c1"),
    event("tool_execution_started", "c1"),
    event("tool_progress", "c1", progress=1),
    event("tool_execution_completed", "c1", result_summary="one"),
]
TOLD = [START, *(number(n) for n in range(10)), *CALL, END]


def placed(*events: Event, epoch: int = 7, first: int = 1) -> list[At]:
    return [(Position(epoch, seq), each) for seq, each in enumerate(events, first)]


def saw(items: Sequence[At], *, ended: str = "204") -> Seen:
    state = waiting(RUN)
    for position, each in items:
        state = fold(state, position, each)
    return Seen(reader="r", run=RUN, items=[item_of(*item) for item in items], state=state, ended=ended)


def judged(*seen: Seen, news: Sequence[str] = (), **published: Any) -> Verdict:
    published = {"writers": {"a": TOLD}} | published
    return compare([Published(run=RUN, **published)], seen, news=news)


def numbers(verdict: Verdict) -> tuple[int, int, int, int]:
    count = verdict.count
    return count.lost, count.duplicated, count.disordered, count.announced


def snapshot(reason: str, at: Position, *events: Event) -> At:
    state = saw(placed(*events, epoch=at.epoch)).state
    return at, snapshot_event(state, reason, "2026-11-30T19:47:18.123Z")  # type: ignore[arg-type]  # a test's reason


def test_a_reader_that_saw_all_of_it_passes() -> None:
    verdict = judged(saw(placed(*TOLD)), saw(placed(*TOLD)))
    assert verdict.passed and verdict.complaints == []
    assert verdict.count.seen == 2 * len(TOLD) and verdict.published == len(TOLD)


def test_a_lost_event_is_found_though_the_positions_have_no_hole() -> None:
    """A publisher, not a gateway, that loses one leaves the log dense."""
    verdict = judged(saw(placed(*TOLD[:5], *TOLD[6:])))
    assert numbers(verdict) == (1, 0, 0, 0) and not verdict.passed


def test_a_hole_in_the_positions_is_found() -> None:
    items = placed(*TOLD)
    del items[4]
    verdict = judged(saw(items))
    assert numbers(verdict) == (1, 0, 0, 0)
    assert "r of run: a hole from 7-4 to 7-6" in verdict.complaints


def test_a_hole_where_nothing_of_the_agent_was_is_found_too() -> None:
    """What another process appended has no place in the agent's ledger; its position has."""
    items = placed(*TOLD[:5]) + placed(*TOLD[5:], first=7)
    assert judged(saw(items)).complaints == ["r of run: a hole from 7-5 to 7-7"]


def test_lost_last_events_are_found() -> None:
    verdict = judged(saw(placed(*TOLD[:-2])))
    assert numbers(verdict) == (2, 0, 0, 0) and not verdict.passed


def test_a_reader_that_saw_nothing_has_lost_all() -> None:
    assert numbers(judged(saw([]))) == (len(TOLD), 0, 0, 0)


def test_a_run_that_nobody_read_is_no_success() -> None:
    assert judged().complaints == ["nobody has read run"]


def test_a_run_that_nobody_published_is_no_success() -> None:
    assert compare([], [saw(placed(*TOLD))]).complaints == ["r of run: nobody has published this run"]


def test_a_duplicate_is_found_by_its_position() -> None:
    items = placed(*TOLD)
    verdict = judged(saw([*items[:5], items[4], *items[5:]]))
    assert numbers(verdict) == (0, 1, 0, 0) and not verdict.passed


def test_a_duplicate_at_a_new_position_is_found() -> None:
    """A repeated batch that the log took twice."""
    verdict = judged(saw(placed(*TOLD[:5], TOLD[4], *TOLD[5:])))
    assert numbers(verdict) == (0, 1, 0, 0) and not verdict.passed


def test_a_whole_log_that_came_twice_is_found() -> None:
    verdict = judged(saw(placed(*TOLD, *TOLD)))
    assert numbers(verdict) == (0, len(TOLD), 0, 0)


def test_two_that_changed_places_are_found() -> None:
    verdict = judged(saw(placed(*TOLD[:4], TOLD[5], TOLD[4], *TOLD[6:])))
    assert numbers(verdict) == (0, 0, 1, 0) and not verdict.passed


def test_two_that_changed_places_with_their_positions_are_found() -> None:
    items = placed(*TOLD)
    items[4], items[5] = items[5], items[4]
    verdict = judged(saw(items))
    assert numbers(verdict) == (0, 0, 1, 0)
    assert "r of run: 7-5 came behind 7-6" in verdict.complaints


def test_what_nobody_published_is_found() -> None:
    verdict = judged(saw(placed(*TOLD[:-1], event("x_other"), END)))
    assert verdict.complaints == ["r of run: 'x_other' at 7-16 was never published"]


def test_an_announced_loss_is_none() -> None:
    items = [*placed(*TOLD[:3]), snapshot("lagged", Position(7, 8), *TOLD[:8]), *placed(*TOLD[8:], first=9)]
    verdict = judged(saw(items), news=["lagged"])
    assert verdict.passed and numbers(verdict) == (0, 0, 0, 5)


def test_an_announcement_without_a_reason_is_found() -> None:
    items = [*placed(*TOLD[:3]), snapshot("lagged", Position(7, 8), *TOLD[:8]), *placed(*TOLD[8:], first=9)]
    verdict = judged(saw(items), news=["restarted"])
    assert not verdict.passed and "was told 'lagged' at 7-8" in verdict.complaints[0]


def test_an_announcement_excuses_what_it_covers_and_no_later_loss() -> None:
    snap = snapshot("lagged", Position(7, 8), *TOLD[:8])
    verdict = judged(saw([*placed(*TOLD[:3]), snap, *placed(TOLD[8], *TOLD[10:], first=9)]), news=["lagged"])
    assert numbers(verdict) == (1, 0, 0, 5) and not verdict.passed


def test_an_unannounced_loss_at_a_new_epoch_is_found() -> None:
    """A log that went back and goes on as if nothing had been."""
    verdict = judged(saw([*placed(*TOLD[:5]), *placed(*TOLD[8:], epoch=9)]))
    assert numbers(verdict)[0] == 3
    assert "r of run: 9-1 begins an epoch with x_n" in verdict.complaints


RESTORED = Event(
    type="run_restored",
    run=RUN,
    time="2026-11-30T19:47:18.123Z",
    data={"reason": "restarted", "status": "running", "calls": []},
)


def test_a_batch_sent_again_behind_run_restored_is_repeated_and_not_duplicated() -> None:
    items = [*placed(*TOLD[:8]), *placed(RESTORED, *TOLD[6:], epoch=9)]
    verdict = judged(saw(items), news=["run_restored"])
    assert verdict.passed and verdict.count.repeated == 2


def test_what_redis_lost_is_announced_by_run_restored() -> None:
    items = [*placed(*TOLD[:5]), *placed(RESTORED, *TOLD[8:], epoch=9)]
    verdict = judged(saw(items), news=["run_restored"])
    assert verdict.passed and numbers(verdict) == (0, 0, 0, 3)


def test_more_than_a_batch_sent_again_is_found() -> None:
    told = [START, *(number(n) for n in range(600)), END]
    verdict = judged(
        saw([*placed(*told[:-1]), *placed(RESTORED, *told, epoch=9)]),
        news=["run_restored"],
        writers={"a": told},
    )
    assert not verdict.passed and "more than a batch came again" in verdict.complaints[0]


def test_a_wrong_final_state_is_found_though_every_event_came() -> None:
    seen = saw(placed(*TOLD))
    seen.state = saw(placed(*TOLD[:-2], END)).state
    verdict = judged(seen)
    assert numbers(verdict) == (0, 0, 0, 0) and not verdict.passed
    assert "call c1 is ('search', 'cancelled'" in verdict.complaints[0]


def test_a_call_too_many_in_the_final_state_is_found() -> None:
    seen = saw(placed(*TOLD))
    seen.state = saw(placed(START, event("tool_execution_started", "c0"), *TOLD[1:])).state
    assert not judged(seen).passed


def test_a_reader_that_was_never_told_the_end_is_found() -> None:
    verdict = judged(saw(placed(*TOLD), ended="still open"))
    assert verdict.complaints == ["r of run: never got to the end: still open"]


def test_several_writers_may_mingle_but_each_keeps_its_order() -> None:
    other = [number(n, "b") for n in range(3)]
    writers = {"a": TOLD, "b": other}
    good = [*TOLD[:3], other[0], *TOLD[3:5], *other[1:], *TOLD[5:]]
    assert judged(saw(placed(*good)), writers=writers).passed
    swapped = [*TOLD[:3], other[1], *TOLD[3:5], other[0], other[2], *TOLD[5:]]
    assert numbers(judged(saw(placed(*swapped)), writers=writers)) == (0, 0, 1, 0)
    short = [*TOLD[:3], other[0], *TOLD[3:]]
    assert numbers(judged(saw(placed(*short)), writers=writers)) == (2, 0, 0, 0)


def test_of_a_killed_writer_the_last_may_be_missing_but_none_in_between() -> None:
    told = TOLD[:-1]
    ended = event("run_failed", code="publisher_lost", message="gone")
    writers = {"a": told, "gateway": [ended]}
    history = [*told[:6], ended]
    verdict = judged(saw(placed(*told[:6], ended)), writers=writers, cut=["a"], history=history)
    assert verdict.passed
    holed = judged(saw(placed(*told[:4], *told[5:6], ended)), writers=writers, cut=["a"], history=history)
    assert numbers(holed) == (1, 0, 0, 0)
    twice = judged(saw(placed(*told[:6], ended, ended)), writers=writers, cut=["a"], history=history)
    assert numbers(twice) == (0, 1, 0, 0)


def test_a_ledger_with_one_mark_for_two_events_is_refused() -> None:
    with pytest.raises(ValueError, match="a mark must be unique"):
        judged(saw(placed(*TOLD)), writers={"a": [*TOLD, number(3)]})
