"""One run of a chain: attempts with its models, and one end for everything that may happen meanwhile."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from listeners.chain import modes
from listeners.chain.conversation import State
from listeners.chain.execution import current_task, is_closing, noted
from listeners.chain.messages import Message, TokenUsage, ToolResult
from listeners.chain.options import DEFAULT_RUNS, RunOptions
from listeners.chain.outcome import Outcome, Status
from listeners.chain.processors import Halt
from listeners.chain.replies import request
from listeners.errors import ChainError
from listeners.texts import repr_of, text_of

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.models.base import ChatModel

__all__ = ["Mode", "Run"]

Mode = Callable[["LLMChain"], Awaitable[Outcome]]

_log = logging.getLogger("listeners")


class Run:
    """The run that a chain is in. ``resumed``: it goes on after a person decided."""

    def __init__(self, chain: LLMChain, options: RunOptions, *, resumed: bool = False) -> None:
        self._chain = chain
        self._options = options
        self.resumed = resumed
        self._conversation = chain._conversation
        self._telling = chain._telling
        self._model_calls = 0
        self._usage = TokenUsage()
        self._end_told = 0
        self._task: object = None
        self._partial: tuple[ChainError, Message] | None = None
        # A custom mode bounds itself by `check_max_runs`, unless it was told a bound.
        default = None if callable(options.get("mode")) else DEFAULT_RUNS
        self._max_runs = options.get("max_runs", default)

    # --- What steps are made of ---

    @property
    def has_pending(self) -> bool:
        """Whether the last message has calls that nobody has answered."""
        return bool(self._conversation.pending)

    def outcome(
        self, status: Status, *, error: ChainError | None = None, tool_result: ToolResult | None = None
    ) -> Outcome:
        """Return how the run ends, with the chain as it is."""
        return Outcome(
            status=status,
            chain=self._chain,
            llm=self._chain.llm,
            error=error,
            usage=self._usage,
            interrupts=self._conversation.held() if status == "interrupted" else (),
            tool_result=tool_result,
            exchanged_messages=self._conversation.exchanged,
            answer=self._conversation.answer,
        )

    def failed(self, error: ChainError) -> Outcome:
        """Return that the run ends in ``error``."""
        return self.outcome("error", error=error)

    def check_held(self) -> Outcome | None:
        """End as interrupted if calls are held."""
        return self.outcome("interrupted") if self._conversation.held() else None

    def check_max_runs(self, limit: int | None) -> Outcome | None:
        """End in an error if the model was asked ``limit`` times."""
        count = self._model_calls
        if limit is None or count < limit:
            return None
        text = f"Exceeded maximum number of runs ({count}/{limit})"
        return self.failed(ChainError("exceeded_max_runs", text))

    async def check_failures(self) -> Outcome | None:
        """End in an error if the failure counter has reached its limit."""
        if self._conversation.failure_count < self._chain.max_retry_count:
            return None
        await self._telling.tell("on_retries_exceeded")
        last = self._conversation.last_failure
        return self.failed(ChainError("exceeded_failure_count", "Exceeded max failure count", last))

    async def execute_tools(self) -> None:
        """Execute the calls that nobody has answered."""
        await self._chain._execute_pending(self._chain.custom_context)

    async def call_llm(self) -> Outcome | None:
        """Ask the model and take in its reply."""
        while True:
            self._partial = None
            over = await self.check_failures() or self.check_max_runs(self._max_runs)
            if over is not None:
                return over
            self._model_calls += 1
            reply = await request(
                self._chain.llm,
                self._conversation.for_model,
                self._chain._tools,
                telling=self._telling,
                merging=self._chain._begin_delta(),
                show=self._chain._show_delta,
            )
            self._chain._end_delta()
            if reply.message is not None:
                await self._take_in(reply.message)
                return None
            error = reply.error or ChainError("empty_response", "The model answered nothing")
            await self._telling.tell("on_llm_error", error)
            if error.type != "delta_conversion_failed":
                if reply.partial is not None:
                    self._partial = error, reply.partial
                return self.failed(error)
            self._conversation.failed(error)
            if self._conversation.failure_count >= self._chain.max_retry_count:
                await self._telling.tell("on_retries_exceeded")
                return self.failed(error)

    async def _take_in(self, message: Message) -> None:
        message, identified = self._conversation.prepared(message)
        for call, function in identified:
            await self._telling.tell("on_tool_call_identified", call, function)
        processed = await self._processed(message)
        if isinstance(processed, Message):
            # A processor may have made calls of its own.
            processed, identified = self._conversation.prepared(processed)
            for call, function in identified:
                await self._telling.tell("on_tool_call_identified", call, function)
            self._conversation.accept(processed)
            await self._telling.tell("on_message_processed", processed)
            if processed.usage is not None:
                self._usage = self._usage.add(replace(processed.usage, cumulative=False))
                await self._telling.tell("on_llm_token_usage", processed.usage)
            return
        unfinished, answer, failure = processed
        rejected, _ = self._conversation.prepared(unfinished)
        self._conversation.add(rejected)
        self._conversation.answer_unrun("Tool call made to {name} was not run: its message was rejected.")
        self._conversation.add(answer)
        self._conversation.failed(failure)
        await self._telling.tell("on_message_processing_error", rejected)
        await self._telling.tell("on_error_message_created", answer)

    async def _processed(self, message: Message) -> Message | tuple[Message, Message, Exception]:
        """Return the message as the processors left it, or: as it was rejected, the answer, and why."""
        if self._chain._processors:
            message = replace(message, processed_content=message.text)
        for processor in self._chain._processors:
            try:
                made: object = processor(self._chain, message)
                if inspect.isawaitable(made):
                    made = await made
                if not isinstance(made, Halt) and not (
                    isinstance(made, Message) and made.role == "assistant"
                ):
                    raise TypeError(
                        f"the processor returned {repr_of(made)}, not an assistant Message or a Halt"
                    )
            except Exception as error:
                text = f"ERROR: An exception was raised! Exception: {repr_of(error, None)}"
                return message, Message.user(text), error
            if isinstance(made, Halt):
                return message, made.message, ChainError("message_rejected", made.message.text)
            message = made
        return message

    # --- The run as a whole ---

    async def perform(self, begin: Callable[[], Awaitable[Outcome | None]]) -> Outcome:
        """Do ``begin``, then what the options say; tells how it ended, and leaves a valid transcript behind."""
        conversation, start = self._conversation, self._conversation.state()
        configured = self._chain.llm
        self._task = current_task()
        try:
            try:
                outcome = await begin() or await self._attempts()
                self._telling.check()
            except Exception as error:
                outcome = self.failed(self._telling.raised or _wrapped(error))
            outcome = self._closed(outcome, start)
            if outcome.error is not None:
                await self._tell_error(outcome, start)
            await self._tell_end(outcome)
            return outcome
        except BaseException as interruption:
            if not isinstance(interruption, Exception) and not is_closing(interruption, self._task):
                await self._interrupted(interruption)
            raise
        finally:
            self._chain._end_delta()
            self._chain._llm = configured
            if conversation.held():
                self._chain._interrupted_options = self._options

    async def _tell_error(self, outcome: Outcome, start: State) -> None:
        try:
            await self._telling.tell("on_error", outcome.error)
        except ChainError as error:
            self._roll_back(start)
            with contextlib.suppress(ChainError):  # a note on the first by now
                await self._tell_end(outcome)
            raise error from error.original

    async def _tell_end(self, outcome: Outcome) -> None:
        for handler in self._telling.handlers.of("on_run_ended")[self._end_told :]:
            # A run that is cancelled meanwhile has ended once for each handler.
            self._end_told += 1
            await self._telling.ask(handler, "on_run_ended", outcome)

    def _closed(self, outcome: Outcome, start: State) -> Outcome:
        """Return the outcome as it is told: after a failure the conversation has an answer for each call."""
        error = outcome.error
        if outcome.status == "error" and error is not None:
            self._keep_partial(error)
            self._conversation.answer_unrun("Tool call '{name}' was cancelled.")
            if self._telling.raised is not None:
                self._roll_back(start)
        return replace(
            outcome,
            chain=self._chain,
            llm=self._chain.llm,
            usage=self._usage,
            exchanged_messages=self._conversation.exchanged,
            answer=self._conversation.answer,
        )

    def _roll_back(self, start: State) -> None:
        self._conversation.restore(start, exchanged=False)

    def _keep_partial(self, error: ChainError) -> None:
        if self._partial is not None and self._partial[0] in (error, error.original):
            self._conversation.add(self._partial[1])

    async def _interrupted(self, interruption: BaseException) -> None:
        """The run was cancelled: answer what is open, and tell; what a handler raises becomes a note."""
        if self._conversation.is_new and self._conversation.pending:
            await self._chain._cancel_pending(interruption)
        outcome = self.outcome("cancelled")
        for handler in self._telling.handlers.of("on_run_ended")[self._end_told :]:
            # Each, whatever another one raises, and if the run is cancelled again: it has ended for all of them.
            self._end_told += 1
            await noted(self._telling.ask(handler, "on_run_ended", outcome), interruption)

    async def _attempts(self) -> Outcome:
        fallbacks = self._options.get("with_fallbacks")
        if fallbacks is None:
            return await self._attempt()
        models = [self._chain.llm, *fallbacks]
        for place, model in enumerate(models):
            await self._change_for(model)
            state = self._conversation.state()
            outcome = await self._attempt()
            error = outcome.error
            if outcome.status != "error" or error is None or not _may_go_on(self._chain.llm, error):
                return outcome
            if place + 1 < len(models):
                _log.info("trying the next model after %s: %s", error.type, error)
                self._conversation.restore(state)
                continue
        text = "Failed all attempts to generate response"
        return self.failed(ChainError("all_fallbacks_failed", text, error))

    async def _change_for(self, model: ChatModel) -> None:
        self._chain._llm = model
        change = self._options.get("before_fallback")
        if change is None:
            return
        with self._chain._open_to_changes():
            changed = change(self._chain)
            if inspect.isawaitable(changed):
                await changed

    async def _attempt(self) -> Outcome:
        outcome: object = await self._mode()(self._chain)
        self._telling.check()
        self.resumed = False
        if (
            not isinstance(outcome, Outcome)
            or outcome.status == "cancelled"
            or (outcome.status == "error") != (outcome.error is not None)
        ):
            raise TypeError(
                f"the mode returned {repr_of(outcome)}, not an Outcome whose error fits its status"
            )
        return outcome

    def _mode(self) -> Mode:
        mode = self._options.get("mode", "while_needs_response")
        if callable(mode):
            return mode
        if mode == "step":
            return partial(modes.step, should_continue=self._options.get("should_continue"))
        if mode == "until_tool_used":
            return partial(modes.until_tool_used, names=self._options["until_tool"])
        return {
            "once": modes.once,
            "while_needs_response": modes.while_needs_response,
            "until_success": modes.until_success,
        }[mode]


def _wrapped(error: Exception) -> ChainError:
    return ChainError("exception", f"({type(error).__name__}) {text_of(error)}".rstrip(), error)


def _may_go_on(model: ChatModel, error: ChainError) -> bool:
    if error.type is None:
        return False
    if error.type == "unknown_error" and error.original is not None:
        return True
    return model.retry_on_fallback(error)
