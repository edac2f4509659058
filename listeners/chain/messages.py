"""The shapes of a conversation: messages, the pieces they arrive in, calls and their results (no I/O).

They are frozen. A mapping that is given is copied, so that whoever made the value can't change it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self, get_args

import msgspec

from listeners.chain.usage import TokenUsage
from listeners.contract.events import FailureReason, is_call_key

__all__ = [
    "CallStatus",
    "ContentPart",
    "InvalidCall",
    "Message",
    "MessageDelta",
    "TokenUsage",
    "ToolCall",
    "ToolResult",
    "Unplaced",
]

CallStatus = Literal["incomplete", "complete"]
Role = Literal["system", "user", "assistant", "tool"]
MessageStatus = Literal["complete", "cancelled", "length"]
DeltaStatus = Literal["incomplete", "complete", "length"]

_STATUSES: Final = get_args(CallStatus)
_ROLES: Final = get_args(Role)
_MESSAGE_STATUSES: Final = get_args(MessageStatus)
_DELTA_STATUSES: Final = get_args(DeltaStatus)
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
        _check_str(self, "type", "content")
        _copy_mapping(self, "options")


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
        put(self, "content", _parts(content, "ToolResult"))
        put(self, "processed_content", processed_content)
        put(self, "is_error", is_error)
        put(self, "is_interrupt", is_interrupt)
        put(self, "interrupt_data", interrupt_data)
        put(self, "options", {} if options is None else options)
        put(self, "tool_call_id", tool_call_id)
        put(self, "name", name)
        put(self, "display_text", display_text)
        put(self, "reason", reason)
        _check_str(self, "tool_call_id")
        _check_optional_str(self, "name", "display_text")
        _check_bool(self, "is_error", "is_interrupt")
        _copy_mapping(self, "options")
        if interrupt_data is not None:
            _copy_mapping(self, "interrupt_data")
        if reason is not None and reason not in _REASONS:
            raise ValueError(f"ToolResult.reason must be one of {', '.join(_REASONS)}, not {reason!r}")


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
        _check_str(self, "key", "arguments_text")
        _check_optional_str(self, "name", "call_id", "display_text")
        _copy_mapping(self, "arguments")
        _copy_mapping(self, "metadata")
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
        """Return the same call with arguments that nobody else holds."""
        return replace(self, arguments=_own(self.arguments)) if self.arguments else self

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
        put(self, "content", () if content == "" else _parts(content, "Message"))
        put(self, "status", status)
        put(self, "tool_calls", _all(ToolCall, "Message.tool_calls", tool_calls))
        put(self, "tool_results", _all(ToolResult, "Message.tool_results", tool_results))
        put(self, "processed_content", processed_content)
        put(self, "name", name)
        put(self, "index", index)
        put(self, "metadata", {} if metadata is None else metadata)
        _check_one_of(self, "role", _ROLES)
        _check_one_of(self, "status", _MESSAGE_STATUSES)
        _check_optional_str(self, "name")
        _copy_mapping(self, "metadata")
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
        """Return the same message with arguments of its calls that nobody else holds."""
        return (
            replace(self, tool_calls=tuple(call.own() for call in self.tool_calls))
            if self.tool_calls
            else self
        )


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
        _check(self, str | ContentPart | None, "a str, a ContentPart or None", ["content"])
        object.__setattr__(self, "tool_calls", _all(ToolCall, "MessageDelta.tool_calls", self.tool_calls))
        _check_one_of(self, "status", _DELTA_STATUSES)
        _copy_mapping(self, "metadata")


def _placed(calls: Sequence[ToolCall]) -> list[ToolCall]:
    used = {call.index for call in calls if not isinstance(call.index, Unplaced)}
    free = (index for index in range(len(calls) + len(used)) if index not in used)
    return [replace(call, index=next(free)) if isinstance(call.index, Unplaced) else call for call in calls]


def _own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _own(inner) for key, inner in value.items()}
    return [_own(inner) for inner in value] if isinstance(value, list) else value


def _all(kind: type[Any], what: str, given: object) -> tuple[Any, ...]:
    if not isinstance(given, Sequence) or not all(isinstance(one, kind) for one in given):
        raise TypeError(f"{what} must be a sequence of {kind.__name__}s")
    return tuple(given)


def _parts(content: str | Sequence[ContentPart], owner: str) -> tuple[ContentPart, ...]:
    parts: Sequence[ContentPart] = [ContentPart("text", content)] if isinstance(content, str) else content
    if not isinstance(parts, Sequence):
        raise TypeError(f"{owner}.content must be a text or ContentParts, not {type(parts).__name__}")
    for part in parts:
        if not isinstance(part, ContentPart):
            raise TypeError(f"{owner}.content must hold ContentParts only, not {type(part).__name__}")
    return tuple(parts)


def _check_one_of(value: object, name: str, allowed: Sequence[str]) -> None:
    given = getattr(value, name)
    if given not in allowed:
        raise ValueError(f"{type(value).__name__}.{name} must be one of {', '.join(allowed)}, not {given!r}")


def _check_str(value: object, *names: str) -> None:
    _check(value, str, "a str", names)


def _check_optional_str(value: object, *names: str) -> None:
    _check(value, str | None, "a str or None", names)


def _check_bool(value: object, *names: str) -> None:
    _check(value, bool, "a bool", names)


def _check(value: object, expected: Any, described: str, names: Sequence[str]) -> None:
    for name in names:
        given = getattr(value, name)
        if not isinstance(given, expected):
            raise TypeError(f"{type(value).__name__}.{name} must be {described}, not {type(given).__name__}")


def _copy_mapping(value: object, name: str) -> None:
    given = getattr(value, name)
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise TypeError(f"{type(value).__name__}.{name} must be a mapping with str keys, not {given!r:.80}")
    object.__setattr__(value, name, dict(given))
