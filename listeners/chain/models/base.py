"""What a chain asks of a model, and what it gives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from listeners.chain.function import Function
from listeners.chain.messages import Message, MessageDelta, TokenUsage
from listeners.errors import ChainError

__all__ = ["ChatModel", "ModelHooks"]


class ModelHooks:
    """Given by the chain to a request, to be told what the reply doesn't hold.

    A handler's exception leaves these methods, and ends the run even if the model swallows it.
    """

    def __init__(self, tell: Callable[..., Awaitable[None]]) -> None:
        self._tell = tell

    async def response_headers(self, headers: Mapping[str, Sequence[str]]) -> None:
        """Tell a response's headers as soon as they are there: names in lower case, each with its values."""
        await self._tell("on_llm_response_headers", headers)

    async def ratelimit_info(self, info: Mapping[str, Any]) -> None:
        """Tell what the headers say about rate limits, right after them."""
        await self._tell("on_llm_ratelimit_info", info)

    async def attempt_failed(self, error: ChainError) -> None:
        """Tell of an attempt that the model itself is going to repeat."""
        await self._tell("on_llm_error", error)


class ChatModel(Protocol):
    """A model that answers a conversation."""

    def stream(
        self, messages: Sequence[Message], tools: Sequence[Function], hooks: ModelHooks
    ) -> AsyncIterator[Message | Sequence[MessageDelta | TokenUsage]]:
        """Answer: an async iterator, so that an async generator method fits.

        It yields a ``Message``, a whole reply, or lists of deltas and usage, one list a network chunk. It fails by
        raising :class:`ChainError`, before or in the middle. The chain closes it (``aclose``) when it is done.
        """
        ...

    def retry_on_fallback(self, error: ChainError) -> bool:
        """Tell whether another model may succeed where this one failed with ``error``."""
        ...
