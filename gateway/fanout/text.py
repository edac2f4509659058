"""An event as a line for people: aligned, without colour codes, safe for a terminal."""

from __future__ import annotations

import re
from typing import Any, Final

from listeners.contract.events import TERMINAL_TYPES, Event, InvalidEvent, decode
from listeners.contract.fold import RunState
from listeners.contract.log import Entry

__all__ = ["ending", "line", "seconds"]

_SIGNS: Final = {
    "tool_call_identified": "◌",
    "tool_execution_started": "▶",
    "tool_progress": "…",
    "tool_execution_completed": "✓",
    "tool_execution_failed": "✗",
    "tool_interrupted": "?",
    "tool_decision": "!",
}
_ENDINGS: Final = frozenset({"tool_execution_completed", "tool_execution_failed"})
_STATES: Final = {"identified": "◌", "running": "▶", "interrupted": "?", "completed": "✓"}
_OPEN: Final = frozenset({"identified", "running", "interrupted"})
# What an agent puts into a title must not steer a terminal: C0, C1, and the marks that turn the writing direction.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")


def line(entry: Entry) -> str:
    """Return the lines of one event, each ended by LF; what can't be read still shows its type."""
    try:
        event = decode(entry.event)
    except InvalidEvent:
        return f"{'':12}   {_clean(entry.type)}\n"
    if entry.type == "snapshot":
        return _snapshot(event)
    if entry.type in TERMINAL_TYPES:
        return ""  # The end is told from the whole run: `ending`.
    clock = _clean(event.time[11:24]) or f"{'':13}"
    if event.call is None:
        text = f"{clock}  · {_clean(entry.type)}{_detail(event)}\n"
        return _heading(event.data.get("title"), event.time) + text if entry.type == "run_started" else text
    name = f"{_clean(event.call.name or event.call.key):<16}"
    title = _title(event.call.title, over=entry.type in _ENDINGS)
    return f"{clock}  {_SIGNS.get(entry.type, '·')} {name}  {title}{_detail(event)}\n"


def ending(state: RunState) -> str:
    """Return the last line of a run: ``✓ completed, 5 calls, 14.2 s``."""
    calls = len(state.calls) + (state.calls_dropped or 0)
    words = [state.status, f"{calls} call{'' if calls == 1 else 's'}"]
    duration = seconds(state.started_at, state.ended_at)
    if duration is not None:
        words.append(f"{duration:.1f} s")
    message = f" — {_clean(state.error.message)}" if state.error is not None else ""
    sign = {"completed": "✓", "failed": "✗"}.get(state.status, "·")
    return f"{sign} {', '.join(words)}{message}\n"


def seconds(start: str | None, end: str | None) -> float | None:
    """Seconds between two times of an envelope; ``None`` where one is missing or unreadable."""
    from datetime import datetime

    try:
        return (datetime.fromisoformat(end or "") - datetime.fromisoformat(start or "")).total_seconds()
    except (ValueError, TypeError):
        return None


def _heading(title: Any, time: str) -> str:
    return f"{_clean(str(title)) if title else 'Run'}  {_clean(time[:10])}\n\n"


def _snapshot(event: Event) -> str:
    data = event.data
    reason = data.get("reason")
    if reason in ("absent", "expired", "deleted"):
        return f"· {reason}: {_clean(str(data.get('status', '')))}\n"
    lines = [_heading(data.get("title"), str(data.get("started_at") or event.time))]
    for call in data.get("calls") or ():
        state = call.get("state")
        name = _clean(str(call.get("name") or call.get("key")))
        title = _title(str(call.get("title", "")), over=state not in _OPEN)
        lines.append(f"{'':13}  {_STATES.get(state, '✗')} {name:<16}  {title}\n")
    return "".join(lines)


def _detail(event: Event) -> str:
    data = event.data
    parts = []
    if "progress" in data and "total" in data:
        parts.append(_cut(_clean(f"{data['progress']} of {data['total']}"), 60))
    for name in ("message", "result_summary", "reason", "code"):
        value = data.get(name)
        if isinstance(value, str) and value and value != "error":
            parts.append(_cut(_clean(value), 60))
            break
    duration = data.get("duration_ms")
    if isinstance(duration, int | float):
        parts.append(f"{duration / 1000:.1f} s")
    return "  " + " · ".join(parts) if parts else ""


def _title(title: str, *, over: bool) -> str:
    # Where a tool gave no title for its end, the one for its running stands, which isn't going on (contract §2).
    return _clean(title.removesuffix("…").rstrip() if over else title)


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
