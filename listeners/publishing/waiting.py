"""Waiting for Redis on an event loop, without holding it up or using a thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from listeners.publishing.sink import Sink

__all__ = ["flushed"]


async def flushed(sink: Sink, timeout: float) -> bool:
    """Wait until all that was put in ``sink`` was answered, at most ``timeout`` seconds; tells whether it was."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def answered() -> None:
        # The loop may have been closed meanwhile: then nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    if not sink.when_answered(answered):
        return True
    try:
        async with asyncio.timeout(timeout):
            await done.wait()
    except TimeoutError:
        return False
    finally:
        sink.forget(answered)
    return True
