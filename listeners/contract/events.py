"""The events of a run and their envelope: one JSON object, compact, without line breaks (contract §2).

Encoded events leave strictly checked and are read leniently: a reader passes on what it does not know.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

__all__ = [
    "EVENT_TYPES",
    "TERMINAL_TYPES",
    "TURNS",
    "CallRef",
    "Event",
    "FailureReason",
    "InvalidEvent",
    "Publication",
    "RunIdError",
    "check_event_type",
    "check_run_id",
    "decode",
    "decode_strict",
    "encode",
    "format_time",
    "is_call_key",
    "is_run_id",
]

Publication = Literal["progress", "full", "never"]
FailureReason = Literal[
    "error", "exception", "denied", "rejected", "unknown_tool", "invalid_arguments", "timeout", "cancelled"
]

EVENT_TYPES: Final[dict[str, Publication]] = {
    "run_started": "progress",
    "run_interrupted": "progress",
    "run_resumed": "progress",
    "run_cancel_requested": "progress",
    "run_restored": "progress",
    "run_completed": "progress",
    "run_failed": "progress",
    "run_cancelled": "progress",
    "tool_call_identified": "progress",
    "tool_call_arguments": "full",
    "tool_call_review": "progress",
    "tool_execution_started": "progress",
    "tool_pre_execution": "full",
    "tool_progress": "progress",
    "tool_execution_completed": "progress",
    "tool_execution_failed": "progress",
    "tool_execution_exception": "never",
    "tool_interrupted": "progress",
    "tool_decision": "progress",
    "tool_response_created": "full",
    "llm_new_delta": "full",
    "llm_new_message": "full",
    "message_processed": "full",
    "message_processing_error": "full",
    "error_message_created": "full",
    "llm_token_usage": "progress",
    "llm_ratelimit_info": "full",
    "llm_response_headers": "never",
    "llm_error": "progress",
    "retries_exceeded": "progress",
}
"""Every event type and the least setting of ``publish=`` that lets it out (``never``: unless switched on)."""

TERMINAL_TYPES: Final = frozenset({"run_completed", "run_failed", "run_cancelled"})
"""The types after which a log takes nothing but ``run_started``."""

TURNS: Final = TERMINAL_TYPES | {"run_started", "run_interrupted", "run_resumed"}
"""The types that change a run's status, which are its owner's to send."""

_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,127}")
_CALL_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:~-]{0,255}")
_OWN_TYPE = re.compile(r"x_[a-z0-9_]{1,62}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


class RunIdError(ValueError):
    """A run id that cannot be one; ``run`` holds what was given."""

    def __init__(self, run: str, reason: str | None = None) -> None:
        self.run = run
        shown = run if len(run) <= 40 else run[:39] + "…"
        super().__init__(
            f"run id {shown!r} is not usable: "
            + (
                reason
                or "use 1 to 128 of the characters A-Z a-z 0-9 . _ ~ - and begin with a letter, a digit or _"
            )
        )


class InvalidEvent(ValueError):
    """Something that is not an event; the message names the member and what it must be."""


class CallRef(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which tool call an event belongs to: whole on every ``tool_*`` event, so that no reader needs memory."""

    key: str
    id: str | None = None
    name: str = ""
    title: str = ""
    index: int | None = None
    attempt: int | None = None


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The envelope. ``time`` is RFC 3339 in UTC with milliseconds; members are absent rather than null."""

    type: str
    run: str
    time: str
    call: CallRef | None = None
    agent: str | None = None
    thread: str | None = None
    parent: str | None = None
    trace: str | None = None
    truncated: bool = False
    data: dict[str, Any] = {}


class _StrictCallRef(CallRef, frozen=True, forbid_unknown_fields=True):
    pass


class _StrictEvent(Event, frozen=True, forbid_unknown_fields=True, kw_only=True):
    call: _StrictCallRef | None = None
    # A publisher may send back what it read: the position stands in `id` there and is ignored.
    id: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)
_strict_decoder = msgspec.json.Decoder(_StrictEvent)


def encode(event: Event) -> bytes:
    """Encode as compact UTF-8 JSON without a raw line break; raises ``TypeError`` for what JSON can't carry."""
    return _encoder.encode(event)


def decode(data: bytes | str) -> Event:
    """Decode leniently: unknown members are ignored. Raises :class:`InvalidEvent` if it is no envelope at all."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"not an event: {error}") from error


def decode_strict(data: bytes | str) -> Event:
    """Decode what somebody wants to publish; raises :class:`InvalidEvent` naming the first thing that is wrong."""
    try:
        event = _strict_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"not an event: {error}") from error
    try:
        check_event_type(event.type)
        check_run_id(event.run)
    except ValueError as error:
        raise InvalidEvent(str(error)) from error
    if not _TIME.fullmatch(event.time):
        raise InvalidEvent(f"time must look like 2026-11-30T19:47:18.123Z, not {event.time!r}")
    if event.call is not None and not is_call_key(event.call.key):
        raise InvalidEvent(f"call.key {event.call.key!r} must be 1 to 256 of A-Z a-z 0-9 . _ : ~ -")
    if event.call is None and event.type.startswith("tool_") and event.type != "tool_response_created":
        raise InvalidEvent(f"{event.type} needs a call with at least a key")
    return event


def check_event_type(type: str) -> str:
    """Return ``type`` if it is one of ours or ``x_…``; raises ``ValueError`` otherwise."""
    if type in EVENT_TYPES or _OWN_TYPE.fullmatch(type):
        return type
    raise ValueError(
        f"unknown event type {type!r}: use one of toolcast's, or a type of your own that starts with x_"
    )


def is_run_id(run: str) -> bool:
    """Tell whether ``run`` can name a run (contract §1)."""
    return _RUN_ID.fullmatch(run) is not None


def check_run_id(run: str) -> str:
    """Return ``run`` if it can name a run; raises :class:`RunIdError` otherwise."""
    if not is_run_id(run):
        raise RunIdError(run)
    return run


def is_call_key(key: str) -> bool:
    """Tell whether ``key`` can name a call in its run (contract §2)."""
    return _CALL_KEY.fullmatch(key) is not None


def format_time(seconds: float) -> str:
    """Seconds since 1970 as the envelope's ``time``: RFC 3339, UTC, milliseconds."""
    second, millisecond = divmod(math.floor(seconds * 1000), 1000)
    return f"{_second(second)}.{millisecond:03d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
