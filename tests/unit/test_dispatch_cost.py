"""What telling an event costs: ten times what ``python -m benchmarks.dispatch`` may find, so that a busy machine is no
failure and a slip of an order of magnitude is one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from benchmarks.dispatch import LIMITS, cost
from listeners import RedisListener
from listeners.testing import recorded


async def test_without_handlers() -> None:
    assert await cost(lambda: nullcontext([])) < 10 * LIMITS["no handlers"]


async def test_with_a_redis_listener() -> None:
    @contextmanager
    def listening() -> Iterator[Any]:
        with recorded() as run:
            yield [RedisListener(run)]

    assert await cost(listening) < 10 * LIMITS["a RedisListener"]


def test_a_step_of_a_run_of_thousands_of_calls_costs_no_more() -> None:
    """None of its events looks at all calls."""
    with recorded() as run:
        began = time.perf_counter()
        for n in range(2_000):
            run.identified("t", id=f"c{n}")
        for n in range(2_000):
            with run.call("t", id=f"c{n}") as call:
                call.progress(n)
        microseconds = (time.perf_counter() - began) * 1e6 / (4 * 2_000)
    assert microseconds < 10 * LIMITS["a RedisListener"]
    assert len(run.state.calls) == 2_000 and {call.state for call in run.state.calls} == {"completed"}
