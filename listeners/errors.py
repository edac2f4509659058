"""The exception a tool raises to say something to people and to the model."""

from __future__ import annotations

__all__ = ["ToolError"]


class ToolError(Exception):
    """Raised in a tool: the call failed, and the text was written for people, so that it may leave the agent.

    The text of any other exception is published as "unexpected error" (contract §6).
    """
