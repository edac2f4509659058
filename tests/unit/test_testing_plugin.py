"""What comes with toolcast for the tests of others: the fixture, and how little it costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from listeners import RedisListener, progress, wrap
from listeners.testing import RecordedRun

TESTS = """
import asyncio
from listeners import RedisListener, progress, wrap

def search(q):
    progress(1, 2)
    return [q]

tool = wrap(search, RedisListener())

def test_sync(recorded_run):
    tool("x")
    assert recorded_run.types == [
        "run_started", "tool_execution_started", "tool_progress", "tool_execution_completed"
    ]
    assert recorded_run.events[1].data == {"arguments_summary": "q: x"}
    assert recorded_run.state.calls[0].state == "completed"

def test_each_has_its_own(recorded_run):
    assert recorded_run.types == ["run_started"]

def test_async(recorded_run):
    async def main():
        await asyncio.to_thread(tool, "x")
    asyncio.run(main())
    assert "tool_progress" in recorded_run.types
"""


def test_the_fixture_comes_with_the_package(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_loading_the_plugin_loads_neither_redis_nor_the_publisher() -> None:
    """Every pytest run of a project with toolcast installed pays for it."""
    script = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import listeners.testing.plugin\n"
        "print(*sorted(m.split('.')[0] for m in set(sys.modules) - before if not m.startswith('listeners')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True
    )
    assert not {"redis", "msgspec", "asyncio"} & set(done.stdout.split())


def test_the_fixture_is_the_current_run(recorded_run: RecordedRun) -> None:
    wrap(lambda: progress(1), RedisListener(), name="t")()
    assert recorded_run.types[1:] == ["tool_execution_started", "tool_progress", "tool_execution_completed"]


async def test_the_fixture_is_the_current_run_in_async_tests_too(recorded_run: RecordedRun) -> None:
    wrap(lambda: None, RedisListener(), name="t")()
    assert len(recorded_run.types) == 3
