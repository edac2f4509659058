"""``python -m tests.faults [name …]``: play the faults as printed, and tell in a table how they went.

Names may hold ``*``. ``--short``: at their shortest. ``--list``: only say which there are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch

import tests.faults.cases  # noqa: F401  # enters the faults into the table
from tests.faults.faults import FAULTS, Fault, Report, named, play

_HEADS = (
    "fault", "runs", "readers", "published", "seen", "lost", "duplicated", "out of order", "announced", "seconds",
    "verdict",
)  # fmt: skip


def chosen(names: Sequence[str], *, short: bool) -> Iterator[tuple[Fault, float]]:
    """Yield the faults that match a name, all without one, with each of their lengths."""
    for fault in FAULTS.values():
        if not names or any(fnmatch(fault.name, name) for name in names):
            yield from ((fault, length) for length in (fault.short if short else fault.printed))


def table(reports: Sequence[Report]) -> str:
    """Return the rows below their heads, in columns."""
    rows = [_HEADS, *map(_row, reports)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at in (0, len(row) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(report: Report) -> tuple[str, ...]:
    verdict, count = report.verdict, report.verdict.count
    numbers = (
        report.runs, report.readers, verdict.published, count.seen, count.lost, count.duplicated, count.disordered,
        count.announced,
    )  # fmt: skip
    passed = "passed" if report.passed else "FAILED"
    return (report.name, *map(str, numbers), f"{report.seconds:.1f}", passed)


def main() -> int:
    """Play what was asked for; the exit code is 1 if any failed, 2 if there is nothing of that name."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Play faults on real servers."
    )
    parser.add_argument("names", nargs="*", help="faults by name, * for any part; all without one")
    parser.add_argument("--short", action="store_true", help="at their shortest, as the tests play them")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    given = parser.parse_args()
    faults = list(chosen(given.names, short=given.short))
    if not faults:
        print(f"There is no fault called {' or '.join(given.names)}; --list tells which there are.")
        return 2

    if given.list:
        for fault, length in faults:
            print(f"{named(fault, length):<40} {fault.what}")
        return 0

    reports = []
    for fault, length in faults:
        report = play(fault, length)
        reports.append(report)
        print(f"{'passed' if report.passed else 'FAILED'}  {report.name}  {report.seconds:.1f} s", flush=True)
        if not report.passed:
            print(report.told(), flush=True)
    print(f"\n{table(reports)}")
    failed = sum(not report.passed for report in reports)
    print(f"\n{len(reports)} faults, {failed} failed, {sum(report.seconds for report in reports):.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
