"""What a widget shows for a call now: from a title, the call's arguments, and how far it is (contract §2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

from listeners.publishing.redaction import Redaction
from listeners.publishing.summaries import one_line, short

__all__ = ["Phase", "Title", "humanised", "title_of"]

Title = str | tuple[str, ...] | Callable[[Mapping[str, Any]], str]
"""What to show now, or (running, done, failed[, asking]), or a function of the arguments."""
Phase = Literal["running", "done", "failed", "asking"]

_PLACES: Final[dict[Phase, int]] = {"running": 0, "done": 1, "failed": 2, "asking": 3}
_FIELD = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_VALUE_LENGTH: Final = 60
_TITLE_LENGTH: Final = 200
_NOTHING_HIDDEN: Final = Redaction(())


@lru_cache(maxsize=1024)
def humanised(name: str) -> str:
    """Return a tool's name as words: ``web_search`` → ``Web search``."""
    return one_line(name.replace("_", " "), _TITLE_LENGTH).capitalize()


def title_of(
    title: Title | None,
    name: str,
    arguments: Mapping[str, Any] | None,
    phase: Phase,
    redaction: Redaction = _NOTHING_HIDDEN,
) -> str:
    """Return the line to show for a call of the tool ``name``.

    ``arguments`` are redacted already, but for what ``redaction`` finds inside of objects; ``None`` while they aren't
    known: then, and where a ``{name}`` is missing or a function of the arguments fails, the humanised name stands.
    Never raises.
    """
    try:
        shown = _shown(title, arguments, phase, redaction)
    except Exception:
        shown = None
    return shown or humanised(name)


def _shown(
    title: Title | None, arguments: Mapping[str, Any] | None, phase: Phase, redaction: Redaction
) -> str | None:
    if title is None:
        return None
    if callable(title):
        return None if arguments is None else one_line(str(title(arguments)), _TITLE_LENGTH)
    if isinstance(title, str):
        template = title
    else:
        place = _PLACES[phase]
        template = title[place if place < len(title) else 0]
    return _filled(template, arguments, redaction)


def _filled(template: str, arguments: Mapping[str, Any] | None, redaction: Redaction) -> str | None:
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        name = match[1]
        if name is None:
            return match[0][0]
        if arguments is None or name not in arguments:
            missing = True
            return ""
        return short(arguments[name], _VALUE_LENGTH, redaction)

    # Not str.format: a template may be data, and `{q.__class__}` would look into the agent.
    shown = one_line(_FIELD.sub(value, template), _TITLE_LENGTH)
    return None if missing else shown
