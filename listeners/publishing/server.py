"""Which Redis a publisher writes to: from a URL, from a client, or from the environment."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from listeners.contract.keys import DEFAULT_URL, namespace_of

__all__ = ["Server", "shown_url"]

CONNECT_TIMEOUT: Final = 2.0
"""Seconds a connection may take."""
ANSWER_TIMEOUT: Final = 5.0
"""Seconds an answer may take: longer than a busy server's worst pause, and bounded, since a server that hangs must
not hold its runs for ever."""


class Server:
    """A Redis server as ``redis=`` and the environment name it, with the namespace to use there.

    ``identity`` is equal for publishers that may share a connection; ``shown`` is an address without a password.
    Raises ``TypeError`` for a client of the wrong kind, ``ValueError`` for an unusable URL or namespace. Opens
    nothing.
    """

    def __init__(
        self, given: str | redis.Redis | None, *, namespace: str | None, environ: Mapping[str, str]
    ) -> None:
        if given is None:
            given = environ.get("REDIS_URL") or DEFAULT_URL
        if isinstance(given, str):
            self._connection, options = _parsed(given)
            self.shown = shown_url(given)
        else:
            _check_client(given)
            pool = given.connection_pool
            self._connection, options = pool.connection_class, dict(pool.connection_kwargs)
            self.shown = _shown_options(options)
        self._options = {
            name: value for name, value in options.items() if not name.startswith(_OF_THEIR_POOL)
        } | _OWN_OPTIONS
        self.namespace = namespace_of(
            f"redis:///{options.get('db') or 0}", namespace or environ.get("TOOLCAST_NAMESPACE") or None
        )
        self.identity: Hashable = (
            self._connection,
            tuple(sorted((name, repr(value)) for name, value in options.items() if name in _IDENTIFYING)),
        )

    def connect(self) -> redis.Redis:
        """Return a client with one connection of its own, which is opened by its first command."""
        pool = redis.ConnectionPool(connection_class=self._connection, max_connections=1, **self._options)
        return redis.Redis(connection_pool=pool)


# The script's arguments are bytes, one thread retries by itself, and nothing may wait longer than these times.
_OWN_OPTIONS: Final[dict[str, Any]] = {
    "decode_responses": False,
    "socket_timeout": ANSWER_TIMEOUT,
    "socket_connect_timeout": CONNECT_TIMEOUT,
    "retry": Retry(NoBackoff(), 0),
    "retry_on_error": [],
    "health_check_interval": 0,
}
# What redis-py leaves in a pool's settings for that pool's own connections.
_OF_THEIR_POOL: Final = ("maint_notifications_", "orig_", "himport_", "event_dispatcher")
_IDENTIFYING: Final = frozenset({"host", "port", "path", "db", "username", "password", "credential_provider"})


def shown_url(url: str) -> str:
    """Return ``url`` without user, password and query, for logs."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@lru_cache(maxsize=64)
def _parsed(url: str) -> tuple[Any, dict[str, Any]]:
    try:
        pool = redis.ConnectionPool.from_url(url)
    except ValueError as error:
        raise ValueError(
            f"{shown_url(url)!r} is no Redis URL: use redis://host:port/db, rediss://… or unix:///path"
        ) from error
    return pool.connection_class, dict(pool.connection_kwargs)


def _shown_options(options: Mapping[str, Any]) -> str:
    if "path" in options:
        return f"unix://{options['path']}"
    database = options.get("db") or 0
    address = f"redis://{options.get('host', 'localhost')}:{options.get('port', 6379)}"
    return f"{address}/{database}" if database else address


def _check_client(client: object) -> None:
    # By name, so that nobody who doesn't use asyncio's client imports it.
    if any(cls.__module__.startswith("redis.asyncio") for cls in type(client).__mro__):
        raise TypeError(
            "redis= is a redis.asyncio client, which belongs to one event loop, but publishing works from any "
            "thread: give the URL instead, or a redis.Redis"
        )
    if not isinstance(client, redis.Redis):
        raise TypeError(
            f"redis= is a {type(client).__name__}: give a URL, a redis.Redis, or nothing "
            f"(REDIS_URL, else {DEFAULT_URL})"
        )
