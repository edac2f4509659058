"""``toolcast decide`` against a real Valkey: answers, and what it says when there is nothing to answer."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import pytest
from redis import Redis

from listeners.contract.events import decode
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from tests.support.writing import Writer


def toolcast(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", "decide", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.fixture
def held(redis: Redis) -> Writer:
    """The run ``demo``, whose call ``call_A`` asks for a file to be deleted."""
    writer = Writer(redis, "demo")
    writer.start()
    writer.ask("call_A", arguments={"path": "a.txt"})
    return writer


def last_data(redis: Redis) -> object:
    entry = read_entries(redis.xrange(Keys("demo").log))[-1]
    assert entry.type == "tool_decision"
    return decode(entry.event).data


@pytest.mark.parametrize(
    ("arguments", "data"),
    [
        (["approve"], {"decision": "approve"}),
        (["approve", "--by", "ana"], {"decision": "approve", "by": "ana"}),
        (
            ["edit", "--arguments", '{"path": "b.txt"}'],
            {"decision": "edit", "arguments": {"path": "b.txt"}},
        ),
        (["reject", "--reason", "keep it"], {"decision": "reject"}),
    ],
)
def test_an_answer_stands_in_the_log_and_its_position_is_printed(
    redis: Redis, redis_url: str, held: Writer, arguments: list[str], data: object
) -> None:
    done = toolcast("demo", "call_A", *arguments, "--redis", redis_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+-3\n", done.stdout)
    assert last_data(redis) == data


def test_the_environment_says_where_the_run_is(redis: Redis, redis_url: str, held: Writer) -> None:
    assert toolcast("demo", "call_A", "approve", REDIS_URL=redis_url, TOOLCAST_NAMESPACE="").returncode == 0
    elsewhere = toolcast("demo", "call_A", "approve", REDIS_URL=redis_url, TOOLCAST_NAMESPACE="staging")
    assert elsewhere.returncode == 3 and "there is no run demo" in elsewhere.stderr


def test_who_comes_second_hears_who_was_first(redis_url: str, held: Writer) -> None:
    toolcast("demo", "call_A", "approve", "--by", "ana", "--redis", redis_url)
    late = toolcast("demo", "call_A", "reject", "--redis", redis_url)
    assert late.returncode == 1
    assert late.stderr == "toolcast: call call_A of run demo was approved already by ana\n"


def test_a_mistaken_call_is_told_which_ones_ask(redis_url: str, held: Writer) -> None:
    mistaken = toolcast("demo", "call_B", "approve", "--redis", redis_url)
    assert mistaken.returncode == 1
    assert mistaken.stderr == "toolcast: call call_B of run demo holds no open question; these do: call_A\n"


def test_an_older_question_is_not_answered(redis_url: str, held: Writer) -> None:
    stale = toolcast("demo", "call_A", "approve", "--question", "1-1", "--redis", redis_url)
    assert stale.returncode == 1 and "asks another question by now, at " in stale.stderr


def test_what_was_shown_cut_is_not_edited(redis: Redis, redis_url: str, held: Writer) -> None:
    held.ask("call_B", arguments={"text": "Lorem…"}, editable=False)
    edit = toolcast("demo", "call_B", "edit", "--arguments", "{}", "--redis", redis_url)
    assert edit.returncode == 1 and "can't be edited" in edit.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a b", "c", "approve"], "run id 'a b' is not usable"),
        (["demo", "c/d", "approve"], "'c/d' can't be the key of a call"),
        (["demo", "c", "edit"], "edit needs --arguments"),
        (["demo", "c", "edit", "--arguments", "{"], "--arguments is no JSON"),
        (["demo", "c", "edit", "--arguments", "[1]"], "Edit.arguments must be a mapping"),
        (["demo", "c", "approve", "--arguments", "{}"], "--arguments goes with edit alone"),
        (["demo", "c", "edit", "--arguments", "{}", "--reason", "x"], "--reason goes with reject alone"),
        (["demo", "c", "approve", "--question", "latest"], "is no position"),
        (["demo", "c", "approve", "--redis", "http://x"], "Redis URL"),
    ],
)
def test_wrong_use_is_said_before_anything_is_sent(arguments: list[str], reason: str) -> None:
    refused = toolcast(*arguments)
    assert refused.returncode == 2 and reason in refused.stderr
    assert refused.stdout == "" and "Traceback" not in refused.stderr


def test_without_a_run_or_without_redis_it_ends_with_three(redis: Redis, redis_url: str) -> None:
    assert "there is no run demo" in toolcast("demo", "call_A", "approve", "--redis", redis_url).stderr
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    away = toolcast("demo", "call_A", "approve", "--redis", f"redis://me:hunter2@127.0.0.1:{port}")
    assert away.returncode == 3
    assert away.stderr.startswith("toolcast: Redis gave no answer") and "hunter2" not in away.stderr
