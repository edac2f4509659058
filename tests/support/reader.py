"""A raw SSE reader over a socket: sees what is on the wire, down to how a body ends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Received", "read_stream"]


@dataclass
class Received:
    """What one connection brought."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    text: str = ""
    clean: bool = False
    """Whether the body ended as HTTP says it ends, and wasn't cut."""

    @property
    def seqs(self) -> list[int]:
        return [int(id.split("-")[1]) for id in self.ids]


async def read_stream(
    port: int,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    stop_after: int | None = None,
    timeout: float = 30,
    opened: asyncio.Event | None = None,
    into: Received | None = None,
) -> Received:
    """Read ``path`` until the body ends or ``stop_after`` events have come; ``into`` can be watched meanwhile."""
    received = Received() if into is None else into
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        try:
            lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            await _read_head(reader, received)
            if opened is not None:
                opened.set()
            await _read_body(reader, received, stop_after)
        finally:
            writer.close()
    return received


async def _read_head(reader: asyncio.StreamReader, received: Received) -> None:
    received.status = int((await reader.readline()).split()[1])
    while (line := (await reader.readline()).strip()) != b"":
        name, _, value = line.decode().partition(":")
        received.headers[name.lower()] = value.strip()


async def _read_body(reader: asyncio.StreamReader, received: Received, stop_after: int | None) -> None:
    if received.status == 204:
        received.clean = True
        return
    if "content-length" in received.headers:
        received.text = (await reader.readexactly(int(received.headers["content-length"]))).decode()
        received.clean = True
        return
    block: dict[str, str] = {}
    rest = b""
    try:
        while True:
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            data = (await reader.readexactly(size + 2))[:-2]
            if size == 0:
                received.clean = True
                return
            received.text += data.decode()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _take_line(line.decode(), block, received)
            if stop_after is not None and len(received.events) >= stop_after:
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        return


def _take_line(line: str, block: dict[str, str], received: Received) -> None:
    if line.startswith(":"):
        received.comments.append(line[1:])
    elif line:
        name, _, value = line.partition(": ")
        block[name] = value
    elif "data" in block:
        received.ids.append(block.get("id", ""))
        received.types.append(block.get("event", ""))
        received.events.append(json.loads(block["data"]))
        block.clear()
