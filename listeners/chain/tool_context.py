"""What a tool is told beside its arguments, if it asks (no I/O)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from listeners.chain.messages import ToolCall

__all__ = ["ToolContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Given to a parameter annotated with it. ``cancelled`` is set when nobody waits for the body any longer."""

    tool_call_id: str
    call: ToolCall
    custom_context: Any = None
    cancelled: threading.Event = field(default_factory=threading.Event, compare=False)
