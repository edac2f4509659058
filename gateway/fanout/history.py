"""Reading Redis' side of a run: entries of its log, newest or next, and what the index knows.

Everything here raises a ``RedisError`` or ``OSError`` while Redis is away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.fanout.standing import Standing, read_standing, standing_commands
from listeners.contract.checkpoint import read_checkpoint
from listeners.contract.events import is_run_id
from listeners.contract.exchange import Command, Exchange, carry_out_async
from listeners.contract.keys import Keys, runs_index
from listeners.contract.log import Entry, read_entries
from listeners.contract.position import Position
from listeners.contract.state import RunState

__all__ = ["History"]

R = TypeVar("R")

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

    async def page(self, run: str, after: Position) -> list[Entry]:
        """Return what follows ``after`` in its epoch: about a page of bytes.

        Empty means nothing follows. Where the log has lost entries the first one isn't the next ``seq``.
        """
        return await self._range(run, f"({after}", f"{after.epoch}-{2**64 - 1}")

    async def page_from(self, run: str, head: Position) -> list[Entry]:
        """Return the entry at ``head`` and what follows it, in whatever epoch: about a page of bytes."""
        return await self._range(run, str(head), "+")

    async def _range(self, run: str, first: str, last: str) -> list[Entry]:
        key = Keys(run, self._namespace).log
        found: list[Entry] = []
        size, count = 0, FIRST_COUNT
        while size < self._page:
            entries = read_entries(await self._redis.xrange(key, min=first, max=last, count=count))
            found += entries
            size += sum(len(entry.event) for entry in entries)
            if len(entries) < count:
                break
            first = f"({entries[-1].position}"
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

    async def checkpoint(self, run: str) -> RunState | None:
        """Return the fold of the run's log that is kept beside it, if there is one."""
        value: Any = await self._redis.get(Keys(run, self._namespace).checkpoint)
        known = read_checkpoint(run, value)
        return known[0] if known is not None else None

    async def standings(self, runs: Sequence[str]) -> list[Standing]:
        """Return where each of ``runs`` stands, in one round trip; without any it only asks for a sign of life."""
        asked = [standing_commands(Keys(run, self._namespace)) for run in runs]
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.ping()
            for command in (command for commands in asked for command in commands):
                pipeline.execute_command(*command)
            _, *replies = await pipeline.execute()
        per_run = len(standing_commands(Keys("x", self._namespace)))
        return [read_standing(*replies[at : at + per_run]) for at in range(0, len(replies), per_run)]

    async def carry_out(self, exchange: Exchange[R]) -> R:
        """Have an exchange with Redis and return its result."""
        return await carry_out_async(exchange, self._redis.execute_command)

    async def send(self, commands: Iterable[Command]) -> None:
        """Send ``commands`` in one pipeline."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            await pipeline.execute()

    async def newest(self, offset: int, count: int) -> list[tuple[str, Standing]]:
        """Return runs of the index, the one whose status changed last first, and where each stands."""
        members: Any = await self._redis.zrevrange(runs_index(self._namespace), offset, offset + count - 1)
        runs = [run for run in (member.decode("utf-8", "replace") for member in members) if is_run_id(run)]
        return list(zip(runs, await self.standings(runs), strict=True))


def _next_count(wanted: int, found: Sequence[Entry], size: int) -> int:
    return max(1, min(MOST_COUNT, wanted * len(found) // max(size, 1)))
