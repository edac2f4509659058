"""Pieces of a streamed reply, put together; and which call a fragment belongs to (no I/O)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from listeners.chain.function import Function
from listeners.chain.messages import (
    ContentPart,
    DeltaStatus,
    Message,
    MessageDelta,
    MessageStatus,
    TokenUsage,
    ToolCall,
    Unplaced,
)
from listeners.chain.titles import display_text

__all__ = ["MergedDelta", "Merging", "cut_off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedDelta:
    """What has arrived of a reply so far: its content as parts, its calls in order of arrival."""

    content: tuple[ContentPart, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    status: DeltaStatus = "incomplete"
    metadata: dict[str, object] = field(default_factory=dict)
    usage: TokenUsage | None = None

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return "".join(part.content for part in self.content if part.type == "text")

    def to_message(self) -> Message:
        """Return the whole reply; raises ``InvalidCall`` for a call that can't be completed, and ``ValueError``
        while the reply has not ended."""
        if self.status == "incomplete":
            raise ValueError("the reply has not ended: no delta with status complete or length has arrived")
        return Message(
            "assistant",
            self.content,
            status=self.status,
            tool_calls=self.tool_calls,
            metadata={**self.metadata, **({"usage": self.usage} if self.usage else {})},
        )


class Merging:
    """One reply in the making. ``tools`` are those that can be identified; ``new_key(call)`` names a call."""

    def __init__(self, tools: Mapping[str, Function], new_key: Callable[[ToolCall], str]) -> None:
        self._tools = tools
        self._new_key = new_key
        self._parts: dict[tuple[int, str], ContentPart] = {}
        self._calls: list[ToolCall] = []
        # By the provider's index, the place in `_calls` of the call that was opened at it last.
        self._opened: dict[int, int] = {}
        self._identified: dict[int, str] = {}
        self._status: DeltaStatus = "incomplete"
        self._metadata: dict[str, object] = {}
        self._usage: TokenUsage | None = None

    @property
    def merged(self) -> MergedDelta:
        """What has arrived."""
        return MergedDelta(
            content=tuple(part for _, part in sorted(self._parts.items(), key=lambda item: item[0][0])),
            tool_calls=tuple(self._calls),
            status=self._status,
            metadata=dict(self._metadata),
            usage=self._usage,
        )

    def add_usage(self, usage: TokenUsage) -> None:
        """Take in what the reply has cost."""
        self._usage = usage if self._usage is None else self._usage.add(usage)

    def merge(self, delta: MessageDelta) -> tuple[MessageDelta, list[tuple[ToolCall, Function]]]:
        """Take in one piece.

        Returns it with the display texts of the calls it names, and the calls that are identified by it: as they
        stand after it, each with its tool.
        """
        self._merge_content(delta)
        self._metadata.update(delta.metadata)
        if self._status == "incomplete":
            self._status = delta.status
        shown, touched = [], []
        for fragment in delta.tool_calls:
            place = self._place(fragment)
            self._merge_call(place, fragment)
            touched.append(place)
            named = fragment.name is not None and bool(self._tools)
            shown.append(
                replace(fragment, display_text=self._calls[place].display_text) if named else fragment
            )
        told = replace(delta, tool_calls=tuple(shown)) if shown else delta
        return told, [found for place in dict.fromkeys(touched) if (found := self._identify(place))]

    def _merge_content(self, delta: MessageDelta) -> None:
        content = ContentPart("text", delta.content) if isinstance(delta.content, str) else delta.content
        if content is None or (content.type == "text" and not content.content):
            return
        at = (delta.index, content.type)
        known = self._parts.get(at)
        if known is not None:
            options = {**known.options, **content.options}
            content = ContentPart(known.type, known.content + content.content, options=options)
        self._parts[at] = content

    def _place(self, fragment: ToolCall) -> int:
        index = None if isinstance(fragment.index, Unplaced) else fragment.index
        at = None if index is None else self._opened.get(index)
        if fragment.call_id is not None:
            by_id = [place for place, call in enumerate(self._calls) if call.call_id == fragment.call_id]
            if by_id:
                return by_id[0]
            if at is not None and self._calls[at].call_id is None:
                return at
            return self._open(index)
        if index is not None:
            return self._open(index) if at is None else at
        if fragment.name is not None or not self._calls:
            return self._open(None)
        return len(self._calls) - 1

    def _open(self, index: int | None) -> int:
        used = {call.index for call in self._calls}
        free = index or 0
        while free in used:
            free += 1
        self._calls.append(ToolCall(index=free))
        place = len(self._calls) - 1
        self._opened[free if index is None else index] = place
        return place

    def _merge_call(self, place: int, fragment: ToolCall) -> None:
        call = self._calls[place]
        name, text, arguments = call.name, call.arguments_text, call.arguments
        # A fragment that says no more than is known already is one that was sent again.
        again = (fragment.call_id, fragment.name, fragment.arguments_text) == (call.call_id, name, text)
        if fragment.name is not None and fragment.name != name:
            name = (name or "") + fragment.name
        if fragment.arguments and call.status == "incomplete":
            arguments = fragment.arguments
        elif not arguments and not again:
            # Text that comes after a whole mapping has nothing to be added to.
            text += fragment.arguments_text
        shown = fragment.display_text or call.display_text
        if name is not None and name != call.name and fragment.display_text is None:
            shown = display_text(name, self._tools.get(name))
        self._calls[place] = replace(
            call,
            name=name,
            call_id=call.call_id if fragment.call_id is None else fragment.call_id,
            status="complete" if "complete" in (call.status, fragment.status) else "incomplete",
            display_text=shown,
            arguments=arguments,
            arguments_text=text,
            metadata={**call.metadata, **fragment.metadata},
        )

    def _identify(self, place: int) -> tuple[ToolCall, Function] | None:
        call = self._calls[place]
        function = self._tools.get(call.name or "")
        if function is None or self._identified.get(place) == call.name:
            return None
        self._identified[place] = function.name
        if not call.key:
            call = self._calls[place] = replace(call, key=self._new_key(call))
        # The arguments are {} until the call is complete, whatever has arrived of them.
        return (call if call.status == "complete" else replace(call, arguments={})), function


def cut_off(merged: MergedDelta, error: Exception) -> Message | None:
    """Return the text that had arrived of a reply that failed, as a message for the reader; ``None``: there is none."""
    parts: Sequence[ContentPart] = [part for part in merged.content if part.type == "text"]
    if not parts:
        return None
    status: MessageStatus = "length" if merged.status == "length" else "cancelled"
    return Message("assistant", parts, status=status, metadata={"streaming_error": error})
