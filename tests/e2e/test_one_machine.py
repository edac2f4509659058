"""A gateway without a key serves one machine: seen through a real proxy, a real server, and as pages ask."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.e2e.conftest import Start
from tests.support.needs import lacking
from tests.support.reader import Received, read_stream
from tests.support.servers import GatewayProcess, Process, wait_until
from tests.support.writing import Writer

USUAL_HEADERS = """
proxy_http_version 1.1;
proxy_set_header Host $host;
proxy_set_header X-Real-IP $remote_addr;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
proxy_set_header X-Forwarded-Proto $scheme;
"""

CONFIGURATION = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {gateway}; {lines} }} }}
}}
"""

Proxy = Callable[[str, str], int]


@pytest.fixture
def proxy(tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Iterator[Proxy]:
    """Start nginx in front of a gateway's URL with further lines; gives its port."""
    if shutil.which("nginx") is None:
        lacking("nginx is not installed (Debian: nginx-light)")
    started: list[Process] = []

    def begin(gateway: str, lines: str) -> int:
        port = unused_tcp_port_factory()
        folder = tmp_path / str(port)
        folder.mkdir()
        file = folder / "nginx.conf"
        file.write_text(CONFIGURATION.format(folder=folder, port=port, gateway=gateway, lines=lines))
        process = Process(["nginx", "-e", str(folder / "error.log"), "-c", str(file)])
        started.append(process)
        wait_until(f"nginx listens:\n{process.output}", lambda: listens(port))
        return port

    yield begin
    for process in started:
        process.stop()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def ask(port: int, path: str = "/runs", **headers: str) -> Received:
    return await read_stream(
        port, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def refused(received: Received) -> str:
    assert received.status == 403
    assert received.headers["content-type"] == "application/problem+json"
    detail = json.loads(received.text)["detail"]
    assert detail.startswith(
        "This gateway has no key, so it serves only this machine. "
        "Set TOOLCAST_JWT_SECRET or TOOLCAST_AUTH_URL, or TOOLCAST_INSECURE=1."
    )
    return str(detail)


async def test_behind_a_bare_proxy_pass_it_says_why_it_does_not_serve(
    shared_gateway: GatewayProcess, proxy: Proxy
) -> None:
    port = proxy(shared_gateway.url, "")
    assert "HTTP/1.0" in refused(await ask(port, "/runs/demo/events"))
    assert "HTTP/1.0" in refused(await ask(port, "/"))


async def test_behind_a_proxy_with_the_usual_headers_too(
    shared_gateway: GatewayProcess, proxy: Proxy
) -> None:
    """The peer, the Host and every address are loopback here; a stranger's would stand in the same places."""
    port = proxy(shared_gateway.url, USUAL_HEADERS.replace("proxy_http_version 1.1;", ""))
    assert "HTTP/1.0" in refused(await ask(port, "/runs/demo/events"))
    port = proxy(shared_gateway.url, USUAL_HEADERS + "proxy_set_header Via '1.1 nginx';")
    assert "Via" in refused(await ask(port, "/runs/demo/events"))
    port = proxy(shared_gateway.url, USUAL_HEADERS.replace("$remote_addr", "203.0.113.9"))
    assert "X-Real-Ip: 203.0.113.9" in refused(await ask(port, "/runs/demo/events"))


async def test_what_a_stranger_claims_to_a_trusting_server_is_seen_through(start: Start) -> None:
    """uvicorn that trusts every peer takes a stranger's X-Forwarded-For for the peer's address."""
    gateway = start(env={"FORWARDED_ALLOW_IPS": "*"})
    assert "--no-proxy-headers" in refused(await ask(gateway.port, x_forwarded_for="127.0.0.1"))
    assert "203.0.113.9" in refused(await ask(gateway.port, x_forwarded_for="203.0.113.9"))


async def test_a_development_server_that_forwards_from_this_machine_is_served(
    shared_gateway: GatewayProcess,
) -> None:
    """What Next's rewrites add; uvicorn's default believes this machine, and so the peer's address is a claim."""
    received = await ask(
        shared_gateway.port,
        x_forwarded_for="::1",
        x_forwarded_host="localhost:3000",
        x_forwarded_port="3000",
        x_forwarded_proto="http",
    )
    assert received.status == 200


async def test_a_page_on_another_port_of_this_machine_reads_the_stream(
    shared_gateway: GatewayProcess, redis: Redis
) -> None:
    writer = Writer(redis, "for-a-page")
    writer.start()
    writer.end()
    received = await ask(shared_gateway.port, "/runs/for-a-page/events", Origin="http://localhost:5173")
    assert received.types == ["run_started", "run_completed"]
    assert received.headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "access-control-allow-credentials" not in received.headers
    assert received.headers["vary"] == "Origin"
    for path in ("/runs", "/runs/for-a-page", "/readyz"):
        received = await ask(shared_gateway.port, path, Origin="http://localhost:5173")
        assert received.headers["access-control-allow-origin"] == "http://localhost:5173", path


async def test_a_page_from_elsewhere_reads_nothing_but_may_load_the_modules(
    shared_gateway: GatewayProcess,
) -> None:
    for origin in ("https://evil.example", "null"):
        received = await ask(shared_gateway.port, "/runs", Origin=origin)
        assert f"Origin: {origin}" in refused(received)
        assert "access-control-allow-origin" not in received.headers
        received = await ask(
            shared_gateway.port, "/web/define.js", Origin=origin, Referer="https://evil.example/"
        )
        assert received.status == 200
        assert received.headers["access-control-allow-origin"] == "*"
        assert received.headers["content-type"].startswith("text/javascript")


async def test_a_listed_origin_may_read_and_is_named_once_when_it_is_not_listed(start: Start) -> None:
    gateway = start(env={"TOOLCAST_CORS_ORIGINS": "https://app.example"})
    received = await ask(
        gateway.port, "/runs", Origin="https://app.example", Referer="https://app.example/chat"
    )
    assert received.status == 200
    assert received.headers["access-control-allow-credentials"] == "true"
    for _ in range(3):
        assert (await ask(gateway.port, "/runs", Origin="https://other.example")).status == 403
    gateway.expect("add https://other.example to TOOLCAST_CORS_ORIGINS")
    assert gateway.output.count("add https://other.example to TOOLCAST_CORS_ORIGINS") == 1


def test_a_browsers_preflight_is_answered(shared_gateway: GatewayProcess) -> None:
    curl = [
        "curl", "-si", "-X", "OPTIONS", f"{shared_gateway.url}/runs/demo/events", "-H", "Origin: http://localhost:5173",
        "-H", "Access-Control-Request-Method: GET", "-H", "Access-Control-Request-Headers: last-event-id",
    ]  # fmt: skip
    said = subprocess.run(curl, capture_output=True, text=True, timeout=10, check=True).stdout.lower()
    assert said.startswith("http/1.1 204")
    assert "access-control-allow-origin: http://localhost:5173" in said
    assert "last-event-id" in said
