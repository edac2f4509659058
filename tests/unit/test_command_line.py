"""What the commands are made of, without a gateway."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from gateway.cli.client import GatewayClient
from gateway.cli.drawing import RunView, duration_text, result_text, seconds_between, title_text
from gateway.cli.runs import table_of
from gateway.cli.serve import free_port
from gateway.cli.terminal import printable
from gateway.settings import settings_table
from listeners.contract.fold import CallFailure, CallState, Question, RunFailure, RunState

NOW = datetime(2026, 11, 30, 12, 0, 10, tzinfo=UTC)
BEGUN = "2026-11-30T12:00:00.000Z"


def call(**members: Any) -> CallState:
    return CallState(
        **{"key": "a", "name": "web_search", "title": "Searching…", "attempt": 1, "state": "running"}
        | members
    )


def run(*calls: CallState, **members: Any) -> RunState:
    return RunState(**{"run": "demo", "position": "1-1", "status": "running", "calls": calls} | members)


def drawn(state: RunState, *, height: int = 24, whole: bool = False, trouble: str | None = None) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=90, height=height, force_terminal=False)
    view = RunView(state, clock=lambda: NOW, spinning=False)
    view.whole, view.trouble = whole, trouble
    console.print(view)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_run_is_a_heading_and_a_line_a_call() -> None:
    lines = drawn(
        run(
            call(started_at=BEGUN, progress={"progress": 2, "total": 5, "message": "page 2"}),
            call(
                key="b", state="completed", title="Read x.py", duration_ms=1234.5, result_summary="12 lines"
            ),
            call(
                key="c",
                state="failed",
                title="Counting…",
                error=CallFailure(message="no file", reason="error"),
            ),
            call(key="d", state="interrupted", interrupt=Question(position="1-9", message="Delete it?")),
            title="Which modules?",
            started_at=BEGUN,
        )
    )
    assert lines[0] == "Which modules?  demo · running · 10 s"
    assert [re.sub(r"  +", "  ", line) for line in lines[1:]] == [
        "▶ Searching…  10 s 2 of 5 · page 2",
        "✓ Read x.py  1.2 s 12 lines",
        "✗ Counting  no file",
        "? Searching…  asks: Delete it?",
    ]


def test_a_run_that_failed_says_why_and_one_without_a_title_its_id() -> None:
    (line,) = drawn(
        run(status="failed", error=RunFailure(code="publisher_lost", message="the agent is gone"))
    )
    assert line == "demo  failed  the agent is gone"
    assert drawn(run(status="waiting")) == ["demo  waiting for its first event"]


def test_on_a_small_screen_the_newest_calls_are_drawn_and_at_the_end_all() -> None:
    state = run(*(call(key=str(number), title=f"call {number}") for number in range(20)))
    lines = drawn(state, height=10)
    assert len(lines) <= 9
    assert lines[1] == "  … 14 earlier"
    assert "call 19" in lines[-1]
    assert len(drawn(state, height=10, whole=True)) == 21


def test_a_lost_connection_is_said() -> None:
    assert drawn(run(), trouble="connection reset")[-1] == "  reconnecting: connection reset"


def test_an_ended_call_is_no_longer_under_way() -> None:
    assert title_text(call(state="running")) == "Searching…"
    assert title_text(call(state="completed")) == "Searching"
    assert title_text(call(title="", name="", key="w1")) == "w1"


def test_a_result_is_one_short_line() -> None:
    assert result_text(call(state="completed", result={"a": 1})) == "{'a': 1}"
    assert result_text(call(state="completed")) == ""
    assert len(result_text(call(state="completed", result_summary="x\n" * 500))) == 80
    assert result_text(call(progress={"progress": 3})) == "3"
    assert result_text(call(progress={"progress": "many", "message": ["x"]})) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 0 s"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_time_that_cannot_be_read_is_no_duration() -> None:
    assert seconds_between(BEGUN, NOW) == 10
    assert seconds_between(BEGUN, "2026-11-30T11:00:00.000Z") == 0
    for start in (None, "", "yesterday", "2026-11-30T12:00:00"):
        assert seconds_between(start, NOW) is None


def test_what_an_agent_wrote_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[31mb\r\nc\u202ed\u2028e") == "a [31mb  c d e"
    assert printable("Grüße “…” 日本 🎉") == "Grüße “…” 日本 🎉"


def test_runs_are_aligned_and_whole() -> None:
    lines = table_of(
        [
            {
                "run": "a",
                "status": "running",
                "calls": 3,
                "started_at": BEGUN,
                "watchers": 2,
                "title": "x" * 200,
            },
            {
                "run": "user-42.longer",
                "status": "completed",
                "started_at": BEGUN,
                "ended_at": BEGUN,
                "watchers": 0,
            },
        ],
        clock=lambda: NOW,
    )
    assert lines[0].split() == ["RUN", "STATUS", "CALLS", "STARTED", "TOOK", "WATCHERS", "TITLE"]
    assert lines[1].split()[:6] == ["a", "running", "3", "10", "s", "ago"]
    assert lines[1].endswith("x" * 200)
    assert lines[2].split() == ["user-42.longer", "completed", "10", "s", "ago", "0.0", "s", "0"]
    assert (
        len({line.index(word) for line, word in zip(lines, ("STATUS", "running", "completed"), strict=True)})
        == 1
    )


@pytest.mark.parametrize(
    "url", ["localhost:8808", "ftp://localhost", "http://", "http://[::1", "http://a:99999"]
)
def test_a_gateway_is_named_by_an_http_url(url: str) -> None:
    with pytest.raises(ValueError, match="is not a gateway's URL"):
        GatewayClient(url)


def test_a_free_port_is_free() -> None:
    assert 50_000 < free_port("127.0.0.1", 50_000) <= 50_050
    assert free_port("127.0.0.1", 65_535) == 0


def test_help_names_every_setting_with_its_variable_and_default() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "--help"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin"},
    )
    text = " ".join(done.stdout.split())
    for row in settings_table():
        assert row.flag in text
        assert f"[{row.env}" in text
        if row.kind != "switch" and row.shown_default:
            assert f"default {row.shown_default}]" in text


def test_without_the_gateway_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules.update(typer=None, starlette=None)\nfrom gateway.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == (
        "toolcast: this installation has no gateway (typer, starlette missing): pip install 'toolcast[gateway]'\n"
    )
