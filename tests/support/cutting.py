"""A proxy in front of a stream that cuts it every few events, as bad networks and impatient load balancers do."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

__all__ = ["CuttingProxy", "Ending"]

Ending = Literal["clean", "aborted", "aborted between events"]


class CuttingProxy:
    """Passes HTTP on to ``127.0.0.1:<target>`` and ends each stream after ``every`` events.

    ``clean``: as HTTP says that a body ends, though the run goes on. ``aborted``: a reset in the middle of the next
    event, or between two. Streams are told to come back at once. ``connections`` counts them.
    """

    def __init__(self, target: int, *, every: int, ending: Ending) -> None:
        self._target = target
        self._every = every
        self._ending = ending
        self.connections = 0
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[CuttingProxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = await near.readuntil(b"\r\n\r\n")
            reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                writer.write(re.sub(rb"(?i)connection: [^\r]*\r\n", b"", head))
                await self._answer(reader, out)
            finally:
                writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            out.close()

    async def _answer(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        out.write(head)
        if b"chunked" not in head.lower():
            out.write(await reader.read() if b" 204 " not in head else b"")
            return await out.drain()
        rest, events = b"", 0
        while size := int(await reader.readline(), 16):
            rest += re.sub(rb"retry: \d+", b"retry: 20", (await reader.readexactly(size + 2))[:-2])
            *lines, rest = rest.split(b"\n")
            for line in lines:
                # A chunk a line: what a client makes of a split event is its own.
                out.write(b"%x\r\n%b\r\n" % (len(line) + 1, line + b"\n"))
                await out.drain()
                if events == self._every and line.startswith(b"data"):
                    return self._cut(out)
                events += line.startswith(b"data")
                if events == self._every and not line and self._ending != "aborted":
                    return self._cut(out)
        out.write(b"0\r\n\r\n")
        await out.drain()

    def _cut(self, out: asyncio.StreamWriter) -> None:
        if self._ending == "clean":
            return out.write(b"0\r\n\r\n")
        sock = out.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        out.transport.abort()
