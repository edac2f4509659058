"""Gateways and browsers for end-to-end tests."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from tests.support.network import own_network
from tests.support.pages import chromium, served
from tests.support.servers import GatewayProcess, Process, start_gateway

Start = Callable[..., GatewayProcess]
Demo = Callable[..., Process]


@pytest.fixture
def start(redis_url: str) -> Iterator[Start]:
    """Start gateways on the test's Valkey; all are stopped at the end."""
    started: list[GatewayProcess] = []

    def begin(**options: object) -> GatewayProcess:
        process = start_gateway(redis_url, **options)  # type: ignore[arg-type]  # the options are start_gateway's
        started.append(process)
        return process

    yield begin
    for process in started:
        process.stop()


@pytest.fixture
def demo(tmp_path: Path, redis_url: str) -> Iterator[Demo]:
    """Start ``toolcast demo`` on the test's Valkey and any port; whatever was started is ended."""
    started: list[Process] = []

    def begin(*flags: str, **environment: str) -> Process:
        command = [sys.executable, "-m", "gateway", "demo", *flags]
        environment = {"REDIS_URL": redis_url, "PORT": "0", "TMPDIR": str(tmp_path), **environment}
        started.append(Process(command, env=environment, cwd=tmp_path))
        return started[-1]

    yield begin
    for process in started:
        process.stop()


@pytest.fixture(scope="module")
def shared_gateway(valkey_server: object) -> Iterator[GatewayProcess]:
    """One gateway for a module's tests that don't end it."""
    process = start_gateway(f"redis://127.0.0.1:{valkey_server.port}")  # type: ignore[attr-defined]
    yield process
    process.stop()


@pytest.fixture
def own_ports() -> Iterator[bool]:
    """A network of the test's own, in which the default ports are free; tells whether it could be had."""
    with own_network() as own:
        yield own


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page whose console is kept in ``page.console`` and that must not raise."""
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    page.console = []  # type: ignore[attr-defined]  # our own note on a foreign object
    errors: list[str] = []
    page.on("console", lambda message: page.console.append(message.text))  # type: ignore[attr-defined]  # as above
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    assert errors == []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address it is served from, on another port than the gateway."""
    with served(tmp_path) as address:
        yield tmp_path, address
