"""How a setting is spelled, read and checked: the kinds that :class:`gateway.settings.Settings` is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

__all__ = [
    "KIB",
    "MIB",
    "Setting",
    "SettingsError",
    "anything",
    "at_least",
    "between",
    "exact_origins",
    "listenable",
    "one_of",
    "read_list",
    "read_optional",
    "read_seconds",
    "read_size",
    "read_switch",
    "read_text",
    "read_whole",
    "redis_address",
    "setting",
]

KIB: Final = 1024
MIB: Final = 1024 * KIB

_T = TypeVar("_T")
_SIZE = re.compile(r"(\d+)\s*(|b|kib|mib|gib|k|m|g)", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_REDIS_SCHEMES: Final = ("redis", "rediss", "unix")


class SettingsError(ValueError):
    """Settings that can't be used; ``errors`` holds every one of them, a line each."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = tuple(errors)
        what = "1 setting is" if len(errors) == 1 else f"{len(errors)} settings are"
        super().__init__(f"{what} not usable:\n" + "\n".join(f"  {line}" for line in errors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table: how a field is spelled outside and what it takes."""

    name: str
    env: str
    flag: str
    kind: str
    help: str
    default: Any
    read: Callable[[str], Any]
    check: Callable[[Any], str | None]

    @property
    def label(self) -> str:
        """Both spellings, for messages: ``PORT (--port)``."""
        return f"{self.env} ({self.flag})"

    @property
    def shown_default(self) -> str:
        """The default as somebody would type it; empty if there is none."""
        return self.show(self.default)

    def show(self, value: Any) -> str:
        """Write ``value`` as it would stand in the environment."""
        if value is None or value == ():
            return ""
        if isinstance(value, bool):
            return "1" if value else "0"
        if isinstance(value, tuple):
            return ",".join(value)
        if self.kind == "size":
            for unit, size in (("MiB", MIB), ("KiB", KIB)):
                if value and value % size == 0:
                    return f"{value // size}{unit}"
        return f"{value:g}" if isinstance(value, float) else str(value)


def read_text(raw: str) -> str:
    """A text as it stands."""
    return raw.strip()


def read_optional(raw: str) -> str | None:
    """A text, or nothing."""
    return raw.strip() or None


def read_whole(raw: str) -> int:
    """A whole number."""
    try:
        return int(raw)
    except ValueError:
        raise ValueError(f"{raw!r} is not a whole number") from None


def read_seconds(raw: str) -> float:
    """Seconds, ``1.5`` or ``1.5s``."""
    try:
        return float(raw.strip().removesuffix("s"))
    except ValueError:
        raise ValueError(f"{raw!r} is not a number of seconds") from None


def read_size(raw: str) -> int:
    """Bytes, ``65536`` or ``64KiB``."""
    match = _SIZE.fullmatch(raw.strip())
    if match is None:
        raise ValueError(f"{raw!r} is not a size: write bytes, or 64KiB, or 1MiB")
    return int(match[1]) * _UNITS[match[2][:1].lower()]


def read_switch(raw: str) -> bool:
    """Yes or no."""
    word = raw.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"", "0", "false", "no", "off"}:
        return False
    raise ValueError(f"{raw!r} is neither yes (1, true, yes, on) nor no (0, false, no, off)")


def read_list(raw: str) -> tuple[str, ...]:
    """Entries between commas or spaces."""
    return tuple(part for part in re.split(r"[\s,]+", raw) if part)


def between(least: float, most: float) -> Callable[[Any], str | None]:
    """A number in a range, both ends included."""

    def check(value: Any) -> str | None:
        if isinstance(value, int | float) and math.isfinite(value) and least <= value <= most:
            return None
        return f"{value!r} is out of range: {least:,g} to {most:,.0f}"

    return check


def at_least(least: int) -> Callable[[Any], str | None]:
    """A number of bytes."""

    def check(value: Any) -> str | None:
        if isinstance(value, int) and value >= least:
            return None
        return f"{value!r} bytes are too few: {least:,} or more"

    return check


def one_of(*words: str) -> Callable[[Any], str | None]:
    """One of a few words."""

    def check(value: Any) -> str | None:
        return None if value in words else f"{value!r} is not one of {', '.join(words)}"

    return check


def anything(value: Any) -> str | None:
    """No check of its own."""
    return None


def listenable(value: Any) -> str | None:
    """An address or a host's name."""
    if isinstance(value, str) and value and not re.search(r"[\s/]", value):
        return None
    return f"{value!r} is not an address to listen on: 127.0.0.1, ::1, 0.0.0.0 or a host's name"


def redis_address(value: Any) -> str | None:
    """A URL that redis-py takes, or nothing."""
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        place = parts.path if parts.scheme == "unix" else parts.hostname
        if parts.scheme in _REDIS_SCHEMES and place and parts.port != 0:
            return None
    except (ValueError, AttributeError):
        pass
    # The value itself may hold a password, so it is not repeated.
    return "not a Redis URL: write redis://host:6379, rediss://host:6379 or unix:///path/to/socket"


def exact_origins(value: Any) -> str | None:
    """Origins, each as a browser writes it."""
    if not isinstance(value, tuple):
        return f"{value!r} is not a tuple of origins"

    wrong = [message for origin in value if (message := _origin(origin)) is not None]
    return "; ".join(wrong) or None


def _origin(value: str) -> str | None:
    if value in {"*", "null"}:
        return f"{value!r} is never allowed: list exact origins such as https://app.example"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return f"{value!r} is not an origin"
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        return f"{value!r} is not an origin: write scheme and host, such as https://app.example"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    suffix = "" if port in {None, _DEFAULT_PORTS[parts.scheme]} else f":{port}"
    exact = f"{parts.scheme}://{host}{suffix}"
    return None if value == exact else f"{value!r} is not how a browser writes it: {exact}"


def setting(
    default: _T,
    *,
    env: str,
    kind: str,
    help: str,
    read: Callable[[str], Any],
    check: Callable[[Any], str | None] = anything,
    flag: str | None = None,
) -> _T:
    """A field of :class:`gateway.settings.Settings`: ``read`` takes what stands in the environment and raises
    ``ValueError``, ``check`` says what is wrong with a value, or ``None``."""
    row = {"env": env, "kind": kind, "help": help, "read": read, "check": check, "flag": flag}
    return field(default=default, metadata=row)
