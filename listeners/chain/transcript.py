"""Conversations that outlive their process: as bytes and back (no I/O)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import msgspec

from listeners.chain.messages import ContentPart, Message, TokenUsage, ToolCall, ToolResult
from listeners.errors import ChainError

__all__ = ["dump_messages", "load_messages", "replace_tool_result"]

_VERSION: Final = 1
_KEPT: Final = frozenset({"content", "index", "input", "interrupt_data", "output", "processed_content"})
"""Members that mean something when they are empty, too."""


def dump_messages(messages: Iterable[Message]) -> bytes:
    """Return messages as JSON.

    Native values (``processed_content``, ``interrupt_data``, ``options``, ``metadata``) are kept if JSON can carry
    them, and are plain data afterwards; what it can't carry is left out. Half characters become U+FFFD.
    """
    return msgspec.json.encode({"version": _VERSION, "messages": [_message(message) for message in messages]})


def load_messages(data: bytes) -> list[Message]:
    """Return the messages of :func:`dump_messages`; raises ``ValueError`` for what isn't one."""
    try:
        read = msgspec.json.decode(data)
        if not isinstance(read, dict) or read.get("version") != _VERSION:
            raise ValueError("no version that is known")
        return [_loaded_message(message) for message in read["messages"]]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not a conversation of dump_messages: {error}") from error


def replace_tool_result(
    messages: Sequence[Message], tool_call_id: str, result: ToolResult
) -> Sequence[Message]:
    """Put ``result`` wherever a tool message has a result for ``tool_call_id``; ``messages`` itself without any."""
    result = replace(result, tool_call_id=tool_call_id)

    def replaced(message: Message) -> Message:
        if message.role != "tool" or all(
            known.tool_call_id != tool_call_id for known in message.tool_results
        ):
            return message
        results = [result if known.tool_call_id == tool_call_id else known for known in message.tool_results]
        return replace(message, tool_results=tuple(results))

    changed = [replaced(message) for message in messages]
    same = all(new is old for new, old in zip(changed, messages, strict=True))
    return messages if same else changed


def _message(message: Message) -> dict[str, Any]:
    told = _members(message, content=_each(_members), tool_calls=_each(_call), tool_results=_each(_result))
    if metadata := {_whole(name): _metadata(value) for name, value in message.metadata.items()}:
        told["metadata"] = {name: value for name, value in metadata.items() if value is not None}
    return told


def _call(call: ToolCall) -> dict[str, Any]:
    return {**_members(call, result=_result), "index": int(call.index)}


def _result(result: ToolResult) -> dict[str, Any]:
    return _members(result, content=_each(_members))


def _metadata(value: object) -> Any:
    if isinstance(value, TokenUsage):
        return {"__usage__": _members(value)}
    if isinstance(value, ChainError):
        return {"__error__": {"type": _plain(value.type), "message": _plain(value.message)}}
    return _plain(value)


def _each(member: Callable[[Any], dict[str, Any]]) -> Callable[[Any], Any]:
    return lambda values: [member(value) for value in values]


def _members(value: Any, **makers: Callable[[Any], Any]) -> dict[str, Any]:
    """Return what a shape holds, without what is empty anyway."""
    told: dict[str, Any] = {}
    for member in fields(value):
        given = getattr(value, member.name)
        empty = given is None or (not given and member.name not in _KEPT)
        if not empty:
            made = makers.get(member.name, _plain)(given)
            if made is not None:
                told[member.name] = made
    return told


def _plain(value: Any) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except Exception:  # whatever a value's own methods raise
        with contextlib.suppress(RecursionError):
            return _carried(value)
        return None


def _carried(value: Any) -> Any:
    """What JSON can carry of a value that it can't carry whole."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, Mapping):
        kept = {_whole(str(name)): _plain(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner is not None}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else None


def _whole(text: str) -> str:
    # Models and tools cut texts in the middle of an emoji.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _loaded_message(read: dict[str, Any]) -> Message:
    members = dict(read)
    metadata = {name: _loaded_metadata(value) for name, value in members.pop("metadata", {}).items()}
    calls = [_loaded_call(call) for call in members.pop("tool_calls", [])]
    results = [_loaded_result(result) for result in members.pop("tool_results", [])]
    return Message(
        members.pop("role"),
        _loaded_parts(members.pop("content")),
        tool_calls=calls,
        tool_results=results,
        metadata=metadata,
        **members,
    )


def _loaded_call(read: dict[str, Any]) -> ToolCall:
    result = read.get("result")
    return ToolCall(**{**read, "result": None if result is None else _loaded_result(result)})


def _loaded_result(read: dict[str, Any]) -> ToolResult:
    members = dict(read)
    return ToolResult(_loaded_parts(members.pop("content")), **members)


def _loaded_parts(read: list[dict[str, Any]]) -> list[ContentPart]:
    return [ContentPart(**part) for part in read]


def _loaded_metadata(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"__usage__"}:
        return TokenUsage(**value["__usage__"])
    if isinstance(value, dict) and set(value) == {"__error__"}:
        return ChainError(value["__error__"]["type"], value["__error__"]["message"])
    return value
