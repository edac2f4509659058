"""``RedisListener``: what happens to tools, published as the events of a run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import TracebackType
from typing import Any

from listeners.chain.function import Function
from listeners.chain.messages import ContentPart, ToolCall, ToolResult, Unplaced
from listeners.contract.events import FailureReason
from listeners.publishing.call import Call
from listeners.publishing.composer import Composer
from listeners.publishing.current import current_run
from listeners.publishing.hints import harmless, hint_at_run
from listeners.publishing.publisher import RunPublisher
from listeners.publishing.titles import Title
from listeners.tool_listener import ToolCallListener
from listeners.wrapped_calls import WrappedCalls

__all__ = ["RedisListener"]


class RedisListener:
    """Publishes a run's tool calls: those of wrapped tools (``wrap_all(tools, RedisListener())``) and of a chain.

    ``run``: where to, ``None`` for the current run; without one nothing is published, which is said once at debug
    level. ``titles``: by a tool's name, what to show for its calls, before all other titles. Never raises, never
    blocks.
    """

    def __init__(self, run: RunPublisher | None = None, *, titles: Mapping[str, Title] | None = None) -> None:
        self._run = run
        self._titles = dict(titles or {})
        self._wrapped_calls = WrappedCalls(self._composer, self._titles)

    @property
    def tool_listener(self) -> ToolCallListener:
        """The listener to wrap tools with; ``wrap`` takes it from here."""
        return self._wrapped_calls

    # --- A chain's callbacks ---

    @harmless
    def on_run_started(self, chain: object, /) -> None:
        """Begin the run, unless a block of its publisher has, or the chain is one inside a tool."""
        run = self._current()
        if run is not None and not run.in_block and not run.composer.nested:
            run.publish("run_started")

    @harmless
    def on_run_ended(self, chain: object, outcome: Any, /) -> None:
        """End the run as the chain did, or leave that to its publisher's block; close the calls that won't run."""
        run = self._current()
        if run is None:
            return
        run.composer.cancel_identified()
        if run.composer.nested:
            return
        failure = None
        if outcome.status == "error":
            failure = run.composer.policy.run_failure(outcome.error, getattr(outcome.error, "type", None))
        run.failure = failure
        if outcome.status == "interrupted":
            run.interrupt([_interrupt(run.composer, chain, held) for held in outcome.interrupts])
        elif run.in_block or outcome.status == "paused":
            return
        elif failure is not None:
            run.fail(**failure)
        elif outcome.status == "cancelled":
            run.cancel()
        else:
            run.complete()

    @harmless
    def on_tool_call_identified(self, chain: object, call: ToolCall, function: Function, /) -> None:
        """The model calls a tool, whose arguments may not have arrived yet."""
        composer = self._composer()
        if composer is not None:
            composer.identify(
                call.name or function.name,
                id=call.call_id,
                index=None if isinstance(call.index, Unplaced) else call.index,
                title=self._title(call, function),
                arguments=call.arguments or None,
                handle=_handle(chain, call.key or call.call_id),
                key=call.key or None,
            )

    @harmless
    def on_tool_execution_started(self, chain: object, call: ToolCall, function: Function, /) -> None:
        """A tool runs, with the arguments that review has left."""
        composer = self._composer()
        if composer is not None:
            self._taken(composer, chain, call, title=self._title(call, function)).start()

    @harmless
    def on_tool_execution_completed(self, chain: object, call: ToolCall, result: ToolResult, /) -> None:
        """A tool has returned: its native value is published, or else its text."""
        composer = self._composer()
        if composer is not None:
            value = result.processed_content
            self._told(composer, chain, call).complete(_text(result.content) if value is None else value)

    @harmless
    def on_tool_execution_failed(
        self, chain: object, call: ToolCall, error: str | Sequence[ContentPart], /
    ) -> None:
        """A tool has failed, was denied or rejected, or doesn't exist; ``error`` is what the model is told."""
        composer = self._composer()
        if composer is not None:
            text = _text(error)
            data = composer.policy.failure(text, _reason(call))
            composer.publish("tool_execution_failed", self._told(composer, chain, call), data)

    @harmless
    def on_tool_execution_exception(
        self, chain: object, call: ToolCall, exception: Exception, traceback: TracebackType, /
    ) -> None:
        """What a tool raised, after it has failed: published only by who wants exceptions exposed."""
        composer = self._composer()
        if composer is not None and composer.policy.lets_out("tool_execution_exception"):
            data = composer.policy.exception(exception, traceback)
            composer.publish("tool_execution_exception", self._told(composer, chain, call), data)

    @harmless
    def on_tool_interrupted(self, chain: object, results: Sequence[ToolResult], /) -> None:
        """Calls are held until a person answers: one event for each."""
        composer = self._composer()
        if composer is None:
            return
        for result in results:
            id = result.tool_call_id
            call = composer.find(_handle(chain, id), id)
            if call is None:
                call = composer.take(result.name or "", id=id or None, arguments=None, title=None)
            data = {
                "message": _text(result.content),
                "arguments": call.arguments or {},
                "interrupt": result.interrupt_data,
            }
            composer.publish("tool_interrupted", call, data)

    # --- Whose, and which ---

    def _current(self) -> RunPublisher | None:
        run = self._run or current_run.get()
        if run is None:
            hint_at_run()
        return run

    def _composer(self) -> Composer | None:
        run = self._current()
        return None if run is None else run.composer

    def _title(self, call: ToolCall, function: Function) -> Title | None:
        return self._titles.get(call.name or function.name) or function.display_text or call.display_text

    def _told(self, composer: Composer, chain: object, call: ToolCall) -> Call:
        """Return the call that an outcome is of; a new one, if nothing of it was told before."""
        known = composer.find(*_handles(chain, call))
        return known or self._taken(composer, chain, call, title=self._titles.get(call.name or ""))

    def _taken(self, composer: Composer, chain: object, call: ToolCall, *, title: Title | None) -> Call:
        return composer.take(
            call.name or "",
            id=call.call_id,
            arguments=call.arguments,
            title=title,
            handles=_handles(chain, call),
            key=call.key or None,
        )


def _handles(chain: object, call: ToolCall) -> tuple[Hashable, ...]:
    """Return by what a call may be known: in its own chain first, since two chains of a run may count alike."""
    own = (_handle(chain, call.key), _handle(chain, call.call_id))
    return tuple(handle for handle in (*own, call.key, call.call_id) if handle)


def _handle(chain: object, name: str | None) -> Hashable:
    return (id(chain), name) if name else None


def _interrupt(composer: Composer, chain: object, held: Any) -> dict[str, Any]:
    call = composer.find(_handle(chain, held.tool_call_id), held.tool_call_id)
    key = call.key if call is not None else held.tool_call_id
    return {"key": key, "message": held.message, "data": dict(held.data)}


def _reason(call: ToolCall) -> FailureReason:
    if call.result is not None and call.result.reason is not None:
        return call.result.reason
    # A chain says the reason. Without one the text may be anything, an exception's included, so it stays here.
    return "exception"


def _text(content: str | Sequence[ContentPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.content for part in content if part.type == "text")
