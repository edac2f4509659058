"""``toolcast runs``: which runs there were lately."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from gateway.cli.client import DEFAULT_GATEWAY, GatewayClient, Refused, Unreachable
from gateway.cli.terminal import fail, printable

__all__ = ["RunsFormat", "runs", "table_of"]

_COLUMNS: Final = ("RUN", "STATUS", "CALLS", "STARTED", "TOOK", "WATCHERS", "TITLE")


class RunsFormat(enum.StrEnum):
    """How the list is written."""

    TABLE = "table"
    JSON = "json"


def runs(
    url: Annotated[
        str, typer.Option(help="The gateway.", envvar="TOOLCAST_URL", metavar="URL")
    ] = DEFAULT_GATEWAY,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many at most.")] = 50,
    format: Annotated[RunsFormat, typer.Option(help="How to write them.")] = RunsFormat.TABLE,
) -> None:
    """List the runs seen lately, newest first.

    Ends with 3 where there is no gateway.
    """
    try:
        client = GatewayClient(url)
    except ValueError as error:
        fail(str(error), status=2)
    try:
        answer = client.get(f"/runs?limit={limit}")
    except (Unreachable, Refused) as error:
        fail(str(error), status=3)

    found: list[dict[str, Any]] = answer["runs"]
    if format is RunsFormat.JSON:
        json.dump(found, sys.stdout, ensure_ascii=False, indent=2)
        print()
        return

    from gateway.cli.drawing import now

    for line in table_of(found, clock=now):
        print(line)


def table_of(found: list[dict[str, Any]], *, clock: Callable[[], datetime]) -> list[str]:
    """Return aligned lines, the heading first; nothing is cut, so that what is piped is whole."""
    rows = [_COLUMNS, *(_row(run, clock()) for run in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _row(run: dict[str, Any], now: datetime) -> tuple[str, ...]:
    from gateway.cli.drawing import duration_text, seconds_between

    started, ended = run.get("started_at"), run.get("ended_at")
    ago = seconds_between(started, now)
    took = seconds_between(started, ended or now)
    return (
        printable(str(run.get("run", ""))),
        printable(str(run.get("status", ""))),
        str(run.get("calls", "")),
        "" if ago is None else f"{duration_text(ago)} ago",
        "" if took is None else duration_text(took),
        str(run.get("watchers", "")),
        printable(str(run.get("title", ""))),
    )
