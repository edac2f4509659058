"""The pieces of streamed arguments, each with its call, as far as they may leave (contract §6)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from msgspec import DecodeError, json

from listeners.chain.deltas import Merging
from listeners.chain.messages import MessageDelta
from listeners.publishing.policy import PublicationPolicy

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain

__all__ = ["ArgumentPieces", "Shown"]

_IN_TEXT: Final = re.compile(r'\\.|"', re.DOTALL)


class Shown:
    """The text of one call's arguments, and how much of it was handed out.

    Redaction needs whole members: from the first that may be hidden on nothing is handed out any more.
    """

    def __init__(self, tool: str, policy: PublicationPolicy) -> None:
        self._redaction = policy.redaction
        self._stopped = not policy.tells_arguments(tool)
        self._offset = 0
        # How far was looked, where the JSON string begins that this is in, and the last whole one before it.
        self._at = 0
        self._begin: int | None = None
        self._string: str | None = None

    def more(self, text: str) -> tuple[str, int] | None:
        """Take in all the text that has arrived; returns what of it is new, and at which character that begins."""
        self._stopped = self._stopped or self._hides(text)
        if self._stopped or len(text) <= self._offset:
            return None
        piece, offset = text[self._offset :], self._offset
        self._offset = len(text)
        return piece, offset

    def _hides(self, text: str) -> bool:
        while self._at < len(text):
            if self._begin is not None:
                found = _IN_TEXT.search(text, self._at)
                if found is None:
                    self._at = len(text) - text.endswith("\\")
                    return False
                self._at = found.end()
                if found[0] == '"':
                    self._string, self._begin = text[self._begin : self._at], None
                continue
            char = text[self._at]
            if char == ":" and self._string is not None and self._redaction.hides(_name(self._string)):
                return True
            if char == '"':
                self._begin = self._at
            elif not char.isspace():
                self._string = None
            self._at += 1
        return False


class ArgumentPieces:
    """Puts the pieces of replies together as their chains do, to know which call each belongs to."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[LLMChain, tuple[Merging, dict[str, Shown]]] = WeakKeyDictionary()

    def take(
        self, chain: LLMChain, deltas: Sequence[MessageDelta], policy: PublicationPolicy
    ) -> Iterator[tuple[str, str, int]]:
        """Take in a chunk; yields the key of each identified call that has more arguments, the text, its offset."""
        known = self._of.get(chain)
        if known is None or chain.delta is None:
            # A reply begins.
            tools = {tool.name: tool for tool in chain.tools}
            known = self._of[chain] = Merging(tools, lambda call: ""), {}
        for delta in deltas:
            known[0].merge(delta)
        return self.new(chain, policy)

    def new(self, chain: LLMChain, policy: PublicationPolicy) -> Iterator[tuple[str, str, int]]:
        """Yield what identified calls have of arguments that was not yielded before."""
        merging, shown = self._of.get(chain, (None, {}))
        if merging is None or chain.delta is None:
            return
        for told, here in zip(chain.delta.tool_calls, merging.merged.tool_calls, strict=False):
            if told.key and here.name:
                if told.key not in shown:
                    shown[told.key] = Shown(here.name, policy)
                if (more := shown[told.key].more(here.arguments_text)) is not None:
                    yield told.key, *more


def _name(text: str) -> str:
    try:
        return str(json.decode(text))
    except DecodeError:
        return text
