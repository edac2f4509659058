"""A tool-calling chain: the shapes of its conversation, the loop, and the models that answer.

Names are loaded when they are first used: who only wraps tools needs a shape or two, and no loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.deltas import MergedDelta
    from listeners.chain.function import Function, Title
    from listeners.chain.messages import (
        ContentPart,
        InvalidCall,
        Message,
        MessageDelta,
        TokenUsage,
        ToolCall,
        ToolResult,
    )
    from listeners.chain.models import ChatModel, Headers, ModelHooks, RateLimit, ScriptedChat
    from listeners.chain.options import RunOptions
    from listeners.chain.outcome import Outcome
    from listeners.chain.processors import Halt, JsonProcessor, Processor
    from listeners.chain.review import (
        Allow,
        Approve,
        Decision,
        Deny,
        Edit,
        HeldCall,
        Interrupt,
        Reject,
        ReviewContext,
        UpdateArguments,
        Verdict,
        parse_decision,
    )
    from listeners.chain.tool_context import ToolContext
    from listeners.chain.transcript import dump_messages, load_messages, replace_tool_result
    from listeners.errors import ChainError, HandlerError, ToolError

_HOMES: Final = {
    "chain": ["LLMChain"],
    "deltas": ["MergedDelta"],
    "function": ["Function", "Title"],
    "messages": [
        "ContentPart", "InvalidCall", "Message", "MessageDelta", "TokenUsage", "ToolCall", "ToolResult",
    ],
    "models": [
        "ChatModel", "Headers", "ModelHooks", "RateLimit", "ScriptedChat",
    ],
    "options": ["RunOptions"],
    "outcome": ["Outcome"],
    "processors": ["Halt", "JsonProcessor", "Processor"],
    "review": [
        "Allow", "Approve", "Decision", "Deny", "Edit", "HeldCall", "Interrupt", "Reject", "ReviewContext",
        "UpdateArguments", "Verdict", "parse_decision",
    ],
    "tool_context": ["ToolContext"],
    "transcript": ["dump_messages", "load_messages", "replace_tool_result"],
}  # fmt: skip

__all__ = [
    "Allow",
    "Approve",
    "ChainError",
    "ChatModel",
    "ContentPart",
    "Decision",
    "Deny",
    "Edit",
    "Function",
    "Halt",
    "HandlerError",
    "Headers",
    "HeldCall",
    "Interrupt",
    "InvalidCall",
    "JsonProcessor",
    "LLMChain",
    "MergedDelta",
    "Message",
    "MessageDelta",
    "ModelHooks",
    "Outcome",
    "Processor",
    "RateLimit",
    "Reject",
    "ReviewContext",
    "RunOptions",
    "ScriptedChat",
    "Title",
    "TokenUsage",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "UpdateArguments",
    "Verdict",
    "dump_messages",
    "load_messages",
    "parse_decision",
    "replace_tool_result",
]


def __getattr__(name: str) -> Any:
    home = next((f"listeners.chain.{module}" for module, names in _HOMES.items() if name in names), None)
    if name in ("ChainError", "HandlerError", "ToolError"):
        home = "listeners.errors"
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
