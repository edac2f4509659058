"""``OpenAIChat``: OpenAI's Chat Completions, and every server that speaks them. Needs the extra ``openai``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from listeners.chain.function import Function
from listeners.chain.messages import (
    ContentPart,
    DeltaStatus,
    Message,
    MessageDelta,
    TokenUsage,
    ToolCall,
    Unplaced,
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
    import openai
except ImportError as error:  # pragma: no cover  # the extra is installed where this is tested
    raise ImportError("OpenAIChat needs the extra: pip install 'toolcast[openai]'") from error

__all__ = ["OpenAIChat"]

_LIMITS: Final = "x-ratelimit-"
_STATUSES: Final[dict[str, DeltaStatus]] = {"length": "length"}


class OpenAIChat(WireChat):
    """A model of Chat Completions, streamed.

    - ``model``: its name. ``api_key`` and ``base_url``: as the SDK takes them, ``OPENAI_API_KEY`` and
      ``OPENAI_BASE_URL`` unless given.
    - ``request``: further members of each request (``temperature`` …); ``None`` leaves one of ours out, such as
      ``stream_options``, which a few servers refuse.
    - ``client``: an ``openai.AsyncOpenAI`` of one's own; its retries are switched off.
    - ``retries``, ``sleep``, ``jitter``: see :class:`~listeners.chain.models.wire.WireChat`.

    A function's ``options["openai"]`` is added to what the server is told of it. An image part's content is an
    address or base64 (with ``options["media"]``); a file part is its ``options``.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        request: Mapping[str, Any] | None = None,
        client: openai.AsyncOpenAI | None = None,
        retries: int = 2,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(retries=retries, sleep=sleep, jitter=jitter)
        self.model = model
        self._request = dict(request or {})
        self._owned = client is None
        given = client or openai.AsyncOpenAI(api_key=api_key, base_url=base_url)
        self._client = given.with_options(max_retries=0)

    async def aclose(self) -> None:
        """Close the connections, unless the client was given."""
        if self._owned:
            await self._client.close()

    async def _attempt(
        self, messages: Sequence[Message], tools: Sequence[Function], hooks: ModelHooks
    ) -> AsyncGenerator[Chunk, None]:
        try:
            stream = await self._client.chat.completions.create(**self._body(messages, tools))
        except openai.APIStatusError as error:
            headers = await tell_head(error.response.headers, _LIMITS, hooks)
            raise status_failure(error.status_code, _message(error), error, headers) from error
        except openai.APIConnectionError as error:
            raise transport_failure(error, timeout=isinstance(error, openai.APITimeoutError)) from error
        async with stream:
            await tell_head(stream.response.headers, _LIMITS, hooks)
            events = aiter(stream)
            while True:
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                except Exception as error:
                    raise _broken(error) from error
                if chunk := _chunk(event.to_dict(mode="json", warnings=False)):
                    yield chunk

    def _body(self, messages: Sequence[Message], tools: Sequence[Function]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [told for message in messages for told in _told(message)],
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"tools": [_tool(function) for function in tools]} if tools else {}),
            **self._request,
        }
        return {name: value for name, value in body.items() if value is not None}


def _told(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": result.tool_call_id, "content": _text(result.content)}
            for result in message.tool_results
        ]
    told: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    if message.name is not None:
        told["name"] = message.name
    if message.tool_calls:
        told["content"] = told["content"] or None
        told["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for call in message.tool_calls
        ]
    return [told]


def _content(parts: Sequence[ContentPart]) -> str | list[dict[str, Any]]:
    if all(part.type == "text" for part in parts):
        return _text(parts)
    return [told for part in parts if (told := _part(part))]


def _part(part: ContentPart) -> dict[str, Any] | None:
    if part.type == "text":
        return {"type": "text", "text": part.content}
    if part.type == "image":
        media = part.options.get("media", "image/png")
        is_address = part.content.startswith(("http://", "https://", "data:"))
        url = part.content if is_address else f"data:{media};base64,{part.content}"
        return {"type": "image_url", "image_url": {"url": url, **_only(part.options, "detail")}}
    # What another provider thought is of no use here.
    return {"type": "file", "file": dict(part.options)} if part.type == "file" else None


def _text(parts: Sequence[ContentPart]) -> str:
    return "".join(part.content for part in parts if part.type == "text")


def _only(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if name in options}


def _tool(function: Function) -> dict[str, Any]:
    told: dict[str, Any] = {"name": function.name, "parameters": function.parameters}
    if function.description:
        told["description"] = function.description
    if function.strict:
        told["strict"] = True
    return {"type": "function", "function": {**told, **function.options.get("openai", {})}}


def _chunk(event: Mapping[str, Any]) -> list[MessageDelta | TokenUsage]:
    chunk: list[MessageDelta | TokenUsage] = []
    for choice in event.get("choices") or ():
        if choice.get("index") in (None, 0):
            chunk += _deltas(choice)
    usage = event.get("usage")
    if usage:
        # Some servers repeat it, growing, in every chunk.
        spent = usage.get("prompt_tokens"), usage.get("completion_tokens")
        chunk.append(TokenUsage(*spent, raw=usage, cumulative=True))
    return chunk


def _deltas(choice: Mapping[str, Any]) -> list[MessageDelta]:
    delta = choice.get("delta") or {}
    deltas = [MessageDelta(text) for member in ("content", "refusal") if (text := delta.get(member))]
    if fragments := delta.get("tool_calls"):
        deltas.append(MessageDelta(tool_calls=tuple(map(_fragment, fragments))))
    if not deltas and delta.get("content") == "":
        deltas.append(MessageDelta(""))
    reason = choice.get("finish_reason")
    if reason:
        status = _STATUSES.get(reason, "complete")
        deltas.append(MessageDelta(status=status, metadata={"finish_reason": reason}))
    return deltas


def _fragment(told: Mapping[str, Any]) -> ToolCall:
    function = told.get("function") or {}
    index = told.get("index")
    return ToolCall(
        index=index if isinstance(index, int) and index >= 0 else Unplaced(),
        call_id=told.get("id") or None,
        name=function.get("name") or None,
        arguments_text=function.get("arguments") or "",
    )


def _broken(error: Exception) -> Failure:
    """Sort what broke a stream that had begun."""
    if isinstance(error, openai.APIConnectionError):
        return transport_failure(error, timeout=isinstance(error, openai.APITimeoutError))
    if is_transport(error):
        return transport_failure(error, timeout=is_timeout(error))
    if isinstance(error, openai.APIError):
        body = error.body if isinstance(error.body, Mapping) else {}
        told = next(
            (body[name] for name in ("code", "type") if isinstance(body.get(name), str)), "server_error"
        )
        return Failure(
            ChainError(told, error.message, error), told in ("server_error", "rate_limit_exceeded")
        )
    return Failure(ChainError("invalid_response", f"The server's stream can't be read: {error}", error))


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    told = body.get("message") if isinstance(body, Mapping) else None
    return told if isinstance(told, str) else error.message
