"""``RedisListener``: what happens to tools, published as the events of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from listeners.argument_pieces import ArgumentPieces
from listeners.callbacks import ChainListener
from listeners.chain.messages import ContentPart, Message, MessageDelta, TokenUsage, ToolCall, ToolResult
from listeners.chain.review import (
    Approve,
    Decision,
    Deny,
    Edit,
    HeldCall,
    Interrupt,
    UpdateArguments,
    Verdict,
)
from listeners.chain_calls import ChainCalls
from listeners.contract.events import FailureReason
from listeners.errors import ChainError
from listeners.publishing.composer import Composer
from listeners.publishing.current import current_call, current_run
from listeners.publishing.hints import harmless, hint_at_run
from listeners.publishing.publisher import RunPublisher
from listeners.publishing.titles import Title
from listeners.tool_listener import ToolCallListener
from listeners.wrapped_calls import WrappedCalls

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.function import Function
    from listeners.chain.outcome import Outcome

__all__ = ["RedisListener"]


class RedisListener(ChainListener):
    """Publishes a run's tool calls: those of wrapped tools (``wrap_all(tools, RedisListener())``) and of a chain
    (``LLMChain(…, callbacks=[RedisListener()])``).

    ``run``: where to, ``None`` for the current run; without one nothing is published, which is said once at debug
    level. ``titles``: by a tool's name, what to show for its calls, before all other titles. Never raises, never
    blocks.
    """

    def __init__(self, run: RunPublisher | None = None, *, titles: Mapping[str, Title] | None = None) -> None:
        self._run = run
        self._titles = dict(titles or {})
        self._calls = ChainCalls()
        self._pieces = ArgumentPieces()
        self._wrapped_calls = WrappedCalls(self._composer, self._titles)

    @property
    def tool_listener(self) -> ToolCallListener:
        """The listener to wrap tools with; ``wrap`` takes it from here."""
        return self._wrapped_calls

    # --- The run ---

    @harmless
    def on_run_started(self, chain: LLMChain, /) -> None:
        """Begin the run, unless a block of its publisher has, or the chain is one inside a tool."""
        run = self._current()
        if run is not None and not run.in_block and not run.composer.nested:
            run.publish("run_started")

    @harmless
    def on_run_ended(self, chain: LLMChain, outcome: Outcome, /) -> None:
        """End the run as the chain did (``on_error``'s error included), or leave that to its publisher's block; close
        the calls that are open, since nobody will tell more of them."""
        run = self._current()
        if run is None:
            return
        if outcome.status != "paused":
            self._close(run.composer, chain)
        self._calls.forget_ended(chain)
        if run.composer.nested:
            return
        error = outcome.error if outcome.status == "error" else None
        run.failure = None if error is None else run.composer.policy.run_failure(error, error.type)
        if outcome.status == "interrupted":
            run.interrupt([self._interrupt(run.composer, chain, held) for held in outcome.interrupts])
        elif run.in_block or outcome.status == "paused":
            return
        elif run.failure is not None:
            run.fail(**run.failure)
        elif outcome.status == "cancelled":
            run.cancel()
        else:
            run.complete()

    @harmless
    def on_retries_exceeded(self, chain: LLMChain, /) -> None:
        """Too many failures in a row."""
        self._publish("retries_exceeded", {})

    # --- The model ---

    @harmless
    def on_llm_new_delta(self, chain: LLMChain, deltas: Sequence[MessageDelta], /) -> None:
        """More of a reply: its text, and pieces of arguments."""
        composer = self._composer("llm_new_delta")
        if composer is None:
            return
        texts = [_text([part]) for delta in deltas for part in [delta.content] if part is not None]
        composer.publish("llm_new_delta", data={"text": "".join(texts) or None})
        self._tell_pieces(composer, chain, self._pieces.take(chain, deltas, composer.policy))

    @harmless
    def on_llm_new_message(self, chain: LLMChain, message: Message, /) -> None:
        """A whole reply, as it came."""
        self._publish_message("llm_new_message", message)

    @harmless
    def on_llm_ratelimit_info(self, chain: LLMChain, info: Mapping[str, Any], /) -> None:
        """What a provider says about its limits."""
        self._publish("llm_ratelimit_info", {"info": dict(info)})

    @harmless
    def on_llm_token_usage(self, chain: LLMChain, usage: TokenUsage, /) -> None:
        """What a reply has cost."""
        data = {"input": usage.input, "output": usage.output, "total": usage.total}
        self._publish("llm_token_usage", data)

    @harmless
    def on_llm_error(self, chain: LLMChain, error: ChainError, /) -> None:
        """An attempt to get a reply has failed; the calls it had named will not run."""
        composer = self._composer()
        if composer is not None:
            composer.publish("llm_error", data=composer.policy.run_failure(error, error.type))
            self._close(composer, chain)

    @harmless
    def on_message_processed(self, chain: LLMChain, message: Message, /) -> None:
        """A message that the chain keeps."""
        self._publish_message("message_processed", message)

    @harmless
    def on_message_processing_error(self, chain: LLMChain, message: Message, /) -> None:
        """A reply was rejected; the calls it had named will not run."""
        self._publish_message("message_processing_error", message)
        composer = self._composer()
        if composer is not None:
            self._close(composer, chain)

    @harmless
    def on_error_message_created(self, chain: LLMChain, message: Message, /) -> None:
        """What the model is told of its rejected reply; the text may be an exception's."""
        self._publish_message("error_message_created", message)

    # --- Tool calls ---

    @harmless
    def on_tool_call_identified(self, chain: LLMChain, call: ToolCall, function: Function, /) -> None:
        """The model calls a tool, whose arguments may not have arrived yet."""
        composer = self._composer()
        if composer is None:
            return
        name = call.name or function.name
        self._calls.identify(composer, chain, call, name, self._title(call, function))
        if composer.policy.lets_out("tool_call_arguments"):
            self._tell_pieces(composer, chain, self._pieces.new(chain, composer.policy))

    @harmless
    def on_tool_call_reviewed(
        self, chain: LLMChain, call: ToolCall, function: Function, verdict: Verdict, /
    ) -> None:
        """What the review of a call came to, and the arguments it has left."""
        composer = self._composer()
        if composer is None:
            return
        told = self._calls.told(composer, chain, call, self._title(call, function))
        told.arguments = call.arguments
        data: dict[str, Any] = {"outcome": "allowed"}
        match verdict:
            case UpdateArguments():
                data = {"outcome": "updated"}
            case Deny(reason):
                data = {"outcome": "denied", "reason": reason}
            case Interrupt():
                data = {"outcome": "interrupted"}
        composer.publish("tool_call_review", told, data)

    @harmless
    def on_tool_execution_started(self, chain: LLMChain, call: ToolCall, function: Function, /) -> None:
        """A tool runs, with the arguments that review has left."""
        composer = self._composer()
        if composer is not None:
            self._calls.take(composer, chain, call, self._title(call, function)).start()

    @harmless
    def on_tool_pre_execution(self, chain: LLMChain, call: ToolCall, function: Function, /) -> None:
        """Make the call the current one for its body, which runs in this context."""
        composer = self._composer()
        if composer is None:
            return
        told = self._calls.told(composer, chain, call, self._title(call, function))
        told.unclaimed = told.yields_told = True
        told.body = getattr(function.function, "__name__", None)
        current_call.set(told)
        composer.publish("tool_pre_execution", told)

    @harmless
    def on_tool_execution_completed(self, chain: LLMChain, call: ToolCall, result: ToolResult, /) -> None:
        """A tool has returned: its native value is published, or else its text."""
        composer = self._composer()
        if composer is not None:
            value = result.processed_content
            told = self._calls.told(composer, chain, call, self._title(call))
            told.complete(_text(result.content) if value is None else value)

    @harmless
    def on_tool_execution_failed(
        self, chain: LLMChain, call: ToolCall, error: str | Sequence[ContentPart], /
    ) -> None:
        """A tool has failed, was denied or rejected, or doesn't exist; ``error`` is what the model is told."""
        composer = self._composer()
        if composer is not None:
            told = self._calls.told(composer, chain, call, self._title(call))
            data = composer.policy.failure(_text(error), _reason(call))
            composer.publish("tool_execution_failed", told, data)

    @harmless
    def on_tool_execution_exception(
        self, chain: LLMChain, call: ToolCall, exception: Exception, traceback: TracebackType, /
    ) -> None:
        """What a tool raised, after it has failed: published only by who wants exceptions exposed."""
        composer = self._composer("tool_execution_exception")
        if composer is not None:
            told = self._calls.told(composer, chain, call, self._title(call))
            data = composer.policy.exception(exception, traceback)
            composer.publish("tool_execution_exception", told, data)

    @harmless
    def on_tool_interrupted(self, chain: LLMChain, results: Sequence[ToolResult], /) -> None:
        """Calls are held until a person answers: one event for each, with the arguments that would be used."""
        composer = self._composer()
        if composer is None:
            return
        for result in results:
            id = result.tool_call_id
            call = chain.find_call(id) or ToolCall(call_id=id or None, name=result.name)
            told = self._calls.told(composer, chain, call, self._title(call))
            data = {
                "message": _text(result.content),
                "arguments": told.arguments or call.arguments,
                "interrupt": result.interrupt_data,
            }
            composer.publish("tool_interrupted", told, data)

    @harmless
    def on_tool_decision(self, chain: LLMChain, call: ToolCall, decision: Decision, /) -> None:
        """A person has answered: the run goes on."""
        run = self._current()
        if run is None:
            return
        if run.state.status == "interrupted" and not run.composer.nested:
            run.publish("run_resumed")
        told = self._calls.told(run.composer, chain, call, self._title(call))
        data: dict[str, Any] = {"decision": "approve" if isinstance(decision, Approve) else "reject"}
        if isinstance(decision, Edit):
            data = {"decision": "edit", "arguments": dict(decision.arguments)}
            told.arguments = dict(decision.arguments)
        run.composer.publish("tool_decision", told, data)

    @harmless
    def on_tool_response_created(self, chain: LLMChain, message: Message, /) -> None:
        """All calls of a batch are told of."""
        self._calls.forget_ended(chain)
        self._publish("tool_response_created", {"results": _results(message)})

    # --- Whose, and which ---

    def _current(self) -> RunPublisher | None:
        run = self._run or current_run.get()
        if run is None:
            hint_at_run()
        return run

    def _composer(self, type: str | None = None) -> Composer | None:
        """Return what makes the run's events; ``None`` if none of ``type`` leave."""
        run = self._current()
        if run is None or (type is not None and not run.composer.policy.lets_out(type)):
            return None
        return run.composer

    def _publish(self, type: str, data: Mapping[str, Any]) -> None:
        composer = self._composer(type)
        if composer is not None:
            composer.publish(type, data=data)

    def _publish_message(self, type: str, message: Message) -> None:
        composer = self._composer(type)
        if composer is None:
            return
        # The text for a rejected reply may be an exception's. What calls were given and came to, their events say.
        text = message.text if type != "error_message_created" or composer.policy.tells_errors else ""
        calls = [{"key": call.key, "id": call.call_id, "name": call.name} for call in message.tool_calls]
        told = {"role": message.role, "status": message.status, "text": text, "calls": calls}
        told["results"] = _results(message)
        composer.publish(type, data={"message": {name: value for name, value in told.items() if value}})

    def _tell_pieces(self, composer: Composer, chain: LLMChain, pieces: Any) -> None:
        for key, text, offset in pieces:
            call = self._calls.find(composer, chain, key)
            if call is not None:
                composer.publish("tool_call_arguments", call, {"delta": text, "offset": offset})

    def _close(self, composer: Composer, chain: LLMChain) -> None:
        for call in self._calls.open(composer, chain):
            call.cancel("the call was not run" if call.stage == "identified" else "the call was cancelled")

    def _title(self, call: ToolCall, function: Function | None = None) -> Title | None:
        own = None if function is None else function.display_text or call.display_text
        return self._titles.get(call.name or "") or own

    def _interrupt(self, composer: Composer, chain: LLMChain, held: HeldCall) -> dict[str, Any]:
        call = self._calls.told(composer, chain, held.call, None)
        return {"key": call.key, "message": held.message, "data": dict(held.data)}


def _results(message: Message) -> list[dict[str, Any]]:
    return [
        {
            "id": result.tool_call_id,
            "name": result.name,
            "is_error": result.is_error,
            "is_interrupt": result.is_interrupt,
        }
        for result in message.tool_results
    ]


def _reason(call: ToolCall) -> FailureReason:
    if call.result is not None and call.result.reason is not None:
        return call.result.reason
    # A chain says the reason. Without one the text may be anything, an exception's included, so it stays here.
    return "exception"


def _text(content: str | Sequence[str | ContentPart]) -> str:
    if isinstance(content, str):
        return content
    texts = (part if isinstance(part, str) else part.content for part in content if _is_text(part))
    return "\n".join(texts)


def _is_text(part: str | ContentPart) -> bool:
    return isinstance(part, str) or part.type == "text"
