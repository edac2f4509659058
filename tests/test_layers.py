"""Imports point one way.

Read from our own import lines, wherever in a file they stand; what a dependency imports is its own affair.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for package in ("listeners", "gateway") for path in (ROOT / package).rglob("*.py"))

WAITING = {"asyncio", "redis", "socket", "starlette", "time"}
"""What takes time, or tells it."""

FLOOR = {
    "gateway.fanout.frames",
    "gateway.fanout.runlog",
    "gateway.fanout.text",
    "gateway.fanout.wheel",
    "gateway.http.provenance",
    "listeners.chain.deltas",
    "listeners.chain.function",
    "listeners.chain.messages",
    "listeners.chain.review",
    "listeners.contract",
    "listeners.publishing.outbox",
    "listeners.publishing.policy",
}
"""What takes values and gives values, packages with all they hold; files that say `no I/O` at their head too."""

BASE_INSTALL = {"listeners", "msgspec", "redis"} | sys.stdlib_module_names

BEYOND_BASE = {
    "listeners.chain.models.anthropic": {"anthropic"},
    "listeners.chain.models.openai": {"openai"},
    "listeners.metrics_listener": {"prometheus_client"},
    "listeners.testing.plugin": {"pytest"},
}
"""Files that are imported only where somebody installed more."""

MAY_NOT = [
    ("listeners", "gateway"),
    ("listeners.contract", "listeners, but listeners.contract"),
    ("listeners.publishing", "listeners.chain"),
    ("listeners.publishing", "listeners.tool_listener"),
    ("listeners.publishing", "listeners.redis_listener"),
    ("listeners.callbacks", "listeners.publishing"),
    ("listeners.callbacks", "redis"),
    ("listeners.chain", "listeners.publishing"),
    ("listeners.chain", "listeners.redis_listener"),
    ("listeners.chain", "redis"),
    ("listeners.tool_listener", "listeners.publishing"),
    ("listeners.wrapping", "listeners.publishing"),
    ("gateway, but gateway.demo", "listeners, but listeners.contract"),
    ("gateway.demo", "gateway, but gateway.demo"),
    ("gateway.fanout", "gateway, but gateway.fanout"),
    ("gateway.fanout", "starlette"),
    ("gateway.fanout", "uvicorn"),
    ("gateway.http", "gateway.app"),
    ("gateway.http", "gateway.cli"),
    ("gateway.http", "uvicorn"),
    ("gateway.app", "gateway.cli"),
    ("gateway.settings", "gateway, but gateway.setting_kinds"),
    ("gateway.embedded", "gateway.http"),
    ("gateway.embedded", "gateway.app"),
]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, package: str, *, running: bool = False) -> Iterator[str]:
    """Yield what ``source`` imports, fully named; ``running``: without what only a type checker reads."""
    tree = ast.parse(source)
    unread = {
        inner
        for node in ast.walk(tree)
        if running and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in unread:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def within(module: str, place: str) -> bool:
    """Whether ``module`` is in ``place``: a package or module, ``, but`` what in it doesn't count."""
    package, _, exception = place.partition(", but ")
    inside = module == package or module.startswith(f"{package}.")
    return inside and not (exception and within(module, exception))


def read(path: Path) -> tuple[str, str]:
    return path.read_text(encoding="utf-8"), module_of(path if path.name == "__init__.py" else path.parent)


def forbidden(source: str, module: str, package: str) -> list[str]:
    return [
        f"{module} imports {name}"
        for place, target in MAY_NOT
        if within(module, place)
        for name in imports(source, package)
        # `from listeners import contract` names the package, too, on the way to what it means.
        if within(name, target) and not (", but " in target and name == target.partition(",")[0])
    ]


def waits(source: str, package: str) -> set[str]:
    return {name.split(".")[0] for name in imports(source, package, running=True)} & WAITING


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    source, package = read(path)
    assert forbidden(source, module_of(path), package) == []


def without_io(paths: Iterable[Path]) -> list[Path]:
    return [
        path
        for path in paths
        if any(within(module_of(path), place) for place in FLOOR)
        or "no I/O" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    ]


@pytest.mark.parametrize("path", without_io(FILES), ids=module_of)
def test_the_floor_neither_waits_nor_tells_the_time(path: Path) -> None:
    source, package = read(path)
    assert waits(source, package) == set()


def test_the_floor_is_there() -> None:
    """A file that moved must take its place in the list with it."""
    modules = {module_of(path) for path in FILES}
    assert modules >= FLOOR


@pytest.mark.parametrize(
    "path", [path for path in FILES if within(module_of(path), "listeners")], ids=module_of
)
def test_the_agent_side_needs_redis_and_msgspec_alone(path: Path) -> None:
    if within(module_of(path), "listeners.integrations"):
        return
    source, package = read(path)
    further = {name.split(".")[0] for name in imports(source, package) if name} - BASE_INSTALL
    assert further <= BEYOND_BASE.get(module_of(path), set())


@pytest.mark.parametrize(
    "path", sorted((ROOT / "web").rglob("*.js")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_browser_modules_import_each_other_alone(path: Path) -> None:
    """They reach the gateway over HTTP, and nobody else's servers at all."""
    source = path.read_text(encoding="utf-8")
    found = re.findall(
        r"""(?:^\s*(?:import|export)\b[^'"`;]*?\bfrom\s*|^\s*import\s*|\bimport\()['"]([^'"]+)""",
        source,
        re.M,
    )
    assert [name for name in found if not name.startswith(("./", "../"))] == []


def test_what_it_would_find() -> None:
    """The rules can be broken: each of these lines is seen."""
    assert forbidden("def f():\n    import gateway.app", "listeners.progress", "listeners")
    assert forbidden("from listeners import redis_listener", "listeners.chain.chain", "listeners.chain")
    assert forbidden("from ..http import stream", "gateway.fanout.hub", "gateway.fanout")
    assert forbidden("from listeners.publishing import publisher", "gateway.app", "gateway")
    assert forbidden("import redis.asyncio", "listeners.chain.chain", "listeners.chain")
    assert not forbidden("from listeners.contract import keys", "gateway.app", "gateway")
    assert not forbidden("from listeners.contract.keys import Keys", "gateway.fanout.relay", "gateway.fanout")
    assert not forbidden("from listeners import RunPublisher", "gateway.demo.agent", "gateway.demo")
    assert waits("from time import monotonic\nimport redis.asyncio", "x") == {"time", "redis"}
    assert waits("if TYPE_CHECKING:\n    from starlette.types import Scope", "x") == set()
