"""A publisher's outbox and the append script, whatever gets lost in between: a state machine against a plain list.

The log may vanish, go back to what was saved, or lose half of its keys; answers may get lost; the outbox is small. At
the end the log holds what was published, in order, once, from where its epoch begins, and its fold is the publisher's.
"""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from redis import Redis

from listeners.contract.checkpoint import checkpointing, folding
from listeners.contract.events import decode
from listeners.contract.exchange import carry_out
from listeners.contract.keys import Keys
from listeners.contract.log import Limits, append_script, read_append_reply, read_entries
from listeners.contract.state import RunState
from listeners.publishing.call import Call
from listeners.publishing.composer import Composer
from listeners.publishing.outbox import Outbox
from listeners.publishing.policy import PublicationPolicy
from listeners.publishing.writer import Writer

EXAMPLES = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "faults" else 500
KEYS = Keys("machine")
LIMITS = Limits(checkpoint_every=15, max_entries=40)


def essence(state: RunState) -> dict[str, Any]:
    calls = {call.key: (call.name, call.state, call.attempt, call.result_summary) for call in state.calls}
    return {"status": state.status, "title": state.title, "usage": state.usage, "calls": calls}


class Publishing(RuleBasedStateMachine):
    """One publisher, one log."""

    redis: Redis
    script: Any

    def __init__(self) -> None:
        super().__init__()
        self.redis.delete(KEYS.log, KEYS.meta, KEYS.lease, KEYS.checkpoint, KEYS.questions, KEYS.decisions)
        self.writer = Writer(
            KEYS, LIMITS, shown="here", patience=0, wake=lambda _: None, ask=lambda _: Future()
        )
        self.writer._outbox = Outbox(max_events=12)
        self.composer = Composer("machine", self.writer, PublicationPolicy(), about={"title": "A run"})
        self.numbers = 0
        self.made = 0
        self.open: list[Call] = []
        self.saved: tuple[bytes, bytes] | None = None
        self.damaged = False
        self.composer.publish("run_started")

    # -- the agent --

    @rule(count=st.integers(1, 8))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.composer.publish("x_n", None, {"n": self.numbers})
            self.numbers += 1

    @rule()
    def begin_call(self) -> None:
        call = self.composer.take("search", id=f"c{self.made}", arguments={}, title=None)
        self.made += 1
        call.start()
        self.open.append(call)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def step_call(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.open))
        if data.draw(st.booleans()):
            call.progress(1, 2)
        else:
            call.complete("found")
            self.open.remove(call)

    @rule()
    def use_tokens(self) -> None:
        self.composer.publish("llm_token_usage", None, {"input": 1, "output": 2, "total": 3})

    # -- the way to Redis --

    def _exchange(self, batch: Any) -> Any:
        arguments = batch.script_arguments(LIMITS)
        answer = read_append_reply(self.script(keys=batch.script_keys(), args=arguments))
        if getattr(answer, "checkpoint_due", False):
            carry_out(checkpointing(KEYS, LIMITS), self.redis.execute_command)
        return answer

    @rule()
    def send(self) -> None:
        if (batch := self.writer.cut()) is not None:
            self.writer.answered(batch, self._exchange(batch))

    @rule()
    def send_and_hear_nothing(self) -> None:
        if (batch := self.writer.cut()) is not None:
            self._exchange(batch)

    @rule()
    def look(self) -> None:
        if self.writer._epoch is not None:
            batch = self.writer.look()
            self.writer.answered(batch, self._exchange(batch))

    # -- what Redis does --

    @rule()
    def save(self) -> None:
        log, meta = self.redis.dump(KEYS.log), self.redis.dump(KEYS.meta)
        self.saved = (log, meta) if log is not None and meta is not None else None

    @rule(what=st.sampled_from(["all", "log", "meta", "old"]))
    def lose(self, what: str) -> None:
        if what == "old":
            if self.saved is None:
                return
            self.redis.delete(KEYS.checkpoint)
            for key, value in zip((KEYS.log, KEYS.meta), self.saved, strict=True):
                self.redis.restore(key, 0, value, replace=True)
            # The file is of one moment: it has that moment's checkpoint, or the log was never trimmed.
            if self.redis.hget(KEYS.meta, "checkpoint") is not None:
                self.redis.delete(KEYS.log, KEYS.meta)
        else:
            names = {
                "all": (KEYS.log, KEYS.meta, KEYS.checkpoint, KEYS.questions),
                "log": (KEYS.log,),
                "meta": (KEYS.meta,),
            }
            self.redis.delete(*names[what])
        self.damaged = True

    # -- what must hold then --

    def teardown(self) -> None:
        for _ in range(200):
            self.look()
            if not self.writer.waiting:
                break
            self.send()
        assert not self.writer.waiting
        entries = read_entries(self.redis.xrange(KEYS.log))
        first = entries[0].position
        assert [entry.position for entry in entries] == [
            (first.epoch, seq) for seq in range(first.seq, first.seq + len(entries))
        ]
        told = [decode(entry.event) for entry in entries]
        numbers = [event.data["n"] for event in told if event.type == "x_n"]
        dropped = self.writer.dropped["x_n"]
        assert numbers == sorted(set(numbers)), "in order, once"
        if not self.damaged and not dropped and first.seq == 1:
            assert numbers == list(range(self.numbers)), "and all"
        if numbers and not dropped:
            assert numbers == list(range(numbers[0], self.numbers)), (
                "without a hole from where the log begins"
            )
        if numbers != list(range(self.numbers)) and first.seq == 1:
            assert any(event.type == "run_restored" for event in told), "what is missing is announced"
        log = carry_out(folding(KEYS), self.redis.execute_command).folding.state
        assert essence(log) == essence(self.composer.state)
        assert all(self.redis.ttl(key) > 0 for key in (KEYS.log, KEYS.meta))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_whatever_is_lost_is_told_again_or_announced(redis: Redis) -> None:
    Publishing.redis = redis
    Publishing.script = redis.register_script(append_script())
    run_state_machine_as_test(
        Publishing, settings=settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None)
    )


def test_a_look_between_a_restoration_and_its_answer_does_not_fence_its_own_writer(redis: Redis) -> None:
    """Redis took the restored state and its answer got lost; then the lease is due before the batch is sent again."""
    Publishing.redis = redis
    Publishing.script = redis.register_script(append_script())
    publishing = Publishing()
    publishing.send()
    publishing.lose("all")
    publishing.look()
    publishing.send_and_hear_nothing()
    publishing.begin_call()
    publishing.teardown()
    assert not publishing.writer.out
