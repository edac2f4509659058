"""The shapes of a conversation: messages, and the pieces they arrive in (no I/O).

They are frozen. A mapping that is given is copied, so that whoever made the value can't change it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, get_args

from listeners.chain.calls import (
    CallStatus,
    ContentPart,
    InvalidCall,
    ToolCall,
    ToolResult,
    Unplaced,
    parts_of,
)
from listeners.chain.checks import all_of, check, check_one_of, check_optional_str, copy_mapping
from listeners.chain.copies import own_mapping
from listeners.chain.usage import TokenUsage

__all__ = [
    "CallStatus",
    "ContentPart",
    "DeltaStatus",
    "InvalidCall",
    "Message",
    "MessageDelta",
    "MessageStatus",
    "Role",
    "TokenUsage",
    "ToolCall",
    "ToolResult",
    "Unplaced",
]

Role = Literal["system", "user", "assistant", "tool"]
MessageStatus = Literal["complete", "cancelled", "length"]
DeltaStatus = Literal["incomplete", "complete", "length"]

_ROLES: Final = get_args(Role)
_MESSAGE_STATUSES: Final = get_args(MessageStatus)
_DELTA_STATUSES: Final = get_args(DeltaStatus)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, whole. ``content`` is parts: a text becomes one text part, ``""`` none.

    ``processed_content`` is what message processors made of it. ``metadata`` holds ``"usage"`` (a ``TokenUsage``) if
    the model said it, and ``"streaming_error"`` (a ``ChainError``) on the text of a reply that was cut off: such a
    message is for the reader, and no model is sent it. A complete assistant message has complete calls.

    Raises ``TypeError`` for a member of another type, ``ValueError`` for an unknown role or status,
    :class:`InvalidCall` for a call that can't be completed.
    """

    role: Role
    content: tuple[ContentPart, ...]
    status: MessageStatus
    tool_calls: tuple[ToolCall, ...]
    tool_results: tuple[ToolResult, ...]
    processed_content: object
    name: str | None
    index: int | None
    metadata: dict[str, Any]

    def __init__(
        self,
        role: Role,
        content: str | Sequence[ContentPart] = (),
        *,
        status: MessageStatus = "complete",
        tool_calls: Sequence[ToolCall] = (),
        tool_results: Sequence[ToolResult] = (),
        processed_content: object = None,
        name: str | None = None,
        index: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "role", role)
        put(self, "content", () if content == "" else parts_of(content, "Message"))
        put(self, "status", status)
        put(self, "tool_calls", all_of(ToolCall, "Message.tool_calls", tool_calls))
        put(self, "tool_results", all_of(ToolResult, "Message.tool_results", tool_results))
        put(self, "processed_content", processed_content)
        put(self, "name", name)
        put(self, "index", index)
        put(self, "metadata", {} if metadata is None else metadata)
        check_one_of(self, "role", _ROLES)
        check_one_of(self, "status", _MESSAGE_STATUSES)
        check_optional_str(self, "name")
        copy_mapping(self, "metadata")
        if role == "assistant" and self.tool_calls:
            calls = (
                [call.completed() for call in self.tool_calls] if status == "complete" else self.tool_calls
            )
            put(self, "tool_calls", tuple(_placed(calls)))

    @classmethod
    def system(cls, content: str | Sequence[ContentPart]) -> Self:
        """Instructions."""
        return cls("system", content)

    @classmethod
    def user(cls, content: str | Sequence[ContentPart]) -> Self:
        """What the user says."""
        return cls("user", content)

    @classmethod
    def assistant(cls, content: str | Sequence[ContentPart], tool_calls: Sequence[ToolCall] = ()) -> Self:
        """What the model says and calls."""
        return cls("assistant", content, tool_calls=tool_calls)

    @property
    def text(self) -> str:
        """The text parts together."""
        return "".join(part.content for part in self.content if part.type == "text")

    @property
    def is_tool_call(self) -> bool:
        """Whether it is a complete assistant message with calls."""
        return self.role == "assistant" and self.status == "complete" and bool(self.tool_calls)

    @property
    def had_errors(self) -> bool:
        """Whether it is a tool message with an error result."""
        return self.role == "tool" and any(result.is_error for result in self.tool_results)

    @property
    def is_cut_off(self) -> bool:
        """Whether it is what had arrived of a reply that failed."""
        return "streaming_error" in self.metadata

    @property
    def usage(self) -> TokenUsage | None:
        """What the reply cost, if the model said it."""
        usage = self.metadata.get("usage")
        return usage if isinstance(usage, TokenUsage) else None

    def own(self) -> Message:
        """Return the same message with calls, results and metadata that nobody else holds."""
        if not self.tool_calls and not self.tool_results and not self.metadata:
            return self
        calls = tuple(call.own() for call in self.tool_calls)
        results = tuple(result.own() for result in self.tool_results)
        return replace(self, tool_calls=calls, tool_results=results, metadata=own_mapping(self.metadata))


@dataclass(frozen=True, slots=True)
class MessageDelta:
    """A piece of an assistant message: more of its content, fragments of its calls, or that it has ended.

    ``index`` says which part of the content it continues. ``status`` ``"length"``: the model had to stop.
    """

    content: str | ContentPart | None = None
    tool_calls: tuple[ToolCall, ...] = field(default=(), kw_only=True)
    status: DeltaStatus = field(default="incomplete", kw_only=True)
    index: int = field(default=0, kw_only=True)
    metadata: dict[str, Any] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        check(self, str | ContentPart | None, "a str, a ContentPart or None", ["content"])
        object.__setattr__(self, "tool_calls", all_of(ToolCall, "MessageDelta.tool_calls", self.tool_calls))
        check_one_of(self, "status", _DELTA_STATUSES)
        check(self, int, "an int", ["index"])
        copy_mapping(self, "metadata")

    def own(self) -> MessageDelta:
        """Return the same piece with calls and metadata that nobody else holds."""
        if not self.tool_calls and not self.metadata:
            return self
        calls = tuple(call.own() for call in self.tool_calls)
        return replace(self, tool_calls=calls, metadata=own_mapping(self.metadata))


def _placed(calls: Sequence[ToolCall]) -> list[ToolCall]:
    used = {call.index for call in calls if not isinstance(call.index, Unplaced)}
    free = (index for index in range(len(calls) + len(used)) if index not in used)
    return [replace(call, index=next(free)) if isinstance(call.index, Unplaced) else call for call in calls]
