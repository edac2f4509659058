"""Reading Redis' side of a run: entries of its log, newest or next, and what the index knows.

Everything here raises a ``RedisError`` or ``OSError`` while Redis is away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from listeners.contract.events import is_run_id
from listeners.contract.keys import Keys, runs_index
from listeners.contract.log import Entry, read_entries
from listeners.contract.position import Position

__all__ = ["History"]

FIRST_COUNT: Final = 64
"""Entries asked for first; entries differ a thousandfold in size, so what has come says how many to ask for next."""
MOST_COUNT: Final = 1_000


class History:
    """Reads logs in ``namespace`` over a small pool; ``page`` is how many bytes of JSON one reading aims at."""

    def __init__(self, url: str, namespace: str, *, page: int = 256 * 1024) -> None:
        self._namespace = namespace
        self._page = page
        # Commands get bounded waits; a server that hangs must not hold a reader for ever.
        self._redis = Redis(
            connection_pool=BlockingConnectionPool.from_url(
                url,
                max_connections=16,
                timeout=5,
                socket_timeout=5,
                socket_connect_timeout=2,
                retry=Retry(NoBackoff(), 1),
            )
        )

    async def close(self) -> None:
        """Close the pool's connections."""
        await self._redis.aclose()
        # The pool was given to the client, which therefore leaves it open.
        await self._redis.connection_pool.disconnect()

    async def page(self, run: str, after: Position, *, any_epoch: bool = False) -> list[Entry]:
        """Return what follows ``after`` in its epoch, or, with ``any_epoch``, in the log: about a page of bytes.

        Empty means nothing follows. Where the log has lost entries the first one isn't the next ``seq``.
        """
        key = Keys(run, self._namespace).log
        last = "+" if any_epoch else f"{after.epoch}-{2**64 - 1}"
        found: list[Entry] = []
        size, count = 0, FIRST_COUNT
        while size < self._page:
            entries = read_entries(await self._redis.xrange(key, min=f"({after}", max=last, count=count))
            found += entries
            size += sum(len(entry.event) for entry in entries)
            if len(entries) < count:
                break
            after = entries[-1].position
            count = _next_count(self._page - size, found, size)
        return found

    async def tail(self, run: str, size: int) -> list[Entry]:
        """Return the newest entries of the newest epoch without a hole, oldest first: about ``size`` bytes."""
        key = Keys(run, self._namespace).log
        newest_first: list[Entry] = []
        held, count, before = 0, FIRST_COUNT, "+"
        while held < size:
            entries = read_entries(await self._redis.xrevrange(key, max=before, count=count))
            for entry in entries:
                if newest_first:
                    epoch, seq = newest_first[-1].position
                    if entry.position != (epoch, seq - 1):
                        return newest_first[::-1]
                newest_first.append(entry)
                held += len(entry.event)
            if len(entries) < count:
                break
            before = f"({entries[-1].position}"
            count = _next_count(size - held, newest_first, held)
        return newest_first[::-1]

    async def head(self, run: str) -> Position | None:
        """Return where the run's log ends now; ``None`` if there is none."""
        entries = read_entries(await self._redis.xrevrange(Keys(run, self._namespace).log, count=1))
        return entries[0].position if entries else None

    async def latest(
        self, offset: int, count: int, fields: Sequence[str]
    ) -> list[tuple[str, list[bytes | None]]]:
        """Return runs of the index from the newest on, each with ``fields`` of its meta."""
        members: Any = await self._redis.zrevrange(runs_index(self._namespace), offset, offset + count - 1)
        runs = [run for run in (member.decode("utf-8", "replace") for member in members) if is_run_id(run)]
        async with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                pipeline.hmget(Keys(run, self._namespace).meta, list(fields))
            return list(zip(runs, await pipeline.execute(), strict=True))


def _next_count(wanted: int, found: Sequence[Entry], size: int) -> int:
    return max(1, min(MOST_COUNT, wanted * len(found) // max(size, 1)))
