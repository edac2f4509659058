"""``AuditLogListener``: two lines for each use of a tool, joined by their id."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from listeners import AuditLogListener, ToolError, wrap, wrap_all
from listeners.chain import Allow, Approve, Deny, Interrupt, Message
from listeners.testing import recorded
from tests.support.chains import atool, call, calls, chain_of, tool

DONE = Message.assistant("done")


def search(q: str, api_key: str = "") -> list[str]:
    return [q, "b"]


def failing(kind: str) -> None:
    raise ToolError("no such city") if kind == "tool" else RuntimeError("secret")


def lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


def pairs(log: io.StringIO) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each use with its result; every line has its place, and no id is used twice."""
    told = lines(log)
    uses = [line for line in told if line["type"] == "agent.tool_use"]
    results = {line["id"]: line for line in told if line["type"] == "agent.tool_result"}
    assert len(uses) == len(results) == len(told) / 2
    return [(use, results[use["id"]]) for use in uses]


def test_a_wrapped_tool() -> None:
    log = io.StringIO()
    wrap(search, AuditLogListener(log))("solar", api_key="s3cret")
    ((use, result),) = pairs(log)
    assert (use["name"], use["input_summary"]) == ("search", "q: solar, api_key: [redacted]")
    assert (result["is_error"], result["output_summary"]) == (False, "2 items: solar, b")
    assert result["duration_ms"] >= 0 and use["time"] <= result["time"] and "run" not in use


def test_levels_are_those_of_a_publisher() -> None:
    log = io.StringIO()
    wrap(search, AuditLogListener(log, arguments="full", results="none", redact=["q"]))("solar")
    ((use, result),) = pairs(log)
    assert use["input"] == {"q": "[redacted]"} and "output" not in result and "output_summary" not in result
    with pytest.raises(ValueError, match="one of 'full', 'summary', 'none'"):
        AuditLogListener(log, arguments="all")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize(
    ("kind", "errors", "error", "reason"),
    [
        ("tool", "safe", "no such city", "error"),
        ("other", "safe", "unexpected error", "exception"),
        ("other", "full", "secret", "exception"),
    ],
)
def test_a_failure(kind: str, errors: Any, error: str, reason: str) -> None:
    log = io.StringIO()
    with pytest.raises((ToolError, RuntimeError)):
        wrap(failing, AuditLogListener(log, errors=errors))(kind)
    ((_, result),) = pairs(log)
    assert (result["is_error"], result["error"], result["reason"]) == (True, error, reason)


def test_generators_and_tools_inside_of_tools() -> None:
    log = io.StringIO()
    listener = AuditLogListener(log)

    def inner() -> int:
        return 1

    observed = wrap(inner, listener)

    def outer() -> Generator[int, None, None]:
        yield observed()
        yield observed()

    steps = wrap(outer, listener)()
    next(steps)
    steps.close()
    told = [(use["name"], result["is_error"], result.get("reason")) for use, result in pairs(log)]
    assert told == [("outer", True, "cancelled"), ("inner", False, None)]


async def test_a_chain() -> None:
    """What ran, what failed, what was denied and what doesn't exist."""
    log = io.StringIO()
    listener = AuditLogListener(log)
    verdicts = {"no": Deny("not today"), "ask": Interrupt("Really?")}
    review: Any = {"on_tool_call_review": lambda chain, call, *rest: verdicts.get(call.name, Allow())}
    tools: list[Any] = [
        tool("a"),
        atool("b", ValueError("secret")),
        tool("no"),
        tool("ask"),
        wrap(search, listener),
    ]
    made = [
        call("1", "a", x=1),
        call("2", "b"),
        call("3", "no"),
        call("4", "zzz"),
        call("5", "ask"),
        call("6", "search", q="q"),
    ]
    with recorded("my-run"):
        await chain_of([calls(*made)], *tools, callbacks=[listener, review]).run()
    found = {use["call_id"]: (use, result) for use, result in pairs(log)}
    ends = {id: result.get("reason", "ok") for id, (_, result) in found.items()}
    # One that is held before it has run isn't in it, and a wrapped tool of the chain is told once.
    assert ends == {"1": "ok", "2": "exception", "3": "denied", "4": "unknown_tool", "6": "ok"}
    assert {use["run"] for use, _ in found.values()} == {"my-run"}
    assert found["3"][1]["error"] == "not today" and found["2"][1]["error"] == "unexpected error"
    assert found["1"][0]["input_summary"] == "x: 1" and found["1"][1]["output_summary"] == "R"


async def test_a_held_body_and_its_second_start() -> None:
    log = io.StringIO()
    answers = iter([Interrupt("Which one?"), "R"])
    chain = chain_of(
        [calls(call("1", "a")), DONE],
        tool("a", lambda *args: next(answers)),
        callbacks=[AuditLogListener(log)],
    )
    await chain.run()
    await chain.resume([Approve()])
    first, second = [result for _, result in pairs(log)]
    assert (first["held"], first["output_summary"], first["is_error"]) == (True, "Which one?", False)
    assert "held" not in second


async def test_a_call_that_nobody_tells_the_end_of() -> None:
    """A handler raised while it ran."""
    log = io.StringIO()

    def broken(*args: Any) -> None:
        raise RuntimeError("secret")

    async def forever(*args: Any) -> None:
        await asyncio.Event().wait()

    await chain_of(
        [calls(call("1", "a"), call("2", "b"))],
        atool("a", forever),
        atool("b"),
        callbacks=[AuditLogListener(log), {"on_tool_execution_completed": broken}],
    ).run()
    assert [result.get("reason", "ok") for _, result in pairs(log)] == ["cancelled", "ok"]


def test_a_file_is_appended_to_by_many_threads(tmp_path: Path) -> None:
    """And begun anew when it was moved away."""
    path = tmp_path / "audit.jsonl"
    observed = wrap(search, AuditLogListener(path))
    threads = [threading.Thread(target=lambda: [observed("ä" * 200) for _ in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    told = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert Counter(line["type"] for line in told) == {"agent.tool_use": 160, "agent.tool_result": 160}
    assert set(Counter(line["id"] for line in told).values()) == {2}
    path.rename(tmp_path / "audit.1")
    observed("x")
    assert len(path.read_text("utf-8").splitlines()) == 2


def test_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "my.audit"):
        wrap(search, AuditLogListener(logging.getLogger("my.audit")))("100%")
    assert [json.loads(record.getMessage())["type"] for record in caplog.records] == [
        "agent.tool_use",
        "agent.tool_result",
    ]


def test_a_log_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Is said once, and harms nobody."""
    (observed,) = wrap_all([search], AuditLogListener(tmp_path / "missing" / "audit"))
    with caplog.at_level(logging.ERROR, "listeners"):
        assert observed("x") == observed("x") == ["x", "b"]
    assert [record.getMessage() for record in caplog.records] == [
        "the audit log can't be written; the agent goes on without it"
    ]


def test_what_it_can_be_written_to() -> None:
    with pytest.raises(TypeError, match="a path, a text stream or a Logger, not list"):
        AuditLogListener([])  # type: ignore[arg-type]  # what is refused
