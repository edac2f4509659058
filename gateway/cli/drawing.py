"""A run as a person reads it in a terminal: a line a call, with a spinner while it runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gateway.cli.terminal import printable
from listeners.contract.fold import CallState, RunState, is_open

__all__ = ["RunView", "duration_text", "now", "result_text", "seconds_between", "title_text"]

_SIGNS: Final = {
    "identified": ("◌", "dim"),
    "interrupted": ("?", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "denied": ("⊘", "red"),
    "cancelled": ("·", "dim"),
}
_STATUS_STYLES: Final = {"completed": "green", "failed": "red", "interrupted": "yellow"}


class RunView:
    """What is on the screen; rich asks it anew at each refresh, so that spinners turn and seconds pass.

    ``clock`` returns the time now; with ``lines`` only the newest calls that fit are drawn.
    """

    def __init__(self, state: RunState, *, clock: Callable[[], datetime], spinning: bool = True) -> None:
        self.state = state
        self.trouble: str | None = None
        self.whole = False
        self._clock = clock
        self._spinning = spinning
        # One for all rows: they turn together, and a spinner made anew at each refresh would never turn.
        self._spinner = Spinner("dots", style="cyan")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the heading, the calls that fit, and what else there is to say."""
        state = self.state
        yield self._heading()
        room = len(state.calls) if self.whole else max(1, console.size.height - 4)
        hidden = len(state.calls) - room
        if hidden > 0:
            yield Text(f"  … {hidden} earlier", style="dim")

        rows = Table.grid(padding=(0, 1))
        rows.add_column(width=1)
        rows.add_column(ratio=None, overflow="ellipsis", no_wrap=True)
        rows.add_column(justify="right", no_wrap=True)
        rows.add_column(overflow="ellipsis", no_wrap=True)
        for call in state.calls[-room:]:
            rows.add_row(*self._row(call))
        if state.calls:
            yield rows
        if self.trouble is not None:
            yield Text(f"  reconnecting: {printable(self.trouble)}", style="yellow")

    def _heading(self) -> Text:
        state = self.state
        heading = Text(printable(state.title or state.run), style="bold", no_wrap=True, overflow="ellipsis")
        words = [state.run] if state.title else []
        words.append("waiting for its first event" if state.status == "waiting" else state.status)
        passed = seconds_between(state.started_at, state.ended_at or self._clock())
        if passed is not None:
            words.append(duration_text(passed))
        heading.append("  " + " · ".join(words), style=_STATUS_STYLES.get(state.status, "dim"))
        if state.error is not None:
            heading.append(f"  {printable(state.error.message)}", style="red")
        return heading

    def _row(self, call: CallState) -> tuple[Text | Spinner, Text, Text, Text]:
        sign: Text | Spinner
        if call.state == "running":
            sign = self._spinner if self._spinning else Text("▶", style="cyan")
        else:
            sign = Text(*_SIGNS[call.state])
        passed = call.duration_ms / 1000 if call.duration_ms is not None else None
        if passed is None:
            passed = seconds_between(call.started_at, self._clock() if is_open(call) else call.ended_at)
        style = "red" if call.state in {"failed", "denied"} else "dim"
        return (
            sign,
            Text(title_text(call)),
            Text("" if passed is None else duration_text(passed), style="dim"),
            Text(result_text(call), style=style),
        )


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


def title_text(call: CallState) -> str:
    """What to call it now; an ended call is no longer under way, whatever its last title says."""
    title = printable(call.title or call.name or call.key)
    return title if is_open(call) else title.removesuffix("…").rstrip()


def result_text(call: CallState) -> str:
    """The newest thing there is to know: error, result, question, or progress; one line of at most 80 characters."""
    text = ""
    if call.error is not None:
        text = call.error.message
    elif call.state == "completed":
        text = call.result_summary or ("" if call.result is None else str(call.result))
    elif call.interrupt is not None:
        text = f"asks: {call.interrupt.message}"
    elif call.progress is not None:
        text = _progress(call.progress)
    text = printable(text)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _progress(progress: dict[str, object]) -> str:
    done, total, message = (progress.get(name) for name in ("progress", "total", "message"))
    parts = []
    if isinstance(done, int | float):
        parts.append(f"{done:g} of {total:g}" if isinstance(total, int | float) else f"{done:g}")
    if isinstance(message, str):
        parts.append(message)
    return " · ".join(parts)


def seconds_between(start: str | None, end: str | datetime | None) -> float | None:
    """Seconds from ``start`` to ``end``, not below 0; ``None`` where a time is missing or can't be read."""
    try:
        begun = datetime.fromisoformat(start or "")
        ended = end if isinstance(end, datetime) else datetime.fromisoformat(end or "")
        return max(0.0, (ended - begun).total_seconds())
    except (ValueError, TypeError):
        return None


def duration_text(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
