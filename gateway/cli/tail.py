"""``toolcast tail``: a run's calls in the terminal, as they stand or as they happen."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from gateway.cli.client import DEFAULT_GATEWAY, GatewayClient, Received, Refused, Unreachable
from gateway.cli.terminal import fail, say
from listeners.contract.events import TERMINAL_TYPES, RunIdError, check_run_id
from listeners.contract.fold import RunState, fold, waiting
from listeners.contract.position import Position

if TYPE_CHECKING:
    from gateway.cli.drawing import RunView

__all__ = ["TailFormat", "tail"]

FAILED: Final = 1
WRONG_USE: Final = 2
NOTHING_THERE: Final = 3
INTERRUPTED: Final = 130


class TailFormat(enum.StrEnum):
    """How a run is written."""

    TABLE = "table"
    TEXT = "text"
    NDJSON = "ndjson"


def tail(
    run: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN", show_default=False)],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends; wait for one that hasn't begun.")
    ] = False,
    url: Annotated[
        str, typer.Option(help="The gateway.", envvar="TOOLCAST_URL", metavar="URL")
    ] = DEFAULT_GATEWAY,
    format: Annotated[
        TailFormat | None,
        typer.Option(
            help="How to write it; without one, table on a terminal and text elsewhere.", show_default=False
        ),
    ] = None,
) -> None:
    """Show the calls of a run.

    Ends with 0 for a run that is open or completed, 1 for one that failed or was cancelled, 2 for wrong use, 3 where
    there is no gateway or no such run, 130 on Ctrl-C.
    """
    try:
        check_run_id(run)
        client = GatewayClient(url)
    except (RunIdError, ValueError) as error:
        fail(str(error), status=WRONG_USE)

    chosen = format or (TailFormat.TABLE if sys.stdout.isatty() else TailFormat.TEXT)
    try:
        state = (
            _table(client, run, follow) if chosen is TailFormat.TABLE else _lines(client, run, follow, chosen)
        )
    except (Unreachable, Refused) as error:
        fail(str(error), status=NOTHING_THERE)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        _leave_pipe()

    if not follow and state.status in {"running", "interrupted"}:
        say(f"still {state.status}: --follow goes on until it ends")
    if state.status == "waiting":
        raise SystemExit(NOTHING_THERE)
    if state.status in {"failed", "cancelled"}:
        raise SystemExit(FAILED)


def _table(client: GatewayClient, run: str, follow: bool) -> RunState:
    from rich.console import Console
    from rich.live import Live

    from gateway.cli.drawing import RunView, now

    console = Console(highlight=False)
    view = RunView(waiting(run), clock=now, spinning=follow)
    if not follow:
        for received in _to_head(client, run):
            view.state = fold(view.state, received.position, received.event)
        view.whole = True
        console.print(view)
        return view.state

    with Live(view, console=console, refresh_per_second=10, vertical_overflow="visible") as live:
        try:
            for received in client.events(run, trouble=lambda reason: _note(view, reason)):
                view.state = fold(view.state, received.position, received.event)
        finally:
            # What stays on the screen is the whole run, not the part that fitted.
            view.whole = True
            live.refresh()
    return view.state


def _lines(client: GatewayClient, run: str, follow: bool, chosen: TailFormat) -> RunState:
    from gateway.fanout.text import ending, line
    from listeners.contract.log import Entry

    state = waiting(run)
    for received in client.events(run, trouble=_say_trouble) if follow else _to_head(client, run):
        state = fold(state, received.position, received.event)
        if chosen is TailFormat.NDJSON:
            written = received.line
        elif received.event.type in TERMINAL_TYPES:
            written = ending(state).encode()
        else:
            written = line(Entry(received.position, received.event.type, received.line)).encode()
        sys.stdout.buffer.write(written)
        sys.stdout.buffer.flush()
    return state


def _to_head(client: GatewayClient, run: str) -> Iterator[Received]:
    """Yield what has happened so far; raises :class:`Refused` for a run that isn't there."""
    state = client.get(f"/runs/{run}")
    head = Position.parse(str(state.get("position"))) if isinstance(state, dict) else None
    if head is None:
        raise Refused(200, "Not a gateway", f"{client.url} does not answer as one.")

    for received in client.events(run):
        yield received
        # Another epoch means that the run began anew meanwhile: its first events are all there is.
        if received.position.epoch != head.epoch or received.position.seq >= head.seq:
            return


def _note(view: RunView, reason: str | None) -> None:
    view.trouble = reason


def _say_trouble(reason: str | None) -> None:
    if reason is not None:
        say(f"reconnecting: {reason}")


def _leave_pipe() -> NoReturn:
    # Whoever read is gone. Python would flush into the pipe once more at exit, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(141)
