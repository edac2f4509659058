"""The benchmark's verdicts: medians against goals."""

from __future__ import annotations

from benchmarks.report import Measurements, judge, table


def measured(*, cpu_us: float = 12.0, missing: float = 0, nchan: bool = True) -> Measurements:
    found = Measurements()
    for noise in (-1.0, 0.0, 50.0):
        numbers = {"cpu_us": cpu_us + noise, "burst_per_s": 1e6, "idle_bytes": 13_000.0, "missing": 0.0}
        found.add("gateway", numbers)
        if nchan:
            found.add("nchan", {"cpu_us": 10.0, "burst_per_s": 1e5, "missing": 0.0})
    found.add("gateway", {"missing": missing})
    return found


def words(found: Measurements) -> list[str]:
    return [verdict.word for verdict in judge(found.medians())]


def test_one_bad_round_misses_no_goal_and_the_ratio_is_of_medians() -> None:
    """Whatever else a machine does now and then is not the gateway's."""
    assert words(measured()) == ["met"] * 4
    assert "1.20 ×" in table(measured().medians())


def test_each_goal_can_be_missed() -> None:
    """Twice nchan's CPU is the limit, and one lost delivery is one too many."""
    assert words(measured(cpu_us=20.1))[0] == "MISSED"
    assert words(measured(missing=1))[3] == "MISSED"


def test_without_nchan_what_is_compared_with_it_is_not_measured() -> None:
    """The others are judged all the same."""
    assert words(measured(nchan=False)) == ["not measured", "not measured", "met", "met"]
    assert "–" in table(measured(nchan=False).medians())
