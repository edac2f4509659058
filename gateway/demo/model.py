"""The demo's model: a script. It streams tool calls as a provider does, in fragments and at a human pace.

It decides nothing by itself; but what it asks for next, and its answer, are made of what the tools returned.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.demo.pace import Pace

__all__ = ["QUESTION", "Fragment", "ScriptedModel", "Transcript"]

QUESTION: Final = "Which modules of the standard library use heapq, and how big are they?"

Transcript = Mapping[str, Any]
"""What each tool returned last, by its name."""

_THINKING: Final = 0.45
"""Seconds before a reply begins."""
_STREAMING: Final = 0.4
"""Seconds that the arguments of a call take to arrive."""
_PIECES: Final = 5


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a reply: of the call at ``index`` its name and id, once, then its arguments' JSON; or text."""

    index: int = 0
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: Mapping[str, Any]


class ScriptedModel:
    """Replies in turns: three with tool calls, then one with the answer. ``folder`` is where the library is."""

    def __init__(self, folder: str, pace: Pace) -> None:
        self._folder = folder
        self._pace = pace
        self._turns: Sequence[Callable[[Transcript], Sequence[_Call] | str]] = (
            self._look_around,
            self._measure,
            self._compare,
            self._answer,
        )
        self._turn = 0
        self._calls = 0

    async def stream(self, transcript: Transcript) -> AsyncIterator[Fragment]:
        """Stream the next reply, given what the tools have returned so far."""
        reply = self._turns[self._turn](transcript)
        self._turn += 1
        await self._pace.rest(_THINKING)
        if isinstance(reply, str):
            yield Fragment(text=reply)
            return

        for index, call in enumerate(reply):
            self._calls += 1
            yield Fragment(index, f"call_{self._calls}", call.name)
            for piece in _pieces(json.dumps(call.arguments)):
                await self._pace.rest(_STREAMING / _PIECES)
                yield Fragment(index, arguments=piece)

    def _look_around(self, transcript: Transcript) -> Sequence[_Call]:
        return (
            _Call("search_library", {"module": "heapq", "path": self._folder}),
            _Call("read_file", {"path": "heapq.py"}),
        )

    def _measure(self, transcript: Transcript) -> Sequence[_Call]:
        return (
            # heapq.py imports it; but it is written in C.
            _Call("read_file", {"path": "_heapq.py"}),
            _Call("count_lines", {"path": self._folder}),
            _Call("compile_modules", {"paths": transcript["search_library"]}),
        )

    def _compare(self, transcript: Transcript) -> Sequence[_Call]:
        sql = (
            "SELECT name, lines, bytes, code_bytes FROM imports JOIN modules USING (name) JOIN compiled USING (name) "
            "WHERE module = 'heapq' ORDER BY lines DESC"
        )
        return (_Call("query_database", {"sql": sql}),)

    def _answer(self, transcript: Transcript) -> str:
        rows, library = transcript["query_database"], transcript["count_lines"]
        sizes = "\n".join(
            f"- {row['name']}: {row['lines']:,} lines, {_kilobytes(row['bytes'])}, "
            f"{_kilobytes(row['code_bytes'])} compiled"
            for row in rows
        )
        own = len(transcript["read_file"].splitlines())
        return (
            f"{len(rows)} modules of the standard library import heapq:\n{sizes}\n"
            f"heapq.py itself has {own:,} lines. The library's {library['files']:,} files have "
            f"{library['lines']:,} lines."
        )


def _pieces(text: str) -> list[str]:
    length = -(-len(text) // _PIECES)
    return [text[at : at + length] for at in range(0, len(text), length)]


def _kilobytes(size: int) -> str:
    return f"{size / 1000:,.0f} kB"
