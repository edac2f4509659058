"""Every block of the README as it stands there; of ports, only the gateway's own takes the place of 8808."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from playwright.async_api import Page

from gateway.embedded import Listener, listener_at
from tests.e2e.conftest import Start
from tests.support.documents import Block, blocks, links
from tests.support.needs import lacking
from tests.support.network import own_network
from tests.support.pages import until_shown
from tests.support.servers import ROOT, GatewayProcess, Process

README = ROOT / "README.md"
BLOCKS = blocks(README)
COMMANDS, AGENT, PAGE, CURL, LOOP, CHAIN, HOST, WIRE = BLOCKS
"""All there are: a block that is added here needs a test of its own."""

FIRST_SCREEN = 50
"""Lines of the source that a screen shows of it, the picture beside the first ones."""


def run_python(block: Block, redis_url: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.code],
        env={**os.environ, "REDIS_URL": redis_url},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def paste(command: str, gateway: GatewayProcess) -> str:
    """Run a line as pasted into a shell in whose environment toolcast is installed; returns what it says."""
    for program in ("curl", "jq"):
        if program in command and which(program) is None:
            lacking(f"{program} is not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("localhost:8808", f"localhost:{gateway.port}")],
        env={**os.environ, "PATH": path, "TOOLCAST_URL": gateway.url},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def events_of(gateway: GatewayProcess, run: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{gateway.url}/runs/{run}/events?format=ndjson", timeout=10) as answer:
        return [json.loads(line) for line in answer if line.strip()]


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


# -- the first screen -------------------------------------------------------------------------------------------


def test_everything_that_counts_is_on_the_first_screen() -> None:
    assert [block.language for block in BLOCKS] == [
        "sh", "python", "html", "sh", "python", "python", "python", "sh",
    ]  # fmt: skip
    title, picture, about = README.read_text("utf-8").split("\n\n")[:3]
    assert title == "# toolcast"
    assert [link for link in links(README) if link in picture] == ["docs/inspector.png"]
    assert len(re.findall(r"[.!?](?:\s|$)", about)) == 2
    assert CURL.line <= FIRST_SCREEN
    assert len(PAGE.code.splitlines()) == 3
    assert CURL.code.startswith("curl -N ")


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_the_agents_lines_are_seen_by_the_page_and_in_the_terminal(
    start: Start, redis_url: str, page: Page, site: tuple[Path, str]
) -> None:
    gateway = start()
    folder, address = site
    (folder / "a.md").write_text("one\ntwo\n")
    (folder / "b.md").write_text("three\n")
    (folder / "index.html").write_text(PAGE.code.replace("localhost:8808", f"localhost:{gateway.port}"))
    await page.goto(f"{address}/index.html")
    await until_shown(page, "Starting…")

    await asyncio.to_thread(run_python, AGENT, redis_url, folder)
    await until_shown(page, "Counted lines of *.md")
    await until_shown(page, "Used 1 tool")

    said = await asyncio.to_thread(paste, CURL.code, gateway)
    assert Counter(re.findall(r"^event: (\w+)$", said, re.MULTILINE)) == {
        "run_started": 1,
        "tool_execution_started": 1,
        "tool_progress": 2,
        "tool_execution_completed": 1,
        "run_completed": 1,
    }
    assert '"title":"How long is this project?"' in said
    assert '"data":{"result":"3 lines"}' in said


def test_the_wires_lines_work_as_pasted(start: Start, redis_url: str, tmp_path: Path) -> None:
    gateway = start()
    (tmp_path / "a.md").write_text("one\n")
    run_python(AGENT, redis_url, tmp_path)
    text, types, status, tail = (paste(line, gateway) for line in WIRE.code.splitlines())
    assert re.search(r"▶ count_lines +Counting lines of \*\.md…", text)
    assert re.search(r"✓ completed, 1 call, \d+\.\d s\n$", text)
    assert types.split()[0] == "run_started"
    assert types.split()[-1] == "run_completed"
    assert status == '"completed"\n'
    assert "Counted lines of *.md" in tail


# -- further down -----------------------------------------------------------------------------------------------


def test_a_loop_of_ones_own(start: Start, redis_url: str, tmp_path: Path) -> None:
    gateway = start()
    run_python(LOOP, redis_url, tmp_path)
    events = events_of(gateway, "by-hand")
    assert [event["type"] for event in events] == [
        "run_started",
        "tool_call_identified",
        "tool_execution_started",
        "tool_progress",
        "tool_execution_completed",
        "run_completed",
    ]
    assert {event["call"]["key"] for event in events if "call" in event} == {"call_1"}


def test_an_agent_on_the_chain(start: Start, redis_url: str, tmp_path: Path) -> None:
    gateway = start()
    run_python(CHAIN, redis_url, tmp_path)
    events = events_of(gateway, "on-the-chain")
    assert [event["type"] for event in events] == [
        "run_started",
        "tool_call_identified",
        "tool_execution_started",
        "tool_execution_completed",
        "run_completed",
    ]
    assert events[3]["data"]["result_summary"] == "snow in Oslo"
    assert events[-1]["data"] == {"result": "Take boots."}


PAGE_OF_THE_HOST = """
from fastapi.responses import HTMLResponse

@app.get("/page", response_class=HTMLResponse)
def page() -> str:
    return '<script type="module" src="/toolcast/web/define.js"></script><run-state run="public-a"></run-state>'
"""


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_an_application_that_carries_the_gateway_decides_who_sees_what(
    start: Start, redis_url: str, page: Page, tmp_path: Path
) -> None:
    (tmp_path / "readme_host.py").write_text(HOST.code + PAGE_OF_THE_HOST)
    host = start(app="readme_host:app", env={"PYTHONPATH": str(tmp_path)})
    for run in ("public-a", "private"):
        run_python(Block("", 0, "python", LOOP.code.replace("by-hand", run)), redis_url, tmp_path)
    assert status_of(f"{host.url}/toolcast/runs/public-a/events") == 200
    assert status_of(f"{host.url}/toolcast/runs/private/events") == 403
    listed = json.loads(await asyncio.to_thread(paste, "curl -s localhost:8808/toolcast/runs", host))
    assert [run["run"] for run in listed["runs"]] == ["public-a"]
    for place in ("/page", "/toolcast/?run=public-a"):
        await page.goto(f"{host.url}{place}")
        await until_shown(page, "Web search")


# -- the two commands -------------------------------------------------------------------------------------------

Clone = Callable[..., Process]


def without_make(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a shell that no ``make test`` has started, and no virtual environment."""
    own = Path(sys.executable).parent
    path = [entry for entry in environment["PATH"].split(os.pathsep) if Path(entry) != own]
    return {
        **dict.fromkeys(("ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "VIRTUAL_ENV"), ""),
        "PATH": os.pathsep.join(path),
    }


def python_for(environment: dict[str, str]) -> list[str]:
    """What to tell ``make`` where ``python3`` is too old, as it would say itself."""
    program = which("python3", path=environment["PATH"])
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    if program is not None and subprocess.run([program, "-c", check], check=False).returncode == 0:
        return []
    return [f"PYTHON={Path(sys.executable).resolve()}"]


def test_make_test_runs_all_tests_of_both_languages() -> None:
    plan = subprocess.run(
        ["make", "--dry-run", "test"], cwd=ROOT, env={**os.environ, **without_make(dict(os.environ))},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert re.search(r"python -m pytest -n 4 --dist worksteal\s*$", plan, re.MULTILINE)
    assert re.search(r"--test tests/web/\*\.test\.js$", plan, re.MULTILINE)
    assert COMMANDS.code.split("\n")[1].startswith("make test ")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_make_demo_alone_in_a_fresh_clone(redis_url: str, tmp_path: Path) -> None:
    """With an empty virtual environment, to the end of the run; then as it stands, with nothing but the machine."""
    if not (ROOT / ".git").exists():
        lacking("this is no clone of a repository")
    clone = tmp_path / "toolcast"
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = without_make(dict(os.environ))
    command = COMMANDS.code.split("#")[0].split()
    assert command == ["make", "demo"]
    command += python_for(environment)

    once = Process(
        [*command, "ARGS=--once --speed 20 --port 0"], env={**environment, "REDIS_URL": redis_url}, cwd=clone
    )
    try:
        status = once.wait(seconds=200)
    finally:
        once.stop()
    if "No matching distribution" in once.output or "Could not find a version" in once.output:
        lacking(f"no package index can be reached:\n{once.output}")
    assert status == 0, once.output
    assert "6 modules of the standard library import heapq" in once.output

    with own_network() as own:
        if not own and any(listener_at("127.0.0.1", port) is not Listener.NOBODY for port in (6379, 8808)):
            lacking(
                "this machine uses the ports 6379 or 8808, and a network of the test's own takes root on Linux"
            )
        # As a terminal does: Ctrl-C reaches the whole group.
        demo = Process(["setsid", *command, "ARGS=--speed 20"], env=environment, cwd=clone)
        try:
            address = demo.expect(r"page +(\S+)\n")[1]
            pasted = demo.expect(r"curl +(curl .*)\n")[1]
            assert pasted == "curl -N localhost:8808/runs/demo/events"
            demo.expect("Started a Valkey at 127.0.0.1:6379")
            # It asks, and says how to answer.
            answer = demo.expect(r" (\S+ decide demo call_7 approve)\n", seconds=30)[1]
            subprocess.run(["bash", "-c", answer], env=environment, cwd=clone, timeout=30, check=True)
            said = subprocess.run(
                ["bash", "-c", pasted], capture_output=True, text=True, timeout=30, check=True
            )
            assert "event: tool_execution_failed\n" in said.stdout
            assert said.stdout.rstrip().split("\n")[-2] == "event: run_completed"
            assert status_of(address) == 200
            demo.expect("Serving until Ctrl-C")
            os.killpg(demo.pid, signal.SIGINT)
            # How make itself ends on Ctrl-C, once what it started has ended.
            assert demo.wait() == -signal.SIGINT
            assert "Traceback" not in demo.output
        finally:
            demo.stop()
        assert listener_at("127.0.0.1", 6379) is Listener.NOBODY
