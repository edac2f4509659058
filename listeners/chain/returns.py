"""What a tool returned or raised, as the result of its call (no I/O)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from listeners.chain.copies import own_mapping
from listeners.chain.function import Function
from listeners.chain.invalid import InvalidArguments, described
from listeners.chain.messages import ContentPart, ToolCall, ToolResult
from listeners.chain.review import Interrupt, is_interrupt
from listeners.chain.titles import display_text
from listeners.contract.events import FailureReason
from listeners.errors import ToolError
from listeners.texts import text_of

__all__ = ["Arguments", "Settled", "error_result", "failure", "named", "settle"]

_UNEXPECTED: Final = "An unexpected response was returned from the tool."


@dataclass(frozen=True, slots=True)
class Settled:
    """What a call came to; ``exception`` is what its body or ``parse_args`` raised."""

    result: ToolResult
    exception: Exception | None = None


class Arguments(dict[str, Any]):
    """The arguments a body gets. Knows which ``KeyError`` was raised for a name that isn't in it."""

    missed: KeyError | None = None

    def __missing__(self, name: str) -> Any:
        self.missed = KeyError(name)
        raise self.missed


def settle(value: object, call: ToolCall, function: Function) -> ToolResult:
    """Make a result of what a body returned: any plain data is a success, an ``Interrupt`` holds the call."""
    if isinstance(value, ToolResult):
        if value.is_interrupt and not any(part.content.strip() for part in value.content):
            return error_result(_UNEXPECTED, call, function)  # nobody could answer a blank question
        return named(value if value.is_error else replace(value, reason=None), call, function)
    if isinstance(value, Interrupt):
        if not is_interrupt(value):
            return error_result(_UNEXPECTED, call, function)
        data = None if value.data is None else own_mapping(value.data)
        held = ToolResult(value.message, is_interrupt=True, interrupt_data=data)
        return named(held, call, function)
    if isinstance(value, str):
        return named(ToolResult(value), call, function)
    if isinstance(value, list) and value and all(isinstance(part, ContentPart) for part in value):
        return named(ToolResult(value), call, function)
    try:
        text = _encode(value).decode()
    except Exception:  # whatever a value's own methods raise: it can't be told to a model
        return error_result(_UNEXPECTED, call, function)
    return named(ToolResult(text, processed_content=value), call, function)


def failure(
    error: Exception, call: ToolCall, function: Function, arguments: Arguments | None = None
) -> Settled:
    """Make a result of what a body, or ``parse_args``, raised."""
    if isinstance(error, InvalidArguments):
        return Settled(error_result(text_of(error), call, function, "invalid_arguments"))
    if isinstance(error, ToolError):
        return Settled(error_result(text_of(error), call, function))
    text = f"ERROR: ({type(error).__name__}) {text_of(error)}".rstrip()
    declared = function.parse_args is None and function.parameters.get("properties")
    if declared and arguments is not None and error is arguments.missed:
        text += f". {described(arguments, function.parameters)}"
    return Settled(error_result(text, call, function, "exception"), error)


def error_result(
    text: str, call: ToolCall, function: Function | None, reason: FailureReason = "error"
) -> ToolResult:
    """Return the error result of ``call`` with this text."""
    return named(ToolResult(text, is_error=True, reason=reason), call, function)


def named(result: ToolResult, call: ToolCall, function: Function | None) -> ToolResult:
    """Fill in whose result it is, and the reason of an error that gives none."""
    shown = result.display_text
    if shown is None and function is not None:
        shown = call.display_text or display_text(function.name, function)
    failed = result.is_error and not result.is_interrupt
    return replace(
        result,
        tool_call_id=call.call_id or "",
        name=call.name if result.name is None else result.name,
        display_text=shown,
        reason=(result.reason or "error") if failed or result.reason in ("denied", "rejected") else None,
    )


def _encode(value: object) -> bytes:
    return _encoder.encode(value)


def _model(value: Any) -> object:
    # pydantic models, without importing pydantic.
    dump: Callable[..., object] | None = getattr(type(value), "model_dump", None)
    if dump is None or not hasattr(type(value), "model_fields"):
        raise TypeError(f"{type(value).__name__} is not plain data")
    return dump(value, mode="json")


_encoder = msgspec.json.Encoder(enc_hook=_model)
