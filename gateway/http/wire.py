"""The way to one reader: its bytes in order, since when they are on the way, and how to cut it off."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from gateway.http.connections import Connections, is_servers_own
from gateway.http.problems import Header
from gateway.http.stepping import step

__all__ = ["Wire"]


# Silence is probed after 30 s, three times; bytes that nobody acknowledges for a minute end the connection.
_HALF_OPEN: Final = [
    (level, getattr(socket, option), value)
    for level, option, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 60_000),
    )
    if hasattr(socket, option)
]


class Wire:
    """What one response is written to. ``clock`` tells seconds; ``wrote_at`` is when bytes were last handed over,
    ``writing_since`` is set while the reader hasn't taken them."""

    __slots__ = (
        "_clock",
        "_send",
        "_stalled",
        "_transport",
        "cut",
        "steps",
        "writing_since",
        "wrote_at",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        connections: Connections,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._send = send
        self._clock = clock
        self._stalled: Awaitable[None] | None = None
        # Looked for now: once a client pipelines a further request, its connection is about that one.
        self._transport = connections.transport(scope, receive)
        self.wrote_at = clock()
        self.writing_since: float | None = None
        self.cut = False
        """Whether the connection was aborted from here."""
        self.steps = is_servers_own(send)
        """Whether :meth:`try_write` may be called outside the request's own task."""

    def notice_half_open(self) -> None:
        """Have the system close the connection of a peer that vanished without a word, as far as it can."""
        sock: Any = None if self._transport is None else self._transport.get_extra_info("socket")
        for level, option, value in _HALF_OPEN if sock is not None else ():
            # A Unix socket has none of these, and needs none.
            with suppress(OSError):
                sock.setsockopt(level, option, value)

    async def open(self, status: int, headers: Iterable[Header]) -> None:
        """Send status and headers, at once."""
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def write(self, data: bytes) -> None:
        """Send ``data``; waits while the reader doesn't take what went before, drops it if the reader is gone."""
        if self.gone:
            return
        self.writing_since = self.wrote_at = self._clock()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.writing_since = None

    def try_write(self, data: bytes) -> bool:
        """Send ``data`` without waiting; ``False`` if it must be waited for, by :meth:`settle`, or nobody is there."""
        if self.gone:
            return False
        self.writing_since = self.wrote_at = self._clock()
        self._stalled = step(self._send({"type": "http.response.body", "body": data, "more_body": True}))
        if self._stalled is not None:
            return False
        self.writing_since = None
        return True

    async def settle(self) -> None:
        """Wait for what :meth:`try_write` has left."""
        if self._stalled is not None:
            stalled, self._stalled = self._stalled, None
            await stalled
            self.writing_since = None

    async def finish(self, data: bytes = b"") -> None:
        """Send the last bytes and end the body as HTTP says it ends."""
        if self.gone:
            return
        self.writing_since = self._clock()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})
        self.writing_since = None

    def abort(self) -> None:
        """Cut the connection: the body must not look finished, or nobody takes it."""
        if self._transport is not None:
            self.cut = True
            self._transport.abort()

    @property
    def gone(self) -> bool:
        """Whether the connection is closed. The server may fail to say so: uvicorn doesn't once another request
        waits on the same connection."""
        return self._transport is not None and self._transport.is_closing()
