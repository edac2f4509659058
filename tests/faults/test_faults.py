"""Every fault at its shortest: nothing lost, nothing twice, nothing out of order, and whatever Redis lost is said."""

from __future__ import annotations

import pytest

import tests.faults.cases  # noqa: F401  # enters the faults into the table
from tests.faults.faults import FAULTS, Fault, named, play

SHORT = [
    pytest.param(fault, length, id=named(fault, length).replace(" ", "-"))
    for fault in FAULTS.values()
    for length in fault.short
]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("fault", "length"), SHORT)
def test_nothing_is_lost_or_twice_or_out_of_order(fault: Fault, length: float) -> None:
    report = play(fault, length)
    assert report.passed, report.told()
