"""Running an awaitable as far as it goes without waiting."""

from __future__ import annotations

import asyncio

import pytest

from gateway.http.stepping import step


async def note(into: list[str], *waits: asyncio.Event) -> None:
    into.append("begun")
    try:
        for event in waits:
            await event.wait()
            into.append("went on")
    except asyncio.CancelledError:
        into.append("cancelled")
        raise


def test_what_never_waits_ends_at_once() -> None:
    """No loop is needed, and there is no rest."""
    seen: list[str] = []
    assert step(note(seen)) is None
    assert seen == ["begun"]


async def test_what_waits_goes_on_in_the_task_that_awaits_its_rest() -> None:
    """Each wait, the one it was left in and later ones, works as if one task had run all of it."""
    seen: list[str] = []
    first, second = asyncio.Event(), asyncio.Event()
    rest = step(note(seen, first, second))
    assert rest is not None and seen == ["begun"]
    loop = asyncio.get_running_loop()
    loop.call_soon(first.set)
    loop.call_later(0.01, second.set)
    async with asyncio.timeout(5):
        await rest
    assert seen == ["begun", "went on", "went on"]


async def test_a_rest_that_need_not_wait_any_more_ends() -> None:
    """What it waited for may have come before anybody awaits it."""
    seen: list[str] = []
    event = asyncio.Event()
    rest = step(note(seen, event))
    event.set()
    await asyncio.sleep(0)
    assert rest is not None
    async with asyncio.timeout(5):
        await rest
    assert seen == ["begun", "went on"]


async def test_cancelling_the_task_reaches_what_it_runs() -> None:
    """A rest is cancelled like any coroutine."""
    seen: list[str] = []
    rest = step(note(seen, asyncio.Event()))
    assert rest is not None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await rest
    assert seen == ["begun", "cancelled"]


async def test_an_error_is_raised_by_the_rest() -> None:
    """Who steps has others to serve."""

    async def fail() -> None:
        raise OSError("gone")

    rest = step(fail())
    assert rest is not None
    with pytest.raises(OSError, match="gone"):
        await rest
