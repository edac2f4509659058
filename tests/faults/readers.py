"""A process that reads for hundreds: ``python -m tests.faults.readers <file for what they saw>``.

Orders: ``open`` (count, runs, ports, how; each reads one of the runs in turn, or all on one connection), ``resume``
(who takes nothing takes again), ``mark`` and ``report``, ``finish``.
"""

from __future__ import annotations

import asyncio
import pickle
import resource
import sys
from pathlib import Path
from typing import Any

import uvloop

from tests.faults.child import Order, hear
from tests.faults.eventsource import EventSource


class Readers:
    """The readers of this process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._sources: list[EventSource] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self) -> None:
        """Do as told until told to finish, or until nobody is there to tell."""
        orders: asyncio.Queue[Order | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        hear(lambda order: loop.call_soon_threadsafe(orders.put_nowait, order))
        while (order := await orders.get()) is not None:
            order.answer(getattr(self, order.do)(**order.what))
            if order.do == "finish":
                break
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def open(self, count: int, runs: list[str], ports: list[int], together: bool = False, **how: Any) -> None:
        for index in range(count):
            name = f"reader {len(self._sources) + 1}"
            mine = runs if together else [runs[index % len(runs)]]
            source = EventSource(name, mine, ports, **how)
            self._sources.append(source)
            self._tasks.append(asyncio.create_task(source.run()))

    def resume(self) -> None:
        for source in self._sources:
            source.resume()

    def mark(self) -> None:
        """Begin to count anew who gets something."""
        for source in self._sources:
            source.fresh = 0
            source.latencies = []

    def report(self) -> dict[str, int]:
        """How many wait for their end, are connected, have got nothing since the mark; events in all."""
        waiting = [source for source in self._sources if not source.ended]
        return {
            "open": len(waiting),
            "connected": sum(source.connected for source in waiting),
            "stale": sum(not source.fresh for source in waiting),
            "events": sum(len(lane.items) for source in self._sources for lane in source.lanes.values()),
        }

    def latency(self) -> float:
        """Seconds from publishing to reading a number since the mark, of 99 in a hundred, over whoever takes bytes."""
        seconds = sorted(one for source in self._sources if not source.stalled for one in source.latencies)
        return seconds[len(seconds) * 99 // 100] if seconds else 0.0

    def finish(self) -> None:
        """Write down what was seen: by reader and run, and when each connection was opened and lost."""
        seen = [one for source in self._sources for one in source.seen()]
        times = [(source.name, source.opened, source.closed) for source in self._sources]
        self._file.write_bytes(pickle.dumps((seen, times)))


def main() -> None:
    """Read for many: each takes a descriptor."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Readers(Path(sys.argv[1])).serve())


if __name__ == "__main__":
    main()
