"""A model that plays a script: for demonstrations and tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from listeners.chain.function import Function
from listeners.chain.messages import Message, MessageDelta, TokenUsage
from listeners.chain.models.base import ModelHooks
from listeners.errors import ChainError

__all__ = ["Headers", "RateLimit", "ScriptedChat"]


@dataclass(frozen=True, slots=True)
class Headers:
    """A response head in a script."""

    headers: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What a response head says about rate limits, in a script."""

    info: Mapping[str, Any]


Item = (
    Message
    | MessageDelta
    | TokenUsage
    | Sequence[MessageDelta | TokenUsage]
    | float
    | Headers
    | RateLimit
    | Exception
)
Script = Message | Exception | Sequence[Item]


class ScriptedChat:
    """Answers each request with the next of ``replies``, and never repeats one.

    A reply is a ``Message``, an exception to raise, or a list of what happens: a delta or a list of them (a chunk),
    seconds to wait, ``Headers``, ``RateLimit``, ``Message``, an exception. ``sleep`` waits; ``retry_on`` holds the
    types of errors after which another model may be tried. ``requests`` are the messages of each request so far.

    A request beyond the script fails with type ``script_exhausted``.
    """

    def __init__(
        self,
        replies: Iterable[Script],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        retry_on: Collection[str] = (),
    ) -> None:
        self._replies = iter(replies)
        self._sleep = sleep
        self._retry_on = frozenset(retry_on)
        self.requests: list[tuple[Message, ...]] = []

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[Function], hooks: ModelHooks
    ) -> AsyncIterator[Message | Sequence[MessageDelta | TokenUsage]]:
        """Play the next reply."""
        self.requests.append(tuple(messages))
        try:
            script = next(self._replies)
        except StopIteration:
            text = f"the script has no reply to request {len(self.requests)}"
            raise ChainError("script_exhausted", text) from None
        for item in [script] if isinstance(script, Message | Exception) else script:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, Headers):
                await hooks.response_headers(item.headers)
            elif isinstance(item, RateLimit):
                await hooks.ratelimit_info(item.info)
            elif isinstance(item, int | float):
                await self._sleep(item)
            else:
                yield [item] if isinstance(item, MessageDelta | TokenUsage) else item

    def retry_on_fallback(self, error: ChainError) -> bool:
        """Tell whether ``retry_on`` holds the error's type."""
        return error.type in self._retry_on
