"""``AnthropicChat``: Anthropic's Messages. Needs the extra ``anthropic``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from listeners.chain.function import Function
from listeners.chain.messages import (
    ContentPart,
    DeltaStatus,
    Message,
    MessageDelta,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from listeners.chain.models.base import ModelHooks
from listeners.chain.models.wire import (
    Chunk,
    Failure,
    WireChat,
    is_timeout,
    is_transport,
    status_failure,
    tell_head,
    transport_failure,
)
from listeners.errors import ChainError

try:
    import anthropic
except ImportError as error:  # pragma: no cover  # the extra is installed where this is tested
    raise ImportError("AnthropicChat needs the extra: pip install 'toolcast[anthropic]'") from error

__all__ = ["AnthropicChat"]

_LIMITS: Final = "anthropic-ratelimit-"
_LENGTH: Final = frozenset({"max_tokens", "model_context_window_exceeded"})
_TYPES: Final = {
    "api_error": "server_error",
    "rate_limit_error": "rate_limited",
    "timeout_error": "timeout",
    "invalid_request_error": "invalid_request",
}
"""What errors in the middle of a stream are called here, where that isn't their own name."""


class AnthropicChat(WireChat):
    """A model of Anthropic's Messages, streamed.

    - ``model``: its name; ``max_tokens``: the longest reply. ``api_key`` and ``base_url``: as the SDK takes them,
      ``ANTHROPIC_API_KEY`` and ``ANTHROPIC_BASE_URL`` unless given.
    - ``request``: further members of each request (``thinking``, ``temperature`` …); ``None`` leaves one out.
    - ``client``: an ``anthropic.AsyncAnthropic`` of one's own; its retries are switched off.
    - ``retries``, ``sleep``, ``jitter``: see :class:`~listeners.chain.models.wire.WireChat`.

    A function's ``options["anthropic"]`` (``cache_control`` …) is added to what the server is told of it. What the
    model thought is kept as parts of type ``thinking`` and ``redacted_thinking``, and sent back as it was.
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int = 4096,
        api_key: str | None = None,
        base_url: str | None = None,
        request: Mapping[str, Any] | None = None,
        client: anthropic.AsyncAnthropic | None = None,
        retries: int = 2,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(retries=retries, sleep=sleep, jitter=jitter)
        self.model = model
        self.max_tokens = max_tokens
        self._request = dict(request or {})
        self._owned = client is None
        given = client or anthropic.AsyncAnthropic(api_key=api_key, base_url=base_url)
        self._client = given.with_options(max_retries=0)

    async def aclose(self) -> None:
        """Close the connections, unless the client was given."""
        if self._owned:
            await self._client.close()

    async def _attempt(
        self, messages: Sequence[Message], tools: Sequence[Function], hooks: ModelHooks
    ) -> AsyncGenerator[Chunk, None]:
        try:
            stream = await self._client.messages.create(**self._body(messages, tools))
        except anthropic.APIStatusError as error:
            headers = await tell_head(error.response.headers, _LIMITS, hooks)
            raise status_failure(error.status_code, _message(error), error, headers) from error
        except anthropic.APIConnectionError as error:
            raise transport_failure(error, timeout=isinstance(error, anthropic.APITimeoutError)) from error
        async with stream:
            await tell_head(stream.response.headers, _LIMITS, hooks)
            events = aiter(stream)
            reading = _Reading()
            while True:
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                except Exception as error:
                    raise _broken(error) from error
                if chunk := reading.take(event.to_dict(mode="json", warnings=False)):
                    yield chunk

    def _body(self, messages: Sequence[Message], tools: Sequence[Function]) -> dict[str, Any]:
        system = [_text_block(part) for m in messages if m.role == "system" for part in m.content]
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": [
                _told(message) for message in messages if message.role != "system" and _says(message)
            ],
            "stream": True,
            **({"system": system} if system else {}),
            **({"tools": [_tool(function) for function in tools]} if tools else {}),
            **self._request,
        }
        return {name: value for name, value in body.items() if value is not None}


def _says(message: Message) -> bool:
    # The server refuses a message without content.
    return bool(message.text or message.tool_calls or message.tool_results or len(message.content) > 1)


def _told(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "user", "content": [_result(result) for result in message.tool_results]}
    blocks = [block for part in message.content if (block := _block(part))]
    blocks += [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": blocks}


def _result(result: ToolResult) -> dict[str, Any]:
    blocks = [block for part in result.content if part.type in ("text", "image") and (block := _block(part))]
    told = {"type": "tool_result", "tool_use_id": result.tool_call_id, "content": blocks}
    return {**told, **({"is_error": True} if result.is_error else {}), **result.options.get("anthropic", {})}


def _block(part: ContentPart) -> dict[str, Any] | None:
    if part.type == "text":
        return _text_block(part) if part.content else None
    if part.type == "thinking":
        return {"type": "thinking", "thinking": part.content, "signature": part.options.get("signature", "")}
    if part.type == "redacted_thinking":
        return {"type": "redacted_thinking", "data": part.content}
    kind = {"image": "image", "file": "document"}.get(part.type)
    if kind is None:
        return None
    if part.content.startswith(("http://", "https://")):
        return {"type": kind, "source": {"type": "url", "url": part.content}}
    media = part.options.get("media", "image/png" if kind == "image" else "application/pdf")
    return {"type": kind, "source": {"type": "base64", "media_type": media, "data": part.content}}


def _text_block(part: ContentPart) -> dict[str, Any]:
    return {"type": "text", "text": part.content, **part.options.get("anthropic", {})}


def _tool(function: Function) -> dict[str, Any]:
    told: dict[str, Any] = {"name": function.name, "input_schema": function.parameters}
    if function.description:
        told["description"] = function.description
    if function.strict:
        told["strict"] = True
    return {**told, **function.options.get("anthropic", {})}


class _Reading:
    """From the events of one stream to chunks. Usage comes in two halves."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}

    def take(self, event: Mapping[str, Any]) -> list[MessageDelta | TokenUsage]:
        index = event.get("index")
        index = index if isinstance(index, int) and index >= 0 else 0
        match event.get("type"):
            case "message_start":
                self._usage.update((event.get("message") or {}).get("usage") or {})
            case "content_block_start":
                return _opened(index, event.get("content_block") or {})
            case "content_block_delta":
                return _continued(index, event.get("delta") or {})
            case "message_delta":
                return self._ended(event)
        return []

    def _ended(self, event: Mapping[str, Any]) -> list[MessageDelta | TokenUsage]:
        known = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
        self._usage.update(known)
        spent = self._usage.get("input_tokens"), self._usage.get("output_tokens")
        usage = TokenUsage(*spent, raw=dict(self._usage), cumulative=True)
        reason = (event.get("delta") or {}).get("stop_reason")
        if not reason:
            return [usage]
        status: DeltaStatus = "length" if reason in _LENGTH else "complete"
        return [MessageDelta(status=status, metadata={"finish_reason": reason}), usage]


def _opened(index: int, block: Mapping[str, Any]) -> list[MessageDelta | TokenUsage]:
    match block.get("type"):
        case "tool_use":
            call = ToolCall(
                index=index,
                call_id=block.get("id") or None,
                name=block.get("name") or None,
                # Whole arguments come here from servers that don't stream them.
                arguments=block.get("input") or {},
            )
            return [MessageDelta(tool_calls=(call,))]
        case "text":
            return [MessageDelta(block.get("text") or "", index=index)]
        case "thinking":
            return [_thought(index, block.get("thinking") or "", block.get("signature"))]
        case "redacted_thinking":
            return [MessageDelta(ContentPart("redacted_thinking", block.get("data") or ""), index=index)]
    return []


def _continued(index: int, delta: Mapping[str, Any]) -> list[MessageDelta | TokenUsage]:
    match delta.get("type"):
        case "text_delta":
            return [MessageDelta(delta.get("text") or "", index=index)]
        case "input_json_delta":
            fragment = ToolCall(index=index, arguments_text=delta.get("partial_json") or "")
            return [MessageDelta(tool_calls=(fragment,))]
        case "thinking_delta":
            return [_thought(index, delta.get("thinking") or "", None)]
        case "signature_delta":
            return [_thought(index, "", delta.get("signature"))]
    return []


def _thought(index: int, text: str, signature: str | None) -> MessageDelta:
    options = {"signature": signature} if signature else {}
    return MessageDelta(ContentPart("thinking", text, options=options), index=index)


def _broken(error: Exception) -> Failure:
    """Sort what broke a stream that had begun."""
    if isinstance(error, anthropic.APIConnectionError):
        return transport_failure(error, timeout=isinstance(error, anthropic.APITimeoutError))
    if is_transport(error):
        return transport_failure(error, timeout=is_timeout(error))
    if isinstance(error, anthropic.APIStatusError):
        told = _member(error.body, "type") or "server_error"
        type = _TYPES.get(told, told)
        repeatable = type in ("server_error", "rate_limited", "timeout", "overloaded_error")
        return Failure(ChainError(type, _message(error), error), repeatable)
    return Failure(ChainError("invalid_response", f"The server's stream can't be read: {error}", error))


def _message(error: anthropic.APIStatusError) -> str:
    return _member(error.body, "message") or error.message


def _member(body: object, name: str) -> str | None:
    told = body.get("error") if isinstance(body, Mapping) else None
    value = told.get(name) if isinstance(told, Mapping) else None
    return value if isinstance(value, str) else None
