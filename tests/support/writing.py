"""A writer that appends through the real script, for tests that need exact control over what stands in a log."""

from __future__ import annotations

import time
from typing import Any

from redis import Redis

from listeners.contract.checkpoint import checkpointing
from listeners.contract.events import CallRef, Event, encode, format_time
from listeners.contract.exchange import carry_out
from listeners.contract.keys import Keys
from listeners.contract.log import (
    Appended,
    Batch,
    Deletion,
    Fenced,
    Limits,
    Lost,
    Refused,
    append_script,
    index_commands,
    read_append_reply,
)
from listeners.contract.position import Position
from listeners.contract.restoring import restoring
from listeners.contract.state import RunState

__all__ = ["Writer"]


class Writer:
    """One writer of one run."""

    def __init__(
        self,
        redis: Redis,
        run: str,
        *,
        name: str = "writer",
        limits: Limits | None = None,
        joins: bool = False,
        told: bool = True,
    ) -> None:
        self.redis = redis
        self.keys = Keys(run)
        self.name = name
        self.limits = limits or Limits()
        self.joins = joins
        self.told = told
        """Whether what is appended is published too, where gateways listen."""
        self.first = 1
        self.epoch: int | None = None
        self._script = redis.register_script(append_script())

    def event(self, type: str, *, call: CallRef | None = None, **data: Any) -> tuple[str, bytes]:
        event = Event(type=type, run=self.keys.run, time=format_time(time.time()), call=call, data=data)
        return type, encode(event)

    def append(
        self, *events: tuple[str, bytes], restores: bool = False
    ) -> Appended | Fenced | Lost | Refused:
        batch = Batch(
            keys=self.keys,
            writer=self.name,
            first=self.first,
            epoch=self.epoch,
            events=tuple(events),
            joins=self.joins,
            restores=restores,
        )
        reply = self._script(
            keys=batch.script_keys(), args=batch.script_arguments(self.limits, sharded=not self.told)
        )
        answer = read_append_reply(reply)
        if isinstance(answer, Appended):
            self.first += len(events)
            self.epoch = answer.epoch
            if answer.checkpoint_due:
                carry_out(checkpointing(self.keys, self.limits), self.redis.execute_command)
            if answer.status_changed:
                for command in index_commands(self.keys, answer.status, millis=int(time.time() * 1000)):
                    self.redis.execute_command(*command)
        return answer

    def restore(self, *events: tuple[str, bytes], state: RunState) -> None:
        """Go on after ``Lost``, as a publisher does that knows ``state``."""
        self.first = 1
        self.name += "+"
        told = restoring(state, "restarted", format_time(time.time()))
        self.append(*told, *events, restores=True)

    def start(self, title: str = "A run") -> None:
        self.append(self.event("run_started", title=title))

    def numbers(self, count: int, *, start: int = 0, batch: int = 100) -> None:
        """Append ``count`` events that carry their number."""
        for at in range(start, start + count, batch):
            self.append(*(self.event("x_n", n=n) for n in range(at, min(at + batch, start + count))))

    def ask(self, key: str, **data: Any) -> Position:
        """Hold a call and return where its question stands."""
        call = CallRef(key=key, name="delete_file", title="Delete a.txt?", attempt=1)
        answer = self.append(self.event("tool_interrupted", call=call, message="Delete a.txt?", **data))
        assert isinstance(answer, Appended) and answer.positions
        return answer.positions[0]

    def end(self) -> None:
        self.append(self.event("run_completed"))

    def delete(self) -> None:
        """Erase the run but for a stub."""
        batch = Batch(
            keys=self.keys,
            writer="deleting",
            first=1,
            epoch=None,
            events=(self.event("run_cancelled", reason="deleted"),),
            guard=Deletion(),
        )
        arguments = batch.script_arguments(self.limits, sharded=not self.told)
        self._script(keys=batch.script_keys(), args=arguments)
