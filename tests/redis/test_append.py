"""The append script on a real server: dense, exactly once, fenced, always with a time to live."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from listeners.contract.events import CallRef, Event, encode
from listeners.contract.keys import KEEP_STUB, Keys
from listeners.contract.log import (
    Appended,
    Batch,
    Fenced,
    Limits,
    Lost,
    Refused,
    append_script,
    index_commands,
    read_append_reply,
    read_entries,
    read_message,
)
from listeners.contract.position import Position

KEYS = Keys("run_1")
Answer = Appended | Fenced | Lost | Refused


def events(*types: str, **data: object) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        (type, encode(Event(type=type, run="run_1", time="2026-11-30T19:47:18.123Z", data=dict(data))))
        for type in types
    )


def append(
    redis: Redis,
    *types: str,
    writer: str = "A",
    first: int = 1,
    epoch: int | None = None,
    limits: Limits | None = None,
    **data: object,
) -> Answer:
    batch = Batch(keys=KEYS, writer=writer, first=first, epoch=epoch, events=events(*types, **data))
    script = redis.register_script(append_script())
    arguments = batch.script_arguments(limits or Limits())
    return read_append_reply(script(keys=batch.script_keys(), args=arguments))


def started(redis: Redis, writer: str = "A") -> Appended:
    answer = append(redis, "run_started", writer=writer, title="Which modules?")
    assert isinstance(answer, Appended)
    return answer


def log_of(redis: Redis) -> list[Position]:
    return [entry.position for entry in read_entries(redis.xrange(KEYS.log))]


def test_a_batch_is_numbered_densely_and_stored(redis: Redis) -> None:
    """Positions count 1, 2, 3 … in one epoch, and the stream's ids are the positions."""
    answer = append(redis, "run_started", "tool_call_identified", "llm_token_usage")
    assert isinstance(answer, Appended)
    assert answer.positions is not None
    assert [p.seq for p in answer.positions] == [1, 2, 3]
    assert log_of(redis) == list(answer.positions)
    assert answer.status == "running" and answer.status_changed


def test_a_repeated_batch_changes_nothing_and_gets_the_same_positions(redis: Redis) -> None:
    """A batch whose reply was lost is sent again; the log holds it once."""
    first = append(redis, "run_started", "llm_error")
    again = append(redis, "run_started", "llm_error")
    assert isinstance(first, Appended) and isinstance(again, Appended)
    assert again.positions == first.positions
    assert not again.status_changed
    assert len(log_of(redis)) == 2


def test_an_older_repeat_is_known_without_positions(redis: Redis) -> None:
    """Only the last batch's positions are kept, but no number is ever taken twice."""
    epoch = started(redis).epoch
    append(redis, "llm_error", first=2, epoch=epoch)
    again = append(redis, "run_started")
    assert isinstance(again, Appended) and again.positions is None
    assert len(log_of(redis)) == 2


def test_after_the_end_only_run_started_is_accepted(redis: Redis) -> None:
    """A terminal event closes the log; what follows it in its own batch is refused too."""
    epoch = started(redis).epoch
    end = append(redis, "run_completed", "llm_error", first=2, epoch=epoch)
    assert isinstance(end, Appended) and end.refused == 1 and len(end.positions or ()) == 1
    assert append(redis, "llm_error", first=4, epoch=epoch) == Refused(epoch, "completed")
    assert append(redis, "llm_error", writer="B") == Refused(epoch, "completed")
    reopened = append(redis, "run_started", first=5, epoch=epoch)
    assert isinstance(reopened, Appended) and reopened.epoch > epoch
    assert log_of(redis) == [Position(reopened.epoch, 1)]


def test_another_writers_start_fences_the_former(redis: Redis) -> None:
    """A takes part no longer once B has started the run, not even with a late repeat of its first batch."""
    epoch = started(redis, "A").epoch
    taken = append(redis, "run_started", writer="B")
    assert isinstance(taken, Appended) and taken.epoch > epoch
    before = redis.xrange(KEYS.log), redis.hgetall(KEYS.meta)
    assert append(redis, "llm_error", writer="A", first=2, epoch=epoch) == Fenced(taken.epoch)
    assert append(redis, "run_started", writer="A") == Fenced(taken.epoch)
    assert (redis.xrange(KEYS.log), redis.hgetall(KEYS.meta)) == before


def test_a_log_that_is_gone_is_lost_to_its_writer(redis: Redis) -> None:
    """A writer that has been answered hears that Redis lost its events; a new one begins the log."""
    epoch = started(redis).epoch
    redis.flushall()
    assert append(redis, "llm_error", first=2, epoch=epoch) == Lost()
    assert log_of(redis) == []
    fresh = append(redis, "llm_error", writer="B")
    assert isinstance(fresh, Appended) and fresh.positions == (Position(fresh.epoch, 1),)


def test_a_log_that_went_back_is_lost_to_its_writer(redis: Redis) -> None:
    """Redis came up with an older file: what the writer was answered isn't there."""
    epoch = started(redis).epoch
    log, meta = redis.dump(KEYS.log), redis.dump(KEYS.meta)
    assert log is not None and meta is not None
    append(redis, "llm_error", first=2, epoch=epoch)
    redis.restore(KEYS.log, 0, log, replace=True)
    redis.restore(KEYS.meta, 0, meta, replace=True)
    assert append(redis, "llm_error", first=3, epoch=epoch) == Lost()


def test_an_evicted_log_is_lost_and_started_anew(redis: Redis) -> None:
    """Meta without log takes only ``run_started``, which begins an epoch beyond the old one."""
    epoch = started(redis).epoch
    redis.delete(KEYS.log)
    assert append(redis, "llm_error", first=2, epoch=epoch) == Lost()
    assert append(redis, "llm_error", writer="B") == Lost()
    anew = append(redis, "run_started", writer="B")
    assert isinstance(anew, Appended) and anew.epoch > epoch


def test_an_epoch_never_repeats_when_the_clock_stands(redis: Redis) -> None:
    """Starts within one millisecond still get epochs of their own."""
    seen = [append(redis, "run_started", writer=f"w{i}") for i in range(50)]
    epochs = [answer.epoch for answer in seen if isinstance(answer, Appended)]
    assert len(epochs) == len(set(epochs)) == 50


def test_run_started_must_stand_first_in_its_batch(redis: Redis) -> None:
    """One batch lies in one epoch; anything else is refused before a key is touched."""
    with pytest.raises(ResponseError, match="must be the first event"):
        append(redis, "llm_error", "run_started")
    assert redis.keys() == []


def test_run_started_joins_a_log_that_had_no_start(redis: Redis) -> None:
    """Events may come before the start; the start then doesn't throw them away."""
    early = append(redis, "llm_error", writer="B")
    late = append(redis, "run_started", writer="A")
    assert isinstance(early, Appended) and isinstance(late, Appended)
    assert late.positions == (Position(early.epoch, 2),)


def test_a_run_has_at_most_a_thousand_writers(redis: Redis) -> None:
    """The next one hears what to do instead."""
    started(redis)
    for i in range(999):
        append(redis, "llm_error", writer=f"w{i}")
    with pytest.raises(ResponseError, match="share one publisher a process"):
        append(redis, "llm_error", writer="one too many")


def test_every_key_has_a_ttl_at_every_moment(redis: Redis) -> None:
    """Running, interrupted and ended logs live as long as their limits say, never for ever."""
    limits = Limits(keep_open=1000, keep_interrupted=2000, keep_done=500)
    epoch = 0
    for first, type, ttl in (
        (1, "run_started", 1000),
        (2, "run_interrupted", 2000),
        (3, "run_resumed", 1000),
        (4, "run_completed", 500),
    ):
        answer = append(redis, type, first=first, epoch=epoch or None, limits=limits)
        assert isinstance(answer, Appended)
        epoch = answer.epoch
        held = {KEYS.lease} if type in ("run_started", "run_resumed") else set()
        assert {key.decode() for key in redis.scan_iter()} == {KEYS.log, KEYS.meta} | held
        assert ttl - 5 < redis.ttl(KEYS.log) <= ttl
        assert ttl + KEEP_STUB - 5 < redis.ttl(KEYS.meta) <= ttl + KEEP_STUB
        assert not held or 25 < redis.ttl(KEYS.lease) <= 30


def test_messages_carry_the_event_up_to_four_kibibytes(redis: Redis) -> None:
    """Larger ones carry the position alone, and whoever watches fetches them."""
    with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(KEYS.channel)
        pubsub.get_message(timeout=5)
        started(redis)
        append(redis, "x_large", writer="B", text="a" * 5000)
        messages: list[bytes] = []
        while len(messages) < 2:
            message = pubsub.get_message(timeout=5)
            if message:
                messages.append(message["data"])
    small, large = (read_message(message) for message in messages)
    assert small is not None and small[1] == "run_started" and small[2] is not None
    assert large is not None and large[1] == "x_large" and large[2] is None


def test_at_twice_the_bound_the_oldest_entries_go(redis: Redis) -> None:
    """Memory is bounded even if nobody writes a checkpoint."""
    epoch = started(redis).epoch
    limits = Limits(max_entries=10)
    for first in range(2, 22):
        append(redis, "llm_error", first=first, epoch=epoch, limits=limits)
    positions = log_of(redis)
    assert [p.seq for p in positions] == list(range(12, 22))
    assert append(redis, "llm_error", first=22, epoch=epoch, limits=Limits(max_bytes=100)) is not None
    assert redis.xlen(KEYS.log) == 5


def test_the_index_lists_runs_by_their_last_change_and_expires(redis: Redis) -> None:
    """The newest 10,000 ids with a time to live, and a message for whoever lists runs live."""
    for command in index_commands(KEYS, "running", millis=1000):
        redis.execute_command(*command)
    assert redis.zrange("toolcast:runs:index", 0, -1, withscores=True) == [(b"run_1", 1000.0)]
    assert redis.ttl("toolcast:runs:index") > 0


def test_eight_writers_sending_everything_twice_leave_a_dense_log(redis: Redis, redis_url: str) -> None:
    """10,000 events by 8 writers at once, each batch sent twice: dense ``seq``, no duplicate, order per writer."""
    epoch = started(redis).epoch
    failures: list[BaseException] = []

    def write(writer: str) -> None:
        try:
            with Redis.from_url(redis_url) as client:
                first: int = 1
                known: int | None = None
                for _ in range(50):
                    batch = tuple(
                        (
                            "x_n",
                            encode(
                                Event(type="x_n", run="run_1", time="t", data={"w": writer, "n": first + i})
                            ),
                        )
                        for i in range(25)
                    )
                    sent = Batch(keys=KEYS, writer=writer, first=first, epoch=known, events=batch)
                    script = client.register_script(append_script())
                    once, twice = (
                        read_append_reply(
                            script(keys=sent.script_keys(), args=sent.script_arguments(Limits()))
                        )
                        for _ in range(2)
                    )
                    assert isinstance(once, Appended) and isinstance(twice, Appended)
                    assert once.positions == twice.positions
                    assert all(redis.ttl(key) > 0 for key in (KEYS.log, KEYS.meta))
                    known, first = once.epoch, first + 25
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(f"w{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    entries = [entry for entry in read_entries(redis.xrange(KEYS.log)) if entry.type == "x_n"]
    assert [e.position for e in entries] == [Position(epoch, n) for n in range(2, 10_002)]
    assert max(Counter(entry.event for entry in entries).values()) == 1


def test_the_number_of_calls_counts_what_was_identified_or_began_first(redis: Redis) -> None:
    """A wrapped tool's call need not have been identified; one that was identified may never begin."""

    def step(type: str, key: str, attempt: int | None = None) -> tuple[str, bytes]:
        call = CallRef(key=key, name="read", title="Reading…", attempt=attempt)
        return type, encode(Event(type=type, run="run_1", time="t", call=call))

    def calls_after(first: int, *steps: tuple[str, bytes]) -> bytes | None:
        sent = Batch(keys=KEYS, writer="A", first=first, epoch=epoch, events=steps)
        redis.register_script(append_script())(keys=sent.script_keys(), args=sent.script_arguments(Limits()))
        return redis.hget(KEYS.meta, "calls")  # type: ignore[return-value]  # the client is not async

    epoch = started(redis).epoch
    assert calls_after(2, ("tool_execution_started", b'{"type":"x"}')) is None
    assert calls_after(3, step("tool_execution_started", "w1", 1)) == b"1"
    identified = [step("tool_call_identified", key) for key in ("a", "b", "c")]
    assert calls_after(4, *identified) == b"3"
    assert (
        calls_after(7, step("tool_execution_started", "a", 1), step("tool_execution_started", "b", 1)) == b"3"
    )
    assert calls_after(9, step("tool_execution_started", "b", 2)) == b"3"
    assert calls_after(10, step("tool_execution_started", "c", 1)) == b"4"


def test_a_start_that_cjson_cannot_read_is_appended_like_any_other(redis: Redis) -> None:
    """cjson gives up at a thousand levels; stopping there would leave an entry that blocks the run for ever."""
    deep = b'{"type":"run_started","data":' + b'{"d":' * 1200 + b"1" + b"}" * 1201
    batch = Batch(keys=KEYS, writer="w", first=1, epoch=None, events=(("run_started", deep),))
    script = redis.register_script(append_script())
    for _ in range(2):
        answer = read_append_reply(script(keys=batch.script_keys(), args=batch.script_arguments(Limits())))
        assert isinstance(answer, Appended) and answer.positions and answer.positions[0].seq == 1
    assert redis.xlen(KEYS.log) == 1
