"""What a gateway can be told: one frozen object, filled from a mapping, checked as a whole before anything starts.

The fields of :class:`Settings` are the only table of names, environment variables, flags, defaults and
descriptions; ``--help`` and the documentation are printed from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from listeners.contract.keys import DEFAULT_URL, namespace_of

__all__ = ["KIB", "MIB", "Setting", "Settings", "SettingsError", "setting_of", "settings_table"]

KIB: Final = 1024
MIB: Final = 1024 * KIB

_T = TypeVar("_T")
_SIZE = re.compile(r"(\d+)\s*(|b|kib|mib|gib|k|m|g)", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_REDIS_SCHEMES: Final = ("redis", "rediss", "unix")
_LATER: Final = ("TOOLCAST_JWT_SECRET", "TOOLCAST_AUTH_URL")


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


def _text(raw: str) -> str:
    return raw.strip()


def _optional(raw: str) -> str | None:
    return raw.strip() or None


def _whole(raw: str) -> int:
    try:
        return int(raw)
    except ValueError:
        raise ValueError(f"{raw!r} is not a whole number") from None


def _seconds(raw: str) -> float:
    try:
        return float(raw.strip().removesuffix("s"))
    except ValueError:
        raise ValueError(f"{raw!r} is not a number of seconds") from None


def _size(raw: str) -> int:
    match = _SIZE.fullmatch(raw.strip())
    if match is None:
        raise ValueError(f"{raw!r} is not a size: write bytes, or 64KiB, or 1MiB")
    return int(match[1]) * _UNITS[match[2][:1].lower()]


def _switch(raw: str) -> bool:
    word = raw.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"", "0", "false", "no", "off"}:
        return False
    raise ValueError(f"{raw!r} is neither yes (1, true, yes, on) nor no (0, false, no, off)")


def _listed(raw: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[\s,]+", raw) if part)


def _between(least: float, most: float) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if isinstance(value, int | float) and math.isfinite(value) and least <= value <= most:
            return None
        return f"{value!r} is out of range: {least:g} to {most:g}"

    return check


def _size_from(least: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        return (
            None
            if isinstance(value, int) and value >= least
            else f"{value!r} bytes are too few: {least} or more"
        )

    return check


def _one_of(*words: str) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        return None if value in words else f"{value!r} is not one of {', '.join(words)}"

    return check


def _any(value: Any) -> str | None:
    return None


def _host(value: Any) -> str | None:
    if isinstance(value, str) and value and not re.search(r"[\s/]", value):
        return None
    return f"{value!r} is not an address to listen on: 127.0.0.1, ::1, 0.0.0.0 or a host's name"


def _redis_url(value: Any) -> str | None:
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme in _REDIS_SCHEMES and bool(
            parts.path if parts.scheme == "unix" else parts.hostname
        )
        _ = parts.port
    except (ValueError, AttributeError):
        usable = False
    # The value itself may hold a password, so it is never repeated.
    return (
        None
        if usable
        else "not a Redis URL: write redis://host:6379, rediss://host:6379 or unix:///path/to/socket"
    )


def _origins(value: Any) -> str | None:
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


def _setting(
    default: _T,
    *,
    env: str,
    kind: str,
    help: str,
    read: Callable[[str], Any],
    check: Callable[[Any], str | None] = _any,
    flag: str | None = None,
) -> _T:
    row = {"env": env, "kind": kind, "help": help, "read": read, "check": check, "flag": flag}
    return field(default=default, metadata=row)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a gateway can be told; times in seconds, sizes in bytes.

    Raises :class:`SettingsError` listing every value that isn't usable.
    """

    host: str = _setting(
        "127.0.0.1", env="HOST", kind="text", help="Address to listen on.", read=_text, check=_host
    )
    port: int = _setting(
        8808,
        env="PORT",
        kind="number",
        help="Port to listen on; 0 lets the system choose.",
        read=_whole,
        check=_between(0, 65_535),
    )
    redis_url: str | None = _setting(
        None,
        env="REDIS_URL",
        kind="url",
        help=f"The Redis or Valkey that agents publish to; without one: {DEFAULT_URL}.",
        read=_optional,
        check=_redis_url,
    )
    namespace: str | None = _setting(
        None,
        env="TOOLCAST_NAMESPACE",
        kind="text",
        help="What the names of keys and channels begin with; without one: toolcast, or toolcast<database>.",
        read=_optional,
    )
    embedded: bool = _setting(
        True,
        env="TOOLCAST_EMBEDDED",
        kind="switch",
        help="Start a Valkey of its own when no REDIS_URL is set and nothing listens on the default address.",
        read=_switch,
    )
    workers: int = _setting(
        1,
        env="WEB_CONCURRENCY",
        kind="number",
        help="Processes that serve.",
        flag="--workers",
        read=_whole,
        check=_between(1, 256),
    )
    insecure: bool = _setting(
        False,
        env="TOOLCAST_INSECURE",
        kind="switch",
        help="Serve every machine without a key: whoever reaches the port sees every run.",
        read=_switch,
    )
    cors_origins: tuple[str, ...] = _setting(
        (),
        env="TOOLCAST_CORS_ORIGINS",
        kind="list",
        help="Origins of the pages that may read, exact, separated by commas.",
        read=_listed,
        check=_origins,
    )
    heartbeat: float = _setting(
        15.0,
        env="TOOLCAST_HEARTBEAT",
        kind="seconds",
        help="Silence on a stream after which a heartbeat is written.",
        read=_seconds,
        check=_between(0.05, 3_600),
    )
    write_timeout: float = _setting(
        30.0,
        env="TOOLCAST_WRITE_TIMEOUT",
        kind="seconds",
        help="How long a reader may take no bytes before it is dropped.",
        read=_seconds,
        check=_between(0.05, 3_600),
    )
    wait: float = _setting(
        600.0,
        env="TOOLCAST_WAIT",
        kind="seconds",
        help="How long a stream waits for a run that nobody has published yet; 0 answers 404 at once.",
        read=_seconds,
        check=_between(0, 86_400),
    )
    max_waiting: int = _setting(
        1_000,
        env="TOOLCAST_MAX_WAITING",
        kind="number",
        help="Runs nobody has published yet that may be waited for at once; 0: no limit.",
        read=_whole,
        check=_between(0, 10_000_000),
    )
    run_memory: int = _setting(
        1 * MIB,
        env="TOOLCAST_RUN_MEMORY",
        kind="size",
        help="Frames of one run kept in memory.",
        read=_size,
        check=_size_from(64 * KIB),
    )
    memory: int = _setting(
        256 * MIB,
        env="TOOLCAST_MEMORY",
        kind="size",
        help="Frames of all runs kept in memory; the run read longest ago goes first.",
        read=_size,
        check=_size_from(1 * MIB),
    )
    page: int = _setting(
        256 * KIB,
        env="TOOLCAST_PAGE",
        kind="size",
        help="What a reader that is behind gets from Redis at a time.",
        read=_size,
        check=_size_from(64 * KIB),
    )
    write: int = _setting(
        64 * KIB,
        env="TOOLCAST_WRITE",
        kind="size",
        help="What one write to a reader carries at most, if one frame isn't larger.",
        read=_size,
        check=_size_from(1 * KIB),
    )
    drain: float = _setting(
        1.0,
        env="TOOLCAST_DRAIN",
        kind="seconds",
        help="How long readers get to take their last bytes when the gateway stops.",
        read=_seconds,
        check=_between(0, 60),
    )
    linger: float = _setting(
        5.0,
        env="TOOLCAST_LINGER",
        kind="seconds",
        help="How long a run stays watched after its last reader has gone.",
        read=_seconds,
        check=_between(0, 3_600),
    )
    log_format: Literal["console", "json"] = _setting(
        "console",
        env="TOOLCAST_LOG_FORMAT",
        kind="console|json",
        help="How log lines are written.",
        read=_text,
        check=_one_of("console", "json"),
    )

    def __post_init__(self) -> None:
        errors = [
            f"{row.label}: {message}"
            for row in settings_table()
            if (message := row.check(getattr(self, row.name))) is not None
        ]
        try:
            namespace_of(self.redis, self.namespace)
        except ValueError as error:
            errors.append(f"{setting_of('namespace').label}: {error}")

        if errors:
            raise SettingsError(errors)

    @property
    def redis(self) -> str:
        """The URL to connect to: ``redis_url``, else the default address."""
        return self.redis_url or DEFAULT_URL

    @property
    def prefix(self) -> str:
        """The namespace in force: what the names of keys and channels begin with."""
        return namespace_of(self.redis, self.namespace)

    @classmethod
    def from_env(cls, mapping: Mapping[str, str], **overrides: Any) -> Settings:
        """Read the environment variables in ``mapping``; ``overrides`` are fields by name and win.

        An empty variable counts as not set. Raises :class:`SettingsError` with every error, of reading and of
        checking alike.
        """
        values: dict[str, Any] = {}
        errors = [
            f"{name}: this version has no keys yet; mount the gateway with authorize=, or set TOOLCAST_INSECURE=1"
            for name in _LATER
            if mapping.get(name)
        ]
        for row in settings_table():
            if row.name in overrides or not (raw := mapping.get(row.env, "")).strip():
                continue

            try:
                values[row.name] = row.read(raw)
            except ValueError as error:
                errors.append(f"{row.label}: {error}")

        try:
            settings = cls(**values, **overrides)
        except SettingsError as error:
            raise SettingsError([*errors, *error.errors]) from None

        if errors:
            raise SettingsError(errors)
        return settings

    def environ(self) -> dict[str, str]:
        """The variables from which :meth:`from_env` makes these settings again, for a child process."""
        return {
            row.env: row.show(value)
            for row in settings_table()
            if (value := getattr(self, row.name)) != row.default
        }


def settings_table() -> tuple[Setting, ...]:
    """Every setting in the order of ``--help``."""
    return _TABLE


def setting_of(name: str) -> Setting:
    """The row of the field ``name``; raises ``KeyError`` for none."""
    return _BY_NAME[name]


def _row(item: Field[Any]) -> Setting:
    given = dict(item.metadata)
    flag = given.pop("flag") or "--" + item.name.replace("_", "-")
    return Setting(name=item.name, default=item.default, flag=flag, **given)


_TABLE: Final = tuple(_row(item) for item in fields(Settings))
_BY_NAME: Final = {row.name: row for row in _TABLE}
