"""A run that outlives its processes: held by one, answered from another, finished by a third."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from listeners.contract.events import Event, decode
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from tests.support.servers import Process, wait_until

Run = Callable[..., Process]

ASKING = """
import asyncio, os, sys
from listeners import RunPublisher, RunNotInterrupted

url = sys.argv[1]

def hold(run, id):
    call = run.call("delete_file", id=id, arguments={"path": "a.txt"})
    call.start()
    data = {"message": "Delete a.txt?", "arguments": call.arguments}
    run.publish("tool_interrupted", call=call, data=data)
    return call
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start a script that begins like an agent, with a Redis URL as its argument."""
    started: list[Process] = []

    def start(script: str, url: str) -> Process:
        path = tmp_path / f"agent_{len(started)}.py"
        path.write_text(ASKING + script)
        process = Process([sys.executable, "-W", "error", str(path), url])
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop()


def toolcast(url: str, *arguments: str) -> Process:
    return Process([sys.executable, "-m", "gateway", *arguments, "--redis", url])


def log_of(redis: Redis) -> list[Event]:
    return [decode(entry.event) for entry in read_entries(redis.xrange(Keys("demo").log))]


HELD = """
with RunPublisher("demo", title="Tidy up", redis=url) as run:
    for id in ("c1", "c2"):
        hold(run, id)
    run.interrupt([{"key": id, "message": "Delete a.txt?"} for id in ("c1", "c2")])
"""

RESUMED = """
async def main():
    async with RunPublisher("demo", redis=url, resume=True) as run:
        print("resumed", flush=True)
        for id in ("c1", "c2"):
            print(id, await run.decision(id), flush=True)
            with run.call("delete_file", id=id):
                pass

asyncio.run(main())
"""


def test_a_run_is_held_by_one_process_answered_by_another_and_finished_by_a_third(
    run: Run, redis: Redis, redis_url: str
) -> None:
    """One answer comes while nobody is there, the other while the new process waits for it."""
    held = run(HELD, redis_url)
    assert held.wait(seconds=20) == 0, held.output
    assert redis.hget(Keys("demo").meta, "status") == b"interrupted"

    first = toolcast(
        redis_url, "decide", "demo", "c1", "edit", "--arguments", '{"path": "b.txt"}', "--by", "ana"
    )
    assert first.wait(seconds=20) == 0, first.output

    resumed = run(RESUMED, redis_url)
    resumed.expect(r"c1 Edit\(arguments={'path': 'b\.txt'}\)")
    assert resumed.returncode is None
    second = toolcast(redis_url, "decide", "demo", "c2", "approve")
    assert second.wait(seconds=20) == 0, second.output
    resumed.expect(r"c2 Approve\(\)")
    assert resumed.wait(seconds=20) == 0, resumed.output

    events = log_of(redis)
    assert [event.type for event in events] == [
        "run_started",
        *["tool_execution_started", "tool_interrupted"] * 2,
        "run_interrupted",
        "tool_decision",
        "run_resumed",
        "tool_execution_started",
        "tool_execution_completed",
        "tool_decision",
        "tool_execution_started",
        "tool_execution_completed",
        "run_completed",
    ]
    attempts = [
        event.call.attempt for event in events if event.call and event.type == "tool_execution_started"
    ]
    assert attempts == [1, 1, 2, 2]
    for process in (first, second):
        process.stop()


def test_a_second_process_that_resumes_is_told_to_stay_out(run: Run, redis: Redis, redis_url: str) -> None:
    assert run(HELD, redis_url).wait(seconds=20) == 0
    resumed = run(RESUMED, redis_url)
    resumed.expect("resumed")
    late = run(
        """
try:
    with RunPublisher("demo", redis=url, resume=True):
        print("entered")
except RunNotInterrupted as error:
    print("out:", error)
""",
        redis_url,
    )
    assert late.wait(seconds=20) == 0, late.output
    assert late.output.startswith("out: run demo is not interrupted and can't be resumed: another publisher")


def test_a_forked_child_waits_for_the_answer_to_its_parents_question(
    run: Run, redis: Redis, redis_url: str
) -> None:
    process = run(
        """
with RunPublisher("demo", redis=url) as run:
    call = hold(run, "c1")
    run.flush()
    pid = os.fork()
    if pid == 0:
        print("waiting", flush=True)
        print("child", run.wait_decision(call, 20), flush=True)
        os._exit(0)
    print("parent", run.wait_decision(call, 20), flush=True)
    assert os.waitpid(pid, 0)[1] == 0
""",
        redis_url,
    )
    process.expect("waiting")
    wait_until("the question", lambda: redis.exists(Keys("demo").questions))
    answered = toolcast(redis_url, "decide", "demo", "c1", "reject", "--reason", "no")
    assert answered.wait(seconds=20) == 0, answered.output
    answered.stop()
    assert process.wait(seconds=20) == 0, process.output
    assert {line for line in process.output.splitlines() if "Reject" in line} == {
        "child Reject(reason='no')",
        "parent Reject(reason='no')",
    }
