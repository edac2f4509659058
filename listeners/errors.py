"""The exceptions of the agent side: what a tool says to people, and what a chain ends with."""

from __future__ import annotations

from listeners.texts import text_of

__all__ = ["ChainError", "HandlerError", "ToolError"]


class ToolError(Exception):
    """Raised in a tool: the call failed, and the text was written for people, so that it may leave the agent.

    The text of any other exception is published as "unexpected error" (contract §6).
    """


class ChainError(Exception):
    """What a model or a chain failed with.

    ``type`` is a word for programs (``"rate_limited"``, ``"exceeded_failure_count"`` …) or ``None``; ``message``
    may be shown to people and to a model and holds no location; ``original`` is the exception behind it.
    """

    def __init__(self, type: str | None, message: str, original: Exception | None = None) -> None:
        super().__init__(type, message, original)
        self.type = type
        self.message = message
        self.original = original

    def __str__(self) -> str:
        return self.message


class HandlerError(ChainError):
    """A handler raised: whatever the chain was doing is given up. ``event`` is what it was told, ``original`` and
    ``__cause__`` what it raised."""

    def __init__(self, event: str, original: Exception) -> None:
        text = f"({type(original).__name__}) {text_of(original)}".rstrip()
        super().__init__(None, f"Callback handler for {event} raised an exception: {text}", original)
        self.event = event
        self.__cause__ = original

    def __reduce__(self) -> tuple[type[HandlerError], tuple[str, Exception | None]]:
        return type(self), (self.event, self.original)
