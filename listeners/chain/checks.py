"""What the members of a shape must be; a wrong one is refused with the shape's and the member's name (no I/O)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["all_of", "check", "check_bool", "check_one_of", "check_optional_str", "check_str", "copy_mapping"]


def check_str(value: object, *names: str) -> None:
    """Refuse members that are no ``str``."""
    check(value, str, "a str", names)


def check_optional_str(value: object, *names: str) -> None:
    """Refuse members that are neither ``str`` nor ``None``."""
    check(value, str | None, "a str or None", names)


def check_bool(value: object, *names: str) -> None:
    """Refuse members that are no ``bool``."""
    check(value, bool, "a bool", names)


def check_one_of(value: object, name: str, allowed: Sequence[str]) -> None:
    """Refuse a member that is another word than those ``allowed``, with ``ValueError``."""
    given = getattr(value, name)
    if given not in allowed:
        raise ValueError(f"{type(value).__name__}.{name} must be one of {', '.join(allowed)}, not {given!r}")


def check(value: object, expected: Any, described: str, names: Sequence[str]) -> None:
    """Refuse members that are no ``expected``, with ``TypeError``."""
    for name in names:
        given = getattr(value, name)
        if not isinstance(given, expected):
            raise TypeError(f"{type(value).__name__}.{name} must be {described}, not {type(given).__name__}")


def copy_mapping(value: object, name: str) -> None:
    """Put a ``dict`` of its own in the place of a mapping; refuse what is none with ``str`` keys."""
    given = getattr(value, name)
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise TypeError(f"{type(value).__name__}.{name} must be a mapping with str keys, not {given!r:.80}")
    object.__setattr__(value, name, dict(given))


def all_of(kind: type[Any], what: str, given: object) -> tuple[Any, ...]:
    """Return ``given`` as a tuple; refuse what is no sequence of ``kind``."""
    if not isinstance(given, Sequence) or not all(isinstance(one, kind) for one in given):
        raise TypeError(f"{what} must be a sequence of {kind.__name__}s")
    return tuple(given)
