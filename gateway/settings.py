"""What a gateway can be told: one frozen object, filled from a mapping, checked as a whole before anything starts.

The fields of :class:`Settings` are the only table of names, environment variables, flags, defaults and
descriptions; ``--help`` and the documentation are printed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, Final, Literal

from gateway.setting_kinds import (
    KIB,
    MIB,
    Setting,
    SettingsError,
    at_least,
    between,
    exact_origins,
    listenable,
    one_of,
    read_list,
    read_optional,
    read_seconds,
    read_size,
    read_switch,
    read_text,
    read_whole,
    redis_address,
    setting,
)
from listeners.contract.keys import DEFAULT_URL, LEASE, namespace_of

__all__ = ["Settings", "SettingsError", "setting_of", "settings_markdown", "settings_table"]

_LATER: Final = ("TOOLCAST_JWT_SECRET", "TOOLCAST_AUTH_URL")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a gateway can be told; times in seconds, sizes in bytes.

    Raises :class:`SettingsError` listing every value that isn't usable.
    """

    host: str = setting(
        "127.0.0.1", env="HOST", kind="text", help="Address to listen on.", read=read_text, check=listenable
    )
    port: int = setting(
        8808,
        env="PORT",
        kind="number",
        help="Port to listen on; 0 lets the system choose.",
        read=read_whole,
        check=between(0, 65_535),
    )
    redis_url: str | None = setting(
        None,
        env="REDIS_URL",
        kind="url",
        help=f"The Redis or Valkey that agents publish to; without one: {DEFAULT_URL}.",
        read=read_optional,
        check=redis_address,
    )
    namespace: str | None = setting(
        None,
        env="TOOLCAST_NAMESPACE",
        kind="text",
        help="What names in Redis begin with; without one: toolcast, or toolcast2 for a URL that ends in /2.",
        read=read_optional,
    )
    embedded: bool = setting(
        True,
        env="TOOLCAST_EMBEDDED",
        kind="switch",
        help="Start a Valkey of its own when no REDIS_URL is set and nothing listens on the default address.",
        read=read_switch,
    )
    workers: int = setting(
        1,
        env="WEB_CONCURRENCY",
        kind="number",
        help="Processes that serve.",
        flag="--workers",
        read=read_whole,
        check=between(1, 256),
    )
    insecure: bool = setting(
        False,
        env="TOOLCAST_INSECURE",
        kind="switch",
        help="Serve every machine without a key: whoever reaches the port sees every run.",
        read=read_switch,
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        env="TOOLCAST_CORS_ORIGINS",
        kind="list",
        help="Origins of the pages that may read, exact, separated by commas.",
        read=read_list,
        check=exact_origins,
    )
    heartbeat: float = setting(
        15.0,
        env="TOOLCAST_HEARTBEAT",
        kind="seconds",
        help="Silence on a stream after which a heartbeat is written.",
        read=read_seconds,
        check=between(0.05, 3_600),
    )
    write_timeout: float = setting(
        30.0,
        env="TOOLCAST_WRITE_TIMEOUT",
        kind="seconds",
        help="How long a reader may take no bytes before it is dropped.",
        read=read_seconds,
        check=between(0.05, 3_600),
    )
    max_age: float = setting(
        0.0,
        env="TOOLCAST_MAX_AGE",
        kind="seconds",
        help="How old a connection may get, give or take a quarter, before its reader must reconnect; 0: any age.",
        read=read_seconds,
        check=between(0, 604_800),
    )
    wait: float = setting(
        600.0,
        env="TOOLCAST_WAIT",
        kind="seconds",
        help="How long a stream waits for a run that nobody has published yet; 0 answers 404 at once.",
        read=read_seconds,
        check=between(0, 86_400),
    )
    max_waiting: int = setting(
        1_000,
        env="TOOLCAST_MAX_WAITING",
        kind="number",
        help="Runs nobody has published yet that may be waited for at once; 0: no limit.",
        read=read_whole,
        check=between(0, 10_000_000),
    )
    max_runs: int = setting(
        12,
        env="TOOLCAST_MAX_RUNS",
        kind="number",
        help="Runs on one connection (GET /events) at most.",
        read=read_whole,
        check=between(1, 1_000),
    )
    restore_wait: float = setting(
        LEASE,
        env="TOOLCAST_RESTORE_WAIT",
        kind="seconds",
        help="How long a reader whose run has vanished from Redis waits for its agent to restore it.",
        read=read_seconds,
        check=between(0, 3_600),
    )
    run_memory: int = setting(
        1 * MIB,
        env="TOOLCAST_RUN_MEMORY",
        kind="size",
        help="Frames of one run kept in memory.",
        read=read_size,
        check=at_least(64 * KIB),
    )
    memory: int = setting(
        256 * MIB,
        env="TOOLCAST_MEMORY",
        kind="size",
        help="Frames of all runs kept in memory; the run read longest ago gives first.",
        read=read_size,
        check=at_least(1 * MIB),
    )
    page: int = setting(
        256 * KIB,
        env="TOOLCAST_PAGE",
        kind="size",
        help="What a reader that is behind gets from Redis at a time.",
        read=read_size,
        check=at_least(64 * KIB),
    )
    write: int = setting(
        64 * KIB,
        env="TOOLCAST_WRITE",
        kind="size",
        help="What one write to a reader carries at most, if one frame isn't larger.",
        read=read_size,
        check=at_least(1 * KIB),
    )
    drain: float = setting(
        1.0,
        env="TOOLCAST_DRAIN",
        kind="seconds",
        help="How long readers get to take their last bytes when the gateway stops.",
        read=read_seconds,
        check=between(0, 60),
    )
    linger: float = setting(
        5.0,
        env="TOOLCAST_LINGER",
        kind="seconds",
        help="How long a run stays watched after its last reader has gone.",
        read=read_seconds,
        check=between(0, 3_600),
    )
    log_format: Literal["console", "json"] = setting(
        "console",
        env="TOOLCAST_LOG_FORMAT",
        kind="console|json",
        help="How log lines are written.",
        read=read_text,
        check=one_of("console", "json"),
    )

    def __post_init__(self) -> None:
        errors = [
            f"{row.label}: {message}"
            for row in settings_table()
            if (message := row.check(getattr(self, row.name))) is not None
        ]
        if self.run_memory > self.memory:
            errors.append(f"{setting_of('run_memory').label}: more than {setting_of('memory').label}")
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
            f"{name}: this version has no keys yet; leave it unset, or mount the gateway with authorize="
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


def settings_markdown() -> str:
    """The table for the documentation, in Markdown."""
    lines = ["| variable | flag | default | what |", "| --- | --- | --- | --- |"]
    for row in _TABLE:
        default = f"`{row.shown_default}`" if row.shown_default else ""
        lines.append(f"| `{row.env}` | `{row.flag}` | {default} | {row.help} |")
    return "\n".join(lines) + "\n"
