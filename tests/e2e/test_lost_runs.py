"""What readers are told when Redis has lost a run, when its agent has died, and when its log has expired."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest
from redis import Redis

from listeners.contract.checkpoint import folding
from listeners.contract.events import CallRef
from listeners.contract.exchange import carry_out
from listeners.contract.keys import Keys
from listeners.contract.log import Limits
from listeners.contract.state import RunState
from tests.e2e.conftest import Start
from tests.support.reader import Received, read_stream
from tests.support.servers import GatewayProcess
from tests.support.writing import Writer

CALL = CallRef(key="call_A", name="web_search", title="Searching…", attempt=1)


def state_of(redis: Redis, run: str) -> RunState:
    return carry_out(folding(Keys(run)), redis.execute_command).folding.state


async def until(what: str, condition: Callable[[], object], seconds: float = 10) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  # what is waited for lies in other processes
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"after {seconds} s still waiting: {what}") from None


def reading(gateway: GatewayProcess, run: str, after: str = "") -> tuple[Received, asyncio.Task[Received]]:
    received = Received()
    headers = {"Last-Event-ID": after} if after else {}
    path = f"/runs/{run}/events"
    return received, asyncio.create_task(read_stream(gateway.port, path, headers=headers, into=received))


def numbers(received: Received) -> list[int]:
    return [event["data"]["n"] for event in received.events if event["type"] == "x_n"]


@pytest.mark.parametrize("loss", ["flushall", "log", "meta", "went back"])
async def test_a_run_that_redis_lost_goes_on_for_its_readers(
    redis: Redis, shared_gateway: GatewayProcess, loss: str
) -> None:
    """A snapshot says so, and everything that was published since then follows, from its first event on."""
    run = f"lost-{loss.replace(' ', '-')}"
    writer = Writer(redis, run)
    writer.start()
    writer.append(writer.event("tool_execution_started", call=CALL))
    old = redis.dump(writer.keys.log), redis.dump(writer.keys.meta)
    writer.numbers(10)
    received, task = reading(shared_gateway, run)
    await until("all is read", lambda: numbers(received) == list(range(10)))

    state = state_of(redis, run)
    if loss == "flushall":
        redis.flushall()
    elif loss == "went back":
        redis.restore(writer.keys.log, 0, old[0], replace=True)
        redis.restore(writer.keys.meta, 0, old[1], replace=True)
    else:
        redis.delete(getattr(writer.keys, loss))
    later = [writer.event("x_n", n=n) for n in range(10, 510)]
    writer.restore(*later[:400], state=state)
    writer.append(*later[400:])
    writer.end()

    await task
    assert received.clean and numbers(received) == list(range(510))
    told = received.types.index("snapshot")
    assert received.events[told]["data"]["reason"] == "restarted"
    assert received.events[told]["data"]["calls"][0]["state"] == "running"
    assert "run_restored" not in received.types, "the snapshot stands behind it"
    assert received.seqs[told:] == list(range(1, 503)), "nothing of the new epoch is left out"


async def test_a_log_that_went_back_and_grew_again_is_noticed(redis: Redis, start: Start) -> None:
    """Other events at positions that were served: the reader hears of it, once, and gets what is true now."""
    gateway = start()
    writer = Writer(redis, "diverged")
    writer.start()
    old = redis.dump(writer.keys.log), redis.dump(writer.keys.meta)
    writer.numbers(5)
    received, task = reading(gateway, "diverged")
    await until("all is read", lambda: numbers(received) == list(range(5)))

    redis.restore(writer.keys.log, 0, old[0], replace=True)
    redis.restore(writer.keys.meta, 0, old[1], replace=True)
    other = Writer(redis, "diverged", name="other", joins=True, told=False)
    other.numbers(9, start=100)
    redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await until("the reader is told", lambda: "snapshot" in received.types)
    other.told = True
    other.numbers(1, start=109)
    await until("the rest came", lambda: numbers(received)[-1] == 109)
    assert received.types.count("snapshot") == 1
    task.cancel()


async def test_the_same_batch_once_more_after_redis_went_back_goes_unnoticed(
    redis: Redis, start: Start
) -> None:
    """A writer whose answer was lost with the data sends its batch again: the same events at the same positions."""
    gateway = start()
    writer = Writer(redis, "again")
    writer.start()
    old = redis.dump(writer.keys.log), redis.dump(writer.keys.meta)
    batch = [writer.event("x_n", n=n) for n in range(3)]
    writer.append(*batch)
    received, task = reading(gateway, "again")
    await until("all is read", lambda: numbers(received) == [0, 1, 2])
    redis.restore(writer.keys.log, 0, old[0], replace=True)
    redis.restore(writer.keys.meta, 0, old[1], replace=True)
    redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    writer.first = 2
    await until("the gateway has come back", lambda: redis.pubsub_numsub(writer.keys.channel)[0][1] == 1)
    writer.append(*batch)
    writer.numbers(3, start=3)
    writer.end()
    await task
    assert numbers(received) == list(range(6)) and "snapshot" not in received.types


@pytest.mark.slow
async def test_a_last_message_that_was_lost_arrives_within_eleven_seconds(redis: Redis, start: Start) -> None:
    """It makes no hole that anybody could see; whoever is silent is looked at."""
    gateway = start()
    writer = Writer(redis, "silent")
    writer.start()
    received, task = reading(gateway, "silent")
    await until("the reader stands", lambda: received.types == ["run_started"])
    writer.told = False
    writer.end()
    begun = time.monotonic()
    await task
    assert time.monotonic() - begun < 11 and received.types[-1] == "run_completed"


async def test_a_dead_agents_run_is_ended_once_for_the_readers_of_every_gateway(
    redis: Redis, start: Start
) -> None:
    gateways = [start() for _ in range(3)]
    writer = Writer(redis, "dead", limits=Limits(lease=1))
    writer.start()
    writer.append(writer.event("tool_execution_started", call=CALL))
    begun = time.monotonic()
    received = await asyncio.gather(*(reading(gateway, "dead")[1] for gateway in gateways))
    assert time.monotonic() - begun < 1 + 5
    for one in received:
        assert one.clean and one.types == [
            "run_started",
            "tool_execution_started",
            "tool_execution_failed",
            "run_failed",
        ]
        assert one.events[-1]["data"]["code"] == "publisher_lost"
        assert one.events[-2]["data"]["reason"] == "cancelled"
    async with httpx.AsyncClient(base_url=gateways[0].url) as client:
        listed = (await client.get("/runs")).json()["runs"]
    assert [(run["run"], run["status"]) for run in listed] == [("dead", "failed")]


async def test_a_run_whose_agent_gives_signs_of_life_goes_on(redis: Redis, start: Start) -> None:
    gateway = start()
    writer = Writer(redis, "alive", limits=Limits(lease=1))
    writer.start()
    received, task = reading(gateway, "alive")
    for _ in range(10):
        writer.append()
        await asyncio.sleep(0.3)  # as long as three leases, renewed as a publisher does
    writer.end()
    await task
    assert received.types == ["run_started", "run_completed"]


@pytest.mark.parametrize("asked", ["/runs/unwatched", "/runs"])
async def test_a_dead_agents_run_is_ended_when_it_is_opened_or_listed(
    redis: Redis, start: Start, asked: str
) -> None:
    gateway = start()
    Writer(redis, "unwatched", limits=Limits(lease=0.5)).start()
    await until("its lease is over", lambda: not redis.exists(Keys("unwatched").lease))
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        await client.get(asked)
        await until("it is ended", lambda: redis.hget(Keys("unwatched").meta, "status") == b"failed")
        assert (await client.get("/runs/unwatched")).json()["error"]["code"] == "publisher_lost"


async def test_a_lost_run_that_nobody_restores_ends_with_what_the_gateway_knows(
    redis: Redis, start: Start
) -> None:
    gateway = start()
    writer = Writer(redis, "forgotten", limits=Limits(lease=1))
    writer.start("A title")
    writer.append(writer.event("tool_execution_started", call=CALL))
    received, task = reading(gateway, "forgotten")
    await until("all is read", lambda: len(received.types) == 2)
    await asyncio.sleep(1.2)  # the gateway has looked, and knows the lease
    redis.flushall()
    await asyncio.wait_for(task, 10)
    assert received.types[2:] == ["snapshot", "tool_execution_failed", "run_failed"]
    assert received.events[2]["data"]["title"] == "A title"
    assert received.events[-1]["data"]["code"] == "publisher_lost"


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        ("run_completed", "completed", "expired"),
        ("", "failed", "expired"),
        ("deleted", "cancelled", "deleted"),
    ],
)
async def test_a_run_of_which_only_the_stub_is_left_ends_at_once(
    redis: Redis, shared_gateway: GatewayProcess, end: str, status: str, reason: str
) -> None:
    run = f"stub-{end}-{status}"
    writer = Writer(redis, run, limits=Limits(lease=None if end else 0.05))
    writer.start("A title")
    if end == "deleted":
        writer.delete()
    elif end:
        writer.append(writer.event(end))
    redis.delete(writer.keys.log, writer.keys.lease)
    positions = ["", f"{writer.epoch}-1", "1-1", "garbage"]
    for received in await asyncio.gather(*(reading(shared_gateway, run, at)[1] for at in positions)):
        assert received.clean and received.types == ["snapshot"] and received.ids == ["0-0"]
        data = received.events[0]["data"]
        assert (data["reason"], data["status"], data["calls"]) == (reason, status, [])
        assert data.get("error", {}).get("code") == (None if end else "log_expired")
    again = await read_stream(shared_gateway.port, f"/runs/{run}/events", headers={"Last-Event-ID": "0-0"})
    assert again.status == 204
    async with httpx.AsyncClient(base_url=shared_gateway.url) as client:
        answer = await client.get(f"/runs/{run}")
        assert (answer.status_code, answer.json()["status"]) == (410, status)
        assert (await client.get(f"/runs/{run}/events?wait=0")).status_code == 200
        assert run not in [one["run"] for one in (await client.get("/runs")).json()["runs"]]


async def test_a_deletion_that_the_channel_did_not_bring_ends_streams_too(redis: Redis, start: Start) -> None:
    gateway = start()
    writer = Writer(redis, "erased", limits=Limits(lease=1))
    writer.start()
    received, task = reading(gateway, "erased")
    await until("the reader stands", lambda: received.types == ["run_started"])
    writer.told = False
    writer.delete()
    await asyncio.wait_for(task, 12)
    assert (
        received.types == ["run_started", "snapshot"] and received.events[-1]["data"]["reason"] == "deleted"
    )


async def test_a_position_of_a_run_of_which_nothing_is_left_ends_after_a_while(
    redis: Redis, start: Start
) -> None:
    """Its publisher may be about to restore it; and if it does in time, the reader goes on with it."""
    gateway = start(env={"TOOLCAST_RESTORE_WAIT": "1"})
    received = await reading(gateway, "nothing", "1758000000000-7")[1]
    assert received.types == ["snapshot"] and received.events[0]["data"]["reason"] == "expired"
    assert received.events[0]["data"]["error"]["code"] == "log_expired"

    writer = Writer(redis, "restored")
    writer.start()
    state, after = state_of(redis, "restored"), f"{writer.epoch}-1"
    redis.flushall()
    received, task = reading(gateway, "restored", after)
    await until("it waits", lambda: any("waiting" in text for text in received.comments))
    writer.restore(writer.event("x_n", n=1), state=state)
    writer.end()
    await task
    assert received.types == ["snapshot", "x_n", "run_completed"]


async def test_a_long_run_that_was_never_watched_is_answered_from_its_checkpoint(
    redis: Redis, start: Start
) -> None:
    writer = Writer(redis, "long", limits=Limits(max_entries=1_000))
    writer.start("A title")
    writer.append(writer.event("tool_execution_started", call=CALL))
    writer.numbers(30_000, batch=500)
    writer.append(writer.event("tool_execution_completed", call=CALL, result_summary="9 items"))
    assert redis.xlen(writer.keys.log) < 2_100
    gateway = start()
    async with httpx.AsyncClient(base_url=gateway.url) as client:
        begun = time.monotonic()
        state = (await client.get("/runs/long")).json()
        assert time.monotonic() - begun < 1
    received, task = reading(gateway, "long")
    await until("the snapshot came", lambda: received.types)
    snapshot = received.events[0]["data"]
    for told in (state, snapshot):
        assert told["title"] == "A title" and told["calls"][0]["result_summary"] == "9 items"
    assert snapshot["reason"] == "trimmed"
    writer.end()
    await task
    assert received.types[-1] == "run_completed"
