"""The demo's tools really do what they say, here over a library of three modules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.library import TITLES, Library
from gateway.demo.pace import Pace
from listeners import ToolError

AT_ONCE = 1e6


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "inner").mkdir(parents=True)
    (folder / "test").mkdir()
    (folder / "heapq.py").write_text('"""heapq, which says: import heapq."""\n')
    (folder / "queue.py").write_text("def get():\n    from heapq import heappop\n    return heappop\n")
    (folder / "inner" / "merge.py").write_text("import os, heapq as h\n")
    (folder / "test" / "test_queue.py").write_text("import heapq\n")
    return folder


@pytest.fixture
def library(root: Path, tmp_path: Path) -> Library:
    return Library(root, tmp_path / "library.db", Pace(AT_ONCE))


def test_importers_are_found_wherever_the_import_stands(library: Library) -> None:
    assert library.search_library("heapq", ".") == ["inner/merge.py", "queue.py"]
    assert library.search_library("heapq", "inner") == ["inner/merge.py"]
    assert library.search_library("sched", ".") == []


def test_lines_are_counted_and_the_rest_of_a_build_is_left_out(library: Library) -> None:
    assert library.count_lines(".") == {"files": 3, "lines": 5, "bytes": 121}


def test_findings_are_joined_by_sql(library: Library) -> None:
    library.compile_modules(library.search_library("heapq", "."))
    library.count_lines(".")

    rows = library.query_database(
        "SELECT name, lines, code_bytes > 0 AS compiled FROM imports JOIN modules USING (name) "
        "JOIN compiled USING (name) ORDER BY name"
    )
    assert rows == [
        {"name": "inner/merge.py", "lines": 1, "compiled": 1},
        {"name": "queue.py", "lines": 3, "compiled": 1},
    ]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("read_file", ("_heapq.py",), "no such file"),
        ("read_file", ("../secrets.py",), "outside the library"),
        ("count_lines", ("/",), "outside the library"),
        ("compile_modules", (["gone.py"],), "gone.py: no such file"),
        ("query_database", ("SELECT * FROM nowhere",), "no such table: nowhere"),
        ("query_database", ("DELETE FROM imports",), "attempt to write a readonly database"),
    ],
)
def test_what_cannot_be_done_is_said_in_words_for_people(
    library: Library, tool: str, arguments: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ToolError, match=f"^{said}$"):
        getattr(library, tool)(*arguments)


def test_every_tool_has_its_titles(library: Library) -> None:
    assert {tool.__name__ for tool in library.tools} == set(TITLES)


def test_a_stopped_pace_ends_a_tool_that_is_under_way() -> None:
    pace = Pace(AT_ONCE)
    items = pace.spread([1, 2, 3], 1.0)
    assert next(items) == 1
    pace.stop()
    with pytest.raises(asyncio.CancelledError):
        next(items)


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="must be a number above 0"):
        Pace(speed)
