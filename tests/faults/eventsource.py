"""A client that does what a browser's EventSource does, over a bare socket, and keeps what it saw.

It reconnects after the time it was told, with the last id it has, and stops at 204; any other status ends it for good.
The bytes of a block are taken apart once for all readers that get the same, so that one process reads for hundreds.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple, cast

import msgspec

from listeners.contract.events import TERMINAL_TYPES, Event, decode
from listeners.contract.fold import RunState, fold, waiting
from listeners.contract.position import ABSENT, Position
from tests.faults.ledger import Item, Seen, item_of

__all__ = ["EventSource", "Lane", "Response"]

RETRY: Final = 3.0
"""Seconds until a browser reconnects if it wasn't told otherwise."""
_ENDINGS: Final = frozenset({"absent", "expired", "deleted"})


class Block(NamedTuple):
    """One event of the wire: its SSE ``id`` (empty without one) and what the data say."""

    id: str
    position: Position
    event: Event
    item: Item
    sent: float


class Response:
    """One HTTP response whose body is a stream, taken apart as it comes (no I/O)."""

    def __init__(self) -> None:
        self.status = 0
        self.retry: float | None = None
        """Seconds, once the stream has said so."""
        self.clean = False
        """Whether the body has ended as HTTP says it ends."""
        self._head = b""
        self._chunks = b""
        self._lines = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes in and return the blocks that are whole now."""
        if not self.status:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return []
            self.status = int(head.split(None, 2)[1])
        if self.status != 200:
            return []
        self._lines += self._unchunked(data)
        *blocks, rest = self._lines.split(b"\n\n")
        # `retry` counts at once, and comments have no block.
        while rest.startswith((b":", b"retry:")) and b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            self._take_line(line)
        self._lines = rest
        return [block for block in map(self._stripped, blocks) if block]

    def _stripped(self, block: bytes) -> bytes:
        while block.startswith((b":", b"retry:")):
            line, _, block = block.partition(b"\n")
            self._take_line(line)
        return block

    def _take_line(self, line: bytes) -> None:
        if line.startswith(b"retry:"):
            self.retry = int(line[6:]) / 1000

    def _unchunked(self, data: bytes) -> bytes:
        buffer = self._chunks + data
        body = []
        at = 0
        while (end := buffer.find(b"\r\n", at)) >= 0:
            size = int(buffer[at:end], 16)
            if len(buffer) < end + 4 + size:
                break
            if size == 0:
                self.clean = True
            body.append(buffer[end + 2 : end + 2 + size])
            at = end + 4 + size
        self._chunks = buffer[at:]
        return b"".join(body)


@dataclass
class Lane:
    """One run as a reader has it so far; times are monotonic seconds, the same in all processes of a machine."""

    run: str
    state: RunState
    items: list[Item] = field(default_factory=list)
    last_at: float = 0.0
    over: bool = False

    @property
    def position(self) -> str:
        """Where it stands; empty before the first event."""
        return str(self.items[-1].position) if self.items else ""

    def take(self, block: Block) -> None:
        self.items.append(block.item)
        self.state = fold(self.state, block.position, block.event)
        self.last_at = time.monotonic()
        self.over = block.item.type in TERMINAL_TYPES or block.item.news in _ENDINGS


class EventSource(asyncio.Protocol):
    """One reader of one run, or of several on one connection (then it writes their positions into the query).

    ``ports``: gateways, one of which it picks for each connection. ``moves``: it hangs up by itself after so many
    events, a number between the two. ``stalled``: it takes nothing until :meth:`resume`. ``after``: the position it
    comes with; ``query``: more of the URL; ``chapter``: what the ledger calls this telling of the run.
    """

    def __init__(
        self,
        name: str,
        runs: Sequence[str],
        ports: Sequence[int],
        *,
        moves: tuple[int, int] | None = None,
        stalled: bool = False,
        after: str = "",
        query: str = "",
        chapter: str = "",
    ) -> None:
        self.name = name
        self.lanes = {run: Lane(run, waiting(run)) for run in runs}
        self.ended = ""
        self.complaints: list[str] = []
        self.fresh = 0
        self.latencies: list[float] = []
        self.opened: list[float] = []
        self.closed: list[float] = []
        self._ports = ports
        self._moves = moves
        self._stalled = stalled
        self._last_id = after
        self._query = query
        self._chapter = chapter
        self._retry = RETRY
        self._response = Response()
        self._left = 0
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] | None = None

    # -- the life of a reader -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read until the server says that nothing follows."""
        while not self.ended:
            await self._connect()
            self._retry = self._response.retry or self._retry
            if self._response.status not in (0, 200):
                self.ended = str(self._response.status)
            elif not self.ended and not self._all_over():
                # Whoever has the end asks at once: how long it waits for its 204 tells nothing.
                await asyncio.sleep(0 if self._left < 0 else self._retry)

    @property
    def connected(self) -> bool:
        """Whether a stream is open."""
        return len(self.opened) > len(self.closed)

    @property
    def stalled(self) -> bool:
        """Whether it takes nothing."""
        return self._stalled

    def resume(self) -> None:
        """Take bytes again."""
        self._stalled = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def seen(self) -> list[Seen]:
        """Return what it saw of each run."""
        ended = self.ended or ("told the end, never 204" if self._all_over() else "still open")
        return [
            Seen(
                reader=self.name,
                run=lane.run + self._chapter,
                items=lane.items,
                state=lane.state,
                ended=ended,
                complaints=self.complaints,
                last_at=lane.last_at,
            )
            for lane in self.lanes.values()
        ]

    def _all_over(self) -> bool:
        return all(lane.over for lane in self.lanes.values())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._response = Response()
        self._left = random.randint(*self._moves) if self._moves else 0
        self._gone = loop.create_future()
        sock = socket.socket()
        sock.setblocking(False)
        if self._stalled:
            # Small, so that what the reader doesn't take is the server's to keep.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            await loop.sock_connect(sock, ("127.0.0.1", random.choice(self._ports)))
            await loop.create_connection(lambda: self, sock=sock)
        except OSError:
            sock.close()
            return
        await self._gone
        if self._response.status:
            self.closed.append(time.monotonic())

    def _request(self) -> bytes:
        if len(self.lanes) == 1:
            (run,) = self.lanes
            path = f"/runs/{run}/events?{self._query}"
        else:
            asked = (
                f"run={lane.run}@{lane.position}" if lane.items else f"run={lane.run}"
                for lane in self.lanes.values()
            )
            path = f"/events?{'&'.join(asked)}&{self._query}"
        lines = [f"GET {path.rstrip('?&')} HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
        if self._last_id:
            lines.append(f"Last-Event-ID: {self._last_id}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no subclass of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request())
        if self._stalled:
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        first = not self._response.status
        try:
            for block in self._response.feed(data):
                self._take(_read_block(block))
                if self._left < 0:
                    break
        except Exception as error:
            self.ended = f"got what it can't read: {error!r}"
        if first and self._response.status:
            self.opened.append(time.monotonic())
        if self._response.clean and self._left >= 0 and not self._all_over():
            self.complaints.append("a body ended cleanly though its run goes on")
        if self.ended or self._left < 0 or self._response.clean or self._response.status not in (0, 200):
            self._transport.abort()

    def _take(self, block: Block) -> None:
        self._last_id = block.id or self._last_id
        self.lanes[block.event.run].take(block)
        self.fresh += 1
        if block.sent:
            self.latencies.append(time.time() - block.sent)
        if self._moves:
            self._left -= 1
            if self._left == 0:
                self._left = -1

    def connection_lost(self, exc: Exception | None) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)


class _Numbered(msgspec.Struct):
    id: str = ""


@lru_cache(maxsize=20_000)
def _read_block(block: bytes) -> Block:
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":"))
    data = fields[b"data"]
    event = decode(data)
    id = fields.get(b"id", b"").decode()
    # On a stream of several runs the position stands in the data, and the SSE id says something else, if anything.
    position = Position.parse(id) or Position.parse(msgspec.json.decode(data, type=_Numbered).id) or ABSENT
    if (named := fields[b"event"].decode()) != event.type:
        raise ValueError(f"the wire says {named}, the envelope {event.type}")
    sent = datetime.fromisoformat(event.time).timestamp() if event.type == "x_n" else 0.0
    return Block(id, position, event, item_of(position, event), sent)
