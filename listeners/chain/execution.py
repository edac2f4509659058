"""One batch of tool calls, in the order one can rely on: reviews, starts, concurrent calls, sequential ones, the rest.

Each call is one task with a copy of the chain's context: its ``on_tool_pre_execution`` handlers, then its body.
Everything else is told by the chain's own task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from listeners.chain.bodies import run_body
from listeners.chain.copies import own_mapping
from listeners.chain.function import Function
from listeners.chain.messages import ContentPart, ToolCall, ToolResult
from listeners.chain.returns import error_result, named
from listeners.chain.review import (
    Allow,
    Decision,
    Deny,
    Edit,
    Interrupt,
    Reject,
    ReviewContext,
    UpdateArguments,
    Verdict,
    check_verdict,
)
from listeners.chain.telling import Telling
from listeners.chain.tool_context import ToolContext
from listeners.errors import ChainError
from listeners.texts import repr_of

__all__ = ["Batch"]


@dataclass(slots=True)
class _Place:
    """One call's place in a batch. ``failure`` is what ``on_tool_execution_failed`` is told."""

    call: ToolCall
    function: Function | None
    decision: Decision | None = None
    verdict: Verdict | None = None
    result: ToolResult | None = None
    failure: str | Sequence[ContentPart] | None = None
    exception: Exception | None = None
    task: asyncio.Task[None] | None = None
    context: ToolContext | None = None
    # The chain has stopped it: its CancelledError is not the tool's own.
    stopped: bool = False
    told: bool = False

    @property
    def human(self) -> Literal["approve", "edit"] | None:
        """What the review is told of the decision."""
        return None if self.decision is None else "edit" if isinstance(self.decision, Edit) else "approve"

    @property
    def runs(self) -> bool:
        """Whether nothing has settled the call yet."""
        return self.function is not None and self.result is None

    def fail(self, result: ToolResult, failure: str | None = None) -> None:
        """Settle the call with ``result``; ``failure`` is the text to tell, else the result's parts are told."""
        self.result = result
        self.failure = result.content if failure is None else failure


class Batch:
    """Calls to be executed. With ``decisions``, one a call, they are executed one by one."""

    def __init__(
        self,
        calls: Sequence[ToolCall],
        *,
        tools: Mapping[str, Function],
        telling: Telling,
        custom_context: Any,
        tool_timeout: float | None,
        decisions: Sequence[Decision] | None = None,
    ) -> None:
        self._telling = telling
        self._custom_context = custom_context
        self._timeout = tool_timeout
        self._decided = decisions is not None
        self._places = [_Place(call, tools.get(call.name or "")) for call in calls]
        for place, decision in zip(self._places, decisions or (), strict=False):
            place.decision = decision
        self._told_interrupts = False

    @property
    def results(self) -> list[ToolResult]:
        """One result for each call, in call order; that of a call which hasn't ended is that it was cancelled."""
        for place in self._places:
            if place.result is None:
                self._cancel(place)
        return [place.result for place in self._places if place.result is not None]

    @property
    def exceptions(self) -> list[Exception]:
        """What bodies raised, in call order."""
        return [place.exception for place in self._places if place.exception is not None]

    async def run(self) -> None:
        """Execute the calls; raises what a handler raised, or the cancellation, with nothing left running."""
        if self._decided:
            await self._decide()
        self._settle_unknown()
        await self._review()
        if self._decided:
            for place in self._places:
                if place.runs:
                    await self._start(place)
                    await self._run([place])
                elif not place.told:
                    await self._tell_outcome(place)
        else:
            running = [place for place in self._places if place.runs]
            for place in running:
                await self._start(place)
            await self._run([place for place in running if place.function and place.function.concurrent])
            for place in running:
                if place.function and not place.function.concurrent:
                    await self._run([place])
            for place in self._places:
                if not place.told:
                    await self._tell_outcome(place)
        await self._tell_interrupts()

    async def tell_cancelled(self, onto: BaseException) -> None:
        """After a cancellation: tell what became of each call that nobody was told of; what a handler raises
        becomes a note on ``onto``."""
        self.results  # noqa: B018  # every call has a result from here on
        for place in self._places:
            if not place.told:
                await _noted(self._tell_outcome(place), onto)
        if not self._told_interrupts:
            await _noted(self._tell_interrupts(), onto)

    # --- Before anything runs ---

    async def _decide(self) -> None:
        for place in self._places:
            await self._telling.tell("on_tool_decision", place.call, place.decision)
            match place.decision:
                case Reject(reason):
                    text = f"Tool call '{place.call.name}' was rejected by a human reviewer"
                    text += f": {reason}" if reason else "."
                    rejected = named(ToolResult(text, reason="rejected"), place.call, None)
                    place.fail(rejected, text)
                case Edit(arguments) if place.function is not None:
                    place.call = replace(place.call, arguments=own_mapping(arguments), arguments_text="")

    def _settle_unknown(self) -> None:
        for place in self._places:
            if place.function is None and place.result is None:
                text = f"Tool call made to {place.call.name} but tool not found"
                place.fail(error_result(text, place.call, None, "unknown_tool"), text)

    async def _review(self) -> None:
        handlers = self._telling.handlers.of("on_tool_call_review")
        reviewed = [place for place in self._places if place.runs] if handlers else []
        for place in reviewed:
            context = ReviewContext(human_decision=place.human, custom_context=self._custom_context)
            place.verdict = Allow()
            for handler in handlers:
                function = place.function
                answer = await self._telling.ask(
                    handler, "on_tool_call_review", place.call, function, context
                )
                try:
                    verdict = check_verdict(answer, place.call.name or "")
                except ChainError as error:
                    self._telling.remember(error)
                    raise
                if isinstance(verdict, Allow):
                    continue
                place.verdict = verdict
                if not isinstance(verdict, UpdateArguments):
                    break
                place.call = replace(place.call, arguments=own_mapping(verdict.arguments))
        # Settled only now: a review that raises leaves all calls as they were.
        for place in reviewed:
            if isinstance(place.verdict, Deny):
                denied = ToolResult(place.verdict.reason, reason="denied")
                place.fail(named(denied, place.call, place.function), place.verdict.reason)
            elif isinstance(place.verdict, Interrupt):
                data = None if place.verdict.data is None else own_mapping(place.verdict.data)
                held = ToolResult(place.verdict.message, is_interrupt=True, interrupt_data=data)
                place.result = named(held, place.call, place.function)
        for place in reviewed:
            await self._telling.tell("on_tool_call_reviewed", place.call, place.function, place.verdict)

    async def _start(self, place: _Place) -> None:
        await self._telling.tell("on_tool_execution_started", place.call, place.function)

    # --- Running ---

    async def _run(self, places: Sequence[_Place]) -> None:
        """Run calls beside each other and tell each one's outcome as soon as it has ended."""
        waiting = {}
        for place in places:
            place.task = asyncio.create_task(self._call(place), name=f"tool call {place.call.call_id}")
            waiting[place.task] = place
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                ended = [place for task, place in waiting.items() if task in done]
                waiting = {task: place for task, place in waiting.items() if task not in done}
                await self._take(ended)
        except BaseException as error:
            cancelled = await self._stop(waiting.values())
            if cancelled is not None and not isinstance(error, asyncio.CancelledError):
                # Cancelled while the siblings of a raising handler were stopping: that goes before its error.
                raise cancelled from error
            raise

    async def _take(self, ended: Sequence[_Place]) -> None:
        errors = [error for place in ended if place.task and (error := _error_of(place.task))]
        for error in errors:
            if not isinstance(error, ChainError):
                raise error
        if errors:
            # The first that a handler raised, with the others as notes.
            self._telling.check()
            raise errors[0]
        for place in ended:
            await self._tell_outcome(place)

    async def _call(self, place: _Place) -> None:
        function = place.function
        if function is None:
            return
        call = place.call
        context = ToolContext(
            tool_call_id=call.call_id or "", call=call.own(), custom_context=self._custom_context
        )
        place.context = context
        timeout = self._timeout if function.timeout is None else function.timeout
        try:
            await self._telling.tell("on_tool_pre_execution", call, function)
            settled = await run_body(function, call, context, timeout=timeout)
        except asyncio.CancelledError:
            if place.stopped:
                raise
            self._cancel(place)
            return
        if place.stopped:
            return  # it has ended in spite of being stopped: too late
        place.result, place.exception = settled.result, settled.exception
        if settled.result.is_error and not settled.result.is_interrupt:
            place.failure = settled.result.content

    def _cancel(self, place: _Place) -> None:
        text = f"Tool call '{place.call.name}' was cancelled."
        place.fail(error_result(text, place.call, place.function, "cancelled"))

    async def _stop(self, places: Iterable[_Place]) -> asyncio.CancelledError | None:
        """Cancel calls and wait for them, however long; returns the cancellation that came meanwhile."""
        tasks = set()
        cancelled = None
        for place in places:
            if place.task is not None and not place.task.done():
                place.stopped = True
                if place.context is not None:
                    place.context.cancelled.set()
                place.task.cancel()
                tasks.add(place.task)
        while tasks:
            try:
                _, tasks = await asyncio.wait(tasks)
            except asyncio.CancelledError as error:
                # Nothing may stay behind.
                cancelled = error
                tasks = {task for task in tasks if not task.done()}
        for place in places:
            if place.task is not None:
                # Looked at, or asyncio would complain; what a handler raised is remembered where it was told.
                _error_of(place.task)
        return cancelled

    # --- Outcomes ---

    async def _tell_outcome(self, place: _Place) -> None:
        place.told = True
        result = place.result
        if result is None or result.is_interrupt:
            return
        call = replace(place.call, result=result)
        if place.failure is None:
            await self._telling.tell("on_tool_execution_completed", call, result)
            return
        await self._telling.tell("on_tool_execution_failed", call, place.failure)
        if place.exception is not None:
            trace = place.exception.__traceback__
            await self._telling.tell("on_tool_execution_exception", call, place.exception, trace)

    async def _tell_interrupts(self) -> None:
        self._told_interrupts = True
        held = [place.result for place in self._places if place.result and place.result.is_interrupt]
        if held:
            await self._telling.tell("on_tool_interrupted", held)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


async def _noted(telling: Any, onto: BaseException) -> None:
    try:
        await telling
    except BaseException as error:
        onto.add_note(f"While telling that it was cancelled: {repr_of(error, None)}")
