"""Relay and hub on a real server: history and live events meet, holes are filled, nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from redis import Redis

from gateway.fanout.history import History
from gateway.fanout.hub import Hub, Subscription
from gateway.fanout.relay import Relay
from gateway.fanout.runlog import RunLog
from gateway.fanout.states import States
from gateway.fanout.wheel import Wheel
from listeners.contract.log import Entry
from listeners.contract.position import Position
from tests.support.writing import Writer


@dataclass
class Engine:
    relay: Relay
    history: History
    hub: Hub
    wheel: Wheel
    states: States
    now: float = 0.0

    def turn(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.wheel.turn()


@pytest.fixture
async def engine(redis_url: str) -> AsyncIterator[Engine]:
    """The fan-out without HTTP, on a wheel that the test turns."""
    history = History(redis_url, "toolcast")
    relay = Relay(redis_url, "toolcast", history)
    made: list[Engine] = []
    wheel = Wheel(lambda: made[0].now if made else 0.0)
    engine = Engine(relay, history, Hub(relay, wheel), wheel, States(history))
    made.append(engine)
    relay.start(time.time)
    yield engine
    await relay.stop()
    await history.close()


async def eventually(description: str, condition: Callable[[], object], seconds: float = 10) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  # what is waited for lies in another process
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"after {seconds} s still waiting: {description}") from None


async def numbers(subscription: Subscription, count: int) -> list[int]:
    """Read on until ``count`` numbered events have come."""
    seen: list[int] = []
    async with asyncio.timeout(20):
        while len(seen) < count:
            if subscription.log is None and subscription.watch.log is not None:
                subscription.move(subscription.watch.log, 0)
            if data := subscription.take(65536):
                lines = [line for line in data.decode().split("\n") if line.startswith("data: ")]
                events = [json.loads(line[6:]) for line in lines]
                seen += [event["data"]["n"] for event in events if event["type"] == "x_n"]
            else:
                await subscription.wait()
    return seen


def channels(redis: Redis) -> set[bytes]:
    return {name for name in redis.pubsub_channels() if b"{" in name}


async def test_history_and_live_events_meet_without_a_seam(redis: Redis, engine: Engine) -> None:
    """Readers attach while 5,000 events are being written; each has every one once, in order."""
    writer = Writer(redis, "seam")
    writer.start()
    writing = asyncio.create_task(asyncio.to_thread(writer.numbers, 5000, batch=7))
    readers = []
    for _ in range(30):
        readers.append(asyncio.create_task(numbers(engine.hub.attach("seam"), 5000)))
        await asyncio.sleep(0.005)
    for seen in await asyncio.gather(*readers):
        assert seen == list(range(5000))
    await writing


async def test_a_cut_subscription_loses_nothing(redis: Redis, engine: Engine) -> None:
    """``CLIENT KILL TYPE pubsub`` in the middle: the relay comes back and fills the hole from the stream."""
    writer = Writer(redis, "cut")
    writer.start()
    reading = asyncio.create_task(numbers(engine.hub.attach("cut"), 1000))
    await eventually("the run is watched", lambda: channels(redis))
    for start in range(0, 1000, 100):
        await asyncio.to_thread(writer.numbers, 100, start=start, batch=10)
        redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    assert await reading == list(range(1000))


async def test_events_too_large_for_a_message_are_fetched(redis: Redis, engine: Engine) -> None:
    """The channel carries their position alone."""
    writer = Writer(redis, "large")
    writer.start()
    reading = asyncio.create_task(numbers(engine.hub.attach("large"), 40))
    await eventually("the run is watched", lambda: channels(redis))
    for n in range(40):
        writer.append(writer.event("x_n", n=n, pad="x" * (6000 if n % 3 else 10)))
    assert await reading == list(range(40))


async def test_a_run_is_watched_once_and_let_go_after_a_while(redis: Redis, engine: Engine) -> None:
    """One subscription however many readers; after the last one and ``linger`` seconds, none."""
    first, second = engine.hub.attach("once"), engine.hub.attach("once")
    await eventually("the run is watched", lambda: channels(redis) == {b"toolcast:{once}"})
    assert engine.hub.watchers("once") == 2
    assert redis.pubsub_numsub("toolcast:{once}")[0][1] == 1
    engine.hub.detach(first)
    engine.hub.detach(second)
    engine.turn(3)
    again = engine.hub.attach("once")
    engine.turn(10)
    assert engine.hub.watch_of("once") is not None, "a reader came back in time"
    engine.hub.detach(again)
    engine.turn(7)
    assert engine.hub.watch_of("once") is None
    await eventually("nothing is subscribed", lambda: not channels(redis))
    assert len(engine.wheel) == 0 and engine.hub.readers == 0


async def test_five_hundred_runs_come_and_go(redis: Redis, engine: Engine) -> None:
    """Subscriptions, tasks and timers are back where they were."""
    await eventually("the relay stands", lambda: engine.relay.stood)
    before = len(asyncio.all_tasks())
    subscriptions = [engine.hub.attach(f"r{n}") for n in range(500)]
    await eventually("all are watched", lambda: len(channels(redis)) == 500)
    for subscription in subscriptions:
        engine.hub.detach(subscription)
    engine.turn(8)
    await eventually("none is watched", lambda: not channels(redis))
    await eventually("no task is left", lambda: len(asyncio.all_tasks()) <= before)


async def test_only_the_newest_entries_are_kept_and_the_rest_is_paged(redis: Redis, redis_url: str) -> None:
    """A log larger than memory: the watch holds its tail, pages give the rest without a hole."""
    writer = Writer(redis, "tail")
    writer.start()
    writer.numbers(3000)
    history = History(redis_url, "toolcast", page=20_000)
    relay = Relay(redis_url, "toolcast", history, memory=50_000)
    hub = Hub(relay, Wheel(time.monotonic))
    relay.start(time.time)
    try:
        subscription = hub.attach("tail")
        assert await subscription.watch.ready(10)
        log = subscription.watch.log
        assert log is not None and log.head == 3001 and log.oldest > 1000
        subscription.move(log, 0)
        assert subscription.behind
        seqs: list[int] = []
        while not seqs or seqs[-1] < log.oldest:
            page = await history.page("tail", log.position._replace(seq=seqs[-1] if seqs else 0))
            assert sum(len(entry.event) for entry in page) < 40_000
            seqs += [entry.position.seq for entry in page]
        assert seqs == list(range(1, seqs[-1] + 1))
    finally:
        await relay.stop()
        await history.close()


async def test_states_fold_on_from_where_they_were(redis: Redis, engine: Engine) -> None:
    """A later state needs only what came since; an earlier one is folded afresh."""
    writer = Writer(redis, "states")
    writer.start("Title")
    writer.numbers(700)
    head = await engine.history.head("states")
    assert head is not None
    state = await engine.states.at("states", head)
    assert state.position == str(head) and state.title == "Title"
    assert await engine.states.at("states", head) is state
    writer.end()
    later = await engine.history.head("states")
    assert later is not None
    assert (await engine.states.at("states", later)).status == "completed"
    assert (await engine.states.at("states", head)).status == "running"


async def test_a_thousand_snapshots_at_once_fold_once(redis: Redis, engine: Engine) -> None:
    """Who asks while the fold is under way waits for it and gets the same object."""
    writer = Writer(redis, "joins")
    writer.start()
    writer.numbers(2000)
    subscription = engine.hub.attach("joins")
    assert await subscription.watch.ready(10)
    log = subscription.watch.log
    assert log is not None
    asked = [engine.states.snapshot("joins", log, reason="join", calls=True, now=1.0) for _ in range(1000)]
    answers = await asyncio.gather(*asked)
    assert all(entry.event is answers[0][0].event for entry, _ in answers)
    assert answers[0][1] == 2001


async def test_all_runs_together_keep_to_the_bound_of_memory(redis: Redis, redis_url: str) -> None:
    """The run read longest ago gives first, and its readers go on from Redis."""
    history = History(redis_url, "toolcast")
    relay = Relay(redis_url, "toolcast", history)
    hub = Hub(relay, Wheel(time.monotonic), memory=60_000)
    relay.start(time.time)
    try:
        subscriptions = []
        for name in ("one", "two", "three"):
            writer = Writer(redis, name)
            writer.start()
            writer.numbers(300)
            subscription = hub.attach(name)
            assert await subscription.watch.ready(10)
            subscriptions.append(subscription)
        hub.shed(0.0)
        for watch in hub.watches():
            assert watch.log is not None
            # As if there had been room at that look.
            watch.log = RunLog(watch.log.epoch, head=watch.log.head)
            for n in range(300):
                at = Position(watch.log.epoch, watch.log.head + 1)
                watch.log.append(Entry(at, "x_n", b'{"n":%d,"pad":"%b"}' % (n, b"x" * 70)))
        first = subscriptions[0]
        assert first.watch.log is not None
        first.move(first.watch.log, 301)
        assert first.take(1_000), "the first one is read, the others aren't"
        hub.shed(2.0)
        kept = {s.watch.run: s.watch.log.size for s in subscriptions if s.watch.log is not None}
        assert sum(kept.values()) <= 60_000
        assert kept["two"] < 1000 < kept["one"]
        subscription = subscriptions[1]
        assert subscription.watch.log is not None
        subscription.move(subscription.watch.log, 0)
        assert subscription.behind
    finally:
        await relay.stop()
        await history.close()


async def test_entries_that_somebody_removed_leave_no_run_deaf(redis: Redis, engine: Engine) -> None:
    """A hole in the stream itself: the watch goes on behind it instead of waiting for what will never come."""
    writer = Writer(redis, "holed")
    writer.start()
    writer.numbers(10)
    subscription = engine.hub.attach("holed")
    assert await subscription.watch.ready(10)
    redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    writer.numbers(10, start=10, batch=1)
    redis.xdel("toolcast:{holed}:log", f"{writer.epoch}-15")
    writer.numbers(5, start=20, batch=1)
    watch = subscription.watch
    await eventually("the watch reaches the head", lambda: watch.log is not None and watch.log.head == 26)
