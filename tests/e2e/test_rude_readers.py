"""Readers that pipeline, hang up, stall and come back: none is forgotten, none loses what the log still holds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from redis import Redis

from listeners.contract.log import Limits
from tests.e2e.conftest import Start
from tests.support.reader import read_stream
from tests.support.servers import GatewayProcess, wait_until
from tests.support.writing import Writer

QUICK = {"TOOLCAST_HEARTBEAT": "1", "TOOLCAST_WRITE_TIMEOUT": "2"}
REQUEST = b"GET /runs/rude/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
NEXT = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def watchers(gateway: GatewayProcess) -> int:
    with urllib.request.urlopen(f"{gateway.url}/runs", timeout=5) as answer:
        return int(json.load(answer)["runs"][0]["watchers"])


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_reader_that_pipelined_and_hung_up_is_noticed(start: Start, redis: Redis, loop: str) -> None:
    """uvicorn tells only the last of pipelined requests that its client is gone; the stream looks for itself."""
    writer = Writer(redis, "rude")
    writer.start()
    gateway = start(env={**QUICK, "UVICORN_LOOP": loop})
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
            sock.sendall(REQUEST + NEXT)
            assert sock.recv(100)
    wait_until("the streams of who hung up are closed", lambda: watchers(gateway) == 0, seconds=5)
    assert "Traceback" not in gateway.output


def test_a_reader_that_pipelined_and_takes_nothing_is_dropped(start: Start, redis: Redis) -> None:
    """The server's record of the connection is of a later request by then; the stream still finds what to cut."""
    writer = Writer(redis, "rude")
    writer.start()
    gateway = start(env=QUICK)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", gateway.port))
        sock.sendall(REQUEST + NEXT)
        wait_until("the stream is open", lambda: watchers(gateway) == 1)
        for _ in range(40):
            writer.append(*(writer.event("x_pad", padding="x" * 3000) for _ in range(50)))
        wait_until("the stalled reader is dropped", lambda: watchers(gateway) == 0, seconds=8)
        asked = time.monotonic()
        gateway.signal()
        gateway.wait()
        assert time.monotonic() - asked < 2


async def test_falling_behind_twice_loses_nothing_that_redis_holds(start: Start, redis: Redis) -> None:
    """Whoever has read from Redis, caught up with memory and fallen behind again reads on from Redis."""
    writer = Writer(redis, "rude", limits=Limits(max_entries=100_000, max_bytes=10**9))
    writer.start()
    gateway = start()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", gateway.port))
    reader, connection = await asyncio.open_connection(sock=sock, limit=2**16)
    connection.write(REQUEST.replace(b"/events", b"/events?format=ndjson"))
    count, last, rest = 1, 0, b""
    for _ in range(3):
        for _ in range(24):
            events = [writer.event("x_pad", padding="x" * 3000) for _ in range(100)]
            await asyncio.to_thread(writer.append, *events)
            count += len(events)
        async with asyncio.timeout(20):
            while last < count:
                *lines, rest = (rest + await reader.read(65536)).split(b"\n")
                for line in lines:
                    if line.startswith(b'{"id"'):
                        event = json.loads(line)
                        assert event["type"] != "snapshot", f"{event['data']['reason']} behind {last}"
                        last += 1
                        assert event["id"].endswith(f"-{last}")
    connection.close()


async def test_resuming_from_everywhere_leaves_no_memory_behind(start: Start, redis: Redis) -> None:
    """Bytes joined for one place of the log don't stay for every place that anybody ever came with."""
    writer = Writer(redis, "rude")
    writer.start()
    writer.numbers(8_000, batch=400)
    gateway = start()

    def memory() -> int:
        with Path(f"/proc/{gateway.pid}/status").open(encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

    before = memory()
    for first in range(0, 1_000, 50):
        paths = (f"/runs/rude/events?after={writer.epoch}-{seq}" for seq in range(first, first + 50))
        await asyncio.gather(*(read_stream(gateway.port, path, stop_after=1) for path in paths))
    assert memory() - before < 40


def test_a_redis_that_hangs_does_not_hold_up_the_end(start: Start, redis: Redis) -> None:
    """Whoever asks for runs while Redis says nothing is answered before the gateway has to be gone."""
    Writer(redis, "rude").start()
    gateway = start()
    pid = int(redis.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        socks = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(20)]
        for sock in socks:
            sock.sendall(b"GET /runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        asked = time.monotonic()
        gateway.signal()
        gateway.wait()
        assert time.monotonic() - asked < 2.5
        for sock in socks:
            sock.close()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_reader_that_waits_for_a_redis_that_hangs_does_not_hold_up_the_end(
    start: Start, redis: Redis
) -> None:
    """Whoever is served from Redis isn't waiting in the hub when the gateway stops, and must still hear of it."""
    writer = Writer(redis, "rude")
    writer.start()
    for _ in range(40):
        writer.append(*(writer.event("x_pad", padding="x" * 3000) for _ in range(50)))
    gateway = start()
    pid = int(redis.info("server")["process_id"])
    with socket.create_connection(("127.0.0.1", gateway.port)) as watching:
        watching.sendall(REQUEST.replace(b"/events", b"/events?from=now"))
        wait_until("the run is in memory", lambda: b"snapshot" in watching.recv(1000))
        os.kill(pid, signal.SIGSTOP)
        try:
            with socket.create_connection(("127.0.0.1", gateway.port)) as paging:
                paging.sendall(REQUEST)
                assert paging.recv(100)
                time.sleep(0.3)
                asked = time.monotonic()
                gateway.signal()
                gateway.wait()
                assert time.monotonic() - asked < 2
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("path", ["/runs", "/runs/rude", "/runs/rude/events", "/healthz"])
def test_other_methods_get_a_problem(shared_gateway: GatewayProcess, path: str) -> None:
    request = urllib.request.Request(f"{shared_gateway.url}{path}", method="PUT")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=5)
    with caught.value as answer:
        assert answer.code == 405
        assert answer.headers["content-type"] == "application/problem+json"
        assert "GET" in answer.headers["allow"]


async def test_a_line_for_people_steers_no_terminal(redis: Redis, shared_gateway: GatewayProcess) -> None:
    writer = Writer(redis, "rude")
    writer.start()
    writer.append(writer.event("x_steps", progress="\x1b[2J", total="\x9b31m"))
    writer.end()
    received = await read_stream(shared_gateway.port, "/runs/rude/events?format=text")
    assert "of" in received.text and not {"\x1b", "\x9b"} & set(received.text)
