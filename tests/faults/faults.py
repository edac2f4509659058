"""The faults by name, and how one is played: the same for ``make test`` at their shortest and for ``make faults``."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.ledger import Count, Verdict
from tests.faults.stage import Stage

__all__ = ["FAULTS", "Fault", "Report", "fault", "play"]

Play = Callable[[Stage, float], None]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is broken: ``play`` sets the stage, breaks something for a length, and returns when all is calm.

    ``printed`` are the lengths of ``make faults``, ``short`` those of ``make test``, both in ``unit``.
    """

    name: str
    what: str
    play: Play
    printed: tuple[float, ...]
    short: tuple[float, ...]
    unit: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """How one fault went: a row of the table."""

    name: str
    runs: int
    readers: int
    verdict: Verdict
    seconds: float

    @property
    def passed(self) -> bool:
        return self.verdict.passed

    def told(self) -> str:
        """Return in words what is wrong, the first of it if it is much."""
        count, complaints = self.verdict.count, self.verdict.complaints
        more = f"\n  and {len(complaints) - _TOLD} more complaints" if len(complaints) > _TOLD else ""
        return "\n  ".join([f"{self.name}: {count}", *complaints[:_TOLD]]) + more


_TOLD: Final = 12
FAULTS: Final[dict[str, Fault]] = {}
"""All faults by name, in the order in which they are told."""


def fault(
    what: str, *, printed: Sequence[float] = (0,), short: Sequence[float] = (0,), unit: str = "s"
) -> Callable[[Play], Play]:
    """Enter a function into :data:`FAULTS`, under its own name; ``what`` is said in the table."""

    def enter(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        if name in FAULTS:
            raise ValueError(f"there are two faults called {name}")
        FAULTS[name] = Fault(
            name=name, what=what, play=play, printed=tuple(printed), short=tuple(short), unit=unit
        )
        return play

    return enter


def named(fault: Fault, length: float) -> str:
    """Return how a fault of a length is called: ``redis-killed 5 s``; without its length if it has none."""
    return f"{fault.name} {length:g} {fault.unit}" if length else fault.name


def play(fault: Fault, length: float) -> Report:
    """Play a fault; never raises for anything that goes wrong in it, which the verdict tells instead."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="toolcast-fault-") as folder, Stage(Path(folder)) as stage:
        try:
            fault.play(stage, length)
            verdict = stage.verdict()
        except Exception:
            verdict = Verdict(Count(), 0, [traceback.format_exc(), *stage.said])
    return Report(
        name=named(fault, length),
        runs=len(stage.runs),
        readers=stage.readers,
        verdict=verdict,
        seconds=time.monotonic() - begun,
    )
