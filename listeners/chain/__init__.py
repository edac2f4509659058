"""The shapes of a tool-calling chain. Importing this package needs nothing but the base install."""

from __future__ import annotations

from listeners.chain.function import Function, Title
from listeners.chain.messages import ContentPart, ToolCall, ToolResult

__all__ = ["ContentPart", "Function", "Title", "ToolCall", "ToolResult"]
