"""What a reader knows of a run, and how it is read from JSON that somebody else wrote (contract §5).

The ``read_…`` functions never raise: data come from other processes, so a member of the wrong type counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeGuard, get_args

import msgspec
from msgspec.structs import replace

from listeners.contract.position import ABSENT, Position

__all__ = [
    "LARGEST_INT",
    "CallFailure",
    "CallState",
    "CallStatus",
    "Interrupt",
    "Question",
    "RunFailure",
    "RunState",
    "RunStatus",
    "Usage",
    "closed",
    "is_ended",
    "is_open",
    "read_attempt",
    "read_count",
    "read_duration",
    "read_interrupts",
    "read_progress",
    "read_question",
    "read_run_failure",
    "read_state",
    "read_text",
    "read_usage",
    "waiting",
]

RunStatus = Literal["waiting", "running", "interrupted", "completed", "failed", "cancelled"]
CallStatus = Literal["identified", "running", "interrupted", "completed", "failed", "denied", "cancelled"]

LARGEST_INT: Final = 2**53 - 1
"""JavaScript counts no further, and both folds give the same numbers."""


class CallFailure(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why a call failed; ``reason`` is one of ``events.FailureReason``, or a newer publisher's word."""

    message: str
    reason: str


class RunFailure(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why a run failed."""

    code: str
    message: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens used so far, summed over every ``llm_token_usage``."""

    input: int
    output: int
    total: int


class Interrupt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of the questions an interrupted run returned; ``key`` names its call."""

    key: str
    message: str
    data: Any = None


class Question(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The open question of a held call; a decision names it by ``position``."""

    position: str
    message: str
    arguments: Any = None
    editable: bool | None = None
    interrupt: Any = None


class CallState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A tool call as it stands.

    Times are RFC 3339 in UTC; ``duration_ms`` comes from the agent's own clock. ``truncated`` means that arguments
    and result were left out of a snapshot for its size.
    """

    key: str
    id: str | None = None
    name: str
    title: str
    index: int | None = None
    parent: str | None = None
    attempt: int
    state: CallStatus
    arguments: Any = None
    arguments_summary: str | None = None
    progress: dict[str, Any] | None = None
    result: Any = None
    result_summary: str | None = None
    error: CallFailure | None = None
    interrupt: Question | None = None
    identified_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: int | float | None = None
    truncated: bool = False


class RunState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run up to ``position`` (``<epoch>-<seq>``, ``0-0`` before the first event)."""

    run: str
    position: str
    status: RunStatus
    title: str | None = None
    agent: str | None = None
    thread: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    result: Any = None
    error: RunFailure | None = None
    usage: Usage | None = None
    interrupts: tuple[Interrupt, ...] | None = None
    calls: tuple[CallState, ...]
    calls_dropped: int = 0


_RUN_STATUSES: Final[frozenset[str]] = frozenset(get_args(RunStatus))
_CALL_STATUSES: Final[frozenset[str]] = frozenset(get_args(CallStatus))
_OPEN_CALLS: Final = frozenset({"identified", "running", "interrupted"})
_OPEN_RUNS: Final = frozenset({"waiting", "running", "interrupted"})


def waiting(run: str) -> RunState:
    """Return the state of a run of which nothing is known yet."""
    return RunState(run=run, position=str(ABSENT), status="waiting", calls=())


def is_open(call: CallState) -> bool:
    """Tell whether a call has not ended."""
    return call.state in _OPEN_CALLS


def is_ended(state: RunState) -> bool:
    """Tell whether the run is over."""
    return state.status not in _OPEN_RUNS


def closed(calls: tuple[CallState, ...], time: str | None) -> tuple[CallState, ...]:
    """Return ``calls`` with every open one cancelled at ``time``: nobody will finish it any more."""
    if not any(map(is_open, calls)):
        return calls
    return tuple(
        replace(call, state="cancelled", title=call.title.removesuffix("…"), interrupt=None, ended_at=time)
        if is_open(call)
        else call
        for call in calls
    )


def read_text(value: object) -> str | None:
    """Return a string, else ``None``."""
    return value if isinstance(value, str) else None


def read_count(value: object) -> int | None:
    """Return a whole number from 0 to :data:`LARGEST_INT`, else ``None``."""
    if type(value) is int:
        return value if 0 <= value <= LARGEST_INT else None
    if _is_number(value) and value >= 0 and value == int(value):
        return int(value)
    return None


def read_attempt(value: object) -> int | None:
    """Return a whole number from 1, else ``None``."""
    return read_count(value) or None


def read_duration(value: object) -> int | float | None:
    """Return a number that isn't negative, else ``None``."""
    return value if _is_number(value) and value >= 0 else None


def read_progress(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the members of a ``tool_progress`` without ``chunk``, or ``None`` if nothing is left."""
    progress = dict(data)
    progress.pop("chunk", None)
    for name in ("progress", "total"):
        if not _is_number(progress.get(name)):
            progress.pop(name, None)
    if not isinstance(progress.get("message"), str):
        progress.pop("message", None)
    return progress or None


def read_usage(value: object) -> Usage | None:
    """Return the counts of an ``llm_token_usage``, or ``None`` if it has none."""
    if not isinstance(value, dict):
        return None
    counts = [read_count(value.get(name)) for name in ("input", "output", "total")]
    if counts == [None, None, None]:
        return None
    input, output, total = (count or 0 for count in counts)
    return Usage(input=input, output=output, total=total)


def read_run_failure(value: Mapping[str, Any]) -> RunFailure:
    """Return why a run failed, as far as it says so."""
    code, message = read_text(value.get("code")), read_text(value.get("message"))
    return RunFailure(code=code or "unknown", message=message or "")


def read_question(position: str, value: Mapping[str, Any]) -> Question:
    """Return the question a ``tool_interrupted`` at ``position`` asks."""
    editable = value.get("editable")
    return Question(
        position=position,
        message=read_text(value.get("message")) or "",
        arguments=value.get("arguments"),
        editable=editable if isinstance(editable, bool) else None,
        interrupt=value.get("interrupt"),
    )


def read_interrupts(value: object) -> tuple[Interrupt, ...] | None:
    """Return the questions of a ``run_interrupted``, or ``None`` if there is none."""
    if not isinstance(value, list):
        return None
    interrupts = tuple(
        Interrupt(key=item["key"], message=read_text(item.get("message")) or "", data=item.get("data"))
        for item in value
        if isinstance(item, dict) and isinstance(item.get("key"), str)
    )
    return interrupts or None


def read_state(run: str, position: Position, data: Mapping[str, Any]) -> RunState:
    """Return the state that ``data`` of a snapshot (or of ``run_restored``) describes, standing at ``position``."""
    get = data.get
    status, calls, error = get("status"), get("calls"), get("error")
    return RunState(
        run=run,
        position=str(position),
        status=status if _is_run_status(status) else "running",
        title=read_text(get("title")),
        agent=read_text(get("agent")),
        thread=read_text(get("thread")),
        started_at=read_text(get("started_at")),
        ended_at=read_text(get("ended_at")),
        result=get("result"),
        error=read_run_failure(error) if isinstance(error, dict) else None,
        usage=read_usage(get("usage")),
        interrupts=read_interrupts(get("interrupts")),
        calls=tuple(call for call in map(_read_call, calls if isinstance(calls, list) else ()) if call),
        calls_dropped=read_count(get("calls_dropped")) or 0,
    )


def _read_call(value: object) -> CallState | None:
    if not isinstance(value, dict) or not isinstance(value.get("key"), str):
        return None
    get = value.get
    state, progress, error = get("state"), get("progress"), get("error")
    return CallState(
        key=value["key"],
        id=read_text(get("id")),
        name=read_text(get("name")) or "",
        title=read_text(get("title")) or "",
        index=read_count(get("index")),
        parent=read_text(get("parent")),
        attempt=read_attempt(get("attempt")) or 1,
        state=state if _is_call_status(state) else "identified",
        arguments=get("arguments"),
        arguments_summary=read_text(get("arguments_summary")),
        progress=read_progress(progress) if isinstance(progress, dict) else None,
        result=get("result"),
        result_summary=read_text(get("result_summary")),
        error=_read_call_failure(error) if isinstance(error, dict) else None,
        interrupt=_read_open_question(get("interrupt")) if state == "interrupted" else None,
        identified_at=read_text(get("identified_at")),
        started_at=read_text(get("started_at")),
        ended_at=read_text(get("ended_at")),
        duration_ms=read_duration(get("duration_ms")),
        truncated=get("truncated") is True,
    )


def _read_open_question(value: object) -> Question | None:
    if not isinstance(value, dict):
        return None
    return read_question(read_text(value.get("position")) or str(ABSENT), value)


def _read_call_failure(value: Mapping[str, Any]) -> CallFailure:
    message, reason = read_text(value.get("message")), read_text(value.get("reason"))
    return CallFailure(message=message or "", reason=reason or "error")


def _is_number(value: object) -> TypeGuard[int | float]:
    # NaN and the infinities of an agent's own progress() compare false, too.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and isinstance(value, (int, float)) and -LARGEST_INT <= value <= LARGEST_INT


def _is_run_status(value: object) -> TypeGuard[RunStatus]:
    return isinstance(value, str) and value in _RUN_STATUSES


def _is_call_status(value: object) -> TypeGuard[CallStatus]:
    return isinstance(value, str) and value in _CALL_STATUSES
