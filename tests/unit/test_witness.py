"""A witness says what a subscription has missed of a run."""

from __future__ import annotations

import pytest

from gateway.cli.witness import Witness
from listeners.contract.position import Position

STARTED, STEP, DONE = "run_started", "tool_progress", "run_completed"


def witness_of(*seen: tuple[int, str], epoch: int = 7) -> Witness:
    witness = Witness()
    for seq, type in seen:
        witness.see(Position(epoch, seq), type)
    return witness


def test_a_dense_run_to_its_end_was_seen_whole() -> None:
    witness = witness_of((1, STARTED), (2, STEP), (3, DONE))

    assert witness.missing is None
    assert witness.ended
    assert witness.position == Position(7, 3)


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        ([], "no event of it arrived"),
        ([(1, STARTED), (2, STEP)], "its end is missing: event 2, tool_progress, was the last"),
        ([(2, STEP), (3, DONE)], "event 1 is missing"),
        ([(1, STARTED), (5, STEP), (6, DONE)], "events 2 to 4 are missing"),
        ([(1, STARTED), (2, STEP), (2, STEP), (3, DONE)], "event 2 came again"),
        ([(1, STARTED), (2, DONE), (3, STEP)], "event 3 came after its end"),
        ([(4, "snapshot"), (5, DONE)], "a snapshot stood for events that were no longer there"),
    ],
)
def test_what_is_missing_is_named(seen: list[tuple[int, str]], missing: str) -> None:
    assert witness_of(*seen).missing == missing


def test_a_run_that_was_started_again_is_not_whole() -> None:
    witness = witness_of((1, STARTED), (2, STEP))
    witness.see(Position(8, 1), STARTED)
    witness.see(Position(8, 2), DONE)

    assert witness.missing == "it was started again after event 2"


def test_the_first_fault_is_the_one_that_is_told() -> None:
    assert witness_of((1, STARTED), (3, STEP), (3, STEP), (4, DONE)).missing == "event 2 is missing"
