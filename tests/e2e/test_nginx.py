"""Behind Debian's nginx: a gateway without a key refuses and says why; an insecure one streams at once."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which

import httpx
import pytest
from redis import Redis

from tests.e2e.conftest import Start
from tests.support.needs import lacking
from tests.support.reader import Received, read_stream
from tests.support.servers import Process, wait_until
from tests.support.writing import Writer

NGINX = which("nginx") or which("nginx", path="/usr/sbin")

USUAL = """
proxy_set_header Host $host;
proxy_set_header X-Real-IP $remote_addr;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
proxy_set_header X-Forwarded-Proto $scheme;
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Start an nginx of its own in front of a port and return the port it listens on."""
    if NGINX is None:
        lacking("nginx is missing: apt-get install nginx-light")
    started: list[Process] = []

    def begin(upstream: int, extra: str = "") -> int:
        port = free_port()
        folder = tmp_path / f"nginx-{port}"
        (folder / "temp").mkdir(parents=True)
        temporary = "\n".join(
            f"{kind}_temp_path {folder}/temp/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = folder / "nginx.conf"
        config.write_text(f"""
daemon off; pid {folder}/pid; error_log stderr; worker_processes 1;
events {{ }}
http {{
  access_log off; {temporary}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://127.0.0.1:{upstream}; {extra} }}
  }}
}}
""")
        process = Process([str(NGINX), "-c", str(config), "-p", str(folder), "-e", "stderr"])
        started.append(process)
        wait_until("nginx listens", lambda: answers(port))
        return port

    yield begin
    for process in started:
        process.stop()


@pytest.mark.parametrize("extra", ["", USUAL], ids=["bare", "usual headers"])
async def test_a_gateway_without_a_key_refuses_a_proxy_with_the_reason(
    start: Start, proxy: Callable[..., int], extra: str
) -> None:
    """nginx's default HTTP/1.0 gives it away, whatever headers it adds."""
    received = await read_stream(proxy(start().port, extra), "/runs/any/events")
    assert received.status == 403
    detail = json.loads(received.text)["detail"]
    assert "serves only this machine" in detail and "HTTP/1.0" in detail


async def test_through_a_proxy_with_default_settings_events_come_at_once(
    redis: Redis, start: Start, proxy: Callable[..., int]
) -> None:
    """Headers at once, each event within 100 ms, with compression asked for; the end is clean."""
    gateway = start(env={"TOOLCAST_INSECURE": "1"})
    port = proxy(gateway.port, "proxy_http_version 1.1;")
    writer = Writer(redis, "proxied")
    await asyncio.to_thread(writer.start)
    into, opened = Received(), asyncio.Event()
    headers = {"Accept-Encoding": "gzip"}
    began = time.monotonic()
    task = asyncio.create_task(
        read_stream(port, "/runs/proxied/events", headers=headers, opened=opened, into=into)
    )
    await opened.wait()
    assert time.monotonic() - began < 1
    assert "content-encoding" not in into.headers
    late = []
    for n in range(20):
        sent = time.monotonic()
        await asyncio.to_thread(writer.numbers, 1, start=n)
        await asyncio.to_thread(wait_until, "the event", lambda n=n: len(into.events) >= n + 2)
        late.append(time.monotonic() - sent)
    await asyncio.to_thread(writer.end)
    assert (await task).clean
    # Twenty polls of 20 ms on a busy machine; the median is what the promise is about.
    assert sorted(late)[10] < 0.1


@pytest.mark.parametrize(
    "extra",
    ["", "proxy_http_version 1.1; gzip on; gzip_types *; gzip_proxied any; gzip_min_length 1;"],
    ids=["default", "compressing all"],
)
async def test_nothing_in_between_holds_an_event_back(
    redis: Redis, start: Start, proxy: Callable[..., int], extra: str
) -> None:
    """nginx's own default, HTTP/1.0 to the gateway, and one that compresses whatever it passes on."""
    gateway = start(env={"TOOLCAST_INSECURE": "1"})
    url = f"http://127.0.0.1:{proxy(gateway.port, extra)}/runs/held/events"
    writer = Writer(redis, "held")
    late: list[float] = []
    began = time.monotonic()
    async with httpx.AsyncClient() as client, client.stream("GET", url) as response:
        assert time.monotonic() - began < 1 and response.status_code == 200
        assert response.headers.get("content-encoding") == ("gzip" if "gzip" in extra else None)
        text, chunks = "", response.aiter_text()
        await asyncio.to_thread(writer.start)
        for n in range(20):
            sent = time.monotonic()
            await asyncio.to_thread(writer.numbers, 1, start=n)
            while f'"n":{n}}}' not in text:
                text += await asyncio.wait_for(anext(chunks), 5)
            late.append(time.monotonic() - sent)
    assert sorted(late)[10] < 0.1 and max(late) < 1
