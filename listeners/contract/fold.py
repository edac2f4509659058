"""Events in, :class:`RunState` out: what a reader needs to draw a run (contract §5).

The same function is written once more in ``web/fold.js``; ``tests/vectors`` holds both to the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from listeners.contract.events import TERMINAL_TYPES, CallRef, Event
from listeners.contract.position import ABSENT, Position
from listeners.contract.state import (
    LARGEST_INT,
    CallFailure,
    CallState,
    CallStatus,
    Interrupt,
    Question,
    RunFailure,
    RunState,
    RunStatus,
    Usage,
    closed,
    is_ended,
    is_open,
    read_attempt,
    read_count,
    read_duration,
    read_interrupts,
    read_progress,
    read_question,
    read_run_failure,
    read_state,
    read_text,
    read_usage,
    waiting,
)

__all__ = [
    "CALL_TYPES",
    "MAX_CALLS",
    "MAX_SNAPSHOT_BYTES",
    "RUN_TYPES",
    "CallFailure",
    "CallState",
    "CallStatus",
    "Interrupt",
    "Question",
    "RunFailure",
    "RunState",
    "RunStatus",
    "SnapshotReason",
    "Usage",
    "fold",
    "fold_call",
    "is_ended",
    "is_open",
    "snapshot_event",
    "waiting",
]

SnapshotReason = Literal["join", "trimmed", "lagged", "restarted", "expired", "deleted", "absent"]

MAX_CALLS: Final = 2_000
"""Calls a state holds; beyond that the oldest ended ones go first."""
MAX_SNAPSHOT_BYTES: Final = 1024 * 1024
"""Bytes of an encoded snapshot above which the oldest ended calls lose arguments and result."""

_NOWHERE: Final = str(ABSENT)
_BEGIN_EPOCH: Final = frozenset({"run_started", "run_restored"})


def fold(state: RunState, position: Position, event: Event) -> RunState:
    """Return the state after ``event``, which stands at ``position``; never raises, whatever stands in ``data``.

    The same object comes back when the event is a repeat, or of another epoch without beginning it. A snapshot
    always replaces the state, since a log may have gone back.
    """
    if event.type == "snapshot":
        state = read_state(state.run, position, event.data)
        return replace(state, calls=closed(state.calls, state.ended_at)) if is_ended(state) else state

    if state.position == _NOWHERE:
        # Nothing, or a snapshot that stands for no log: whatever comes is the first we know of its epoch.
        state = waiting(state.run)
    else:
        seen = Position.parse(state.position) or ABSENT
        if position.epoch != seen.epoch:
            if event.type not in _BEGIN_EPOCH:
                return state
            state = waiting(state.run)
        elif position.seq <= seen.seq:
            return state

    changes: dict[str, Any] = {"position": str(position)}
    if not is_ended(state):
        if state.status == "waiting":
            changes["status"] = "running"
            changes["started_at"] = event.time
        if (step := _CALL_STEPS.get(event.type)) is not None:
            if event.call is not None:
                changes.update(_with_step(state, position, event, event.call, step))
        elif (turn := _RUN_TURNS.get(event.type)) is not None:
            changes.update(turn(state, event))

    return replace(state, **changes)


def fold_call(call: CallState | None, position: Position, event: Event) -> CallState:
    """Return one call after an event of :data:`CALL_TYPES` that is about it; ``None``: it is the first about it.

    The same object comes back when the event changes nothing of the call.
    """
    ref, step = event.call, _CALL_STEPS[event.type]
    if ref is None:
        raise ValueError(f"{event.type} is about no call")
    if call is None:
        call = CallState(key=ref.key, name="", title="", attempt=1, state="identified")
    return _stepped(call, position, event, ref, step)


def snapshot_event(state: RunState, reason: SnapshotReason, time: str, *, with_calls: bool = True) -> Event:
    """Return the control event that hands ``state`` to a reader; its id is ``state.position``.

    ``time`` is RFC 3339, now. ``with_calls=False`` is for who wants the future only. Above 1 MiB the oldest ended
    calls lose arguments and result until it fits, and say ``"truncated": true``.
    """
    data = {"reason": reason, **msgspec.json.decode(msgspec.json.encode(state))}
    if not with_calls:
        del data["calls"]
    event = Event(type="snapshot", run=state.run, time=time, data=data)
    excess = len(msgspec.json.encode(event)) - MAX_SNAPSHOT_BYTES
    calls = data.get("calls", [])
    for at, call in enumerate(state.calls):
        if excess <= 0:
            break
        if is_open(call) or (call.arguments is None and call.result is None):
            continue
        lighter = replace(call, arguments=None, result=None, truncated=True)
        calls[at] = msgspec.to_builtins(lighter)
        excess -= len(msgspec.json.encode(call)) - len(msgspec.json.encode(lighter))

    return event


# Steps of a call: the call, the event, its position, and whether it begins a further attempt, to what changes.
_Step = Callable[[CallState, Event, Position, bool], dict[str, Any]]


def _with_step(
    state: RunState, position: Position, event: Event, ref: CallRef, step: _Step
) -> dict[str, Any]:
    calls = state.calls
    for at in range(len(calls) - 1, -1, -1):
        if calls[at].key == ref.key:
            stepped = _stepped(calls[at], position, event, ref, step)
            return {"calls": (*calls[:at], stepped, *calls[at + 1 :])} if stepped is not calls[at] else {}

    return _appended(calls, state.calls_dropped, fold_call(None, position, event))


def _appended(calls: tuple[CallState, ...], dropped: int, new: CallState) -> dict[str, Any]:
    if len(calls) < MAX_CALLS:
        return {"calls": (*calls, new)}
    oldest = next((at for at, call in enumerate(calls) if not is_open(call)), 0)
    return {"calls": (*calls[:oldest], *calls[oldest + 1 :], new), "calls_dropped": dropped + 1}


def _stepped(call: CallState, position: Position, event: Event, ref: CallRef, step: _Step) -> CallState:
    attempt = read_attempt(ref.attempt)
    starts = event.type == "tool_execution_started"
    if attempt is None:
        # Who doesn't count attempts still starts a held call again.
        again = starts and call.state in ("identified", "interrupted") and call.started_at is not None
        attempt = call.attempt + 1 if again else call.attempt
    further = attempt > call.attempt
    if attempt < call.attempt or not (is_open(call) or (starts and further)):
        return call

    changes = step(call, event, position, further)
    name = ref.name or call.name
    title = ref.title or call.title or _humanised(name)
    if changes.get("state") in _ENDS:
        title = title.removesuffix("…")
    changes.update(name=name, title=title, attempt=attempt)
    if ref.id is not None:
        changes["id"] = ref.id
    if (index := read_count(ref.index)) is not None:
        changes["index"] = index
    if event.parent is not None:
        changes["parent"] = event.parent
    return replace(call, **changes)


def _humanised(name: str) -> str:
    words = name.replace("_", " ").replace("-", " ").strip(" ")
    # ASCII only, since two languages differ about the rest of Unicode.
    return words[0].upper() + words[1:] if words and words[0].isascii() else words


def _identified(call: CallState, event: Event, position: Position, further: bool) -> dict[str, Any]:
    # A late one neither stops what runs nor takes back a question that waits.
    changes: dict[str, Any] = {"state": "identified", "interrupt": None} if further else {}
    if event.type == "tool_call_identified" and call.identified_at is None:
        changes["identified_at"] = event.time
    return changes


def _started(call: CallState, event: Event, position: Position, further: bool) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "state": "running",
        "progress": None,
        "result": None,
        "result_summary": None,
        "error": None,
        "interrupt": None,
        "started_at": event.time,
        "ended_at": None,
        "duration_ms": None,
        "truncated": False,
    }
    if (arguments := event.data.get("arguments")) is not None:
        changes["arguments"] = arguments
    if (summary := read_text(event.data.get("arguments_summary"))) is not None:
        changes["arguments_summary"] = summary
    return changes


def _running(call: CallState, event: Event, position: Position, further: bool) -> dict[str, Any]:
    if call.state == "interrupted" and not further:
        return {}
    changes: dict[str, Any] = {"state": "running", "interrupt": None}
    if call.started_at is None:
        changes["started_at"] = event.time
    # A generator's piece of output says nothing about how far it is.
    if event.type == "tool_progress" and (progress := read_progress(event.data)) is not None:
        changes["progress"] = progress
    return changes


def _completed(call: CallState, event: Event, position: Position, further: bool) -> dict[str, Any]:
    return _ended(event) | {
        "state": "completed",
        "result": event.data.get("result"),
        "result_summary": read_text(event.data.get("result_summary")),
    }


def _failed(call: CallState, event: Event, position: Position, further: bool) -> dict[str, Any]:
    message = read_text(event.data.get("message")) or ""
    reason = read_text(event.data.get("reason")) or "error"
    return _ended(event) | {
        "state": _STATE_AFTER.get(reason, "failed"),
        "error": CallFailure(message=message, reason=reason),
    }


def _ended(event: Event) -> dict[str, Any]:
    return {
        "interrupt": None,
        "ended_at": event.time,
        "duration_ms": read_duration(event.data.get("duration_ms")),
    }


def _interrupted(call: CallState, event: Event, position: Position, further: bool) -> dict[str, Any]:
    return {"state": "interrupted", "interrupt": read_question(str(position), event.data)}


def _decided(call: CallState, event: Event, position: Position, further: bool) -> dict[str, Any]:
    return {"state": "identified", "interrupt": None}


_STATE_AFTER: Final[dict[str, CallStatus]] = {
    "denied": "denied",
    "rejected": "denied",
    "cancelled": "cancelled",
}
_ENDS: Final = frozenset({"completed", "failed", "denied", "cancelled"})

_CALL_STEPS: Final[dict[str, _Step]] = {
    "tool_call_identified": _identified,
    "tool_call_arguments": _identified,
    "tool_call_review": _identified,
    "tool_decision": _decided,
    "tool_execution_started": _started,
    "tool_pre_execution": _running,
    "tool_progress": _running,
    "tool_execution_exception": _running,
    "tool_interrupted": _interrupted,
    "tool_execution_completed": _completed,
    "tool_execution_failed": _failed,
}

# Turns of a run: the state before and the event, to what changes.
_Turn = Callable[[RunState, Event], dict[str, Any]]


def _run_started(state: RunState, event: Event) -> dict[str, Any]:
    changes: dict[str, Any] = {"status": "running"}
    for name, otherwise in (("title", None), ("agent", event.agent), ("thread", event.thread)):
        if (value := read_text(event.data.get(name)) or otherwise) is not None:
            changes[name] = value
    return changes


def _run_interrupted(state: RunState, event: Event) -> dict[str, Any]:
    return {"status": "interrupted", "interrupts": read_interrupts(event.data.get("interrupts"))}


def _run_resumed(state: RunState, event: Event) -> dict[str, Any]:
    return {"status": "running", "interrupts": None}


def _run_restored(state: RunState, event: Event) -> dict[str, Any]:
    restored = read_state(state.run, ABSENT, event.data)
    # An end is an event of its own, behind this one. Who isn't the owner says nothing of the run itself.
    status: RunStatus = "interrupted" if state.status == "interrupted" else "running"
    if "status" in event.data:
        status = "interrupted" if restored.status == "interrupted" else "running"
    changes: dict[str, Any] = {"status": status}
    for name in ("title", "agent", "thread", "started_at", "usage"):
        if (value := getattr(restored, name)) is not None:
            changes[name] = value
    changes["interrupts"] = (restored.interrupts or state.interrupts) if status == "interrupted" else None

    places = {call.key: at for at, call in enumerate(state.calls)}
    calls = list(state.calls)
    for call in restored.calls:
        if call.key in places:
            calls[places[call.key]] = call
    changes["calls"] = tuple(calls)
    dropped = state.calls_dropped
    for call in restored.calls:
        if call.key not in places:
            changes |= _appended(changes["calls"], dropped, call)
            dropped = changes.get("calls_dropped", dropped)
    return changes


def _used(state: RunState, event: Event) -> dict[str, Any]:
    more = read_usage(event.data)
    if more is None or state.usage is None:
        return {"usage": more or state.usage}
    return {
        "usage": Usage(
            input=min(state.usage.input + more.input, LARGEST_INT),
            output=min(state.usage.output + more.output, LARGEST_INT),
            total=min(state.usage.total + more.total, LARGEST_INT),
        )
    }


def _run_ended(state: RunState, event: Event) -> dict[str, Any]:
    changes = {"ended_at": event.time, "interrupts": None, "calls": closed(state.calls, event.time)}
    if event.type == "run_completed":
        return changes | {"status": "completed", "result": event.data.get("result")}
    if event.type == "run_failed":
        return changes | {"status": "failed", "error": read_run_failure(event.data)}
    return changes | {"status": "cancelled"}


CALL_TYPES: Final = frozenset(_CALL_STEPS)
"""The types that change a call."""

_RUN_TURNS: Final[dict[str, _Turn]] = {
    "run_started": _run_started,
    "run_interrupted": _run_interrupted,
    "run_resumed": _run_resumed,
    "run_restored": _run_restored,
    "llm_token_usage": _used,
    **dict.fromkeys(TERMINAL_TYPES, _run_ended),
}
RUN_TYPES: Final = frozenset(_RUN_TURNS) | {"snapshot"}
"""The types that change the run itself; a type that is in neither changes nothing but the position."""
