"""Any Python value as what JSON can carry; what it can't is replaced by its ``repr``, cut (contract §2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["REPR_LENGTH", "plain"]

REPR_LENGTH: Final = 500
"""Characters of a ``repr`` at most."""
_DEPTH: Final = 64
"""Levels of nesting that are kept; a value that holds itself ends there."""
_INT_BITS: Final = 64


def plain(value: Any) -> tuple[Any, bool]:
    """Return ``value`` as dicts, lists, texts, numbers, ``True``, ``False`` and ``None``, and whether it is whole.

    Dataclasses, msgspec and pydantic models, dates, enums, sets and the like become what they hold. It is not
    whole if something was replaced by its ``repr`` or cut. The result shares nothing with ``value``; never raises.
    """
    whole = True

    def replaced(part: Any) -> Any:
        nonlocal whole
        dump = getattr(part, "model_dump", None)
        if callable(dump) and not isinstance(part, type):
            return dump(mode="json")
        if isinstance(part, Mapping):
            return dict(part)
        whole = False
        return _repr(part)

    try:
        encoded = msgspec.json.encode(value, enc_hook=replaced)
        # Numbers that JSON has no word for have become null.
        if b"null" not in encoded or not _holds_nan(msgspec.to_builtins(value, enc_hook=replaced)):
            return msgspec.json.decode(encoded), whole
    except Exception:
        # What follows is slower and takes anything.
        pass
    return _walked(value, 0), False


def _holds_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_nan, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_holds_nan, value))


def _walked(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else str(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _repr(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _INT_BITS else _repr(value)
    if depth >= _DEPTH:
        return "…"
    try:
        if isinstance(value, Mapping):
            return {_key(name): _walked(member, depth + 1) for name, member in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_walked(item, depth + 1) for item in value]
        known = msgspec.to_builtins(value, str_keys=True, enc_hook=_repr)
        return known if isinstance(known, str) else _walked(known, depth + 1)
    except Exception:
        return _repr(value)


def _key(name: Any) -> str:
    text = name if isinstance(name, str) else _repr(name)
    return text.encode("utf-8", "replace").decode()


def _repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        # The type's name is all that a value is known by whose own `repr` fails.
        text = f"<{type(value).__name__}>"
    text = text[:REPR_LENGTH].encode("utf-8", "replace").decode()
    return text if len(text) < REPR_LENGTH else text[:-1] + "…"
