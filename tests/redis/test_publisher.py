"""``RunPublisher`` on a real server: what stands in the log, who may write, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections import Counter
from typing import Any

import pytest
from redis import Redis

from listeners import RedisListener, RunPublisher, progress, wrap_all
from listeners.contract.events import Event, decode
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from tests.support.servers import wait_until


def log_of(redis: Redis, run: str, namespace: str = "toolcast") -> list[Event]:
    entries = read_entries(redis.xrange(Keys(run, namespace).log))
    assert [entry.position.seq for entry in entries] == list(range(1, len(entries) + 1))
    return [decode(entry.event) for entry in entries]


def types_of(redis: Redis, run: str) -> list[str]:
    return [event.type for event in log_of(redis, run)]


def flushers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "toolcast-flusher"]


def test_a_run_stands_in_its_log_and_in_the_index(redis: Redis, redis_url: str) -> None:
    publisher = RunPublisher("demo", title="Which modules?", redis=redis_url)
    with publisher as run, run.call("search", id="a", arguments={"q": "x"}) as call:
        call.progress(1, 2)
        call.result = [1]
    assert types_of(redis, "demo") == [
        "run_started",
        "tool_execution_started",
        "tool_progress",
        "tool_execution_completed",
        "run_completed",
    ]
    assert redis.zrange("toolcast:runs:index", 0, -1) == [b"demo"]
    meta: dict[bytes, bytes] = redis.hgetall(Keys("demo").meta)
    assert meta[b"status"] == b"completed" and meta[b"title"] == b"Which modules?"
    assert run.stats.published == 5 and run.stats.waiting == 0 and run.stats.dropped == {}
    assert run.stats.last_error is None


def test_what_is_published_arrives_at_once(redis: Redis, redis_url: str) -> None:
    """Nothing polls: an event is on its way as soon as it was put."""
    with RunPublisher("demo", redis=redis_url) as run, redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        run.flush()
        pubsub.subscribe(Keys("demo").channel)
        pubsub.get_message(timeout=5)
        waits = []
        for n in range(50):
            before = time.perf_counter()
            run.publish("x_n", data={"n": n})
            while pubsub.get_message(timeout=5) is None:
                pass
            waits.append(time.perf_counter() - before)
    assert sorted(waits)[25] < 0.05


def test_ten_thousand_events_stand_in_order(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        for n in range(9_000):
            run.publish("x_n", data={"n": n})
        assert run.flush(30)
        for n in range(9_000, 10_000):
            run.publish("x_n", data={"n": n})
    numbers = [event.data["n"] for event in log_of(redis, "demo") if event.type == "x_n"]
    assert numbers == list(range(10_000))


def test_publishing_costs_the_agent_little(redis_url: str) -> None:
    """Under 50 µs on an idle machine; ten times that here, since tests share theirs."""
    with RunPublisher("demo", redis=redis_url) as run:
        run.flush()
        before = time.perf_counter()
        for n in range(2_000):
            run.publish("x_n", data={"n": n})
        each = (time.perf_counter() - before) / 2_000
    assert each < 500e-6


def test_a_client_is_taken_for_its_address(redis_url: str, redis: Redis) -> None:
    """It is neither used nor changed: its answers are texts, its connection another one."""
    with Redis.from_url(redis_url, decode_responses=True) as client:
        with RunPublisher("demo", redis=client) as run:
            run.publish("x_a")
        assert client.connection_pool.connection_kwargs["decode_responses"] is True
    assert types_of(redis, "demo") == ["run_started", "x_a", "run_completed"]


def test_a_namespace_and_a_database_of_its_own(redis_url: str, redis: Redis) -> None:
    with RunPublisher("demo", redis=redis_url, namespace="staging"):
        pass
    assert len(log_of(redis, "demo", "staging")) == 2
    with RunPublisher("demo", redis=f"{redis_url}/3"), Redis.from_url(redis_url, db=3) as third:
        wait_until("the run in its database", lambda: third.exists(Keys("demo", "toolcast3").log))
    assert {key.decode().partition(":")[0] for key in redis.scan_iter()} == {"staging"}


def test_logs_live_as_long_as_the_publisher_says(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url, keep_open=1000, keep_done=500) as run:
        run.flush()
        assert 990 < redis.ttl(Keys("demo").log) <= 1000
    assert 0 < redis.ttl(Keys("demo").log) <= 500 < redis.ttl(Keys("demo").meta)


def test_what_comes_after_the_end_is_refused_counted_and_said_once(
    redis: Redis, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = RunPublisher("demo", redis=redis_url)
    with run:
        pass
    for _ in range(3):
        run.publish("x_late")
        assert run.flush()
    assert types_of(redis, "demo") == ["run_started", "run_completed"]
    assert run.stats.dropped == {"x_late": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "run demo has ended (completed): what is published after that is refused"
    ]


def test_a_publisher_may_begin_its_run_again(redis: Redis, redis_url: str) -> None:
    run = RunPublisher("demo", redis=redis_url)
    for _ in range(2):
        with run:
            run.publish("x_a")
    assert types_of(redis, "demo") == ["run_started", "x_a", "run_completed"]
    assert run.stats.published == 6


def test_another_publishers_start_takes_the_run_over(
    redis: Redis, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The former is out, says so once, and goes on without harm."""
    former = RunPublisher("demo", redis=redis_url)
    with former:
        former.flush()
        with RunPublisher("demo", redis=redis_url) as run:
            run.flush()
            former.publish("x_lost")
            assert former.flush()
            former.publish("x_lost")
    assert types_of(redis, "demo") == ["run_started", "run_completed"]
    assert former.stats.dropped == {"x_lost": 2, "run_completed": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "run demo was started again by another publisher; this one is out of it"
    ]


def test_a_lost_log_is_begun_again(redis: Redis, redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Redis came back empty: the run goes on in a new log, with its start and its title."""
    with RunPublisher("demo", title="A run", redis=redis_url) as run:
        run.publish("x_a")
        run.flush()
        redis.flushall()
        run.publish("x_b")
        assert run.flush()
        redis.delete(Keys("demo").log)
        run.publish("x_c")
        assert run.flush()
    events = log_of(redis, "demo")
    assert [event.type for event in events] == ["run_started", "x_c", "run_completed"]
    assert events[0].data == {"title": "A run"}
    assert len([record for record in caplog.records if "lost its log" in record.getMessage()]) == 1


def test_scripts_that_were_flushed_are_loaded_again(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        for _ in range(3):
            run.publish("x_a")
            run.flush()
            redis.script_flush()
    assert types_of(redis, "demo") == ["run_started", *["x_a"] * 3, "run_completed"]


def test_events_that_redis_refuses_are_given_up_and_the_rest_goes_on(
    redis: Redis, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A key of another kind stands in the way: said once, and other runs aren't held up."""
    redis.set(Keys("demo").meta, "not a hash")
    with RunPublisher("demo", redis=redis_url) as run, RunPublisher("other", redis=redis_url) as other:
        run.publish("x_a")
        assert run.flush() and other.flush()
        assert run.stats.dropped == {"run_started": 1, "x_a": 1}
        assert "WRONGTYPE" in (run.stats.last_error or "")
        redis.delete(Keys("demo").meta)
    assert types_of(redis, "other") == ["run_started", "run_completed"]
    assert types_of(redis, "demo") == ["run_completed"]
    assert len([record for record in caplog.records if "refused events" in record.getMessage()]) == 1


async def test_a_hundred_concurrent_runs_share_one_thread_and_one_connection(
    redis: Redis, redis_url: str
) -> None:
    """Tools wrapped once, a run a task: every event stands in its own log, in order."""

    async def fetch(path: str) -> str:
        await asyncio.sleep(0)
        progress(1, 2, path)
        return path

    def search(q: str) -> str:
        progress(1, 2, q)
        return q

    listener = RedisListener()
    (fetch_tool,), (search_tool,) = wrap_all([fetch], listener), wrap_all([search], listener)

    async def one(number: int) -> None:
        async with RunPublisher(f"run_{number}", redis=redis_url):
            for _ in range(3):
                await asyncio.gather(fetch_tool(f"{number}"), asyncio.to_thread(search_tool, f"{number}"))

    async with RunPublisher("warm", redis=redis_url):
        threads, connections = len(flushers()), len(redis.client_list())
    await asyncio.gather(*(one(number) for number in range(100)))
    assert (len(flushers()), len(redis.client_list())) == (threads, connections)
    for number in range(100):
        events = log_of(redis, f"run_{number}")
        assert len(events) == 2 + 3 * 2 * 3
        assert all(event.run == f"run_{number}" for event in events)
        assert {event.data["message"] for event in events if event.type == "tool_progress"} == {str(number)}
        assert Counter(event.type for event in events)["tool_execution_completed"] == 6
        assert events[-1].type == "run_completed"


async def test_a_failing_tool_leaves_nothing_in_redis(redis: Redis, redis_url: str) -> None:
    def failing(dsn_of: str) -> None:
        raise RuntimeError("postgres://app:secret@db")

    (tool,) = wrap_all([failing], RedisListener())
    with pytest.raises(RuntimeError):
        async with RunPublisher("demo", redis=redis_url):
            tool("main")
    stored: list[Any] = [redis.xrange(Keys("demo").log), redis.hgetall(Keys("demo").meta)]
    assert all(word not in repr(stored) for word in ("secret", "postgres", "RuntimeError", ".py"))
    assert types_of(redis, "demo")[-1] == "run_failed"


def test_nothing_stays_behind(redis_url: str) -> None:
    """A server that makes a publisher a request doesn't grow by them."""
    gone = []
    for _ in range(3):
        with RunPublisher(redis=redis_url) as run, run.call("t"):
            pass
        gone.append(weakref.ref(run))
    del run
    gc.collect()
    wait_until(
        "the publishers to be collected", lambda: gc.collect() is not None and not any(ref() for ref in gone)
    )


async def test_leaving_an_async_block_leaves_no_thread_or_task(redis_url: str) -> None:
    async with RunPublisher(redis=redis_url):
        pass
    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    for _ in range(5):
        async with RunPublisher(redis=redis_url):
            pass
    assert (threading.active_count(), len(asyncio.all_tasks())) == (threads, tasks)


def test_logs_stay_quiet_while_all_is_well(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "listeners"), RunPublisher(redis=redis_url) as run:
        for _ in range(100):
            run.publish("x_a")
    assert caplog.records == []
