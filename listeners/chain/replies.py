"""One request to a model: its reply read as it comes, told piece by piece, and what may go wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from listeners.chain.deltas import MergedDelta, Merging, cut_off
from listeners.chain.function import Function
from listeners.chain.messages import DeltaStatus, InvalidCall, Message, MessageDelta, TokenUsage
from listeners.chain.models.base import ChatModel, ModelHooks
from listeners.chain.telling import Telling
from listeners.errors import ChainError
from listeners.texts import repr_of, text_of

__all__ = ["Reply", "request"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered: a message, or an error and the text that had arrived before it."""

    message: Message | None = None
    error: ChainError | None = None
    partial: Message | None = None


async def request(
    model: ChatModel,
    messages: Sequence[Message],
    tools: Mapping[str, Function],
    *,
    telling: Telling,
    merging: Merging,
    show: Callable[[MergedDelta], None],
) -> Reply:
    """Ask ``model`` once. ``show`` is given what has arrived, piece by piece.

    Tells of messages, deltas and identified calls. Raises what a handler raised, with the stream closed.
    """
    reading = _Reading(telling, merging, show)
    cancelling = _cancelling()
    try:
        stream = model.stream(messages, tuple(tools.values()), ModelHooks(telling.tell))
        try:
            async for item in stream:
                # A handler may have raised inside the model, which went on.
                telling.check()
                await reading.take(item)
        except BaseException:
            # What closing raises may not take the place of a cancellation, nor of the error that it follows from.
            with contextlib.suppress(Exception):
                await _close(stream)
            raise
        await _close(stream)
        telling.check()
        return reading.reply()
    except Exception as error:
        if _cancelling() > cancelling:
            # A model, or its SDK, has made an exception of the cancellation.
            raise asyncio.CancelledError from error
        telling.check()
        if not isinstance(error, ChainError):
            error = ChainError("unknown_error", text_of(error) or type(error).__name__, error)
        return reading.failed(error)


class _Reading:
    def __init__(self, telling: Telling, merging: Merging, show: Callable[[MergedDelta], None]) -> None:
        self._telling = telling
        self._merging = merging
        self._show = show
        self._message: Message | None = None
        self._streamed = False

    async def take(self, item: object) -> None:
        if isinstance(item, Message):
            if self._streamed or item.role != "assistant":
                raise _unexpected(item)
            await self._telling.tell("on_llm_new_message", item)
            self._message = self._message or item
            return
        if self._message is not None or not isinstance(item, Sequence) or isinstance(item, str | bytes):
            raise _unexpected(item)
        told, identified = [], []
        for piece in item:
            if isinstance(piece, TokenUsage):
                self._merging.add_usage(piece)
            elif isinstance(piece, MessageDelta):
                delta, found = self._merging.merge(piece)
                told.append(delta)
                identified += found
            else:
                raise _unexpected(piece)
        if not told:
            return
        self._streamed = True
        # The handlers of the delta see the chain as it was before it.
        await self._telling.tell("on_llm_new_delta", told)
        self._show(self._merging.merged)
        for call, function in identified:
            await self._telling.tell("on_tool_call_identified", call, function)

    def reply(self) -> Reply:
        if self._message is not None:
            if self._message.status == "length" and self._message.tool_calls:
                return self.failed(_truncated())
            return Reply(self._message)
        merged = self._merging.merged
        if not self._streamed:
            raise ChainError("empty_response", "The model answered nothing")
        if merged.status == "incomplete":
            raise ChainError("incomplete_response", "The model's reply ended in the middle")
        if merged.status == "length" and merged.tool_calls:
            raise _truncated()
        try:
            return Reply(merged.to_message())
        except InvalidCall as error:
            raise ChainError("delta_conversion_failed", str(error), error) from error

    def failed(self, error: ChainError) -> Reply:
        merged = self._merging.merged
        if self._message is not None:
            whole = self._message
            status: DeltaStatus = "length" if whole.status == "length" else "complete"
            merged = MergedDelta(content=whole.content, status=status)
        return Reply(error=error, partial=cut_off(merged, error))


def _truncated() -> ChainError:
    return ChainError(
        "response_truncated", "The model's reply was cut off at its length limit inside a tool call"
    )


def _unexpected(item: object) -> ChainError:
    return ChainError(
        "unexpected_response", f"The model answered something that is no reply: {repr_of(item)}"
    )


def _cancelling() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _close(stream: AsyncIterator[Any]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
