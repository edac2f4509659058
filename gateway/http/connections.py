"""The TCP connection under a response: how to end it when its reader takes nothing, and how a server's stop is heard.

ASGI can only finish a response. A body that must not look finished, and a reader that takes nothing, need
``transport.abort()``: ``close()`` waits for the buffer for ever. Without uvicorn there is no way to it, and streams
end when their server ends them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from starlette.types import Receive, Scope, Send

__all__ = ["Connections", "DrainFirst", "is_servers_own"]


class DrainFirst:
    """Stands before uvicorn's signal handlers, so that streams end when the server is told to stop.

    uvicorn waits for running requests before lifespan shuts down, without limit: an open stream would hold it for
    ever. Its handler is a bound method of its ``Server`` from before lifespan starts, in workers too; under any
    other server, or in a thread, nothing is done.
    """

    def __init__(self, drain: Callable[[], object]) -> None:
        self._drain = drain
        self._before: dict[int, Any] = {}
        # Found by the next gateway of this process as it is found on uvicorn's own handler.
        self.__self__: Any = None

    @property
    def server(self) -> Any | None:
        """The ``uvicorn.Server`` that serves this process, once :meth:`install` has found one."""
        return self.__self__

    def install(self) -> None:
        """Stand before the handlers of SIGTERM and SIGINT."""
        server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        if not (hasattr(server, "server_state") and hasattr(server, "handle_exit")):
            return
        self.__self__ = server
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self)

    def remove(self) -> None:
        """Step aside, unless somebody stands before this in turn."""
        for number, before in self._before.items():
            if signal.getsignal(number) is self:
                signal.signal(number, before)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: drain, then let the server do what it would have done."""
        self._drain()
        before = self._before[number]
        if callable(before):
            before(number, frame)


class Connections:
    """The open connections of a uvicorn ``server``; without one, of none."""

    __slots__ = ("_known", "_server")

    def __init__(self, server: Any | None = None) -> None:
        self._server = server
        self._known: dict[int, Any] = {}

    def transport(self, scope: Scope, receive: Receive) -> asyncio.Transport | None:
        """Return the transport under a request, ``None`` if it can't be found.

        uvicorn's ``receive`` is a method of what holds it. Behind a middleware with a ``receive`` of its own the
        header list leads to it, which a request shares with its connection.
        """
        held: asyncio.Transport | None = getattr(getattr(receive, "__self__", None), "transport", None)
        if held is not None:
            return held
        headers = scope["headers"]
        protocol = self._known.get(id(headers))
        if protocol is None or protocol.headers is not headers:
            # Ten thousand streams that are cut at once must not each search ten thousand connections.
            state = getattr(self._server, "server_state", None)
            self._known = {
                id(p.headers): p for p in getattr(state, "connections", ()) if hasattr(p, "headers")
            }
            protocol = self._known.get(id(headers))
        return None if protocol is None else protocol.transport


def is_servers_own(send: Send) -> bool:
    """Tell whether ``send`` is uvicorn's: it may be called from anywhere, a middleware's may count on its task."""
    return type(getattr(send, "__self__", None)).__module__.startswith("uvicorn.")
