"""``MetricsListener``: what Prometheus reads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from listeners import MetricsListener, ToolError, wrap
from listeners.chain import Allow, Deny, Interrupt
from tests.support.chains import atool, call, calls, chain_of, tool


def values(registry: CollectorRegistry) -> dict[str, float]:
    """Each sample that isn't 0, without times, sums and buckets."""
    return {
        sample.name.removeprefix("toolcast_tool_")
        + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.value and not sample.name.endswith(("_created", "_sum", "_bucket"))
    }


def work(fail: bool = False) -> str:
    if fail:
        raise ToolError("no")
    return "R"


def test_wrapped_tools() -> None:
    """Several listeners may share a registry."""
    registry = CollectorRegistry()
    for _ in range(2):
        observed = wrap(work, MetricsListener(registry=registry))
        observed()
    with pytest.raises(ToolError):
        observed(fail=True)
    assert values(registry) == {
        "calls_total work": 3,
        "failures_total work error": 1,
        "duration_seconds_count work": 3,
    }


async def test_a_chain() -> None:
    registry = CollectorRegistry()
    listener = MetricsListener(registry=registry)
    during: list[float | None] = []

    async def look(arguments: Any, context: Any) -> str:
        during.append(registry.get_sample_value("toolcast_tool_calls_in_progress", {"tool": "look"}))
        return "R"

    verdicts = {"no": Deny("no"), "ask": Interrupt("?")}
    review: Any = {"on_tool_call_review": lambda chain, call, *rest: verdicts.get(call.name, Allow())}
    tools: list[Any] = [
        atool("look", look),
        tool("bad", ValueError("x")),
        tool("no"),
        tool("ask"),
        wrap(work, listener),
    ]
    made = [call(str(n), name) for n, name in enumerate(["look", "bad", "no", "ask", "work", "made_up"])]
    await chain_of([calls(*made)], *tools, callbacks=[listener, review]).run()
    assert during == [1.0]
    assert values(registry) == {
        "calls_total look": 1,
        "calls_total bad": 1,
        "calls_total no": 1,
        "calls_total work": 1,
        # What models make up isn't a series each.
        "calls_total (unknown)": 1,
        "failures_total bad exception": 1,
        "failures_total no denied": 1,
        "failures_total (unknown) unknown_tool": 1,
        "duration_seconds_count look": 1,
        "duration_seconds_count bad": 1,
        "duration_seconds_count work": 1,
    }


def test_without_prometheus_client() -> None:
    """The package is imported all the same, and the listener says what is missing."""
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from listeners import MetricsListener\n"
        "try: MetricsListener()\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert said.stdout == "MetricsListener needs prometheus-client: pip install toolcast[metrics]\n"
