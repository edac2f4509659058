"""After hang-ups of every kind the gateway is where it was: watchers, subscriptions, descriptors, memory."""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path

import pytest
from redis import Redis

from tests.e2e.conftest import Start
from tests.support.servers import GatewayProcess, wait_until
from tests.support.writing import Writer

REQUEST = b"GET /runs/left/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def watchers(gateway: GatewayProcess) -> int:
    with urllib.request.urlopen(f"{gateway.url}/runs", timeout=10) as answer:
        runs = json.load(answer)["runs"]
    return next(run["watchers"] for run in runs if run["run"] == "left")  # type: ignore[no-any-return]


def descriptors(gateway: GatewayProcess) -> int:
    return len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))


def resident(gateway: GatewayProcess) -> int:
    """Bytes of memory the gateway has."""
    line = next(
        line for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1]) * 1024


def hang_up(gateway: GatewayProcess, request: bytes, *, read: int, times: int) -> None:
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
            sock.sendall(request)
            if read:
                sock.recv(read)


@pytest.mark.timeout(120)
def test_hang_ups_leave_nothing_behind(redis: Redis, start: Start) -> None:
    """Before the first byte, in the middle of history, and with a second request waiting on the connection."""
    gateway = start(env={"TOOLCAST_HEARTBEAT": "1", "TOOLCAST_LINGER": "1"})
    writer = Writer(redis, "left")
    writer.start()
    writer.numbers(500)
    hang_up(gateway, REQUEST, read=100, times=200)
    wait_until("no watcher is left of the first", lambda: watchers(gateway) == 0)
    before_descriptors, before_memory = descriptors(gateway), resident(gateway)
    hang_up(gateway, REQUEST, read=0, times=700)
    hang_up(gateway, REQUEST, read=5000, times=700)
    hang_up(gateway, REQUEST + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", read=100, times=100)
    wait_until("no watcher is left", lambda: watchers(gateway) == 0, seconds=20)
    wait_until("no descriptor is left", lambda: descriptors(gateway) <= before_descriptors + 2, seconds=20)
    wait_until(
        "the channel is given up", lambda: redis.pubsub_numsub("toolcast:{left}")[0][1] == 0, seconds=20
    )
    assert resident(gateway) < before_memory + 8 * 1024 * 1024
    gateway.signal()
    assert gateway.wait(seconds=5) in (0, -15)


@pytest.mark.timeout(60)
def test_who_hangs_up_on_a_busy_stream_is_no_error_in_the_log(redis: Redis, start: Start) -> None:
    """A closed tab is everyday life; an operator's log doesn't speak of responses left unfinished."""
    gateway = start(env={"TOOLCAST_LINGER": "1"})
    writer = Writer(redis, "left")
    writer.start()
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
            sock.sendall(REQUEST)
            sock.recv(200)
            writer.numbers(200)
    wait_until("no watcher is left", lambda: watchers(gateway) == 0, seconds=20)
    assert "without completing" not in gateway.output and "Traceback" not in gateway.output


@pytest.mark.timeout(60)
def test_a_reader_that_takes_nothing_is_dropped(redis: Redis, start: Start) -> None:
    """After the write time-out its connection is cut; the others never wait for it."""
    gateway = start(env={"TOOLCAST_HEARTBEAT": "1", "TOOLCAST_WRITE_TIMEOUT": "1", "TOOLCAST_LINGER": "1"})
    writer = Writer(redis, "left")
    writer.start()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", gateway.port))
    sock.sendall(REQUEST)
    wait_until("the reader is there", lambda: watchers(gateway) == 1)
    for _ in range(40):
        writer.append(*(writer.event("x_pad", pad="x" * 3000) for _ in range(50)))
    wait_until("the reader is dropped", lambda: watchers(gateway) == 0, seconds=20)
    gateway.expect("takes nothing")
    sock.close()
