"""Telling a chain's handlers, and remembering that one of them raised."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from listeners.chain.copies import own_mapping
from listeners.chain.messages import Message, MessageDelta, ToolCall, ToolResult
from listeners.chain.outcome import Outcome
from listeners.chain.review import Edit, HeldCall, Interrupt, UpdateArguments
from listeners.dispatch import Handler, Handlers
from listeners.errors import ChainError
from listeners.texts import text_of

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain

__all__ = ["Telling"]

_OWNED: Final = (
    *(ToolCall, Message, MessageDelta, ToolResult, HeldCall),
    *(dict, list, UpdateArguments, Edit, Interrupt, Outcome),
)
"""What hands out something that could be changed."""


class Telling:
    """Tells events of one chain. ``raised``: the first error of a handler in this operation, which ends it.

    Handlers run inside models, SDKs and tasks that may swallow or rewrap what they raise, therefore it is kept here.
    """

    def __init__(self, chain: LLMChain) -> None:
        self._chain = chain
        self._handlers = Handlers(_own)
        self.raised: ChainError | None = None

    @property
    def handlers(self) -> Handlers:
        """The chain's handlers."""
        return self._handlers

    async def tell(self, event: str, *args: Any) -> None:
        """Tell an event to all handlers; raises ``HandlerError``."""
        if not self._handlers.of(event):
            return
        try:
            await self._handlers.fire(event, self._chain, *args)
        except ChainError as error:
            self.remember(error)
            raise

    async def ask(self, handler: Handler, event: str, *args: Any) -> Any:
        """Tell one handler and return what it answers; raises ``HandlerError``."""
        try:
            return await self._handlers.ask(handler, event, self._chain, *args)
        except ChainError as error:
            self.remember(error)
            raise

    def remember(self, error: ChainError) -> None:
        """Keep what ends the operation, the first one; later ones become notes on it."""
        if self.raised is None:
            self.raised = error
        elif error is not self.raised:
            self.raised.add_note(f"Then: {text_of(error)}")

    def check(self) -> None:
        """Raise what a handler has raised, if somebody swallowed it."""
        if self.raised is not None:
            raise self.raised


def _own(value: Any) -> Any:
    """Return the copy of an argument that one handler gets: whatever it does to it, nobody else sees."""
    if not isinstance(value, _OWNED):
        return value
    if isinstance(value, (ToolCall, Message, MessageDelta, ToolResult, HeldCall)):
        return value.own()
    if isinstance(value, dict):
        return own_mapping(value)
    if isinstance(value, list):
        return [_own(one) for one in value]
    if isinstance(value, (UpdateArguments, Edit)):
        return type(value)(own_mapping(value.arguments))
    if isinstance(value, Interrupt) and value.data is not None:
        return Interrupt(value.message, own_mapping(value.data))
    if isinstance(value, Outcome) and value.interrupts:
        return replace(value, interrupts=tuple(held.own() for held in value.interrupts))
    return value
