"""Run an awaitable where nobody can wait, as far as it goes without waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import coroutine
from typing import Any

__all__ = ["step"]


def step(awaitable: Awaitable[None]) -> Awaitable[None] | None:
    """Run ``awaitable`` until it ends or waits; returns ``None`` if it has ended, else the rest, to be awaited.

    What it raises is raised by the rest: the caller serves others too.
    """
    running = awaitable.__await__()
    try:
        waits_for = running.send(None)
    except StopIteration:
        return None
    except Exception as error:
        return _raise(error)
    return _rest(running, waits_for)


async def _raise(error: Exception) -> None:
    raise error


@coroutine
def _rest(running: Generator[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    # The task that awaits this gets what `running` waits for already, then stands in for whoever ran it before.
    resume: Callable[[], Any]
    while True:
        try:
            resume = partial(running.send, (yield waits_for))
        except BaseException as error:
            resume = partial(running.throw, error)
        try:
            waits_for = resume()
        except StopIteration:
            return
