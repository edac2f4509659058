"""A run whose owner is gone is ended for it, exactly once, by whoever notices (contract §3)."""

from __future__ import annotations

from typing import Final

from listeners.contract.events import CallRef, Event, encode
from listeners.contract.exchange import Exchange
from listeners.contract.keys import Keys
from listeners.contract.log import Batch, Deserted, Limits, append_script, read_append_reply
from listeners.contract.position import ABSENT, Position
from listeners.contract.restoring import restoring
from listeners.contract.state import RunState, is_open

__all__ = ["PUBLISHER_LOST", "deserting", "end_of_deserted"]

PUBLISHER_LOST: Final = "publisher_lost"
"""The code of a run that was ended for its owner."""
_CALL_MESSAGE: Final = "the agent stopped before the call had ended"
_RUN_MESSAGE: Final = "the agent stopped without ending the run"


def end_of_deserted(state: RunState, time: str) -> list[tuple[str, bytes]]:
    """Return the events that end ``state`` for an owner that is gone: a failure of each open call, then the run's."""
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
            data = {"message": _CALL_MESSAGE, "reason": "cancelled", "is_error": True}
            failed = Event(
                type="tool_execution_failed",
                run=state.run,
                time=time,
                call=ref,
                agent=state.agent,
                thread=state.thread,
                parent=call.parent,
                data=data,
            )
            events.append((failed.type, encode(failed)))
    ended = Event(
        type="run_failed",
        run=state.run,
        time=time,
        agent=state.agent,
        thread=state.thread,
        data={"code": PUBLISHER_LOST, "message": _RUN_MESSAGE},
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
) -> Exchange[bool]:
    """End a run that nobody holds, and tell whether this did it: ``False`` if somebody holds it or was first.

    ``state`` is the run's at the log's ``head``. If Redis has lost what ``state`` stands for (``head`` is another
    position, ``ABSENT`` if there is no log), a new epoch begins with what is known. ``writer`` is a fresh random id.
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
        return False
    answer = read_append_reply(reply)
    return getattr(answer, "status", None) == "failed" and bool(getattr(answer, "positions", None))
