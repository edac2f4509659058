"""Runs as plain JSON: the list of the latest, and the state of one."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from redis.exceptions import RedisError
from starlette.types import Scope

from gateway.fanout.history import History
from gateway.fanout.hub import Hub
from gateway.fanout.rounds import Rounds
from gateway.fanout.standing import Standing, stub_state
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


class Runs:
    """Answers ``GET /runs`` and ``GET /runs/{run}``: status, headers and JSON."""

    def __init__(self, *, hub: Hub, history: History, states: States, rounds: Rounds, access: Access) -> None:
        self._hub = hub
        self._rounds = rounds
        self._history = history
        self._states = states
        self._access = access

    async def one(self, scope: Scope) -> tuple[int, list[Header], bytes]:
        """Return the ``RunState`` at the head, the end included; 304 if the caller's ``ETag`` still holds.

        Of a run whose log is gone 410 and what is left to say of it. Raises :class:`Problem`: 400 for a hostile id, 404
        for an unknown run, 503 while Redis is away.
        """
        run = run_of(scope)
        await self._access.check(scope, "subscribe", run)
        try:
            async with asyncio.timeout(ANSWER):
                [standing] = await self._history.standings([run])
                head = standing.head or (await self._history.head(run) if standing.logged else None)
            self._rounds.suspect(run, standing)
            if head is None and standing.stub:
                return 410, [_NO_STORE], msgspec.json.encode(stub_state(run, standing))
            if head is None:
                raise Problem(404, "No such run", f"Nobody has published run {run!r}.")
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
                found = await self._history.newest(offset, limit + 1)
        except (RedisError, OSError) as error:
            raise _redis_away() from error
        more = len(found) > limit
        found = found[:limit]
        present = {run: standing for run, standing in found if standing.logged and standing.status}
        for run, standing in present.items():
            self._rounds.suspect(run, standing)
        visible = await self._access.visible(scope, present)
        answer: dict[str, Any] = {"runs": [self._shown(run, present[run]) for run in visible]}
        if more:
            answer["next"] = offset + limit
        return 200, [_NO_STORE], msgspec.json.encode(answer)

    def _shown(self, run: str, standing: Standing) -> dict[str, Any]:
        told = {
            "run": run,
            "status": standing.status,
            "title": standing.title,
            "started_at": _time(standing.started),
            "updated_at": _time(standing.updated),
            "ended_at": _time(standing.ended),
            "calls": standing.calls,
            "watchers": self._hub.watchers(run),
        }
        return {name: value for name, value in told.items() if value is not None}


_NO_STORE: Final[Header] = (b"cache-control", b"no-store")


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_time(milliseconds / 1000)


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
