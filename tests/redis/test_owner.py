"""The append script on a real server: who owns a run, who has joined, and who is out."""

from __future__ import annotations

import threading

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from listeners.contract.keys import Keys
from listeners.contract.log import Appended, Fenced, Limits, Refused, read_entries
from tests.support.writing import Writer

KEYS = Keys("run_1")


def types(redis: Redis) -> list[str]:
    return [entry.type for entry in read_entries(redis.xrange(KEYS.log))]


def status(redis: Redis) -> str:
    value = redis.hget(KEYS.meta, "status")
    assert isinstance(value, bytes)
    return value.decode()


def owner(redis: Redis, name: str = "owner", **options: object) -> Writer:
    writer = Writer(redis, "run_1", name=name, **options)  # type: ignore[arg-type]  # the options are Writer's
    writer.start()
    return writer


def worker(redis: Redis, name: str = "worker", **options: object) -> Writer:
    return Writer(redis, "run_1", name=name, joins=True, **options)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("turn", ["run_completed", "run_failed", "run_cancelled", "run_interrupted"])
def test_who_has_joined_neither_ends_nor_interrupts_a_run(redis: Redis, turn: str) -> None:
    """What else is in its batch is taken, the rest counted as refused."""
    owner(redis)
    joined = worker(redis)
    answer = joined.append(joined.event("x_a"), joined.event(turn), joined.event("x_b"))
    assert isinstance(answer, Appended)
    assert (answer.refused, answer.skipped, answer.status) == (1, (1,), "running")
    assert [index for index, _ in answer.places()] == [0, 2]
    assert types(redis) == ["run_started", "x_a", "x_b"] and status(redis) == "running"


def test_a_repeat_is_answered_with_what_was_skipped(redis: Redis) -> None:
    """The answer that got lost says the same again, so that every event's position is known."""
    owner(redis)
    joined = worker(redis)
    batch = (joined.event("x_a"), joined.event("run_completed"), joined.event("x_b"))
    first = joined.append(*batch)
    joined.first = 1
    again = joined.append(*batch)
    assert isinstance(first, Appended) and isinstance(again, Appended)
    assert list(again.places()) == list(first.places()) and again.skipped == (1,)


def test_who_has_joined_does_not_start_a_run_over(redis: Redis) -> None:
    running = owner(redis)
    joined = worker(redis)
    answer = joined.append(joined.event("run_started"), joined.event("x_a"))
    assert isinstance(answer, Appended) and answer.skipped == (0,) and answer.epoch == running.epoch
    assert types(redis) == ["run_started", "x_a"]
    assert redis.hget(KEYS.meta, "owner") == b"owner"


def test_who_has_joined_may_come_first_and_owns_nothing(redis: Redis) -> None:
    """A worker's event before the start opens the log; the start then makes an owner."""
    joined = worker(redis)
    joined.append(joined.event("x_a"))
    assert redis.hget(KEYS.meta, "owner") is None
    owner(redis)
    assert types(redis) == ["x_a", "run_started"]
    assert redis.hget(KEYS.meta, "owner") == b"owner"


def test_a_run_that_nobody_began_is_not_begun_by_its_end(redis: Redis) -> None:
    joined = worker(redis)
    answer = joined.append(joined.event("run_completed"))
    assert answer == Refused(0, "waiting") and redis.keys() == []


def test_whoever_begins_a_log_owns_it(redis: Redis) -> None:
    """Without ``run_started`` too; a second writer that has not joined by name can't end it either."""
    first, second = Writer(redis, "run_1", name="first"), Writer(redis, "run_1", name="second")
    first.append(first.event("x_a"))
    answer = second.append(second.event("x_b"), second.event("run_completed"))
    assert isinstance(answer, Appended) and answer.skipped == (1,)
    first.end()
    assert status(redis) == "completed"


def test_a_log_that_holds_nothing_but_an_end_is_begun_anew(redis: Redis) -> None:
    """Only ``run_started`` follows an end, and it does so whether or not the run had ever begun."""
    first = Writer(redis, "run_1", name="first")
    first.end()
    second = owner(redis, "second")
    assert second.epoch is not None and first.epoch is not None and second.epoch > first.epoch
    assert types(redis) == ["run_started"]


def test_an_interrupted_run_is_resumed_by_another_and_goes_on_in_its_epoch(redis: Redis) -> None:
    former = owner(redis)
    former.append(former.event("run_interrupted"))
    next_one = Writer(redis, "run_1", name="next")
    answer = next_one.append(next_one.event("run_resumed"), next_one.event("x_a"))
    assert isinstance(answer, Appended)
    assert (answer.epoch, answer.status, answer.status_changed) == (former.epoch, "running", True)
    assert redis.hget(KEYS.meta, "owner") == b"next"


def test_whoever_was_resumed_away_is_out(redis: Redis) -> None:
    """Two owners would tell contradictory stories of the same calls. Also after the next one was resumed away."""
    former = owner(redis)
    former.append(former.event("run_interrupted"))
    for name in ("second", "third"):
        next_one = Writer(redis, "run_1", name=name)
        next_one.append(next_one.event("run_resumed"))
        before = types(redis)
        answer = former.append(former.event("x_late"))
        assert isinstance(answer, Fenced) and answer.resumed
        assert types(redis) == before
        next_one.append(next_one.event("run_interrupted"))


@pytest.mark.parametrize("turn", [None, "run_completed"])
def test_a_run_that_is_not_interrupted_is_not_resumed(redis: Redis, turn: str | None) -> None:
    running = owner(redis)
    if turn:
        running.append(running.event(turn))
    before = types(redis)
    late = Writer(redis, "run_1", name="late")
    answer = late.append(late.event("run_resumed"), late.event("x_a"))
    assert isinstance(answer, Refused if turn else Fenced)
    assert types(redis) == before and redis.hget(KEYS.meta, "owner") == b"owner"


def test_the_owner_resumes_its_own_run_and_twice_is_once(redis: Redis) -> None:
    running = owner(redis)
    running.append(running.event("run_interrupted"))
    running.append(running.event("run_resumed"))
    answer = running.append(running.event("run_resumed"), running.event("x_a"))
    assert isinstance(answer, Appended) and answer.skipped == (0,)
    assert types(redis) == ["run_started", "run_interrupted", "run_resumed", "x_a"]


def test_a_resume_is_a_repeat_like_any_other(redis: Redis) -> None:
    """Its answer got lost: the same batch again is not the second of two."""
    former = owner(redis)
    former.append(former.event("run_interrupted"))
    next_one = Writer(redis, "run_1", name="next")
    batch = next_one.event("run_resumed")
    first = next_one.append(batch)
    next_one.first, next_one.epoch = 1, None
    again = next_one.append(batch)
    assert isinstance(first, Appended) and isinstance(again, Appended)
    assert again.positions == first.positions


def test_what_makes_an_owner_stands_first_in_its_batch(redis: Redis) -> None:
    running = owner(redis)
    with pytest.raises(ResponseError, match="run_resumed must be the first event"):
        running.append(running.event("x_a"), running.event("run_resumed"))


def test_of_many_that_resume_at_once_one_wins(redis: Redis, redis_url: str) -> None:
    for turn in range(10):
        redis.flushall()
        former = owner(redis)
        former.append(former.event("run_interrupted"))
        answers: list[object] = []
        barrier = threading.Barrier(4)

        def resume(name: str, answers: list[object] = answers, barrier: threading.Barrier = barrier) -> None:
            with Redis.from_url(redis_url) as client:
                writer = Writer(client, "run_1", name=name)
                barrier.wait(10)
                answers.append(writer.append(writer.event("run_resumed"), writer.event("x_a")))

        threads = [threading.Thread(target=resume, args=(f"w{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert sorted(type(answer).__name__ for answer in answers) == ["Appended", *["Fenced"] * 3], turn
        assert types(redis) == ["run_started", "run_interrupted", "run_resumed", "x_a"]


def test_how_long_a_run_is_kept_is_its_owners_to_say(redis: Redis) -> None:
    limits = Limits(keep_open=1000, keep_interrupted=2000, keep_done=500)
    running = owner(redis, limits=limits)
    joined = worker(redis)
    joined.append(joined.event("x_a"))
    assert 995 < redis.ttl(KEYS.log) <= 1000
    running.append(running.event("run_interrupted"))
    joined.append(joined.event("x_a"))
    assert 1995 < redis.ttl(KEYS.log) <= 2000


def test_an_interrupted_run_waits_seven_days(redis: Redis) -> None:
    running = owner(redis)
    running.append(running.event("run_interrupted"))
    week = 7 * 86_400
    assert week - 5 < redis.ttl(running.keys.log) <= week
    assert not redis.exists(running.keys.lease)


def test_eight_workers_that_have_joined_leave_a_dense_log_and_an_open_run(
    redis: Redis, redis_url: str
) -> None:
    running = owner(redis)
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            with Redis.from_url(redis_url) as client:
                writer = worker(client, name)
                for n in range(40):
                    answer = writer.append(
                        *(writer.event("x_n", n=n) for _ in range(5)), writer.event("run_completed")
                    )
                    assert isinstance(answer, Appended) and answer.skipped == (5,)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    running.end()
    entries = read_entries(redis.xrange(KEYS.log))
    assert [entry.position.seq for entry in entries] == list(range(1, 8 * 40 * 5 + 3))
    assert status(redis) == "completed"
