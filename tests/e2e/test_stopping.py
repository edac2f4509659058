"""SIGTERM with open streams: out within two seconds, readers cut and not ended, nothing lost on the next process."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path

import pytest
from redis import Redis

from tests.e2e.conftest import Start
from tests.support.reader import Received, read_stream
from tests.support.servers import GatewayProcess, Process, start_gateway
from tests.support.writing import Writer

READERS = 200
STALLED = 5

HOST = """
from fastapi import FastAPI
from gateway import Gateway
toolcast = Gateway()
app = FastAPI(lifespan=toolcast.lifespan)
app.mount("/toolcast", toolcast)
"""


def stalled_reader(port: int, path: str) -> socket.socket:
    """Open a stream and never take a byte of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return sock


async def stop_under_load(
    gateway: GatewayProcess, writer: Writer, path: str, *, count: int = READERS
) -> tuple[list[Received], float]:
    """Let ``count`` readers follow a run, 5 of them taking nothing, and stop the gateway in mid-run."""
    writer.start()
    opened = [asyncio.Event() for _ in range(count - STALLED)]
    readers = [
        asyncio.create_task(read_stream(gateway.port, f"{path}?types=x_n", opened=event)) for event in opened
    ]
    stalled = [stalled_reader(gateway.port, path) for _ in range(STALLED)]
    await asyncio.gather(*(event.wait() for event in opened))

    def load() -> None:
        # More than the kernel's and the server's buffers hold, so that the stalled ones really hold the server up.
        padding = "x" * 3000
        for _ in range(40):
            writer.append(*(writer.event("x_pad", pad=padding) for _ in range(49)), writer.event("x_n"))

    await asyncio.to_thread(load)
    asked = time.monotonic()
    gateway.signal()
    code = await asyncio.to_thread(gateway.wait)
    took = time.monotonic() - asked
    assert code in (0, -15), gateway.output
    for sock in stalled:
        sock.close()
    return await asyncio.gather(*readers), took


async def check_resumed(
    following: GatewayProcess, writer: Writer, received: list[Received], path: str
) -> None:
    """Finish the run and let the cut readers go on at the next process."""
    writer.append(writer.event("x_n"), writer.event("run_completed"))
    wanted = [1 + 50 * n for n in range(1, 41)] + [2002, 2003]
    for before in received[::20]:
        assert not before.clean, "a body that isn't over must not look finished"
        headers = {"Last-Event-ID": before.ids[-1]} if before.ids else {}
        after = await read_stream(following.port, f"{path}?types=x_n", headers=headers)
        assert after.clean
        assert before.seqs + after.seqs == wanted


@pytest.mark.timeout(90)
@pytest.mark.slow
async def test_plain_uvicorn_stops_within_two_seconds(redis_url: str, redis: Redis, start: Start) -> None:
    writer = Writer(redis, "stopping")
    received, took = await stop_under_load(start(), writer, "/runs/stopping/events")
    assert took < 2
    await check_resumed(start(), writer, received, "/runs/stopping/events")


@pytest.mark.timeout(90)
@pytest.mark.slow
async def test_readers_that_take_nothing_never_hold_the_end_up(redis: Redis, start: Start) -> None:
    """Each time, wherever they are stuck: in a write, or waiting for the next page."""
    for turn in range(5):
        _, took = await stop_under_load(start(), Writer(redis, f"r{turn}"), f"/runs/r{turn}/events", count=6)
        assert took < 2


@pytest.mark.timeout(90)
@pytest.mark.slow
async def test_toolcast_serve_stops_within_two_seconds(redis_url: str, redis: Redis) -> None:
    process = GatewayProcess(
        [sys.executable, "-m", "gateway", "serve", "--port", "0"], env={"REDIS_URL": redis_url}
    )
    try:
        process.port = int(process.expect(r"http://(?:localhost|127\.0\.0\.1):(\d+)")[1])
        writer = Writer(redis, "stopping")
        received, took = await stop_under_load(process, writer, "/runs/stopping/events")
        assert took < 2
        assert "Traceback" not in process.output
    finally:
        process.stop()
    following = start_gateway(redis_url)
    try:
        await check_resumed(following, writer, received, "/runs/stopping/events")
    finally:
        following.stop()


@pytest.mark.timeout(90)
@pytest.mark.slow
async def test_a_fastapi_host_stops_within_two_seconds(
    redis_url: str, redis: Redis, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "host_app.py").write_text(HOST)
    options = {"app": "host_app:app", "env": {"PYTHONPATH": str(tmp_path)}}
    writer = Writer(redis, "stopping")
    received, took = await stop_under_load(start(**options), writer, "/toolcast/runs/stopping/events")
    assert took < 2
    await check_resumed(start(**options), writer, received, "/toolcast/runs/stopping/events")


def test_the_last_bytes_name_a_new_retry_and_say_why(redis_url: str, redis: Redis, start: Start) -> None:
    """A cut SSE reader is told when to come back, jittered, and that the gateway stops."""
    gateway = start()
    Writer(redis, "told").start()

    async def read() -> Received:
        opened = asyncio.Event()
        task = asyncio.create_task(read_stream(gateway.port, "/runs/told/events", opened=opened))
        await opened.wait()
        gateway.signal()
        return await task

    received = asyncio.run(read())
    assert any("stopping" in comment for comment in received.comments)
    assert received.text.count("retry: ") == 2
    assert "returned without completing" not in gateway.output


async def test_a_permission_that_runs_out_cuts_the_stream(redis: Redis, start: Start, tmp_path: Path) -> None:
    """``Grant(until=…)``: the reader is told why, and the body doesn't look finished."""
    app = """
import time
from gateway import Gateway, Grant

async def may_see(request, action, run):
    return Grant(by="ana", until=time.time() + 2)

app = Gateway(authorize=may_see)
"""
    (tmp_path / "host_until.py").write_text(app)
    gateway = start(app="host_until:app", env={"PYTHONPATH": str(tmp_path)})
    writer = Writer(redis, "until")
    await asyncio.to_thread(writer.start)
    began = time.monotonic()
    received = await read_stream(gateway.port, "/runs/until/events")
    assert 1.5 < time.monotonic() - began < 5
    assert received.types == ["run_started"] and not received.clean
    assert "token expired" in received.comments


def test_a_mounted_gateway_that_was_never_started_says_how(start: Start, tmp_path: Path) -> None:
    """503 with the lines that mend it, never an open and dead stream."""
    (tmp_path / "host_unstarted.py").write_text(HOST.replace("lifespan=toolcast.lifespan", ""))
    gateway = start(app="host_unstarted:app", env={"PYTHONPATH": str(tmp_path)})
    received = asyncio.run(read_stream(gateway.port, "/toolcast/runs/demo/events"))
    assert received.status == 503
    assert "lifespan=toolcast.lifespan" in received.text


def test_supervised_workers_stop_too(redis_url: str, redis: Redis) -> None:
    """``uvicorn --workers 2``: each worker ends its own streams."""
    process = Process(
        [
            *(sys.executable, "-m", "uvicorn", "--factory", "gateway.app:create_app"),
            *("--port", "0", "--http", "httptools", "--workers", "2"),
        ],
        env={"REDIS_URL": redis_url},
    )
    try:
        port = int(process.expect(r"running on http://127\.0\.0\.1:(\d+)")[1])
        process.expect(r"(?s)startup complete.*startup complete")
        Writer(redis, "two").start()

        async def read() -> tuple[list[Received], float]:
            opened = [asyncio.Event() for _ in range(20)]
            tasks = [
                asyncio.create_task(read_stream(port, "/runs/two/events", opened=event)) for event in opened
            ]
            await asyncio.gather(*(event.wait() for event in opened))
            asked = time.monotonic()
            process.signal()
            await asyncio.to_thread(process.wait)
            return await asyncio.gather(*tasks), time.monotonic() - asked

        received, took = asyncio.run(read())
        assert took < 3
        assert all(not r.clean for r in received)
    finally:
        process.stop()
