"""A reader that doesn't take its bytes is waited for by nobody, and gets everything when it does."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest
from redis import Redis
from starlette.types import Message

from gateway.app import Gateway
from gateway.settings import Settings
from tests.e2e.conftest import Start
from tests.support.http_scope import scope
from tests.support.reader import Received, read_stream
from tests.support.writing import Writer


async def open_slow(port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for a stream with little room for what isn't read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


@pytest.mark.parametrize("memory", ["1MiB", "64KiB"])
async def test_a_slow_reader_gets_each_event_once_and_holds_nobody_up(
    redis: Redis, start: Start, memory: str
) -> None:
    """Whether what it missed is still in memory or must come from Redis."""
    gateway = start(env={"TOOLCAST_RUN_MEMORY": memory, "TOOLCAST_WRITE": "4KiB"})
    writer = Writer(redis, "slow")
    writer.start()
    slow, connection = await open_slow(gateway.port, "/runs/slow/events")
    quick = Received()
    reading = asyncio.create_task(read_stream(gateway.port, "/runs/slow/events", into=quick))
    await asyncio.wait_for(slow.readuntil(b"run_started"), 10)

    # More than every buffer between the two takes: the write that fills the last one has to wait.
    text = "x" * 300
    for start_at in range(0, 9_000, 5):
        writer.append(*(writer.event("x_n", n=n, text=text) for n in range(start_at, start_at + 5)))
        await asyncio.sleep(0)
    writer.end()
    await asyncio.wait_for(reading, 20)
    assert quick.clean and quick.seqs == list(range(1, 9_003))

    body = b"run_started"
    async with asyncio.timeout(20):
        while not body.endswith(b"0\r\n\r\n"):
            piece = await slow.read(65_536)
            assert piece, "the stream was cut"
            body += piece
    connection.close()
    assert [int(seq) for seq in re.findall(rb"^id: \d+-(\d+)$", body, re.M)] == list(range(2, 9_003))


class InProcess:
    """A reader without a socket: it takes bytes while ``takes`` is set."""

    def __init__(self) -> None:
        self.body = b""
        self.takes = asyncio.Event()
        self.takes.set()
        self._more = asyncio.Event()
        self._hung_up = asyncio.Event()

    async def receive(self) -> Message:
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.takes.wait()
        self.body += message.get("body", b"")
        self._more.set()

    async def read_to(self, seq: int) -> None:
        async with asyncio.timeout(10):
            while f"-{seq}\n".encode() not in self.body:
                self._more.clear()
                await self._more.wait()

    def hang_up(self) -> None:
        self._hung_up.set()


async def test_a_reader_that_falls_behind_twice_gets_no_snapshot(redis_url: str, redis: Redis) -> None:
    """What was read from Redis for the first time is no measure for the second."""
    writer = Writer(redis, "twice")
    writer.start()

    def publish(count: int) -> None:
        for _ in range(count // 100):
            writer.append(*(writer.event("x_n", text="x" * 300) for _ in range(100)))

    publish(500)
    slow, quick = InProcess(), InProcess()
    async with Gateway(Settings(redis_url=redis_url, run_memory=64 * 1024, write=1024)) as gateway:
        path = "/runs/twice/events"
        streams = [asyncio.create_task(gateway(scope(path), r.receive, r.send)) for r in (slow, quick)]
        await slow.read_to(501)
        slow.takes.clear()
        publish(1_000)
        await quick.read_to(1_501)
        slow.takes.set()
        await slow.read_to(1_501)
        for reader in (slow, quick):
            reader.hang_up()
        await asyncio.wait_for(asyncio.gather(*streams), 10)
    seqs = [int(seq) for seq in re.findall(rb"^id: \d+-(\d+)$", slow.body, re.M)]
    assert seqs == list(range(1, 1_502))
