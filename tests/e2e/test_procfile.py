"""The Procfile under honcho, as a platform would run it."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from pathlib import Path

import pytest
from redis import Redis

from gateway.embedded import Listener, listener_at
from tests.support.needs import lacking
from tests.support.reader import read_stream
from tests.support.servers import ROOT, Process, wait_until
from tests.support.writing import Writer

REDIS_PORT = 6379
"""What the Procfile says; it is also what an agent without a REDIS_URL uses."""


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.slow
async def test_honcho_starts_a_gateway_and_its_redis_and_ends_both(
    own_ports: bool, unused_tcp_port: int
) -> None:
    if not own_ports and listener_at("127.0.0.1", REDIS_PORT) is not Listener.NOBODY:
        lacking(
            f"this machine has port {REDIS_PORT} taken, which the Procfile gives to its Valkey, "
            "and a network of the test's own takes root on Linux"
        )

    # honcho runs each line in a shell that finds the programs of the environment it was installed in.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "honcho", "start"]
    process = Process(command, env={"PATH": path, "PORT": str(unused_tcp_port)}, cwd=ROOT)
    url = f"http://127.0.0.1:{unused_tcp_port}"
    try:
        wait_until("the gateway is ready", lambda: ready(url), seconds=20)
        with Redis(port=REDIS_PORT) as client:
            writer = Writer(client, "under-honcho")
            writer.start()
            writer.end()
        received = await read_stream(unused_tcp_port, "/runs/under-honcho/events")
        assert received.types == ["run_started", "run_completed"]
        process.signal(signal.SIGTERM)
        process.wait()
    finally:
        process.stop()
    assert not ready(url)
    wait_until("its Redis is gone", lambda: listener_at("127.0.0.1", REDIS_PORT) is Listener.NOBODY)
