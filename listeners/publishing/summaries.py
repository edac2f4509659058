"""A value as a short text for people: ``9 items: queue.py, sched.py, …``, ``city: Oslo, unit: C`` (contract §6)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from listeners.publishing.plain import plain
from listeners.publishing.redaction import Redaction

__all__ = ["SUMMARY_LENGTH", "cut", "one_line", "short", "summary"]

SUMMARY_LENGTH: Final = 500
"""Characters of a summary at most."""
_MEMBER_LENGTH: Final = 160
_ITEM_LENGTH: Final = 60
_LIST_LENGTH: Final = 160
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_NOTHING_HIDDEN: Final = Redaction(())


def cut(text: str, length: int) -> str:
    """Return ``text`` with at most ``length`` characters, the last one ``…`` if any were cut."""
    return text if len(text) <= length else text[: length - 1] + "…"


def one_line(text: str, length: int) -> str:
    """Return ``text`` as one line without control characters, cut at ``length`` characters."""
    if len(text) <= length and text.isprintable() and "  " not in text and text == text.strip():
        return text
    # Only what can still be seen after collapsing white space is looked at, however long the text is.
    return cut(" ".join(_CONTROLS.sub(" ", text[: 20 * length]).split()), length)


def summary(value: Any, redaction: Redaction = _NOTHING_HIDDEN) -> str:
    """Return ``value`` as a text of at most 500 characters; looks at no more of it than it shows."""
    if isinstance(value, str):
        return cut(value, SUMMARY_LENGTH)
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if isinstance(value, Mapping):
        shown = _members(value, redaction, limit=SUMMARY_LENGTH - 2, each=_MEMBER_LENGTH, depth=0)
        return cut(shown or "0 items", SUMMARY_LENGTH)
    if isinstance(value, (list, tuple, set, frozenset)):
        count = f"{len(value)} item" if len(value) == 1 else f"{len(value)} items"
        shown = _items(value, redaction, limit=_LIST_LENGTH, each=_ITEM_LENGTH, depth=0)
        return cut(f"{count}: {shown}" if shown else count, SUMMARY_LENGTH)
    if value is None or isinstance(value, (bool, int, float)):
        return _scalar(value)
    known = plain(value)[0]
    return summary(known, redaction) if isinstance(known, (str, dict, list)) else _scalar(known)


def short(value: Any, length: int, redaction: Redaction = _NOTHING_HIDDEN, *, depth: int = 1) -> str:
    """Return ``value`` as one line of at most ``length`` characters."""
    if isinstance(value, str):
        return one_line(value, length)
    if isinstance(value, Mapping):
        inner = "…" if depth > 2 else _members(value, redaction, limit=length - 2, each=length, depth=depth)
        return cut("{" + inner + "}", length)
    if isinstance(value, (list, tuple, set, frozenset)):
        inner = "…" if depth > 2 else _items(value, redaction, limit=length - 2, each=length, depth=depth)
        return cut("[" + inner + "]", length)
    if value is None or isinstance(value, (bool, int, float, bytes, bytearray)):
        return cut(_scalar(value), length)
    known = plain(value)[0]
    return (
        short(known, length, redaction, depth=depth)
        if isinstance(known, (str, dict, list))
        else _scalar(known)
    )


def _members(value: Mapping[Any, Any], redaction: Redaction, *, limit: int, each: int, depth: int) -> str:
    return _joined(
        (
            f"{one_line(str(name), _ITEM_LENGTH)}: "
            + short(redaction.member(str(name), member), each, redaction, depth=depth + 1)
            for name, member in value.items()
        ),
        limit,
    )


def _items(value: Iterable[Any], redaction: Redaction, *, limit: int, each: int, depth: int) -> str:
    return _joined((short(item, each, redaction, depth=depth + 1) for item in value), limit)


def _joined(parts: Iterable[str], limit: int) -> str:
    """Join what fits into ``limit`` characters; the first part always stands, and ``…`` says that more follow."""
    shown: list[str] = []
    length = 0
    # Empty parts cost two characters each, so that this many are as many as can ever fit.
    for part in islice(parts, limit):
        length += len(part) + 2
        if shown and length > limit:
            shown.append("…")
            break
        shown.append(part)
    return ", ".join(shown)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    try:
        return str(value)
    except ValueError:
        # Python refuses to print integers of more than 4,300 digits.
        return "a large number"
