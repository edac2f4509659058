"""Clients nobody here wrote, unmodified, as docs/clients.md shows them: over cuts every three events each gets every
event once, in order, heartbeats make no empty ones, and all stop after the end."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from shutil import which

import pytest
from playwright.async_api import Page
from redis import Redis

from tests.e2e.conftest import Start
from tests.support.cutting import CuttingProxy, Ending
from tests.support.documents import blocks
from tests.support.needs import lacking
from tests.support.servers import ROOT
from tests.support.writing import Writer

EVENTS = 20
BROWSER, NODE, FETCH, PYTHON, CURL = (block.code for block in blocks(ROOT / "docs" / "clients.md"))
PACKAGES = ("eventsource@3.0.7", "@microsoft/fetch-event-source@2.0.1")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
Client = Callable[[str, Path], Awaitable[list[str]]]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds the two packages."""
    folder = tmp_path_factory.mktemp("npm")
    npm = which("npm")
    if npm is None or which("node") is None:
        pytest.skip("npm is missing")
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", *PACKAGES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        lacking(f"npm can't install what is to be tested: {done.stderr[-300:]}")
    return folder


async def run_program(*command: str, cwd: Path) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


def elsewhere(code: str, base: str) -> str:
    assert "http://localhost:8808" in code
    return code.replace("http://localhost:8808", base)


async def with_python(base: str, folder: Path) -> list[str]:
    return await run_program(sys.executable, "-c", elsewhere(PYTHON, base), cwd=folder)


async def with_curl(base: str, folder: Path) -> list[str]:
    return await run_program("sh", "-c", elsewhere(CURL, base), cwd=folder)


def with_node(code: str) -> Client:
    async def client(base: str, folder: Path) -> list[str]:
        script = folder / f"client-{base.rpartition(':')[2]}.mjs"
        # What a browser has and Node hasn't.
        document = "{ addEventListener() {}, removeEventListener() {} }"
        stubs = f"globalThis.window ??= globalThis; globalThis.document ??= {document};\n"
        imports, _, rest = elsewhere(code, base).partition("\n")
        script.write_text(f"{imports}\n{stubs}{rest}")
        return await run_program("node", str(script), cwd=folder)

    return client


async def published(redis: Redis) -> None:
    """A run that goes on while it is read: half of it is there when readers come."""
    writer = Writer(redis, "demo")
    writer.start("A run")
    await asyncio.to_thread(writer.numbers, EVENTS // 2)
    for n in range(EVENTS // 2, EVENTS):
        await asyncio.sleep(0.05)
        writer.numbers(1, start=n)
    writer.end()


def check(lines: list[str], proxy: CuttingProxy) -> None:
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events] == ["run_started", *["x_n"] * EVENTS, "run_completed"]
    assert [event["data"]["n"] for event in events[1:-1]] == list(range(EVENTS))
    assert proxy.connections >= (EVENTS + 2) // 3


@pytest.mark.parametrize("ending", ["clean", "aborted"])
@pytest.mark.parametrize("name", ["httpx-sse", "curl", "eventsource", "fetch-event-source"])
async def test_every_event_comes_once_over_cuts_and_the_client_stops(
    redis: Redis, start: Start, tmp_path: Path, request: pytest.FixtureRequest, name: str, ending: Ending
) -> None:
    if name == "curl" and which("awk") is None:
        lacking("awk is missing")
    clients: dict[str, Client] = {
        "httpx-sse": with_python,
        "curl": with_curl,
        "eventsource": with_node(NODE),
        "fetch-event-source": with_node(FETCH),
    }
    if name == "fetch-event-source" and ending == "aborted":
        # It keeps the id of an event that it got half of, and asks for what follows that.
        ending = "aborted between events"
    folder = request.getfixturevalue("packages") if "event" in name else tmp_path
    gateway = start(env={"TOOLCAST_HEARTBEAT": "0.1"})
    async with CuttingProxy(gateway.port, every=3, ending=ending).serving() as proxy:
        lines, _ = await asyncio.gather(
            clients[name](f"http://127.0.0.1:{proxy.port}", folder), published(redis)
        )
        check(lines, proxy)


@pytest.mark.parametrize("ending", ["clean", "aborted"])
async def test_a_browsers_event_source_gets_every_event_once_and_stops(
    redis: Redis, start: Start, page: Page, site: tuple[Path, str], ending: Ending
) -> None:
    gateway = start(env={"TOOLCAST_HEARTBEAT": "0.1"})
    folder, address = site
    (folder / "index.html").write_text("<!doctype html><title>x</title>")
    async with CuttingProxy(gateway.port, every=3, ending=ending).serving() as proxy:
        await page.goto(address)
        publishing = asyncio.create_task(published(redis))
        await page.evaluate(
            f"""() => {{ window.lines = []; console.log = (line) => window.lines.push(line);
            {elsewhere(BROWSER, f"http://127.0.0.1:{proxy.port}").replace("const source", "window.source")} }}"""
        )
        await page.wait_for_function("window.source.readyState === EventSource.CLOSED", timeout=60_000)
        await publishing
        check(await page.evaluate("window.lines"), proxy)
