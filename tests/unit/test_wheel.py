"""The one timer, on a clock that the test turns."""

from __future__ import annotations

import logging

import pytest

from gateway.fanout.wheel import Wheel


class Clock:
    def __init__(self) -> None:
        self.now = 1000.25

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run(wheel: Wheel, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now += 1
        wheel.turn()


def test_a_tick_comes_when_it_is_due_and_once(clock: Clock) -> None:
    """Rounded up to a whole second, never early."""
    wheel = Wheel(clock)
    calls: list[float] = []
    wheel.add(3, calls.append)  # type: ignore[arg-type]  # append returns None, which is a Tick's "never again"
    run(wheel, clock, 2)
    assert calls == []
    run(wheel, clock, 8)
    assert len(calls) == 1 and calls[0] - 1000.25 >= 3
    assert len(wheel) == 0


def test_a_tick_that_names_seconds_comes_again(clock: Clock) -> None:
    """Whoever wants a rhythm returns its interval."""
    wheel = Wheel(clock)
    calls: list[float] = []

    def beat(now: float) -> float:
        calls.append(now)
        return 5

    wheel.add(5, beat)
    run(wheel, clock, 31)
    assert len(calls) == 5
    assert len(wheel) == 1


def test_a_removed_tick_never_comes_and_leaves_nothing(clock: Clock) -> None:
    """A reader that hangs up is forgotten at once."""
    wheel = Wheel(clock)
    calls: list[float] = []
    wheel.add(2, calls.append)  # type: ignore[arg-type]  # as above
    wheel.remove(calls.append)  # type: ignore[arg-type]  # as above
    wheel.remove(calls.append)  # type: ignore[arg-type]  # as above
    run(wheel, clock, 5)
    assert calls == [] and len(wheel) == 0


def test_a_tick_added_again_moves(clock: Clock) -> None:
    """The last word counts."""
    wheel = Wheel(clock)
    calls: list[float] = []
    tick = calls.append
    wheel.add(2, tick)  # type: ignore[arg-type]  # as above
    wheel.add(6, tick)  # type: ignore[arg-type]  # as above
    run(wheel, clock, 5)
    assert calls == []
    run(wheel, clock, 3)
    assert len(calls) == 1


def test_ticks_may_add_and_remove_others_of_their_spoke(clock: Clock) -> None:
    """One that is removed by an earlier one of the same second stays away."""
    wheel = Wheel(clock)
    calls: list[str] = []

    def other(now: float) -> None:
        calls.append("other")

    def first(now: float) -> None:
        calls.append("first")
        wheel.remove(other)
        wheel.add(1, third)

    def third(now: float) -> None:
        calls.append("third")

    wheel.add(1, first)
    wheel.add(1, other)
    run(wheel, clock, 4)
    assert calls == ["first", "third"]
    assert len(wheel) == 0


def test_a_tick_that_raises_stops_nobody(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the others of its second come."""
    wheel = Wheel(clock)
    calls: list[float] = []

    def broken(now: float) -> None:
        raise ValueError("broken")

    wheel.add(1, broken)
    wheel.add(1, calls.append)  # type: ignore[arg-type]  # as above
    with caplog.at_level(logging.ERROR):
        run(wheel, clock, 3)
    assert len(calls) == 1 and "a timer failed" in caplog.text


def test_a_pause_of_the_process_is_caught_up_with(clock: Clock) -> None:
    """After a sleep of an hour everything that was due comes, once."""
    wheel = Wheel(clock)
    calls: list[float] = []
    wheel.add(10, calls.append)  # type: ignore[arg-type]  # as above
    clock.now += 3600
    wheel.turn()
    assert len(calls) == 1
