"""``LLMChain``: a conversation with a model that calls tools, and the loop that tells everything to its handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Any, Self, Unpack

from listeners.callbacks import ChainCallbacks, ChainListener
from listeners.chain.conversation import Conversation
from listeners.chain.decisions import decided, paired
from listeners.chain.deltas import MergedDelta, Merging
from listeners.chain.execution import Batch, current_task, is_closing
from listeners.chain.function import Function, check_seconds
from listeners.chain.messages import Message, MessageDelta, ToolCall
from listeners.chain.models.base import ChatModel
from listeners.chain.options import RunOptions, check_options, merged_options
from listeners.chain.outcome import Outcome
from listeners.chain.processors import Processor
from listeners.chain.review import Decision
from listeners.chain.running import Run
from listeners.chain.telling import Telling
from listeners.errors import ChainError

__all__ = ["LLMChain"]


class LLMChain:
    """A conversation, the model that answers it, the tools it may call, and who is told.

    - ``llm``: the model; ``tools``: functions, or plain callables to make them of; ``messages``: what was said before.
    - ``callbacks``: handlers, told in this order; ``message_processors``: what each reply goes through.
    - ``custom_context``: given to tools and reviews, read when a batch of calls begins.
    - ``max_retry_count``: how many failures in a row end a run; ``tool_timeout``: seconds a body may take, for tools
      that don't say so themselves.

    One operation at a time: ``run``, ``resume``, an execution, ``add_message`` and assigning ``llm`` raise
    ``RuntimeError`` while another is under way. Handlers and tools run inside it; a tool may run *another* chain.

    Raises ``TypeError`` or ``ValueError`` for handlers that are no list, a count or a time that can't be, two tools of
    one name, and a handler that would never be told.
    """

    def __init__(
        self,
        llm: ChatModel,
        *,
        tools: Iterable[Function | Callable[..., object]] = (),
        messages: Iterable[Message] = (),
        callbacks: Iterable[ChainCallbacks | ChainListener] = (),
        message_processors: Iterable[Processor] = (),
        custom_context: Any = None,
        max_retry_count: int = 3,
        tool_timeout: float | None = None,
    ) -> None:
        if not isinstance(max_retry_count, int) or isinstance(max_retry_count, bool) or max_retry_count < 1:
            raise ValueError(f"max_retry_count is {max_retry_count!r}, but must be at least 1")
        self._llm = llm
        self._tools = _by_name(tools)
        self._processors = tuple(message_processors)
        self.custom_context = custom_context
        self.max_retry_count = max_retry_count
        self.tool_timeout = check_seconds("tool_timeout", tool_timeout)
        self._conversation = Conversation(self._tools)
        self._telling = Telling(self)
        self._delta: MergedDelta | None = None
        self._merging: Merging | None = None
        self._run: Run | None = None
        self._busy: str | None = None
        self._may_change = False
        self._interrupted_options = RunOptions()
        if isinstance(callbacks, Mapping) or not isinstance(callbacks, Iterable):
            raise TypeError(
                "callbacks must be a list of handlers: put a handler into one, callbacks=[handler]"
            )
        for handlers in callbacks:
            self.add_callback(handlers)
        for message in messages:
            self.add_message(message)

    # --- What it is ---

    @property
    def llm(self) -> ChatModel:
        """The model; during a run with fallbacks the one that is being tried."""
        return self._llm

    @llm.setter
    def llm(self, llm: ChatModel) -> None:
        self._check_changeable("assigning llm")
        self._llm = llm

    @property
    def tools(self) -> tuple[Function, ...]:
        """The tools in their order."""
        return tuple(self._tools.values())

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation."""
        return self._conversation.messages

    @property
    def last_message(self) -> Message | None:
        """The last message; ``None`` without any."""
        return self._conversation.last

    @property
    def exchanged_messages(self) -> tuple[Message, ...]:
        """What was added since the last run began."""
        return self._conversation.exchanged

    @property
    def delta(self) -> MergedDelta | None:
        """What has arrived of the reply that is being streamed."""
        return self._delta

    @property
    def needs_response(self) -> bool:
        """Whether the conversation waits for the model, or for tools."""
        return self._conversation.needs_response

    @property
    def failure_count(self) -> int:
        """How many failures there were in a row."""
        return self._conversation.failure_count

    @property
    def callbacks(self) -> tuple[ChainCallbacks | ChainListener, ...]:
        """The handlers in their order."""
        return self._telling.handlers.given

    def find_call(self, tool_call_id: str) -> ToolCall | None:
        """Return the call that a result is of, as the model made it; the last one of that id."""
        return self._conversation.find_call(tool_call_id)

    # --- Preparing ---

    def add_callback(self, handlers: ChainCallbacks | ChainListener) -> Self:
        """Append handlers, which are told from the next event on.

        Raises ``ValueError`` for a name that is no event, what can't be called with the event's arguments, and an
        object that handles none.
        """
        self._telling.handlers.add(handlers)
        return self

    def add_message(self, message: Message) -> Self:
        """Append a message; nobody is told. Its calls get the ids, keys and display texts that they lack.

        When the user goes on, calls that nobody has answered will never run: a tool message that says so is added
        before what the user says.
        """
        self._check_changeable("add_message")
        if not isinstance(message, Message):
            raise TypeError(f"add_message takes a Message, not {type(message).__name__}")
        if message.role == "user":
            self._conversation.answer_unrun("Tool call '{name}' was cancelled.")
        prepared, _ = self._conversation.prepared(message)
        self._conversation.add(prepared)
        if message.role == "assistant":
            self._end_delta()
        return self

    async def merge_deltas(self, deltas: Sequence[MessageDelta]) -> None:
        """Take in pieces of a reply that the host streams by itself into ``delta``; identifies the calls in it."""
        with self._operation("merge_deltas"):
            merging = self._merging or self._begin_delta()
            for delta in deltas:
                _, identified = merging.merge(delta)
                self._show_delta(merging.merged)
                for call, function in identified:
                    await self._telling.tell("on_tool_call_identified", call, function)

    # --- Running ---

    async def run(self, **options: Unpack[RunOptions]) -> Outcome:
        """Ask the model, execute its calls, and go on as ``mode`` says; returns what it came to.

        Whatever a model, tool or handler fails with is in the outcome. A chain that is held returns its questions
        at once. Raises ``RuntimeError`` on a busy chain, ``TypeError`` and ``ValueError`` for wrong options, and
        ``HandlerError`` if a handler of ``on_error`` or ``on_run_ended`` raises.
        """
        checked = check_options(options)
        with self._operation("run"):
            self._run = run = Run(self, checked)
            if (held := run.check_held()) is not None:
                return held
            self._conversation.begin_run()
            return await run.perform(self._begin)

    async def resume(
        self, decisions: Mapping[str, Decision] | Sequence[Decision], **options: Unpack[RunOptions]
    ) -> Outcome:
        """Go on with a run that is held: act on the decisions, then as the run's options say, unless given here.

        ``decisions``: by ``tool_call_id``, or in the order of ``outcome.interrupts``; exactly one for each held
        call, else ``ValueError``, and nothing runs. Raises as :meth:`run` does.
        """
        checked = check_options(merged_options(self._interrupted_options, options))
        with self._operation("resume"):
            calls, given = decided(self._conversation, decisions)
            self._run = run = Run(self, checked, resumed=True)

            async def begin() -> Outcome | None:
                await self._execute_decided(calls, given)
                return run.check_held()

            return await run.perform(begin)

    async def _begin(self) -> Outcome | None:
        await self._telling.tell("on_run_started")
        if self._run is None or self.messages:
            return None
        return self._run.failed(ChainError(None, "LLMChain cannot be run without messages"))

    # --- Executing ---

    async def execute_tool_calls(self, custom_context: Any = ...) -> Message | None:
        """Execute the calls of the last message; returns the tool message, ``None`` if there was nothing to do.

        ``custom_context``: for this batch, the chain's if it isn't given. Raises what a handler raised, and
        ``RuntimeError`` on a busy chain.
        """
        with self._operation("execute_tool_calls"):
            own = isinstance(custom_context, EllipsisType)
            return await self._execute_pending(self.custom_context if own else custom_context)

    async def execute_tool_calls_with_decisions(
        self, calls: Sequence[ToolCall], decisions: Sequence[Decision]
    ) -> Message:
        """Act on a decision for each call, one by one in call order; returns the tool message as it then stands.

        A result takes the place of its call's placeholder; calls that no message answers get a new tool message.
        Raises ``ValueError`` (and nothing runs) for lists of different lengths, a call that was given twice or has a
        final result, and what is no decision; what a handler raised; ``RuntimeError`` on a busy chain.
        """
        with self._operation("execute_tool_calls_with_decisions"):
            return await self._execute_decided(*paired(self._conversation, calls, decisions))

    async def _execute_pending(self, custom_context: Any) -> Message | None:
        calls = self._conversation.pending
        if not calls:
            return None
        return await self._execute(calls, custom_context)

    async def _execute_decided(self, calls: Sequence[ToolCall], decisions: Sequence[Decision]) -> Message:
        return await self._execute(calls, self.custom_context, decisions)

    async def _execute(
        self, calls: Sequence[ToolCall], custom_context: Any, decisions: Sequence[Decision] | None = None
    ) -> Message:
        batch = Batch(
            calls,
            tools=self._tools,
            telling=self._telling,
            custom_context=custom_context,
            tool_timeout=self.tool_timeout,
            decisions=decisions,
        )
        task = current_task()
        try:
            await batch.run()
        except Exception:
            if self._run is not None:
                # For the outcome: the run goes back to its start, but the host may keep the work of tools that ran.
                self._conversation.place(calls, batch.results)
            raise
        except BaseException as interruption:
            self._take(calls, batch)
            if not is_closing(interruption, task):
                await batch.tell_cancelled(interruption)
            raise
        messages = self._take(calls, batch)
        for message in messages:
            await self._telling.tell("on_message_processed", message)
            await self._telling.tell("on_tool_response_created", message)
        return messages[-1]

    def _take(self, calls: Sequence[ToolCall], batch: Batch) -> list[Message]:
        results = batch.results
        messages = self._conversation.place(calls, results)
        self._conversation.count(results, batch.exceptions)
        return messages

    async def _cancel_pending(self, interruption: BaseException) -> None:
        calls = self._conversation.pending
        batch = Batch(calls, tools=self._tools, telling=self._telling, custom_context=None, tool_timeout=None)
        self._take(calls, batch)
        await batch.tell_cancelled(interruption)

    # --- For the run ---

    def _begin_delta(self) -> Merging:
        self._delta = None
        self._merging = Merging(self._tools, self._conversation.new_key)
        return self._merging

    def _show_delta(self, merged: MergedDelta) -> None:
        self._delta = merged

    def _end_delta(self) -> None:
        self._delta = self._merging = None

    @contextmanager
    def _operation(self, name: str) -> Iterator[None]:
        self._check_idle(name)
        self._busy = name
        self._telling.raised = None
        try:
            yield
        finally:
            self._busy = self._run = None

    @contextmanager
    def _open_to_changes(self) -> Iterator[None]:
        self._may_change = True
        try:
            yield
        finally:
            self._may_change = False

    def _check_changeable(self, what: str) -> None:
        if not self._may_change:
            self._check_idle(what)

    def _check_idle(self, what: str) -> None:
        if self._busy is not None:
            raise RuntimeError(f"{what} has to wait: this chain is busy with {self._busy}")


def _by_name(tools: Iterable[Function | Callable[..., object]]) -> dict[str, Function]:
    named: dict[str, Function] = {}
    for tool in tools:
        function = tool if isinstance(tool, Function) else Function.from_callable(tool)
        if function.name in named:
            raise ValueError(f"two tools are called {function.name}: give one of them another name")
        named[function.name] = function
    return named
