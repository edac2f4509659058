"""The messages of a chain and what follows from them: keys and ids, held calls, the failure counter (no I/O)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from listeners.chain.function import Function
from listeners.chain.messages import Message, ToolCall, ToolResult
from listeners.chain.review import HeldCall
from listeners.chain.titles import display_text
from listeners.errors import ToolError

__all__ = ["Conversation", "State"]

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:~-]{0,63}")


@dataclass(frozen=True, slots=True)
class State:
    """A conversation as it was, to go back to."""

    messages: tuple[Message, ...]
    exchanged: tuple[Message, ...]
    needs_response: bool
    failure_count: int
    last_failure: Exception | None


class Conversation:
    """What a chain remembers. ``tools`` are its functions by name."""

    def __init__(self, tools: Mapping[str, Function]) -> None:
        self._tools = tools
        self._messages: list[Message] = []
        self._exchanged: list[Message] = []
        self._keys: set[str] = set()
        self.needs_response = False
        self.failure_count = 0
        self.last_failure: Exception | None = None

    # --- What it holds ---

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages."""
        return tuple(self._messages)

    @property
    def exchanged(self) -> tuple[Message, ...]:
        """Those that were added since the last run began."""
        return tuple(self._exchanged)

    @property
    def last(self) -> Message | None:
        """The last message."""
        return self._messages[-1] if self._messages else None

    @property
    def for_model(self) -> list[Message]:
        """What a model is sent: all but the text of replies that were cut off."""
        return [message for message in self._messages if not message.is_cut_off]

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that nobody has answered: those of the last message, if it is one."""
        last = self.last
        return last.tool_calls if last is not None and last.is_tool_call else ()

    @property
    def is_new(self) -> bool:
        """Whether the last message was added since the last run began."""
        return bool(self._exchanged) and self._exchanged[-1] is self.last

    @property
    def answer(self) -> Message | None:
        """The last assistant message since a user spoke."""
        for message in reversed(self._messages):
            if message.role == "assistant" and not message.is_cut_off:
                return message
            if message.role == "user":
                return None
        return None

    def held(self) -> tuple[HeldCall, ...]:
        """The calls that wait for a decision: those whose placeholders stand in the last message."""
        last = self.last
        if last is None or last.role != "tool":
            return ()
        return tuple(self._held(result) for result in last.tool_results if result.is_interrupt)

    def find_call(self, id: str) -> ToolCall | None:
        """Return the last call with this id."""
        calls = (call for message in reversed(self._messages) for call in message.tool_calls)
        return next((call for call in calls if call.call_id == id), None)

    def _held(self, result: ToolResult) -> HeldCall:
        id = result.tool_call_id
        call = self.find_call(id) or ToolCall(name=result.name, call_id=id, status="complete")
        text = "".join(part.content for part in result.content if part.type == "text")
        return HeldCall(id, call, text, {**(result.interrupt_data or {}), "tool_call_id": id}).own()

    # --- Going back ---

    def begin_run(self) -> None:
        """Count exchanged messages from here."""
        self._exchanged = []

    def state(self) -> State:
        """Return what :meth:`restore` goes back to."""
        return State(
            self.messages, self.exchanged, self.needs_response, self.failure_count, self.last_failure
        )

    def restore(self, state: State, *, exchanged: bool = True) -> None:
        """Go back; ``exchanged=False`` keeps what was exchanged on record. Keys that were told stay used."""
        self._messages = list(state.messages)
        if exchanged:
            self._exchanged = list(state.exchanged)
        self.needs_response = state.needs_response
        self.failure_count = state.failure_count
        self.last_failure = state.last_failure

    # --- Adding ---

    def new_key(self, call: ToolCall) -> str:
        """Return a key for ``call``: its id, if it has one that can be a key, else its place in the conversation."""
        id = call.call_id
        base = id if id is not None and _KEY.fullmatch(id) else f"m{len(self._messages)}.{int(call.index)}"
        key, again = base, 1
        while key in self._keys:
            again += 1
            key = f"{base}~{again}"
        self._keys.add(key)
        return key

    def prepared(self, message: Message) -> tuple[Message, list[tuple[ToolCall, Function]]]:
        """Give the calls of a message what they lack: ids, keys and display texts.

        Returns it with the calls that nobody has identified yet, each with its tool.
        """
        if not message.tool_calls:
            return message, []
        ids: set[str | None] = set()
        calls, found = [], []
        for call in message.tool_calls:
            if call.call_id is None or call.call_id in ids:
                # Providers leave ids out or use one twice; a result must find its call.
                call = replace(call, call_id=_free_id(f"call_{len(self._messages)}_{int(call.index)}", ids))
            ids.add(call.call_id)
            if not call.key:
                call = replace(call, key=self.new_key(call))
            self._keys.add(call.key)
            function = self._tools.get(call.name or "")
            if call.display_text is None and call.name is not None:
                call = replace(call, display_text=display_text(call.name, function))
                if function is not None:
                    found.append((call, function))
            calls.append(call)
        return replace(message, tool_calls=tuple(calls)), found

    def add(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)
        self._exchanged.append(message)
        if not message.is_cut_off:
            self.needs_response = message.role in ("user", "tool") or message.is_tool_call

    def add_beside(self, message: Message) -> None:
        """Record a message as exchanged that the conversation will not hold."""
        self._exchanged.append(message)

    def accept(self, message: Message) -> None:
        """Add an assistant message that was accepted."""
        self.add(message)
        if not message.is_tool_call:
            self.failure_count = 0

    def count(self, results: Iterable[ToolResult], exceptions: Iterable[Exception] = ()) -> None:
        """Count a batch with these results: once, however many errors, or back to 0 without any."""
        failed = next((result for result in results if result.is_error), None)
        if failed is None:
            self.failure_count = 0
            return
        text = "".join(part.content for part in failed.content if part.type == "text")
        self.failed(next(iter(exceptions), None) or ToolError(text))

    def failed(self, error: Exception) -> None:
        """Count a failure, and keep what failed."""
        self.failure_count += 1
        self.last_failure = error

    def known(self, call: ToolCall) -> ToolCall:
        """Return ``call`` with the key and place that the call of its id has in the conversation."""
        if call.key or call.call_id is None:
            return call
        own = self.find_call(call.call_id)
        return call if own is None else replace(call, key=own.key, index=own.index)

    def is_answered(self, call: ToolCall) -> bool:
        """Tell whether ``call`` has a final result."""
        result = None if call.call_id is None else self._answer_of(call)
        return result is not None and not result.is_interrupt

    def place(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[Message]:
        """Put results where the placeholders of their calls stand, and the others into a new tool message.

        Returns the tool messages that were changed or added, in order.
        """
        new = []
        changed: dict[int, Message] = {}
        for call, result in zip(calls, results, strict=True):
            if self._answer_of(call) is None:
                new.append(result)
                continue
            at, _ = next(self._answers(call))
            old = self._messages[at]
            answered = [
                result if known.tool_call_id == call.call_id and known.is_interrupt else known
                for known in old.tool_results
            ]
            self._messages[at] = changed[at] = replace(old, tool_results=tuple(answered))
            self._exchanged = [self._messages[at] if known is old else known for known in self._exchanged]
        if new:
            self.add(Message("tool", tool_results=new))
            changed[len(self._messages) - 1] = self._messages[-1]
        if self.last is not None and self.last.role == "tool":
            self.needs_response = True
        return [changed[at] for at in sorted(changed)]

    def _answer_of(self, call: ToolCall) -> ToolResult | None:
        return next((answer for _, answer in self._answers(call)), None)

    def _answers(self, call: ToolCall) -> Iterator[tuple[int, ToolResult]]:
        """The results of ``call``, the last first, each with the place of its message."""
        for at in range(len(self._messages) - 1, -1, -1):
            message = self._messages[at]
            for result in message.tool_results:
                if result.tool_call_id == call.call_id:
                    yield at, result
            # Several providers use an id again in every turn: what was before the call isn't its answer.
            if any(made.call_id == call.call_id for made in message.tool_calls):
                return


def _free_id(id: str, used: set[str | None]) -> str:
    again, free = 1, id
    while free in used:
        again += 1
        free = f"{id}_{again}"
    return free
