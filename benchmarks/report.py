"""Medians of what was measured, the goals, and the table that shows both (no I/O)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

__all__ = ["GOALS", "Goal", "Measurements", "Verdict", "judge", "table"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What ``metric`` of the gateway must be: at most or at least ``bound``, as a multiple of nchan's or by itself."""

    metric: str
    title: str
    bound: float
    at_least: bool = False
    of_nchan: bool = True

    def holds(self, value: float) -> bool:
        """Tell whether ``value``, a multiple or a number of its own, is good enough."""
        return value >= self.bound if self.at_least else value <= self.bound

    @property
    def text(self) -> str:
        """The goal as it stands in the table."""
        return f"{'≥' if self.at_least else '≤'} {self.bound:,g}{' ×' if self.of_nchan else ''}"


GOALS: Final = (
    Goal("cpu_us", "CPU per delivery, µs", 2),
    Goal("burst_per_s", "burst, deliveries/s", 5, at_least=True),
    Goal("idle_bytes", "bytes per idle reader", 17_000, of_nchan=False),
    Goal("missing", "deliveries missing", 0, of_nchan=False),
)
_ALSO_SHOWN: Final = {
    "burst_ms": "burst, publish to last, ms",
    "p50_ms": "latency p50, ms",
    "p99_ms": "latency p99, ms",
    "per_read": "deliveries in a read",
    "core": "share of its core",
    "late_ms": "publisher late, ms",
}
_RIGS: Final = ("floor", "nchan", "gateway")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal and how it was met; ``value`` is ``None`` where its yardstick is missing."""

    goal: Goal
    value: float | None

    @property
    def word(self) -> str:
        """``met``, ``MISSED``, or ``not measured``."""
        if self.value is None:
            return "not measured"
        return "met" if self.goal.holds(self.value) else "MISSED"


class Measurements:
    """Numbers by rig and metric, several of each."""

    def __init__(self) -> None:
        self._values: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, rig: str, numbers: Mapping[str, float]) -> None:
        """Note what one measurement has found."""
        for metric, value in numbers.items():
            self._values[rig][metric].append(value)

    def medians(self) -> dict[str, dict[str, float]]:
        """The median of each metric of each rig; of ``missing`` the largest, since one loss is one too many."""
        return {
            rig: {
                metric: max(values) if metric == "missing" else median(values)
                for metric, values in metrics.items()
            }
            for rig, metrics in self._values.items()
        }


def judge(medians: Mapping[str, Mapping[str, float]]) -> list[Verdict]:
    """Compare the gateway with the goals."""
    ours, nchan = medians["gateway"], medians.get("nchan")
    verdicts = []
    for goal in GOALS:
        value: float | None = ours[goal.metric]
        if goal.of_nchan:
            value = None if nchan is None else ours[goal.metric] / nchan[goal.metric]
        verdicts.append(Verdict(goal, value))
    return verdicts


def table(medians: Mapping[str, Mapping[str, float]]) -> str:
    """Return the medians and the verdicts as a table in Markdown."""
    rows = [["", *_RIGS, "gateway : nchan", "goal", ""]]
    for verdict in judge(medians):
        goal = verdict.goal
        ratio = f"{verdict.value:.2f} ×" if goal.of_nchan and verdict.value is not None else ""
        rows.append([goal.title, *_cells(medians, goal.metric), ratio, goal.text, verdict.word])
    for metric, title in _ALSO_SHOWN.items():
        rows.append([title, *_cells(medians, metric), "", "", ""])
    rows.insert(1, ["---"] + ["---:"] * 4 + ["---"] * 2)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )


def _cells(medians: Mapping[str, Mapping[str, float]], metric: str) -> list[str]:
    return [_shown(medians.get(rig, {}).get(metric)) for rig in _RIGS]


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"
