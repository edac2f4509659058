"""``toolcast serve`` as a person starts it: what it says, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from gateway.embedded import Listener, listener_at
from tests.support.needs import lacking
from tests.support.reader import read_stream
from tests.support.servers import Process, wait_until
from tests.support.writing import Writer

Serve = Callable[..., Process]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start ``toolcast serve`` with flags and environment; whatever was started is ended."""
    started: list[Process] = []

    def begin(*flags: str, **environment: str) -> Process:
        command = [sys.executable, "-m", "gateway", "serve", *flags]
        started.append(Process(command, env=environment, cwd=tmp_path))
        return started[-1]

    yield begin
    for process in started:
        process.stop()


def address(process: Process) -> str:
    return process.expect(r"page +(http://\S+?)/\n")[1]


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_serves_and_says_where_and_to_whom(serve: Serve, redis_url: str) -> None:
    process = serve("--port", "0", REDIS_URL=redis_url)
    url = address(process)
    assert url.startswith("http://127.0.0.1:")
    process.expect(r"stream +curl -N http://\S+/runs/<run>/events\n")
    process.expect(rf"redis +{redis_url}\n")
    process.expect(r"mode +this machine only.*behind a proxy, set a key\n")
    assert get(f"{url}/healthz")[0] == 200
    status, body = get(f"{url}/runs", Host="gateway.example")
    assert status == 403
    assert "Host: gateway.example" in json.loads(body)["detail"]


def test_a_password_stays_out_of_the_banner(serve: Serve, redis_url: str) -> None:
    process = serve(
        "--port", "0", "--redis-url", redis_url.replace("redis://", "redis://user:hunter2@") + "/3"
    )
    process.expect(r"redis +redis://127\.0\.0\.1:\d+/3, namespace toolcast3\n")
    assert "hunter2" not in process.output


def test_insecure_is_shouted(serve: Serve, redis_url: str) -> None:
    process = serve("--port", "0", "--insecure", "--host", "0.0.0.0", REDIS_URL=redis_url)
    port = int(process.expect(r"http://0\.0\.0\.0:(\d+)/")[1])
    process.expect(r"mode +INSECURE")
    assert get(f"http://127.0.0.1:{port}/runs", Host="gateway.example")[0] == 200


def test_without_a_key_it_does_not_listen_elsewhere(serve: Serve, redis_url: str) -> None:
    process = serve("--host", "0.0.0.0", "--port", "0", REDIS_URL=redis_url)
    assert process.wait() == 2
    assert "won't listen on 0.0.0.0" in process.output
    assert "TOOLCAST_INSECURE=1" in process.output


def test_a_taken_port_is_one_line_that_names_another(serve: Serve, redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve("--port", str(port), REDIS_URL=redis_url)
        assert process.wait() == 1
    assert process.output.startswith(f"toolcast: port {port} is taken; another: toolcast serve --port ")
    assert process.output.count("\n") == 1


def test_every_wrong_setting_is_listed_and_nothing_starts(serve: Serve) -> None:
    process = serve("--port", "x", TOOLCAST_HEARTBEAT="often", REDIS_URL="localhost")
    assert process.wait() == 2
    assert "3 settings are not usable" in process.output
    for name in ("PORT (--port)", "TOOLCAST_HEARTBEAT (--heartbeat)", "REDIS_URL (--redis-url)"):
        assert name in process.output
    assert "Traceback" not in process.output


def test_a_host_that_is_none_is_one_line(serve: Serve, redis_url: str) -> None:
    process = serve("--host", "nowhere.invalid", REDIS_URL=redis_url)
    assert process.wait() == 2
    assert "HOST (--host)" in process.output
    assert "Traceback" not in process.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_within_two_seconds_with_status_0(
    serve: Serve, redis_url: str, redis: Redis, number: signal.Signals
) -> None:
    process = serve("--port", "0", REDIS_URL=redis_url)
    port = int(address(process).rpartition(":")[2])
    Writer(redis, "open").start()
    received = await read_stream(port, "/runs/open/events", stop_after=1)
    assert received.types == ["run_started"]
    begun = time.monotonic()
    process.signal(number)
    assert process.wait() == 0
    assert time.monotonic() - begun < 2
    assert "Traceback" not in process.output


def test_json_logs_are_json_to_the_last_line(serve: Serve, redis_url: str) -> None:
    process = serve("--port", "0", "--log-format", "json", REDIS_URL=redis_url)
    process.expect(r'"event": ?"serving"')
    process.signal()
    assert process.wait() == 0
    lines = [json.loads(line) for line in process.output.splitlines()]
    assert {"url", "redis", "mode"} <= next(line for line in lines if line["event"] == "serving").keys()


@pytest.mark.skipif(os.name == "nt", reason="workers are processes that share a socket")
def test_several_processes_serve_from_one_address(serve: Serve, redis_url: str) -> None:
    # The environment says what the flags contradict: children must believe the flags.
    process = serve(
        "--port", "0", "--workers", "2", "--no-insecure", REDIS_URL=redis_url, TOOLCAST_INSECURE="1"
    )
    url = address(process)
    wait_until("a worker answers", lambda: get_or_0(f"{url}/readyz") == 200, seconds=20)
    assert get(f"{url}/runs", Host="gateway.example")[0] == 403
    process.signal()
    assert process.wait() == 0


def get_or_0(url: str) -> int:
    try:
        return get(url)[0]
    except OSError:
        return 0


def test_without_a_redis_it_starts_a_valkey_and_stops_it(serve: Serve, own_ports: bool) -> None:
    """On the default address; where that is this machine's and a Redis runs already, that one is used."""
    before = listener_at("127.0.0.1", 6379)
    process = serve("--port", "0")
    url = address(process)
    said = "Started a Valkey at" if before is Listener.NOBODY else "Using the Redis at"
    assert f"{said} 127.0.0.1:6379" in process.output
    wait_until("ready", lambda: get(f"{url}/readyz")[0] == 200)
    process.signal()
    assert process.wait() == 0
    assert listener_at("127.0.0.1", 6379) is before


def test_told_to_start_none_it_serves_and_waits(serve: Serve, own_ports: bool) -> None:
    if listener_at("127.0.0.1", 6379) is not Listener.NOBODY:
        lacking("a Redis of this machine has the default address")
    process = serve("--port", "0", "--no-embedded")
    url = address(process)
    assert "valkey-server" in process.output
    assert get(f"{url}/readyz")[0] == 503
