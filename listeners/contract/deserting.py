"""A run whose owner is gone is ended for it, exactly once, by whoever notices (contract §3)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from listeners.contract.events import CallRef, Event, encode
from listeners.contract.exchange import Exchange
from listeners.contract.keys import Keys
from listeners.contract.log import Appended, Batch, Deserted, Limits, append_script, read_append_reply
from listeners.contract.position import ABSENT, Position
from listeners.contract.restoring import restoring
from listeners.contract.state import RunState, is_ended, is_open

__all__ = ["DESERTED", "PUBLISHER_LOST", "deserting", "end_of_deserted"]

PUBLISHER_LOST: Final = "publisher_lost"
"""The code of a run that was ended for its owner."""
_CALL_MESSAGE: Final = "the agent stopped before the call had ended"
DESERTED: Final = "the agent stopped without ending the run"
"""What is said of it to people."""


def end_of_deserted(state: RunState, time: str) -> list[tuple[str, bytes]]:
    """Return the events that end ``state`` for an owner that is gone: a failure of each open call, then the run's.

    A run that had ended (which Redis has lost) ends as it did; one that is interrupted needs no owner and goes on
    waiting.
    """
    if state.status == "interrupted":
        return []
    events: list[tuple[str, bytes]] = []
    for call in state.calls:
        if is_open(call):
            ref = CallRef(
                key=call.key,
                id=call.id,
                name=call.name,
                title=call.title,
                index=call.index,
                attempt=call.attempt,
            )
            failed = Event(
                type="tool_execution_failed",
                run=state.run,
                time=time,
                call=ref,
                agent=state.agent,
                thread=state.thread,
                parent=call.parent,
                data={"message": _CALL_MESSAGE, "reason": "cancelled", "is_error": True},
            )
            events.append((failed.type, encode(failed)))
    type: str = "run_failed"
    data: dict[str, Any] = {"code": PUBLISHER_LOST, "message": DESERTED}
    if is_ended(state):
        type = f"run_{state.status}"
        data = {} if state.result is None else {"result": state.result}
        if state.error is not None:
            data = msgspec.to_builtins(state.error)
    ended = Event(
        type=type,
        run=state.run,
        time=state.ended_at or time,
        agent=state.agent,
        thread=state.thread,
        data=data,
    )
    events.append((ended.type, encode(ended)))
    return events


def deserting(
    keys: Keys,
    state: RunState,
    head: Position,
    *,
    writer: str,
    time: str,
    limits: Limits | None = None,
    sharded: bool = False,
) -> Exchange[str | None]:
    """End a run that nobody holds. Returns its status then, ``None`` if somebody holds it or was first.

    ``state`` is the run's at the log's ``head``. If Redis has lost what ``state`` stands for (``head`` is another
    position, ``ABSENT`` if there is no log), a new epoch begins with what is known; an interrupted run goes on waiting
    in it. ``writer`` is a fresh random id.
    """
    known = Position.parse(state.position) or ABSENT
    lost = known != head
    batch = Batch(
        keys=keys,
        writer=writer,
        first=1,
        epoch=known.epoch if lost else None,
        events=(*(restoring(state, "restarted", time) if lost else ()), *end_of_deserted(state, time)),
        restores=lost,
        guard=Deserted(head),
    )
    names = batch.script_keys()
    reply = yield (
        "EVAL",
        append_script(),
        len(names),
        *names,
        *batch.script_arguments(limits or Limits(), sharded=sharded),
    )
    if reply[0] in (b"kept", "kept"):
        return None
    answer = read_append_reply(reply)
    return answer.status if isinstance(answer, Appended) and answer.positions else None
