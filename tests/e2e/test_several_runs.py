"""``GET /events``: several runs on one connection, each from where its reader stands."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict

import httpx
import pytest
from redis import Redis

from tests.e2e.conftest import Start
from tests.support.reader import Received, read_stream
from tests.support.servers import GatewayProcess, wait_until
from tests.support.writing import Writer


def begun(redis: Redis, run: str, count: int = 3) -> Writer:
    writer = Writer(redis, run)
    writer.start(f"Title of {run}")
    writer.numbers(count)
    return writer


def ended(redis: Redis, run: str, count: int = 3) -> Writer:
    writer = begun(redis, run, count)
    writer.end()
    return writer


def by_run(received: Received) -> dict[str, list[str]]:
    told: dict[str, list[str]] = defaultdict(list)
    for event in received.events:
        told[event["run"]].append(event["type"])
    return dict(told)


def place(writer: Writer, seq: int) -> str:
    return f"{writer.keys.run}@{writer.epoch}-{seq}"


async def test_each_run_is_given_from_its_own_position_and_the_last_event_ends_the_stream(
    redis: Redis, shared_gateway: GatewayProcess
) -> None:
    a, b = ended(redis, "a"), ended(redis, "b")
    ended(redis, "c")
    query = f"run={place(a, 2)}&run={place(b, 3)}&run=c"
    received = await read_stream(shared_gateway.port, f"/events?{query}")
    assert received.clean and by_run(received) == {
        "a": ["x_n", "x_n", "run_completed"],
        "b": ["x_n", "run_completed"],
        "c": ["snapshot", "run_completed"],
    }
    assert [event["id"] for event in received.events if event["run"] == "a"] == [
        f"{a.epoch}-{seq}" for seq in (3, 4, 5)
    ]
    assert all(next(iter(event)) == "id" for event in received.events)
    assert received.ids == [""] * (len(received.ids) - 1) + ["ended"]
    again = await read_stream(shared_gateway.port, f"/events?{query}", headers={"Last-Event-ID": "ended"})
    assert again.status == 204
    everything_had = f"run={place(a, 5)}&run={place(b, 5)}"
    assert (await read_stream(shared_gateway.port, f"/events?{everything_had}")).status == 204


async def test_a_run_that_was_had_to_its_end_does_not_keep_the_others_from_ending(
    redis: Redis, shared_gateway: GatewayProcess
) -> None:
    a, b = ended(redis, "a"), ended(redis, "b")
    for order in ([a, b], [b, a]):
        done, other = order
        query = f"run={place(other, 1)}&run={place(done, 5)}"
        received = await read_stream(shared_gateway.port, f"/events?{query}")
        assert received.clean and received.ids[-1] == "ended" and set(by_run(received)) == {other.keys.run}


async def test_runs_go_on_together_and_a_busy_one_holds_none_up(
    redis: Redis, shared_gateway: GatewayProcess
) -> None:
    busy, calm = begun(redis, "busy", 0), begun(redis, "calm", 0)
    received = Received()
    path = f"/events?run={place(busy, 0)}&run={place(calm, 0)}&run=unborn&from=start"
    task = asyncio.create_task(read_stream(shared_gateway.port, path, into=received))
    await asyncio.to_thread(wait_until, "both stand", lambda: len(received.events) == 2)
    writing = asyncio.create_task(asyncio.to_thread(busy.numbers, 3_000))
    for n in range(20):
        before = by_run(received)["calm"].count("x_n")
        await asyncio.to_thread(calm.numbers, 1, start=n)
        await asyncio.to_thread(
            wait_until,
            "it comes through",
            lambda before=before: by_run(received)["calm"].count("x_n") > before,
        )
    await writing
    late = ended(redis, "unborn")
    calm.end()
    busy.end()
    await task
    told = by_run(received)
    assert told["busy"].count("x_n") == 3_000 and told["calm"].count("x_n") == 20
    assert told["unborn"] == ["run_started", "x_n", "x_n", "x_n", "run_completed"] and late.epoch
    numbers = [
        event["data"]["n"] for event in received.events if event["run"] == "busy" and event["type"] == "x_n"
    ]
    assert numbers == list(range(3_000))
    assert received.clean and received.ids.count("ended") == 1 and received.ids[-1] == "ended"


async def test_a_run_that_never_comes_ends_as_absent_and_the_others_go_on(
    redis: Redis, shared_gateway: GatewayProcess
) -> None:
    ended(redis, "a")
    received = await read_stream(shared_gateway.port, "/events?run=nobody&run=a&wait=0")
    assert by_run(received) == {"nobody": ["snapshot"], "a": ["snapshot", "run_completed"]}
    absent = next(event for event in received.events if event["run"] == "nobody")
    assert absent["id"] == "0-0" and absent["data"]["reason"] == "absent"
    assert received.clean and received.ids[-1] == "ended"


@pytest.mark.parametrize("format", ["ndjson", "text"])
async def test_other_formats_and_filters(redis: Redis, shared_gateway: GatewayProcess, format: str) -> None:
    ended(redis, "a")
    ended(redis, "b")
    async with httpx.AsyncClient(base_url=shared_gateway.url) as client:
        text = (await client.get(f"/events?run=a&run=b&format={format}&from=start&types=run_*")).text
    lines = [line for line in text.splitlines() if line]
    if format == "text":
        assert {line.split("  ")[0] for line in lines} == {"a", "b"}
        assert sum("completed" in line for line in lines) == 2
    else:
        events = [json.loads(line) for line in lines]
        assert sorted((event["run"], event["type"]) for event in events) == [
            (run, type) for run in "ab" for type in ("run_completed", "run_started")
        ]
        assert all(event["id"] for event in events)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "run=<id>"),
        ("run=a&run=a", "each run once"),
        ("run=a&run=../b", "run id"),
        ("&".join(f"run=r{n}" for n in range(13)), "at most 12"),
        ("run=a&from=yesterday", "start, snapshot or now"),
    ],
)
async def test_what_cannot_be_meant_is_refused(shared_gateway: GatewayProcess, query: str, says: str) -> None:
    async with httpx.AsyncClient(base_url=shared_gateway.url) as client:
        answer = await client.get(f"/events?{query}")
    assert answer.status_code == 400 and says in answer.json()["detail"]


async def test_a_stopping_gateway_aborts_and_nothing_is_left_behind(redis: Redis, start: Start) -> None:
    gateway = start(env={"TOOLCAST_LINGER": "0", "TOOLCAST_HEARTBEAT": "0.2"})
    begun(redis, "a")
    begun(redis, "b")
    first = Received()
    opened = asyncio.create_task(read_stream(gateway.port, "/events?run=a&run=b", into=first))
    await asyncio.to_thread(wait_until, "a heartbeat", lambda: "hb" in first.comments)
    assert first.ids == ["", ""], "nothing has ended"
    opened.cancel()
    await asyncio.to_thread(wait_until, "nothing is subscribed", lambda: redis.pubsub_channels("*{*") == [])
    second = Received()
    task = asyncio.create_task(read_stream(gateway.port, "/events?run=a&run=b", into=second))
    await asyncio.to_thread(wait_until, "it stands", lambda: len(second.events) == 2)
    gateway.signal()
    await task
    assert not second.clean and any("stopping" in text for text in second.comments)
    assert gateway.wait(seconds=5) in (0, -15)
