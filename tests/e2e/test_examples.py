"""The examples as they stand: each runs, and what it did can be read from the gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.e2e.conftest import Start

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "calls", "result"),
    [("first_agent", 2, " words in 2 files"), ("own_loop", 1, "71 × 839 × 1471 × 6857")],
)
def test_an_example_runs_and_is_seen(
    name: str, calls: int, result: str, start: Start, redis_url: str, tmp_path: Path
) -> None:
    gateway = start()
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", "example"],
        env={"REDIS_URL": redis_url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    with urlopen(f"{gateway.url}/runs/example/events?format=ndjson", timeout=10) as answer:
        events: list[dict[str, Any]] = [json.loads(line) for line in answer if line.strip()]
    types = Counter(event["type"] for event in events)
    assert types["tool_execution_completed"] == calls
    assert types["tool_progress"] >= 2
    assert events[-1]["type"] == "run_completed"
    assert result in events[-1]["data"]["result"]


def test_examples_import_nothing_of_ours_but_listeners() -> None:
    for example in EXAMPLES.glob("*.py"):
        assert "gateway" not in example.read_text("utf-8"), example.name


def test_the_page_is_three_lines() -> None:
    doctype, *lines = (EXAMPLES / "page.html").read_text("utf-8").splitlines()
    assert doctype == "<!doctype html>"
    assert len(lines) == 3
