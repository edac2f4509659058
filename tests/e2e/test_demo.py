"""``toolcast demo``: a real agent in a process of its own, seen over HTTP by itself and by curl as pasted."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from listeners.contract.log import read_entries
from tests.e2e.conftest import Demo, Start
from tests.support.servers import Process

FAST = ("--speed", "20")


def pasted(process: Process, addition: str = "") -> subprocess.CompletedProcess[str]:
    """Run the curl line that was printed, as a person would paste it."""
    line = process.expect(r"curl +(curl -N \S+)\n")[1]
    return subprocess.run(
        f"{line} --silent --show-error{addition}", shell=True, capture_output=True, text=True, timeout=30
    )


def agent_of(process: Process) -> int:
    return int(process.expect(r"agent +process (\d+)\n")[1])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def data_of(body: str) -> list[dict[str, Any]]:
    return [
        json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")
    ]


def test_once_it_ends_with_0_when_the_whole_run_has_arrived(demo: Demo) -> None:
    process = demo("--once", *FAST)
    agent = agent_of(process)
    assert agent != process.pid
    assert process.wait(seconds=30) == 0
    assert not is_alive(agent)
    assert "Traceback" not in process.output
    assert re.search(r"✓ completed, 6 calls, \d\.\d s\n", process.output)
    assert re.search(r"✗ read_file +Couldn't read _heapq\.py +no such file", process.output)


def test_the_run_shows_all_that_an_agent_may_do(demo: Demo) -> None:
    """Calls side by side, named before their arguments are known; progress; a failure; and a true answer."""
    process = demo("--no-ask", *FAST)
    process.expect(r"Serving until Ctrl-C")
    curl = pasted(process)
    assert curl.returncode == 0, curl.stderr
    assert [int(seq) for seq in re.findall(r"^id: \d+-(\d+)$", curl.stdout, re.M)] == list(
        range(1, len(data_of(curl.stdout)) + 1)
    )

    events = data_of(curl.stdout)
    types = Counter(event["type"] for event in events)
    assert types["run_started"] == types["run_completed"] == 1
    assert types["tool_call_identified"] == types["tool_execution_started"] == 6
    assert (types["tool_execution_completed"], types["tool_execution_failed"]) == (5, 1)

    running: set[str] = set()
    together = 0
    for event in events:
        if event["type"] == "tool_execution_started":
            running.add(event["call"]["key"])
        elif event["type"] in ("tool_execution_completed", "tool_execution_failed"):
            running.remove(event["call"]["key"])
        together = max(together, len(running))
    assert together >= 2

    progress = [event["data"] for event in events if event["type"] == "tool_progress"]
    assert len(progress) > 3
    assert progress[-1]["message"] == f"{progress[-1]['total']} of {progress[-1]['total']} files"

    (failed,) = (event for event in events if event["type"] == "tool_execution_failed")
    assert failed["call"]["title"] == "Couldn't read _heapq.py"
    assert failed["data"]["message"] == "no such file"

    answer = events[-1]["data"]["result"]
    queue = Path(sysconfig.get_path("stdlib"), "queue.py").read_bytes()
    assert f"- queue.py: {len(queue.splitlines()):,} lines, {len(queue) / 1000:,.0f} kB" in answer


def test_curl_sees_it_while_it_happens(demo: Demo) -> None:
    process = demo("--speed", "6", "--once")
    process.expect(r"◌ search_library")
    curl = pasted(process, " | cat")
    assert data_of(curl.stdout)[-1]["type"] == "run_completed"
    assert process.wait(seconds=30) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_that_was_started(demo: Demo, redis: Redis, number: signal.Signals) -> None:
    process = demo("--speed", "0.5")
    agent = agent_of(process)
    process.expect(r"▶ search_library")
    process.signal(number)
    assert process.wait() == 0
    assert not is_alive(agent)
    assert "Traceback" not in process.output
    # Its watchers learn why it ended.
    assert read_entries(redis.xrange("toolcast:{demo}:log"))[-1].type == "run_cancelled"


def test_a_signal_after_the_run_ends_it_quietly(demo: Demo) -> None:
    process = demo("--no-ask", *FAST)
    process.expect(r"Serving until Ctrl-C")
    before = process.output
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert process.output == before


def test_an_agent_that_is_killed_leaves_a_run_that_is_not_whole(demo: Demo) -> None:
    process = demo("--once", "--speed", "0.5")
    agent = agent_of(process)
    process.expect(r"▶ search_library")
    os.kill(agent, signal.SIGKILL)
    assert process.wait(seconds=20) == 1
    assert re.search(
        r"toolcast: the run did not arrive whole: the agent's process was killed by signal 9, and its end is "
        r"missing: event \d+, \w+, was the last\n",
        process.output,
    )


def test_without_redis_it_says_so(demo: Demo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    process = demo("--once", *FAST, REDIS_URL=f"redis://127.0.0.1:{port}")
    assert process.wait(seconds=25) == 1
    assert "the run did not arrive whole: the gateway can't reach Redis" in process.output
    assert "Traceback" not in process.output


def test_a_gateway_that_is_there_is_used(demo: Demo, start: Start) -> None:
    gateway = start()
    process = demo("--once", *FAST, PORT=str(gateway.port))
    process.expect(rf"gateway +the one that serves on port {gateway.port} already\n")
    assert process.wait(seconds=30) == 0
    # The id is the same and the log is kept: what arrived is the new run, from its beginning.
    again = demo("--once", *FAST, PORT=str(gateway.port))
    assert again.wait(seconds=30) == 0
    assert gateway.returncode is None


def test_a_gateway_that_reads_elsewhere_shows_nothing(demo: Demo, start: Start) -> None:
    gateway = start(env={"TOOLCAST_NAMESPACE": "another"})
    process = demo("--once", *FAST, PORT=str(gateway.port))
    assert process.wait(seconds=30) == 1
    assert "no event of it arrived; does the gateway use the same Redis and namespace?" in process.output


def test_a_taken_port_is_one_line_that_names_another(demo: Demo) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = demo("--port", str(port))
        assert process.wait() == 1
    assert re.fullmatch(
        rf"toolcast: port {port} is taken; another: toolcast demo --port \d+\n", process.output
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--run", "a/b"), "run id 'a/b' is not usable"),
        (("--speed", "0"), "--speed: 0, but must be above 0"),
        (("--model", "openai"), "--model: 'openai' is no model: it looks like openai:NAME or anthropic:NAME"),
        (("--resume", "a/b"), "run id 'a/b' is not usable"),
    ],
)
def test_what_cannot_be_is_refused(demo: Demo, flags: tuple[str, ...], said: str) -> None:
    process = demo(*flags)
    assert process.wait() == 2
    assert said in process.output
