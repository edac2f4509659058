"""The events of a tool-calling chain: their names, what each is told, and the two forms of a handler.

A handler is a mapping from event names to functions (:class:`ChainCallbacks`) or an instance of a subclass of
:class:`ChainListener`. Functions are plain or ``async``. What they return is dropped, except the verdict of
``on_tool_call_review``. What they raise ends the operation: observing is loud.

In one reply of a model: ``on_llm_response_headers``, ``on_llm_ratelimit_info``, then ``on_llm_new_message`` or
``on_llm_new_delta`` for each piece with ``on_tool_call_identified`` right after the piece that names a call, then
``on_message_processed``, then ``on_llm_token_usage``.

In one batch of tool calls: all reviews, all starts, then of each call ``on_tool_pre_execution``, its body and its
outcome (concurrent calls first, sequential ones one by one, then those that never ran), then
``on_tool_interrupted``, ``on_message_processed`` and ``on_tool_response_created``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from listeners.errors import ChainError, HandlerError

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.function import Function
    from listeners.chain.messages import ContentPart, Message, MessageDelta, TokenUsage, ToolCall, ToolResult
    from listeners.chain.outcome import Outcome
    from listeners.chain.review import Decision, ReviewContext, Verdict

__all__ = ["EVENTS", "ChainCallbacks", "ChainError", "ChainListener", "HandlerError"]


class ChainCallbacks(TypedDict, total=False):
    """A handler as a mapping: an event's name and the function that is told of it; ``None`` is absent.

    :class:`ChainListener` says when each is told.
    """

    on_llm_new_delta: Callable[[LLMChain, Sequence[MessageDelta]], object] | None
    on_llm_new_message: Callable[[LLMChain, Message], object] | None
    on_llm_ratelimit_info: Callable[[LLMChain, Mapping[str, Any]], object] | None
    on_llm_response_headers: Callable[[LLMChain, Mapping[str, Sequence[str]]], object] | None
    on_llm_token_usage: Callable[[LLMChain, TokenUsage], object] | None
    on_llm_error: Callable[[LLMChain, ChainError], object] | None
    on_message_processed: Callable[[LLMChain, Message], object] | None
    on_message_processing_error: Callable[[LLMChain, Message], object] | None
    on_error_message_created: Callable[[LLMChain, Message], object] | None
    on_tool_call_identified: Callable[[LLMChain, ToolCall, Function], object] | None
    on_tool_call_review: (
        Callable[[LLMChain, ToolCall, Function, ReviewContext], Verdict | Awaitable[Verdict]] | None
    )
    on_tool_execution_started: Callable[[LLMChain, ToolCall, Function], object] | None
    on_tool_pre_execution: Callable[[LLMChain, ToolCall, Function], object] | None
    on_tool_execution_completed: Callable[[LLMChain, ToolCall, ToolResult], object] | None
    on_tool_execution_failed: Callable[[LLMChain, ToolCall, str | Sequence[ContentPart]], object] | None
    on_tool_execution_exception: Callable[[LLMChain, ToolCall, Exception, TracebackType], object] | None
    on_tool_interrupted: Callable[[LLMChain, Sequence[ToolResult]], object] | None
    on_tool_response_created: Callable[[LLMChain, Message], object] | None
    on_retries_exceeded: Callable[[LLMChain], object] | None
    on_error: Callable[[LLMChain, ChainError], object] | None
    on_run_started: Callable[[LLMChain], object] | None
    on_run_ended: Callable[[LLMChain, Outcome], object] | None
    on_tool_call_reviewed: Callable[[LLMChain, ToolCall, Function, Verdict], object] | None
    on_tool_decision: Callable[[LLMChain, ToolCall, Decision], object] | None


class ChainListener:
    """A handler as an object: override what you need, plain or ``async``; only overridden methods are called.

    ``chain`` is the chain that tells. Every other value is frozen, and the arguments of a call are the handler's own
    copy. The call that an outcome event is told of has its ``result`` set.
    """

    def on_llm_new_delta(self, chain: LLMChain, deltas: Sequence[MessageDelta], /) -> object:
        """Told of each network chunk of a streamed reply, as it is read; named calls in it have their display text."""

    def on_llm_new_message(self, chain: LLMChain, message: Message, /) -> object:
        """Told of each whole message of a model that doesn't stream, as it came."""

    def on_llm_ratelimit_info(self, chain: LLMChain, info: Mapping[str, Any], /) -> object:
        """Told what a response says about rate limits, whatever its status and before anything of the reply."""

    def on_llm_response_headers(self, chain: LLMChain, headers: Mapping[str, Sequence[str]], /) -> object:
        """Told of each response's headers, right before the rate limits: names in lower case, lists of values."""

    def on_llm_token_usage(self, chain: LLMChain, usage: TokenUsage, /) -> object:
        """Told once per assistant message whose usage is known, right after ``on_message_processed``."""

    def on_llm_error(self, chain: LLMChain, error: ChainError, /) -> object:
        """Told of every failed attempt to get a reply, those that are repeated or go on to another model too."""

    def on_message_processed(self, chain: LLMChain, message: Message, /) -> object:
        """Told of each assistant message that all processors accepted, and of each tool message; the chain has it."""

    def on_message_processing_error(self, chain: LLMChain, message: Message, /) -> object:
        """Told of an assistant message that a processor rejected, in the state it had reached."""

    def on_error_message_created(self, chain: LLMChain, message: Message, /) -> object:
        """Told of the user message that says to the model why its message was rejected."""

    def on_tool_call_identified(self, chain: LLMChain, call: ToolCall, function: Function, /) -> object:
        """Told once per call, as soon as its tool is known: the arguments and the id may still be on their way."""

    def on_tool_call_review(
        self, chain: LLMChain, call: ToolCall, function: Function, review: ReviewContext, /
    ) -> Verdict | Awaitable[Verdict]:
        """Asked before anything of the batch runs; returns ``Allow()``, ``UpdateArguments(…)``, ``Deny(…)`` or
        ``Interrupt(…)``. Anything else, ``None`` included, ends the operation: silence is not consent."""
        raise NotImplementedError  # pragma: no cover  # only overridden methods are called

    def on_tool_execution_started(self, chain: LLMChain, call: ToolCall, function: Function, /) -> object:
        """Told of each call that is going to run, after all reviews, with the arguments they have left it."""

    def on_tool_pre_execution(self, chain: LLMChain, call: ToolCall, function: Function, /) -> object:
        """Told right before a body, in its task: a context variable set here is seen by the body and nobody else."""

    def on_tool_execution_completed(self, chain: LLMChain, call: ToolCall, result: ToolResult, /) -> object:
        """Told when a call has come to a result that is neither an error nor an interrupt."""

    def on_tool_execution_failed(
        self, chain: LLMChain, call: ToolCall, error: str | Sequence[ContentPart], /
    ) -> object:
        """Told of a call that failed (the parts of its result), or was denied, rejected or unknown (the text)."""

    def on_tool_execution_exception(
        self, chain: LLMChain, call: ToolCall, exception: Exception, traceback: TracebackType, /
    ) -> object:
        """Told after ``on_tool_execution_failed`` if the body, or ``parse_args``, raised."""

    def on_tool_interrupted(self, chain: LLMChain, results: Sequence[ToolResult], /) -> object:
        """Told once per batch of all calls that are held, after the outcomes; the tool message isn't there yet."""

    def on_tool_response_created(self, chain: LLMChain, message: Message, /) -> object:
        """Told last in a batch: the tool message, with one result for each call in call order."""

    def on_retries_exceeded(self, chain: LLMChain, /) -> object:
        """Told when the failure counter keeps the model from being asked again."""

    def on_error(self, chain: LLMChain, error: ChainError, /) -> object:
        """Told once of a run that ends in an error."""

    def on_run_started(self, chain: LLMChain, /) -> object:
        """Told when a run begins, first of all. Not of a resumed one."""

    def on_run_ended(self, chain: LLMChain, outcome: Outcome, /) -> object:
        """Told when a run has ended, last of all, also when it was cancelled."""

    def on_tool_call_reviewed(
        self, chain: LLMChain, call: ToolCall, function: Function, verdict: Verdict, /
    ) -> object:
        """Told what the review of a call came to, after all reviews of the batch and before anything starts."""

    def on_tool_decision(self, chain: LLMChain, call: ToolCall, decision: Decision, /) -> object:
        """Told of a person's decision about a held call, before it is acted on."""


def _events() -> dict[str, tuple[str, ...]]:
    methods = [(name, method) for name, method in vars(ChainListener).items() if name.startswith("on_")]
    return {name: tuple(inspect.signature(method).parameters)[1:] for name, method in methods}


EVENTS: Final[Mapping[str, tuple[str, ...]]] = _events()
"""Every event's name, and the names of its arguments."""
