"""What may be said of any object, even of one whose own methods raise (no I/O)."""

from __future__ import annotations

from typing import Final

__all__ = ["repr_of", "text_of"]

_SHOWN: Final = 200


def text_of(error: BaseException) -> str:
    """Return an exception's own text; ``""`` if it can't say it."""
    try:
        return str(error)
    except Exception:  # an exception's own method
        return ""


def repr_of(value: object, limit: int | None = _SHOWN) -> str:
    """Return the first ``limit`` characters of ``repr(value)``; ``<Type>`` if it has none."""
    try:
        return repr(value)[:limit]
    except Exception:  # a value's own method
        return f"<{type(value).__name__}>"
