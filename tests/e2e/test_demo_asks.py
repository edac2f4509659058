"""The demo asks before it deletes a file: held, answered from another terminal, and taken up by another process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.async_api import Page
from redis import Redis

from listeners.contract.events import Event, decode
from listeners.contract.log import read_entries
from tests.e2e.conftest import Demo, Start
from tests.support.pages import until_shown
from tests.support.servers import GatewayProcess, Process

FAST = ("--speed", "20")
HELD = 75
QUESTION = "This file lies outside the workspace."


def asked(process: Process, answer: str) -> str:
    """Wait until the run is held; returns the printed line that gives ``answer``."""
    process.expect(r"reject --reason .*\n")
    return str(process.expect(rf"    (\S.* -m gateway decide demo call_7 {answer}.*)\n")[1])


def paste(line: str) -> None:
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


def events_of(redis: Redis) -> list[Event]:
    return [decode(entry.event) for entry in read_entries(redis.xrange("toolcast:{demo}:log"))]


def of_the_deletion(redis: Redis) -> list[Event]:
    return [event for event in events_of(redis) if event.call is not None and event.call.key == "call_7"]


def tail(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "tail", "demo", "--url", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def text_until(url: str, wanted: str) -> str:
    """Read the text format as far as the line with ``wanted``."""
    said = ""
    with urlopen(f"{url}/runs/demo/events?format=text", timeout=15) as answer:
        for line in answer:
            said += line.decode()
            if wanted in said:
                return said
    raise AssertionError(f"{wanted!r} is not in:\n{said}")


def url_of(process: Process) -> str:
    return process.expect(r"page +(http://localhost:\d+)/")[1]


@pytest.mark.timeout(90)
async def test_a_deletion_is_held_and_seen_until_somebody_approves(
    demo: Demo, redis: Redis, page: Page
) -> None:
    """In the terminal, in ``tail``, as text and on the page; then reviewed again, and done."""
    process = demo(*FAST)
    approve = await asyncio.to_thread(asked, process, "approve")
    url = url_of(process)
    assert f"Delete cache.db? {QUESTION}" in process.output

    seen = await asyncio.to_thread(tail, url)
    assert re.search(r"\? delete_file +Delete cache\.db\?", seen.stdout)
    assert "still interrupted" in seen.stderr
    text = await asyncio.to_thread(text_until, url, "run_interrupted")
    assert re.search(r"\? delete_file +Delete cache\.db\?  This file lies outside the workspace", text)
    await page.goto(f"{url}/?run=demo")
    await until_shown(page, "Delete cache.db?")
    await until_shown(page, QUESTION)

    await asyncio.to_thread(paste, approve)
    await asyncio.to_thread(process.expect, r"✓ completed, 7 calls")
    await asyncio.to_thread(process.expect, r"Serving until Ctrl-C")
    await until_shown(page, "Deleted cache.db")
    assert "Deleted cache.db.\n" in process.output
    told = of_the_deletion(redis)
    assert [event.type.removeprefix("tool_") for event in told] == [
        "call_identified",
        "call_review",
        "interrupted",
        "decision",
        "call_review",
        "execution_started",
        "execution_completed",
    ]
    reviews = [event.data["outcome"] for event in told if event.type == "tool_call_review"]
    assert reviews == ["interrupted", "allowed"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("answer", "arguments", "state", "said"),
    [
        ("edit", {"file": "cache.old", "folder": "../cache"}, "completed", "Deleted cache.old"),
        (
            "edit",
            {"file": "precious.txt", "folder": "../../.."},
            "failed",
            "deletes only files that it has made",
        ),
        ("reject", None, "failed", "was rejected by a human reviewer: Keep it."),
    ],
)
def test_another_answer(
    demo: Demo, redis: Redis, tmp_path: Path, answer: str, arguments: Any, state: str, said: str
) -> None:
    """Whatever a person says, the run goes on; and nothing but the demo's own files is deleted."""
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    process = demo(*FAST)
    line = asked(process, answer)
    (folder,) = tmp_path.glob("toolcast-demo-*/demo-*")
    assert (folder / "workspace" / "../../.." / "precious.txt").resolve() == precious
    if arguments is not None:
        line = re.sub(r"--arguments '.*?'", f"--arguments '{json.dumps(arguments)}'", line)
    paste(line)
    process.expect(r"✓ completed, 7 calls")
    process.expect("Serving until Ctrl-C")
    assert said in process.output
    assert of_the_deletion(redis)[-1].type == f"tool_execution_{state}"
    assert precious.read_text() == "mine"
    # What was kept while the person was asked is gone with the run.
    assert not folder.exists()


@pytest.mark.timeout(120)
def test_another_process_takes_the_run_up(demo: Demo, start: Start, redis: Redis) -> None:
    """Nobody is there for a while: the agent has ended, and the gateway is another one twice."""
    gateway = start()
    process = demo("--once", "--ask", *FAST, PORT=str(gateway.port))
    assert process.wait(seconds=40) == HELD
    assert "The run waits. To take it up: " in process.output

    def restarted(before: GatewayProcess) -> GatewayProcess:
        before.stop()
        after = start(port=before.port)
        assert re.search(r"\? delete_file +Delete cache\.db\?", tail(after.url).stdout)
        return after

    gateway = restarted(restarted(gateway))
    assert redis.hget("toolcast:{demo}:meta", "status") == b"interrupted"

    resumed = demo("--resume", "demo", "--once", *FAST, PORT=str(gateway.port))
    approve = asked(resumed, "approve")
    assert resumed.returncode is None
    paste(approve)
    assert resumed.wait(seconds=40) == 0
    assert re.search(r"✓ completed, 7 calls", resumed.output)
    assert "heapq.py itself has" in resumed.output and "Deleted cache.db.\n" in resumed.output
    assert [event.type for event in events_of(redis) if event.type.startswith("run_")] == [
        "run_started",
        "run_interrupted",
        "run_resumed",
        "run_interrupted",
        "run_resumed",
        "run_completed",
    ]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_answer_waits_for_an_agent_that_is_gone(demo: Demo, redis: Redis, number: signal.Signals) -> None:
    process = demo(*FAST)
    reject = asked(process, "reject")
    os.kill(int(process.expect(r"agent +process (\d+)\n")[1]), number)
    process.expect("Serving until Ctrl-C")
    paste(reject)
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert "The run waits. To take it up: " in process.output

    resumed = demo("--resume", "demo", "--once", *FAST)
    assert resumed.wait(seconds=40) == 0
    assert "was rejected by a human reviewer: Keep it." in resumed.output
    # Its question was answered: nobody is asked again.
    assert "In another terminal" not in resumed.output
    assert events_of(redis)[-1].type == "run_completed"


@pytest.mark.timeout(60)
def test_ctrl_c_ends_the_waiting_and_not_the_run(demo: Demo, redis: Redis) -> None:
    process = demo(*FAST)
    asked(process, "approve")
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert "Traceback" not in process.output
    assert events_of(redis)[-1].type == "run_interrupted"
    # And once more, by who took it up.
    resumed = demo("--resume", "demo", *FAST)
    asked(resumed, "approve")
    resumed.signal(signal.SIGINT)
    assert resumed.wait() == 0
    assert events_of(redis)[-1].type == "run_interrupted"


def test_what_is_not_held_is_not_taken_up(demo: Demo) -> None:
    assert demo("--once", *FAST).wait(seconds=40) == 0
    process = demo("--resume", "demo", *FAST)
    assert process.wait(seconds=20) == 2
    assert re.search(
        r"toolcast: no conversation of run demo is kept in \S+: a run is taken up where", process.output
    )
