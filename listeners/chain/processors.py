"""What may be made of a model's message before the chain accepts it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from listeners.chain.messages import Message

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain

__all__ = ["Halt", "JsonProcessor", "Processor"]


@dataclass(frozen=True, slots=True)
class Halt:
    """The message is rejected; ``message`` is the user message that tells the model why."""

    message: Message

    def __post_init__(self) -> None:
        if not isinstance(self.message, Message):
            raise TypeError(f"Halt.message must be a Message, not {type(self.message).__name__}")
        if self.message.role != "user":
            raise ValueError(f"Halt.message must be a user message, not one of role {self.message.role}")


Processor = Callable[["LLMChain", Message], Message | Halt | Awaitable[Message | Halt]]
"""Gets an assistant message, its ``processed_content`` being the text at first; returns what it made of it."""


class JsonProcessor:
    """Parses a text reply as JSON into ``processed_content``; a reply that is no JSON is rejected.

    ``pattern``: a regular expression whose first group, or whole match, is the JSON. Without one a fence of three
    backticks around the whole text is taken off. Messages with tool calls are left alone.
    """

    def __init__(self, pattern: str | re.Pattern[str] | None = None) -> None:
        self._pattern = _FENCE if pattern is None else re.compile(pattern)
        self._required = pattern is not None

    def __call__(self, chain: LLMChain, message: Message, /) -> Message | Halt:
        """Process one message, as the class says."""
        if message.tool_calls:
            return message
        found = self._pattern.search(message.text)
        if found is None and self._required:
            return Halt(Message.user("ERROR: Invalid JSON data: no JSON was found in the answer"))
        text = message.text if found is None else found[1] if found.re.groups else found[0]
        try:
            return replace(message, processed_content=msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return Halt(Message.user(f"ERROR: Invalid JSON data: {error}"))


_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.S)
