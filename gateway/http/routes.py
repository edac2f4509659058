"""Which URL is answered by what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.access import Access, Grant
from gateway.http.asked import Asked
from gateway.http.cors import Cors
from gateway.http.problems import Header, Problem, check_read_only
from gateway.http.reading import Streams
from gateway.http.runs import Runs
from gateway.http.static import WebFiles
from gateway.http.stream import EventStream
from listeners.contract.events import format_time

__all__ = ["Answer", "Endpoint", "EventsEndpoint", "health_routes", "page_routes", "run_routes"]

Answer = Callable[[Scope], Awaitable[tuple[int, list[Header], bytes]]]
"""From a request to status, headers and JSON; raises :class:`Problem`."""


class Endpoint:
    """A route that answers with JSON, or with the problem that is in the way."""

    def __init__(self, answer: Answer, cors: Cors) -> None:
        self._answer = answer
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a HEAD gets the headers alone."""
        headers = self._cors.headers(scope)
        try:
            check_read_only(scope)
            status, own, body = await self._answer(scope)
        except Problem as problem:
            return await problem.with_headers(headers)(scope, receive, send)
        about: list[Header] = []
        if status != 304:
            about = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*about, (b"x-content-type-options", b"nosniff"), *own, *headers],
            }
        )
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


class EventsEndpoint:
    """The route of a run's stream: bare ASGI, since every wrapper would stay alive as long as the stream."""

    def __init__(self, streams: Streams, access: Access, cors: Cors) -> None:
        self._streams = streams
        self._access = access
        self._cors = cors

    def _asked(self, scope: Scope) -> list[Asked]:
        return [Asked.read(scope, wait=self._streams.settings.wait)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one reader."""
        headers = self._cors.headers(scope)
        try:
            check_read_only(scope)
            asked = self._asked(scope)
            grants = [await self._access.check(scope, "subscribe", one.run) for one in asked]
            if not asked:
                await send({"type": "http.response.start", "status": 204, "headers": headers})
                return await send({"type": "http.response.body", "body": b""})
            until = min((grant.until for grant in grants if grant.until is not None), default=None)
            grant = Grant(by=grants[0].by, until=until)
            await EventStream(self._streams, asked, grant, scope, receive, send).run(headers)
        except Problem as problem:
            await problem.with_headers(headers)(scope, receive, send)


class SeveralEventsEndpoint(EventsEndpoint):
    """The route of a stream of several runs."""

    def _asked(self, scope: Scope) -> list[Asked]:
        settings = self._streams.settings
        return Asked.read_several(scope, wait=settings.wait, most=settings.max_runs)


class _Bare:
    """An ASGI callable as a route's endpoint: Starlette takes functions for something that wants a ``Request``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def page_routes(files: WebFiles) -> list[BaseRoute]:
    """Return the routes of the inspector and the browser modules."""
    return [Route("/", _Bare(files.page)), Route("/web/{path:path}", _Bare(files.module))]


def run_routes(streams: Streams, runs: Runs, access: Access, cors: Cors) -> list[BaseRoute]:
    """Return the routes about runs."""
    return [
        Route("/runs", Endpoint(runs.latest, cors)),
        Route("/runs/{run}", Endpoint(runs.one, cors)),
        Route("/runs/{run}/events", EventsEndpoint(streams, access, cors)),
        Route("/events", SeveralEventsEndpoint(streams, access, cors)),
    ]


def health_routes(streams: Streams, cors: Cors) -> list[BaseRoute]:
    """Return the routes that balancers and alerts ask."""

    async def alive(scope: Scope) -> tuple[int, list[Header], bytes]:
        return 200, _FRESH, b'{"status":"alive"}'

    async def ready(scope: Scope) -> tuple[int, list[Header], bytes]:
        relay, hub = streams.relay, streams.hub
        answer: dict[str, object] = {"redis": "up" if relay.down_since is None and relay.stood else "down"}
        if relay.down_since is not None:
            answer["since"] = format_time(relay.down_since)
        if hub.draining:
            answer["draining"] = True
        # A later loss of Redis leaves the gateway ready: out of the balancer, a blip would become 503s, and one 503
        # ends a native EventSource for good. `?redis=1` is for alerts.
        strict = b"redis=1" in scope["query_string"]
        usable = relay.stood and not hub.draining and not (strict and relay.down_since is not None)
        return (200 if usable else 503), _FRESH, msgspec.json.encode(answer)

    return [
        Route("/healthz", Endpoint(alive, cors)),
        Route("/readyz", Endpoint(ready, cors)),
    ]


_FRESH: list[Header] = [(b"cache-control", b"no-store")]
