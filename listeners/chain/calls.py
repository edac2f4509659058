"""A tool call, its result, and the parts that messages and results are made of (no I/O).

They are frozen. A mapping that is given is copied, so that whoever made the value can't change it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, Self, get_args

import msgspec

from listeners.chain.checks import (
    check_bool,
    check_optional_str,
    check_str,
    copy_mapping,
)
from listeners.chain.copies import own_mapping
from listeners.contract.events import FailureReason, is_call_key

__all__ = ["CallStatus", "ContentPart", "InvalidCall", "ToolCall", "ToolResult", "Unplaced", "parts_of"]

CallStatus = Literal["incomplete", "complete"]

_STATUSES: Final = get_args(CallStatus)
_REASONS: Final = get_args(FailureReason)


class InvalidCall(ValueError):
    """A call that can't be completed: it has no name, or its streamed arguments are no JSON object."""

    def __init__(self, call: ToolCall, problem: str) -> None:
        super().__init__(f"tool call {call.name or call.call_id or call.index!r}: {problem}")
        self.call = call
        self.problem = problem


class Unplaced(int):
    """The index of a fragment that came without one: 0 to a reader, but nothing is placed by it."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One part of a message or a result: a ``type`` (``"text"``, ``"image"``, ``"file"`` …) and its text or data.

    ``options`` holds what only a provider understands. Raises ``TypeError`` for a member of another type.
    """

    type: str
    content: str
    options: dict[str, Any] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        check_str(self, "type", "content")
        copy_mapping(self, "options")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call came to; ``content`` is what the model sees, as parts: a text becomes one text part.

    ``processed_content`` is the native value, never sent to a model. ``is_interrupt`` marks the placeholder of a
    held call, ``interrupt_data`` is the application's. ``reason`` is one of contract §2's words for a failure, else
    ``None``. The chain fills ``tool_call_id``, ``name``, ``display_text`` and ``reason`` where they are missing.

    Raises ``TypeError`` for content that is neither text nor parts, ``ValueError`` for an unknown reason.
    """

    content: tuple[ContentPart, ...]
    processed_content: object
    is_error: bool
    is_interrupt: bool
    interrupt_data: dict[str, Any] | None
    options: dict[str, Any]
    tool_call_id: str
    name: str | None
    display_text: str | None
    reason: FailureReason | None

    def __init__(
        self,
        content: str | Sequence[ContentPart],
        *,
        processed_content: object = None,
        is_error: bool = False,
        is_interrupt: bool = False,
        interrupt_data: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        tool_call_id: str = "",
        name: str | None = None,
        display_text: str | None = None,
        reason: FailureReason | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "content", parts_of(content, "ToolResult"))
        put(self, "processed_content", processed_content)
        put(self, "is_error", is_error)
        put(self, "is_interrupt", is_interrupt)
        put(self, "interrupt_data", interrupt_data)
        put(self, "options", {} if options is None else options)
        put(self, "tool_call_id", tool_call_id)
        put(self, "name", name)
        put(self, "display_text", display_text)
        put(self, "reason", reason)
        check_str(self, "tool_call_id")
        check_optional_str(self, "name", "display_text")
        check_bool(self, "is_error", "is_interrupt")
        copy_mapping(self, "options")
        if interrupt_data is not None:
            copy_mapping(self, "interrupt_data")
        if reason is not None and reason not in _REASONS:
            raise ValueError(f"ToolResult.reason must be one of {', '.join(_REASONS)}, not {reason!r}")

    def own(self) -> ToolResult:
        """Return the same result with options and data that nobody else holds; its native value is kept."""
        if not self.options and not self.interrupt_data:
            return self
        data = None if self.interrupt_data is None else own_mapping(self.interrupt_data)
        return replace(self, options=own_mapping(self.options), interrupt_data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of the model, or the fragment of one that has arrived.

    ``key`` names it for the whole run (contract §2) and is empty until the call is identified; ``call_id`` is the
    provider's id. ``index`` says which call of its message a fragment belongs to, if it is given. ``arguments`` is
    ``{}`` until the call is complete, ``arguments_text`` is what was streamed of them. ``result`` is set on the call
    that the callbacks of its outcome are told of.

    Raises ``TypeError`` for a member of another type, ``ValueError`` for a key, index or status that can't be one.
    """

    key: str = ""
    name: str | None = None
    call_id: str | None = None
    index: int = Unplaced()
    status: CallStatus = "incomplete"
    display_text: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    arguments_text: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    result: ToolResult | None = None

    def __post_init__(self) -> None:
        check_str(self, "key", "arguments_text")
        check_optional_str(self, "name", "call_id", "display_text")
        copy_mapping(self, "arguments")
        copy_mapping(self, "metadata")
        if self.key and not is_call_key(self.key):
            raise ValueError(f"ToolCall.key {self.key!r} must be 1 to 256 of A-Z a-z 0-9 . _ : ~ -, or empty")
        if not isinstance(self.index, int) or isinstance(self.index, bool):
            raise TypeError(f"ToolCall.index must be an int, not {type(self.index).__name__}")
        if self.index < 0:
            raise ValueError(f"ToolCall.index counts from 0, it can't be {self.index}")
        if self.status not in _STATUSES:
            raise ValueError(f"ToolCall.status must be one of {', '.join(_STATUSES)}, not {self.status!r}")
        if self.result is not None and not isinstance(self.result, ToolResult):
            raise TypeError(f"ToolCall.result must be a ToolResult or None, not {type(self.result).__name__}")

    def own(self) -> ToolCall:
        """Return the same call with arguments, metadata and result that nobody else holds."""
        if (
            not self.arguments
            and not self.metadata
            and (self.result is None or self.result.own() is self.result)
        ):
            return self
        # Not replace(), which would check it all again: this is done for every handler of every event.
        own = object.__new__(type(self))
        for get, put in _CALL_MEMBERS:
            put(own, get(self))
        put = object.__setattr__
        put(own, "arguments", own_mapping(self.arguments))
        if self.metadata:
            put(own, "metadata", own_mapping(self.metadata))
        if self.result is not None:
            put(own, "result", self.result.own())
        return own

    def completed(self) -> ToolCall:
        """Return the call as complete, its streamed arguments parsed; raises :class:`InvalidCall` if it can't be."""
        if self.name is None:
            raise InvalidCall(self, "a name is required")
        if self.arguments or not self.arguments_text:
            return self if self.status == "complete" else replace(self, status="complete")
        try:
            arguments = msgspec.json.decode(self.arguments_text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise InvalidCall(self, "invalid json") from None
        if arguments is None:  # a tool without parameters, as several models call it
            arguments = {}
        if not isinstance(arguments, dict):
            raise InvalidCall(self, "a json object is expected for tool arguments")
        return replace(self, status="complete", arguments=arguments)


_CALL_MEMBERS: Final = tuple(
    (slot.__get__, slot.__set__) for slot in (vars(ToolCall)[member.name] for member in fields(ToolCall))
)


def parts_of(content: str | Sequence[ContentPart], owner: str) -> tuple[ContentPart, ...]:
    """Return content as parts, a text as one; ``owner`` is whose it is."""
    parts: Sequence[ContentPart] = [ContentPart("text", content)] if isinstance(content, str) else content
    if not isinstance(parts, Sequence):
        raise TypeError(f"{owner}.content must be a text or ContentParts, not {type(parts).__name__}")
    for part in parts:
        if not isinstance(part, ContentPart):
            raise TypeError(f"{owner}.content must hold ContentParts only, not {type(part).__name__}")
    return tuple(parts)
