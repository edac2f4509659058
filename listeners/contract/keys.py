"""The names of a run's keys and channels, and how long they live: spelled here and nowhere else (contract §3)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

from listeners.contract.events import check_run_id

__all__ = [
    "CHECKPOINT_EVERY",
    "DEFAULT_URL",
    "INDEX_SIZE",
    "KEEP_DELETED",
    "KEEP_DONE",
    "KEEP_INDEX",
    "KEEP_INTERRUPTED",
    "KEEP_OPEN",
    "KEEP_STUB",
    "LEASE",
    "MAX_BYTES",
    "MAX_ENTRIES",
    "MESSAGE_LIMIT",
    "Keys",
    "namespace_of",
    "runs_channel",
    "runs_index",
]

DEFAULT_URL: Final = "redis://127.0.0.1:6379"
"""Where agents and gateways meet if nobody says otherwise."""
KEEP_OPEN: Final = 86_400
"""Seconds an open run's log lives after its last append."""
KEEP_DONE: Final = 3_600
"""Seconds a log lives after its terminal event."""
KEEP_INTERRUPTED: Final = 7 * 86_400
"""Seconds a run waits for a person."""
KEEP_INDEX: Final = 7 * 86_400
"""Seconds the index of runs lives after its last change."""
KEEP_STUB: Final = 7 * 86_400
"""Seconds that what a run was is remembered after its log."""
KEEP_DELETED: Final = 86_400
"""Seconds that a deleted run refuses late appends."""
LEASE: Final = 30.0
"""Seconds after which a run whose owner gives no sign of life is ended."""
INDEX_SIZE: Final = 10_000
"""Runs that the index remembers: the ones whose status changed last."""
MAX_ENTRIES: Final = 10_000
"""Entries a log holds before it is trimmed."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of JSON a log holds before it is trimmed."""
CHECKPOINT_EVERY: Final = 1_000
"""Entries after which the fold of the log is stored anew; a snapshot never reads many more."""
MESSAGE_LIMIT: Final = 4_096
"""Bytes of JSON above which a message on the channel carries the position alone: Redis cuts off subscribers
that fall behind on large messages."""

_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of ``run`` in ``namespace``; they share a hash tag, so that one script reaches them on a Cluster."""

    run: str
    namespace: str = "toolcast"

    def __post_init__(self) -> None:
        check_run_id(self.run)

    @property
    def channel(self) -> str:
        """The pub/sub channel: ``<position> <type> <json>``."""
        return f"{self.namespace}:{{{self.run}}}"

    @property
    def log(self) -> str:
        """The stream of events."""
        return f"{self.channel}:log"

    @property
    def meta(self) -> str:
        """The hash that says how the log stands."""
        return f"{self.channel}:meta"

    @property
    def questions(self) -> str:
        """The hash of open questions: call key to the position of the ``tool_interrupted`` that waits."""
        return f"{self.channel}:questions"

    @property
    def decisions(self) -> str:
        """The stream of answers on their way back to the agent."""
        return f"{self.channel}:decisions"

    @property
    def lease(self) -> str:
        """The string that stands as long as the run's owner gives signs of life: its writer's id."""
        return f"{self.channel}:lease"

    @property
    def checkpoint(self) -> str:
        """The fold of the log up to a position."""
        return f"{self.channel}:checkpoint"


def runs_index(namespace: str) -> str:
    """The sorted set of run ids by their last status change (milliseconds)."""
    return f"{namespace}:runs:index"


def runs_channel(namespace: str) -> str:
    """The channel that tells ``<run> <status>`` at each status change."""
    return f"{namespace}:runs"


def namespace_of(url: str, given: str | None = None) -> str:
    """Return the namespace for a Redis ``url``: ``given``, else ``toolcast``, else ``toolcast<db>`` for a database
    other than 0, since pub/sub ignores the database number. Raises ``ValueError`` for an unusable name."""
    if given is not None:
        if not _NAMESPACE.fullmatch(given):
            raise ValueError(f"namespace {given!r} is not usable: 1 to 64 of A-Z a-z 0-9 . _ -")
        return given
    parts = urlsplit(url)
    database = parse_qs(parts.query).get("db", [""])[0]
    if not database and parts.scheme != "unix":
        database = parts.path.strip("/")
    return f"toolcast{database}" if database.isdigit() and int(database) else "toolcast"
