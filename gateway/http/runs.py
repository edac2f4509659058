"""Runs as plain JSON: the list of the latest, and the state of one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from redis.exceptions import RedisError
from starlette.types import Scope

from gateway.fanout.history import History
from gateway.fanout.hub import Hub
from gateway.fanout.states import States
from gateway.http.access import Access
from gateway.http.asked import run_of
from gateway.http.problems import Header, Problem
from listeners.contract.events import format_time

__all__ = ["Runs"]

ANSWER: Final = 1.5
"""Seconds that Redis may take: a server that hangs must not hold up the gateway's own end."""
PAGE_MOST: Final = 200
"""Runs in one answer at most; 50 unless asked otherwise."""

_FIELDS: Final = ("status", "title", "started", "updated", "ended", "calls")


class Runs:
    """Answers ``GET /runs`` and ``GET /runs/{run}``: status, headers and JSON."""

    def __init__(self, *, hub: Hub, history: History, states: States, access: Access) -> None:
        self._hub = hub
        self._history = history
        self._states = states
        self._access = access

    async def one(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        """Return the ``RunState`` at the head, the end included; 304 if the caller's ``ETag`` still holds.

        Raises :class:`Problem`: 400 for a hostile id, 404 for an unknown run, 503 while Redis is away.
        """
        run = run_of(scope)
        await self._access.check(scope, "subscribe", run)
        try:
            async with asyncio.timeout(ANSWER):
                head = await self._history.head(run)
            if head is None:
                raise Problem(
                    404, "No such run", f"Nobody has published run {run!r}, or its log has expired."
                )
            etag = f'"{head}"'.encode()
            headers = [(b"etag", etag), (b"cache-control", b"no-cache")]
            if etag in dict(scope["headers"]).get(b"if-none-match", b""):
                return 304, headers, b""
            async with asyncio.timeout(ANSWER):
                state = await self._states.at(run, head)
        except (RedisError, OSError) as error:
            raise _redis_away() from error
        return 200, headers, msgspec.json.encode(state)

    async def latest(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        """Return the runs seen lately, newest first: ``{"runs": […], "next"?: <offset>}``.

        ``?limit=`` (50, at most 200) and ``?offset=`` page through them. Raises :class:`Problem` 400 or 503.
        """
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        limit = _number(query, "limit", 50, least=1, most=PAGE_MOST)
        offset = _number(query, "offset", 0, least=0, most=1_000_000)
        try:
            async with asyncio.timeout(ANSWER):
                found = await self._history.latest(offset, limit + 1, _FIELDS)
        except (RedisError, OSError) as error:
            raise _redis_away() from error
        more = len(found) > limit
        found = found[:limit]
        # A run whose log is gone has no status left.
        present = {run: fields for run, fields in found if fields[0] is not None}
        visible = await self._access.visible(scope, present)
        answer: dict[str, Any] = {"runs": [self._shown(run, present[run]) for run in visible]}
        if more:
            answer["next"] = offset + limit
        return 200, [(b"cache-control", b"no-store")], msgspec.json.encode(answer)

    def _shown(self, run: str, fields: Sequence[bytes | None]) -> dict[str, Any]:
        read: dict[str, Callable[[str], Any]] = {
            "started": _time,
            "updated": _time,
            "ended": _time,
            "calls": int,
        }
        shown: dict[str, Any] = {"run": run}
        for name, value in zip(_FIELDS, fields, strict=True):
            if value is not None:
                text = value.decode("utf-8", "replace")
                shown[f"{name}_at" if read.get(name) is _time else name] = read.get(name, str)(text)
        shown["watchers"] = self._hub.watchers(run)
        return shown


def _time(milliseconds: str) -> str:
    return format_time(int(milliseconds) / 1000)


def _number(query: dict[str, str], name: str, default: int, *, least: int, most: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= most:
        shown = text if len(text) <= 40 else text[:39] + "…"
        raise Problem(
            400, "Bad query parameter", f"{name}={shown!r} must be a whole number from {least} to {most}."
        )
    return int(text)


def _redis_away() -> Problem:
    return Problem(
        503, "Redis is away", "The log can't be read now; try again.", headers=[(b"retry-after", b"2")]
    )
