"""Completeness over real sockets: every reader gets every event once, in order, however it joins."""

from __future__ import annotations

import asyncio
import threading

import pytest
from redis import Redis

from tests.e2e.conftest import Start
from tests.support.reader import Received, read_stream
from tests.support.servers import GatewayProcess
from tests.support.writing import Writer

EVENTS = 1000
LAST = EVENTS + 2  # run_started before them, run_completed behind


async def read_in_steps(ports: list[int], run: str, step: int) -> list[int]:
    """Read a run, hanging up after every ``step`` events and coming back, in turn to each of ``ports``."""
    seqs: list[int] = []
    last: str | None = None
    for turn in range(LAST // step + 20):
        headers = {"Last-Event-ID": last} if last else {}
        received = await read_stream(
            ports[turn % len(ports)], f"/runs/{run}/events", headers=headers, stop_after=step
        )
        seqs += received.seqs
        last = received.ids[-1] if received.ids else last
        if received.clean:
            return seqs
    raise AssertionError(f"no end after {turn + 1} connections, {len(seqs)} events")


def publish(redis_url: str, run: str, *, begin: threading.Event) -> threading.Thread:
    def work() -> None:
        assert begin.wait(20)
        with Redis.from_url(redis_url) as redis:
            writer = Writer(redis, run)
            writer.start()
            writer.numbers(EVENTS, batch=20)
            writer.end()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def check(received: Received) -> None:
    assert received.clean
    assert received.seqs == list(range(1, LAST + 1))
    assert [event["data"]["n"] for event in received.events[1:-1]] == list(range(EVENTS))


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_thousand_readers_each_get_every_event_once(redis_url: str, start: Start) -> None:
    """950 wait from the beginning; 40 join late; 10 come back every 50 events; nobody misses or repeats one."""
    gateway = start()
    begin = threading.Event()
    publisher = publish(redis_url, "crowd", begin=begin)
    opened = [asyncio.Event() for _ in range(950)]
    waiting = [
        asyncio.create_task(read_stream(gateway.port, "/runs/crowd/events", opened=event, timeout=90))
        for event in opened
    ]
    async with asyncio.timeout(60):
        await asyncio.gather(*(event.wait() for event in opened))
    stepping = [asyncio.create_task(read_in_steps([gateway.port], "crowd", 50)) for _ in range(10)]
    begin.set()
    late = []
    for _ in range(40):
        # Spread over the run: each asks while other events are under way.
        late.append(asyncio.create_task(read_stream(gateway.port, "/runs/crowd/events", timeout=90)))
        await asyncio.sleep(0.01)
    for received in await asyncio.gather(*waiting, *late):
        check(received)
    for seqs in await asyncio.gather(*stepping):
        assert seqs == list(range(1, LAST + 1))
    publisher.join(10)


async def test_a_reader_that_moves_between_gateways_loses_and_repeats_nothing(
    redis_url: str, start: Start
) -> None:
    """Two gateways on one Redis serve the same run identically; a position is good at either."""
    first, second = start(), start()
    begin = threading.Event()
    publisher = publish(redis_url, "moving", begin=begin)
    opened = asyncio.Event()
    whole = [
        asyncio.create_task(read_stream(gateway.port, "/runs/moving/events", opened=opened))
        for gateway in (first, second)
    ]
    await opened.wait()
    moving = [asyncio.create_task(read_in_steps([first.port, second.port], "moving", 37)) for _ in range(5)]
    begin.set()
    one, other = await asyncio.gather(*whole)
    check(one)
    assert one.events == other.events and one.ids == other.ids
    for seqs in await asyncio.gather(*moving):
        assert seqs == list(range(1, LAST + 1))
    publisher.join(10)


async def test_a_burst_goes_out_whole(redis_url: str, redis: Redis, shared_gateway: GatewayProcess) -> None:
    """5,000 events at once to readers that were there before and to one that comes after."""
    writer = Writer(redis, "burst")
    opened = [asyncio.Event() for _ in range(20)]
    readers = [
        asyncio.create_task(read_stream(shared_gateway.port, "/runs/burst/events", opened=event))
        for event in opened
    ]
    await asyncio.gather(*(event.wait() for event in opened))

    def burst() -> None:
        writer.start()
        writer.numbers(5000, batch=500)
        writer.end()

    await asyncio.to_thread(burst)
    readers.append(asyncio.create_task(read_stream(shared_gateway.port, "/runs/burst/events")))
    for received in await asyncio.gather(*readers):
        assert received.clean and received.seqs == list(range(1, 5003))
