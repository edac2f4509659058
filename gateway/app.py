"""The composition root: a :class:`Gateway` builds its parts, its lifespan owns them, and nothing is global."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.fanout.history import History
from gateway.fanout.hub import SHED_EVERY, Hub
from gateway.fanout.relay import Relay
from gateway.fanout.rounds import Rounds
from gateway.fanout.states import States
from gateway.fanout.wheel import Wheel
from gateway.http.access import Access, Authorize
from gateway.http.connections import Connections, DrainFirst
from gateway.http.cors import Cors
from gateway.http.problems import Problem
from gateway.http.reading import Streams
from gateway.http.routes import health_routes, page_routes, run_routes
from gateway.http.runs import Runs
from gateway.http.static import WebFiles, find_web
from gateway.logs import configure_logs
from gateway.settings import Settings

__all__ = ["Gateway", "create_app"]

_NOT_STARTED = """\
This gateway was mounted but never started: Starlette doesn't run a mounted application's lifespan. Write

    toolcast = Gateway(…)
    app = FastAPI(lifespan=toolcast.lifespan)    # or `async with toolcast:` inside your own lifespan
    app.mount("/toolcast", toolcast)"""


class Gateway:
    """An ASGI application that serves runs; alone, or mounted in an application of your own.

    ``settings`` come from the environment unless given; ``authorize`` is asked about every request
    (``async (request, action, run) -> bool | Grant``), and the one-machine rule doesn't apply then.

    Raises :class:`~gateway.settings.SettingsError` for an environment that can't be used.
    """

    def __init__(self, settings: Settings | None = None, *, authorize: Authorize | None = None) -> None:
        self.settings = Settings.from_env(os.environ) if settings is None else settings
        self._access = Access(self.settings, authorize)
        self._cors = Cors(self.settings, keyless=self._access.keyless)
        self._router: Router | None = None
        self._stack: Any = None

    # -- life ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Gateway:
        """Start: connect to Redis, turn the wheel, stand before uvicorn's signal handlers."""
        if self._stack is not None:
            raise RuntimeError("this gateway is already running")
        self._stack = self._running()
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Stop: end the streams, leave nothing behind."""
        stack, self._stack = self._stack, None
        await stack.__aexit__(*error)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """A lifespan for the application this gateway is mounted in."""
        async with self:
            yield

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        settings = self.settings
        loop = asyncio.get_running_loop()
        wheel = Wheel(loop.time)
        history = History(settings.redis, settings.prefix, page=settings.page)
        relay = Relay(settings.redis, settings.prefix, history, memory=settings.run_memory)
        hub = Hub(relay, wheel, linger=settings.linger, memory=settings.memory)
        exit = DrainFirst(partial(loop.call_soon_threadsafe, hub.drain))
        exit.install()
        self._access.served_by(exit.server)
        states = States(history)
        streams = Streams(
            settings=settings,
            hub=hub,
            relay=relay,
            history=history,
            states=states,
            wheel=wheel,
            connections=Connections(exit.server),
            clock=time.time,
        )
        rounds = Rounds(
            hub=hub,
            relay=relay,
            history=history,
            states=states,
            namespace=settings.prefix,
            clock=time.time,
            now=loop.time,
        )
        runs = Runs(hub=hub, history=history, states=states, rounds=rounds, access=self._access)
        wheel.add(SHED_EVERY, hub.shed)
        turning = asyncio.create_task(_turn(wheel), name="toolcast wheel")
        relay.start(time.time)
        looking = asyncio.create_task(rounds.run(), name="toolcast rounds")
        self._router = Router(
            [
                *run_routes(streams, runs, self._access, self._cors),
                *health_routes(streams, self._cors),
                *page_routes(WebFiles(find_web(), self._access)),
            ],
            redirect_slashes=False,
            default=_not_found,
        )
        try:
            yield
        finally:
            self._router = None
            hub.drain()
            await hub.drained(settings.drain + 0.5)
            exit.remove()
            turning.cancel()
            looking.cancel()
            await asyncio.gather(turning, looking, return_exceptions=True)
            await relay.stop()
            await history.close()

    # -- requests -----------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] == "lifespan":
            # Alone, the server runs the lifespan; mounted, the host does through `lifespan`.
            return await Router(lifespan=self.lifespan)(scope, receive, send)
        if scope["type"] != "http":
            raise RuntimeError(f"toolcast serves HTTP, not {scope['type']}")
        answer: ASGIApp = self._router or Problem(503, "Not started", _NOT_STARTED)
        if scope["method"] == "OPTIONS":
            answer = self._cors.preflight
        try:
            self._access.guard(scope)
            await answer(scope, receive, send)
        except Problem as problem:
            await problem.with_headers(self._cors.headers(scope))(scope, receive, send)


def create_app() -> Gateway:
    """Return a gateway with the environment's settings, for ``uvicorn --factory gateway.app:create_app``; log lines
    are written as they say, unless somebody has configured logging before."""
    settings = Settings.from_env(os.environ)
    configure_logs(settings.log_format)
    return Gateway(settings)


async def _turn(wheel: Wheel) -> None:
    while True:
        await asyncio.sleep(1)
        wheel.turn()


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise Problem(
        404, "Nothing here", f"There is nothing at {scope['path']!r}; streams are at /runs/<run>/events."
    )
