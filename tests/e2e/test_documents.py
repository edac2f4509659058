"""The documents are true: their code runs, what they quote is what the program says, their links lead somewhere."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import listeners
from listeners.callbacks import EVENTS
from listeners.chain import RunOptions
from listeners.chain.options import ModeName
from listeners.contract.events import EVENT_TYPES, FailureReason
from tests.support.documents import Block, anchors, blocks, links
from tests.support.servers import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])
CODE = [
    block
    for path in (ROOT / "docs").glob("*.md")
    for block in blocks(path)
    # Those of the clients need a run to read.
    if block.language == "python" and path.name != "clients.md"
]
AGENT = ROOT / "docs" / "agent.md"
TROUBLE = ROOT / "docs" / "troubleshooting.md"
CALLBACKS = ROOT / "docs" / "callbacks.md"
CHAIN = ROOT / "docs" / "chain.md"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings_that_exist(path: Path) -> None:
    for link in links(path):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@pytest.mark.parametrize("block", CODE, ids=str)
def test_python_in_the_documents_runs(block: Block, redis_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.code],
        env={**os.environ, "REDIS_URL": redis_url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_signatures_are_the_programs_own() -> None:
    [block] = [block for block in blocks(AGENT) if "class RunPublisher:" in block.code]
    shown: dict[str, object] = {}
    # The code of our own document, which shows signatures and nothing else.
    exec(block.code, shown)
    for name in ("RedisListener", "RunPublisher"):
        documented, real = shown[name], getattr(listeners, name)
        for method, function in inspect.getmembers(documented, inspect.isfunction):
            assert parameters(function) == parameters(getattr(real, method)), f"{name}.{method}"
    for name in ("decide", "new_run_id", "progress", "wrap", "wrap_all"):
        assert parameters(shown[name]) == parameters(getattr(listeners, name)), name


def parameters(function: object) -> list[tuple[str, object, object]]:
    found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]  # only functions are given
    return [(each.name, each.kind, each.default) for each in found]


def rows(path: Path, first: str) -> list[list[str]]:
    """The table whose first column is called ``first``, without its head."""
    table = path.read_text("utf-8").split(f"\n| {first} |", 1)[1].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")[2:]]
    return [row for row in cells if not row[0].startswith("**")]


def test_every_event_is_told_as_the_callbacks_page_says() -> None:
    """With its arguments in their order; published as the contract's table of types has it."""
    documented = {}
    for event, arguments, _, published in rows(CALLBACKS, "event"):
        name = event.split("`")[1]
        documented[name] = ("chain", *re.findall(r"\w+", arguments))
        least = {"yes": "progress", "full": "full"}.get(re.split(r"\W", published)[0], "never")
        types = [] if least == "never" else re.findall(r"`([a-z_]+)`", published)
        assert {EVENT_TYPES[type] for type in types} <= {least}, name
        assert types or least == "never", name
        # What a chain ends with is published when it has ended.
        assert not types or name == "on_error" or name in vars(listeners.RedisListener), name
    assert documented == dict(EVENTS)


def test_every_reason_of_a_failure_is_on_the_callbacks_page() -> None:
    assert {row[0].strip("`") for row in rows(CALLBACKS, "reason")} == set(get_args(FailureReason))


def test_every_option_of_a_run_is_on_the_chains_page() -> None:
    table = " ".join(cell for row in rows(CHAIN, "option") for cell in row)
    assert set(re.findall(r"`(\w+)[=(]", table)) == set(RunOptions.__annotations__)
    assert set(re.findall(r'mode="(\w+)"', table)) == set(get_args(ModeName))


def quoted() -> list[str]:
    """What the troubleshooting page says that we say: headings, and the table of the agent's log."""
    text = TROUBLE.read_text("utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    table = re.findall(r"^\| (`.*?`) \|", text[text.index("## The agent's log") :], re.MULTILINE)
    return [message for line in (*headings, *table) for message in re.findall(r"`([^`]+)`", line)]


ELSEWHERE = {
    "ImportError: cannot import name 'RunPublisher' from 'listeners'",
    "toolcast: this installation has no gateway",
    "… settings are not usable",
}
"""What Python says, or what is put together: the tests of packaging and of settings hear it."""


def test_what_the_troubleshooting_page_quotes_is_what_we_say() -> None:
    sources = "".join(
        path.read_text("utf-8")
        for package in ("listeners", "gateway")
        for path in (ROOT / package).rglob("*.py")
    )
    # As a message reads: strings that stand side by side are one, and what is filled in is left out.
    said = re.sub(r"\"\s*\n\s*f?\"", "", sources)
    said = re.sub(r"\{[^{}]*\}|%[sdr]", "…", said)
    messages = [message for message in quoted() if message not in ELSEWHERE]
    assert len(messages) > 12
    for message in messages:
        parts = [part.strip() for part in re.split(r"…|\d[\d.:]*", message) if part.strip(" ():")]
        assert all(part in said for part in parts), message
