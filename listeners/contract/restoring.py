"""What Redis has lost, told again by who knows it: a state in, events out (contract §3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from listeners.contract.events import CallRef, Event, encode
from listeners.contract.state import CallState, RunState

__all__ = ["RestoreReason", "restoring"]

RestoreReason = Literal["restarted", "overflow"]

_ROOM: Final = 60 * 1024
"""Bytes of calls in one event: with its envelope it stays below 64 KiB."""


def restoring(
    state: RunState,
    reason: RestoreReason,
    time: str,
    *,
    owner: bool = True,
    keys: Collection[str] | None = None,
    asked: Collection[str] = (),
) -> list[tuple[str, bytes]]:
    """Return the events that tell ``state``: one or more ``run_restored``, then the questions that are open.

    ``owner``: the run's own part is told too, which is its owner's to tell. ``keys``: only these calls. ``asked``:
    calls whose question still stands, or is on its way, and isn't asked again. ``time`` is RFC 3339, now. An end is an
    event of its own: of a run that has ended this tells the calls, and that it was running. A call that is too large
    for an event loses arguments and result.
    """
    about: dict[str, Any] = {"reason": reason}
    if owner:
        # The script looks for these two in this order.
        about["status"] = "interrupted" if state.status == "interrupted" else "running"
        for name in ("title", "agent", "thread", "started_at"):
            if (value := getattr(state, name)) is not None:
                about[name] = value
        for name in ("usage", "interrupts"):
            if (value := getattr(state, name)) is not None:
                about[name] = msgspec.to_builtins(value)

    def event(type: str, data: dict[str, Any], call: CallRef | None = None) -> tuple[str, bytes]:
        envelope = Event(
            type=type, run=state.run, time=time, call=call, agent=state.agent, thread=state.thread, data=data
        )
        return type, encode(envelope)

    calls = [call for call in state.calls if keys is None or call.key in keys]
    told = [_told(call, asked) for call in calls]
    events = [event("run_restored", {**about, "calls": page}) for page in _pages(told)]
    for call in calls:
        if call.interrupt is not None and call.key not in asked:
            # At a position of its own: an answer names the question by it.
            question = msgspec.to_builtins(call.interrupt)
            del question["position"]
            events.append(event("tool_interrupted", question, _ref(call)))
    return events


def _told(call: CallState, asked: Collection[str]) -> dict[str, Any]:
    if call.interrupt is not None and call.key not in asked:
        call = replace(call, state="identified", interrupt=None)
    told: dict[str, Any] = msgspec.to_builtins(call)
    if len(msgspec.json.encode(told)) > _ROOM:
        lighter = replace(call, arguments=None, result=None, progress=None, truncated=True)
        told = msgspec.to_builtins(lighter)
    return told


def _pages(calls: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    page: list[dict[str, Any]] = []
    size = 0
    for call in calls:
        weight = len(msgspec.json.encode(call))
        if page and size + weight > _ROOM:
            yield page
            page, size = [], 0
        page.append(call)
        size += weight
    yield page


def _ref(call: CallState) -> CallRef:
    return CallRef(
        key=call.key, id=call.id, name=call.name, title=call.title, index=call.index, attempt=call.attempt
    )
