"""What the models of providers have in common: repeating requests, telling response heads, sorting errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from listeners.chain.function import Function
from listeners.chain.messages import Message, MessageDelta, TokenUsage
from listeners.chain.models.base import ModelHooks
from listeners.errors import ChainError

__all__ = [
    "Chunk",
    "Failure",
    "WireChat",
    "is_timeout",
    "is_transport",
    "status_failure",
    "tell_head",
    "transport_failure",
]

Chunk = Sequence[MessageDelta | TokenUsage]
Headers = Mapping[str, list[str]]

_BY_STATUS: Final = {
    400: "invalid_request",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    413: "request_too_large",
    422: "invalid_request",
    429: "rate_limited",
    529: "overloaded",
}
_ELSEWHERE: Final = frozenset(
    {
        "connection_error",
        "incomplete_response",
        "overloaded",
        "overloaded_error",
        "rate_limit_exceeded",
        "rate_limited",
        "server_error",
        "timeout",
        "too_many_requests",
    }
)
"""Types of errors after which another model may succeed."""

_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 8.0
# A longer wish of the server is the host's to grant: an agent that sleeps for minutes looks dead.
_LONGEST_WISH: Final = 60.0


class Failure(Exception):
    """A failed attempt: what it is to the chain, and whether and when it may be repeated."""

    def __init__(self, error: ChainError, repeatable: bool = False, headers: Headers | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.repeatable = repeatable
        self.headers: Headers = headers or {}


class WireChat:
    """A model behind HTTP. Subclasses make one attempt in :meth:`_attempt`.

    ``retries``: how often a request is repeated that failed before anything of its reply had come (connection
    errors, 408, 409, 429, 5xx); ``sleep`` waits between, as the server asks (up to a minute), else 0.5 s, 1 s … with
    ``jitter()`` from 0 to 1 taken off half of it. Every failed attempt is told.
    """

    def __init__(
        self,
        *,
        retries: int = 2,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        retry_on: Collection[str] = (),
    ) -> None:
        if retries < 0:
            raise ValueError(f"retries can't be {retries}")
        self._retries = retries
        self._sleep = sleep
        self._jitter = jitter
        self._retry_on = frozenset(retry_on) | _ELSEWHERE

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[Function], hooks: ModelHooks
    ) -> AsyncIterator[Chunk]:
        """Answer, with failed requests repeated; raises :class:`ChainError`."""
        for attempt in range(self._retries + 1):
            begun = False
            try:
                async with aclosing(self._attempt(messages, tools, hooks)) as chunks:
                    async for chunk in chunks:
                        begun = True
                        yield chunk
                return
            except Failure as failure:
                delay = self._delay(attempt, failure)
                if begun or not failure.repeatable or attempt == self._retries or delay is None:
                    raise failure.error from failure.error.original
                await hooks.attempt_failed(failure.error)
            await self._sleep(delay)

    def retry_on_fallback(self, error: ChainError) -> bool:
        """Tell whether another model may succeed: after rate limits, overload, time-outs and broken connections."""
        return error.type in self._retry_on

    def _attempt(
        self, messages: Sequence[Message], tools: Sequence[Function], hooks: ModelHooks
    ) -> AsyncGenerator[Chunk, None]:
        raise NotImplementedError

    def _delay(self, attempt: int, failure: Failure) -> float | None:
        """Seconds to wait before the next attempt; ``None`` if the server wants more than is bearable."""
        wish = _wish(failure.headers)
        if wish is not None:
            return wish if wish <= _LONGEST_WISH else None
        delay: float = min(_FIRST_DELAY * 2**attempt, _LONGEST_DELAY)
        return delay * (1 - self._jitter() / 2)


async def tell_head(headers: Any, prefix: str, hooks: ModelHooks) -> Headers:
    """Tell a response's head: all its headers, then those that begin with ``prefix``, and ``retry-after``."""
    told: dict[str, list[str]] = {}
    for name, value in headers.multi_items():
        told.setdefault(name.lower(), []).append(value)
    await hooks.response_headers(told)
    limits = {name: told[name] for name in told if name.startswith(prefix) or name == "retry-after"}
    await hooks.ratelimit_info(limits)
    return told


def status_failure(status: int, message: str, error: Exception, headers: Headers) -> Failure:
    """Sort an answer that is an error by its status."""
    type = _BY_STATUS.get(status, "server_error" if status >= 500 else "invalid_request")
    repeatable = status in (408, 409, 429) or status >= 500
    return Failure(ChainError(type, message, error), repeatable, headers)


def transport_failure(error: Exception, *, timeout: bool) -> Failure:
    """Sort an error of the connection."""
    type = "timeout" if timeout else "connection_error"
    cause = error.__cause__
    text = f"{error}" if cause is None or not str(cause) else f"{error} ({cause})"
    return Failure(ChainError(type, text or error.__class__.__name__, error), True)


def is_transport(error: BaseException) -> bool:
    """Tell whether ``error`` is one of the HTTP client's own, whichever client the SDK uses."""
    return any(base.__name__ in ("TransportError", "StreamError") for base in type(error).__mro__)


def is_timeout(error: BaseException) -> bool:
    """Tell whether ``error`` is the HTTP client's time-out."""
    return any(base.__name__ == "TimeoutException" for base in type(error).__mro__)


def _wish(headers: Headers) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        for value in headers.get(name, ()):
            try:
                return max(0.0, float(value) / unit)
            except ValueError:
                pass
            try:
                then = parsedate_to_datetime(value)
            except ValueError:
                continue
            now = datetime.now(UTC)
            return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds())
    return None
