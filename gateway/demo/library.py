"""The demo's tools: they search, read, count and compile the standard library that runs them, and query SQLite.

Plain functions of plain arguments, as any agent has them; only :func:`~listeners.progress` and
:class:`~listeners.ToolError` are ours. What they find out is kept in a database, for the last question.
"""

from __future__ import annotations

import ast
import marshal
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from gateway.demo.pace import Pace
from listeners import ToolError, progress

__all__ = ["TITLES", "Library"]

TITLES: Final = {
    "search_library": (
        "Searching the library for “{module}”…",
        "Searched the library for “{module}”",
        "Couldn't search the library for “{module}”",
    ),
    "read_file": ("Reading {path}…", "Read {path}", "Couldn't read {path}"),
    "count_lines": ("Counting lines…", "Counted lines", "Couldn't count lines"),
    "compile_modules": (
        "Compiling the modules found…",
        "Compiled the modules found",
        "Couldn't compile the modules",
    ),
    "query_database": ("Querying the database…", "Queried the database", "Couldn't query the database"),
}
"""What is shown for a call while it runs, when it is done, and when it has failed."""

# Not modules of the library: installed packages, its tests, and what a build leaves behind.
_SKIPPED: Final = frozenset({"site-packages", "dist-packages", "test", "tests", "__pycache__"})
_REPORTS: Final = 25
_ROWS: Final = 100

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS imports (name TEXT, module TEXT, PRIMARY KEY (name, module));
CREATE TABLE IF NOT EXISTS modules (name TEXT PRIMARY KEY, lines INTEGER, bytes INTEGER);
CREATE TABLE IF NOT EXISTS compiled (name TEXT PRIMARY KEY, code_bytes INTEGER);
"""


class Library:
    """The tools over the modules below the folder ``root``; ``database`` is the file that findings go into.

    Modules are named by their path below ``root``: ``asyncio/queues.py``.
    """

    def __init__(self, root: Path, database: Path, pace: Pace) -> None:
        self._root = root.resolve()
        self._database = database
        self._pace = pace
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript(_SCHEMA)

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """The five tools, for :func:`~listeners.wrap_all`."""
        return [
            self.search_library,
            self.read_file,
            self.count_lines,
            self.compile_modules,
            self.query_database,
        ]

    def search_library(self, module: str, path: str) -> list[str]:
        """Find the modules below the folder ``path`` that import ``module``."""
        folder = self._inside(path)
        found = [
            self._name(file)
            for file in self._pace.spread(_modules(folder), 3.0)
            if module in _imported(file.read_bytes(), module)
        ]
        self._store("INSERT OR REPLACE INTO imports VALUES (?, ?)", [(name, module) for name in found])
        return found

    def read_file(self, path: str) -> str:
        """Return the text of the module ``path``."""
        file = self._inside(path)
        self._pace.dwell(1.2)
        if not file.is_file():
            raise ToolError("no such file")
        return file.read_text("utf-8", "replace")

    def count_lines(self, path: str) -> dict[str, int]:
        """Count the files, lines and bytes of all modules below the folder ``path``; reports its progress."""
        files = _modules(self._inside(path))
        every = max(1, len(files) // _REPORTS)
        rows = []
        for done, file in enumerate(self._pace.spread(files, 5.4), 1):
            data = file.read_bytes()
            rows.append((self._name(file), len(data.splitlines()), len(data)))
            if done % every == 0 or done == len(files):
                progress(done, len(files), f"{done} of {len(files)} files")
        self._store("INSERT OR REPLACE INTO modules VALUES (?, ?, ?)", rows)
        return {
            "files": len(rows),
            "lines": sum(row[1] for row in rows),
            "bytes": sum(row[2] for row in rows),
        }

    def compile_modules(self, paths: list[str]) -> dict[str, int]:
        """Compile the modules ``paths`` and return the bytes of code each makes. The slow one."""
        sizes = {}
        for path in self._pace.spread(paths, 3.6):
            file = self._inside(path)
            if not file.is_file():
                raise ToolError(f"{path}: no such file")
            # Compiling executes nothing.
            sizes[path] = len(marshal.dumps(compile(file.read_bytes(), path, "exec", dont_inherit=True)))
        self._store("INSERT OR REPLACE INTO compiled VALUES (?, ?)", list(sizes.items()))
        return sizes

    def query_database(self, sql: str) -> list[dict[str, Any]]:
        """Return the first 100 rows of a query over imports, modules and compiled; nothing can be changed by it."""
        self._pace.dwell(1.2)
        try:
            with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True)) as connection:
                connection.row_factory = sqlite3.Row
                return [dict(row) for row in connection.execute(sql).fetchmany(_ROWS)]
        except sqlite3.Error as error:
            # About the SQL, which the model wrote and may mend.
            raise ToolError(str(error)) from error

    def _inside(self, path: str) -> Path:
        resolved = (self._root / path).resolve()
        if not resolved.is_relative_to(self._root):
            raise ToolError("outside the library")
        return resolved

    def _name(self, file: Path) -> str:
        return file.relative_to(self._root).as_posix()

    def _store(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        # A connection for each tool: they run in threads of their own.
        with closing(sqlite3.connect(self._database, timeout=30)) as connection, connection:
            connection.executemany(statement, rows)


def _modules(folder: Path) -> list[Path]:
    """The library's ``.py`` files below ``folder``, in the order of their names."""
    found = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith("config-")]
        found += [Path(where, name) for name in files if name.endswith(".py")]
    return sorted(found)


def _imported(source: bytes, module: str) -> set[str]:
    """The top-level modules that ``source`` imports anywhere, if it mentions ``module`` at all."""
    if module.encode() not in source:
        return set()
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names
