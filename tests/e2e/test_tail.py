"""``toolcast tail`` and ``toolcast runs`` against a real gateway."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from listeners.contract.events import CallRef
from tests.e2e.conftest import Start
from tests.support.servers import GatewayProcess, Process, wait_until
from tests.support.writing import Writer

SEARCH = CallRef(key="call_A", name="web_search", title="Searching the web…", index=0, attempt=1)
READ = CallRef(key="call_B", name="read_file", title="Reading x.py…", index=1, attempt=1)


def toolcast(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


def begin(redis: Redis, run: str) -> Writer:
    writer = Writer(redis, run)
    writer.start("Which modules use heapq?")
    writer.append(
        writer.event("tool_call_identified", call=SEARCH),
        writer.event("tool_execution_started", call=SEARCH, arguments_summary="q: heapq"),
        writer.event("tool_execution_started", call=READ),
        writer.event("tool_execution_completed", call=SEARCH, result_summary="9 items", duration_ms=1234.5),
    )
    return writer


def finish(writer: Writer, end: str = "run_completed", **data: str) -> None:
    writer.append(
        writer.event(
            "tool_execution_failed", call=READ, message="no such file", reason="error", is_error=True
        ),
        writer.event(end, **data),
    )


@pytest.fixture
def gateway(shared_gateway: GatewayProcess) -> str:
    return shared_gateway.url


def test_an_open_run_is_shown_as_far_as_it_has_come(redis: Redis, gateway: str) -> None:
    begin(redis, "open")
    done = toolcast("tail", "open", "--url", gateway)
    assert done.returncode == 0
    assert "Searching the web" in done.stdout
    assert done.stderr == "still running: --follow goes on until it ends\n"


def test_an_ended_run_is_shown_whole_and_its_end_is_the_status(redis: Redis, gateway: str) -> None:
    finish(begin(redis, "well"))
    finish(begin(redis, "badly"), "run_failed", code="exception", message="unexpected error")
    finish(begin(redis, "stopped"), "run_cancelled")
    done = toolcast("tail", "well", "--url", gateway)
    assert (done.returncode, done.stderr) == (0, "")
    assert "completed, 2 calls" in done.stdout.splitlines()[-1]
    assert toolcast("tail", "badly", "--url", gateway).returncode == 1
    assert toolcast("tail", "stopped", "--url", gateway, "--follow").returncode == 1


def test_ndjson_is_what_the_gateway_sends(redis: Redis, gateway: str) -> None:
    writer = begin(redis, "lines")
    finish(writer)
    done = toolcast("tail", "lines", "--format", "ndjson", TOOLCAST_URL=gateway)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["id"] for event in events] == [f"{writer.epoch}-{seq}" for seq in range(1, 8)]
    assert events[-1]["type"] == "run_completed"


def test_a_table_for_a_file_is_plain_and_whole(redis: Redis, gateway: str) -> None:
    finish(begin(redis, "plain"))
    done = toolcast("tail", "plain", "--url", gateway, "--format", "table", COLUMNS="100")
    assert "\x1b" not in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0][:2] == ["Which", "modules"]
    assert rows[1] == ["✓", "Searching", "the", "web", "1.2", "s", "9", "items"]
    assert rows[2][:3] == ["✗", "Reading", "x.py"]
    assert rows[2][-3:] == ["no", "such", "file"]


class Terminal(Process):
    """A command in a terminal of its own, 100 columns wide; ``output`` is what was written to it."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "gateway", *arguments],
            env={**os.environ, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def screen(self) -> str:
        """The text without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.output)

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 65_536):
                self.lines.append(data.decode(errors="replace"))
        except OSError:
            pass  # On Linux the end of a terminal is an error.
        os.close(self._master)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def begin_in_one(*arguments: str) -> Terminal:
        started.append(Terminal(*arguments))
        return started[-1]

    yield begin_in_one
    for process in started:
        process.stop()


Open = Callable[..., Terminal]


def test_following_draws_a_run_from_before_its_first_event_to_its_end(
    redis: Redis, gateway: str, terminal: Open
) -> None:
    screen = terminal("tail", "early", "--follow", "--url", gateway)
    screen.expect("waiting for its first event")
    writer = begin(redis, "early")
    screen.expect("Reading x.py…")
    # The dots of the spinner, more than one of them: it turns.
    wait_until("the spinner turns", lambda: len(set(re.findall("[⠁-⣿]", screen.output))) > 2)
    finish(writer)
    assert screen.wait() == 0
    last = [line for line in screen.screen.replace("\r", "\n").split("\n") if line.strip()][-3:]
    assert re.search(r"Which modules use heapq\?  early · completed · \d", last[0])
    assert re.search(r"✓ Searching the web +1\.2 s 9 items", last[1])
    assert re.search(r"✗ Reading x\.py +.* no such file", last[2])


def test_ctrl_c_ends_following_with_the_terminal_in_order(redis: Redis, gateway: str, terminal: Open) -> None:
    begin(redis, "left")
    screen = terminal("tail", "left", "--follow", "--url", gateway)
    screen.expect("Reading x.py…")
    screen.signal(signal.SIGINT)
    assert screen.wait() == 130
    assert "Traceback" not in screen.output
    assert screen.output.rindex("\x1b[?25h") > screen.output.rindex("\x1b[?25l")


def test_a_title_cannot_steer_the_terminal(redis: Redis, gateway: str, terminal: Open) -> None:
    hostile = CallRef(
        key="c", name="x", title="\x1b]0;owned\x07\x1b[2J[red]not markup[/red] \u202egnp", attempt=1
    )
    writer = Writer(redis, "hostile")
    writer.start("\x1b[31mtitle\r\nnext")
    writer.append(writer.event("tool_execution_started", call=hostile), writer.event("run_completed"))
    screen = terminal("tail", "hostile", "--url", gateway)
    assert screen.wait() == 0
    assert "\x1b]0" not in screen.output
    assert "\x1b[2J" not in screen.output
    assert "\u202e" not in screen.output
    assert "[red]not markup[/red]" in screen.screen
    piped = toolcast("tail", "hostile", "--url", gateway)
    assert "\x1b" not in piped.stdout


def test_a_gateway_that_is_replaced_is_followed_on_without_loss(redis: Redis, start: Start) -> None:
    first = start()
    writer = begin(redis, "moved")
    command = [
        sys.executable,
        "-m",
        "gateway",
        "tail",
        "moved",
        "-f",
        "--format",
        "ndjson",
        "--url",
        first.url,
    ]
    process = Process(command)
    try:
        process.expect("9 items")
        first.stop()
        process.expect("reconnecting")
        writer.numbers(3)
        start(port=first.port)
        finish(writer)
        assert process.wait(seconds=20) == 0
    finally:
        process.stop()
    ids = re.findall(r'^\{"id":"\d+-(\d+)"', process.output, re.MULTILINE)
    assert [int(seq) for seq in ids] == list(range(1, 11))


def test_whoever_reads_may_leave(redis: Redis, gateway: str) -> None:
    writer = begin(redis, "long")
    writer.numbers(3000)
    finish(writer)
    done = subprocess.run(
        f"{sys.executable} -m gateway tail long --url {gateway} --format ndjson | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("tail", "nobody"), 3, "No such run"),
        (("tail", "../etc"), 2, "run id"),
        (("tail", "x", "--url", "localhost"), 2, "is not a gateway's URL"),
        (("runs", "--url", "ftp://localhost"), 2, "is not a gateway's URL"),
        (("tail", "x", "--url", "http://127.0.0.1:1"), 3, "toolcast serve"),
        (("runs", "--url", "http://127.0.0.1:1"), 3, "toolcast serve"),
    ],
)
def test_what_cannot_be_had_is_one_line_with_the_remedy(
    gateway: str, arguments: tuple[str, ...], status: int, says: str
) -> None:
    done = toolcast(*arguments, TOOLCAST_URL=gateway)
    assert done.returncode == status
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_refusal_is_told_in_the_gateways_words(redis_url: str, start: Start) -> None:
    gateway = start(env={"TOOLCAST_WAIT": "0"})
    done = toolcast("tail", "nobody", "--follow", "--url", gateway.url)
    assert done.returncode == 3
    assert done.stderr.startswith("toolcast: No such run: ")


def test_the_runs_are_listed_for_people_and_for_programs(redis: Redis, gateway: str) -> None:
    begin(redis, "first")
    finish(begin(redis, "second"))
    done = toolcast("runs", "--url", gateway)
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["RUN", "STATUS", "CALLS", "STARTED", "TOOK", "WATCHERS", "TITLE"]
    assert {tuple(row.split()[:2]) for row in rows} == {("first", "running"), ("second", "completed")}
    assert all(row.endswith("Which modules use heapq?") for row in rows)
    listed = json.loads(toolcast("runs", "--url", gateway, "--format", "json", "--limit", "1").stdout)
    assert len(listed) == 1
    assert listed[0]["status"] in {"running", "completed"}
