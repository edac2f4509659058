"""The demo's models: a script that streams as a provider does, or a provider's.

The script decides nothing by itself; but what it asks for next, and its answer, are made of what the tools returned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.demo.pace import Pace
from gateway.demo.workspace import CACHED
from listeners.chain import ChatModel, Message, MessageDelta, ScriptedChat, ToolCall, ToolResult

__all__ = ["QUESTION", "SCRIPTED", "ModelUnusable", "instructions", "model_named", "scripted"]

QUESTION: Final = "Which modules of the standard library use heapq, and how big are they?"
SCRIPTED: Final = "script"

_THINKING: Final = 0.45
"""Seconds before a reply begins."""
_STREAMING: Final = 0.4
"""Seconds that the arguments of a call take to arrive."""
_PIECES: Final = 5

Returned = Mapping[str, Any]
"""What each tool returned last, by its name."""


class ModelUnusable(Exception):
    """No model of that name can be had; the message says why."""


def model_named(name: str, folder: str, pace: Pace, *, asks: bool) -> ChatModel:
    """Return the model ``openai:NAME``, ``anthropic:NAME`` or ``script``; raises :class:`ModelUnusable`.

    Keys and addresses are the SDKs' own environment variables. ``folder`` is where the library is; ``asks``: the
    script ends with a deletion.
    """
    provider, _, model = name.partition(":")
    try:
        if name == SCRIPTED:
            return scripted(folder, pace, asks=asks)
        if provider == "openai" and model:
            from listeners.chain.models import OpenAIChat

            return OpenAIChat(model)
        if provider == "anthropic" and model:
            from listeners.chain.models import AnthropicChat

            if not (os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN")):
                # The SDK would say so at the first request only.
                raise ModelUnusable(f"{name}: ANTHROPIC_API_KEY must be set")
            return AnthropicChat(model)
    except ModelUnusable:
        raise
    except Exception as error:
        # The extra isn't installed, or the SDK misses its key: each says what to do.
        raise ModelUnusable(f"{name}: {error}") from error
    raise ModelUnusable(f"{name!r} is no model: it looks like openai:NAME or anthropic:NAME")


def instructions(folder: str, *, asks: bool) -> str:
    """Return what a model is told before the question."""
    text = (
        f"You answer one question about the Python standard library in {folder}. Use the tools, side by side where "
        "you can. Paths are relative to that folder, and . is all of it. Tools keep what they find in an SQLite "
        "database: imports (name, module), modules (name, lines, bytes), compiled (name, code_bytes). "
    )
    if asks:
        text += f"When you have what you need, delete {CACHED[0]} in the folder ../cache. "
    return text + "Then answer in a few lines of plain text."


def scripted(folder: str, pace: Pace, *, asks: bool) -> ScriptedChat:
    """Return the script: turns with tool calls, then one with the answer.

    Which turn it is stands in the conversation, so that another process can go on with one that was kept.
    """
    turns: list[_Turn] = [_look_around, _measure, _compare, *([_tidy_up] if asks else []), _answer]

    def replies() -> Iterator[Sequence[MessageDelta | float]]:
        while True:
            messages = chat.requests[-1]
            turn = sum(message.role == "assistant" for message in messages)
            reply = turns[turn](folder, _returned(messages))
            made = sum(len(message.tool_calls) for message in messages)
            yield list(_streamed(reply, made))

    chat = ScriptedChat(replies(), sleep=pace.rest)
    return chat


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: Mapping[str, Any]


_Turn = Callable[[str, Returned], Sequence[_Call] | str]


def _streamed(reply: Sequence[_Call] | str, made: int) -> Iterator[MessageDelta | float]:
    """Yield a reply in fragments: of each call its name and id, once, then its arguments' JSON bit by bit."""
    yield _THINKING
    if isinstance(reply, str):
        yield MessageDelta(reply, status="complete")
        return
    for index, call in enumerate(reply):
        yield MessageDelta(
            tool_calls=(ToolCall(index=index, call_id=f"call_{made + index + 1}", name=call.name),)
        )
        for piece in _pieces(json.dumps(call.arguments)):
            yield _STREAMING / _PIECES
            yield MessageDelta(tool_calls=(ToolCall(index=index, arguments_text=piece),))
    yield MessageDelta(status="complete")


def _pieces(text: str) -> list[str]:
    length = -(-len(text) // _PIECES)
    return [text[at : at + length] for at in range(0, len(text), length)]


# --- The turns ---


def _look_around(folder: str, returned: Returned) -> Sequence[_Call]:
    return (
        _Call("search_library", {"module": "heapq", "path": folder}),
        _Call("read_file", {"path": "heapq.py"}),
    )


def _measure(folder: str, returned: Returned) -> Sequence[_Call]:
    return (
        # heapq.py imports it; but it is written in C.
        _Call("read_file", {"path": "_heapq.py"}),
        _Call("count_lines", {"path": folder}),
        _Call("compile_modules", {"paths": returned["search_library"]}),
    )


def _compare(folder: str, returned: Returned) -> Sequence[_Call]:
    sql = (
        "SELECT name, lines, bytes, code_bytes FROM imports JOIN modules USING (name) JOIN compiled USING (name) "
        "WHERE module = 'heapq' ORDER BY lines DESC"
    )
    return (_Call("query_database", {"sql": sql}),)


def _tidy_up(folder: str, returned: Returned) -> Sequence[_Call]:
    return (_Call("delete_file", {"file": CACHED[0], "folder": "../cache"}),)


def _answer(folder: str, returned: Returned) -> str:
    rows, library = returned["query_database"], returned["count_lines"]
    sizes = "\n".join(
        f"- {row['name']}: {row['lines']:,} lines, {_kilobytes(row['bytes'])}, "
        f"{_kilobytes(row['code_bytes'])} compiled"
        for row in rows
    )
    own = len(returned["read_file"].splitlines())
    text = (
        f"{len(rows)} modules of the standard library import heapq:\n{sizes}\n"
        f"heapq.py itself has {own:,} lines. The library's {library['files']:,} files have "
        f"{library['lines']:,} lines."
    )
    # What became of the deletion is told in the words of its result.
    return f"{text}\n{returned['delete_file']}" if "delete_file" in returned else text


def _kilobytes(size: int) -> str:
    return f"{size / 1000:,.0f} kB"


def _returned(messages: Sequence[Message]) -> dict[str, Any]:
    """Return what each tool returned last; the model goes on without what failed, but for a deletion that did."""
    return {
        result.name: _value(result)
        for message in messages
        for result in message.tool_results
        if result.name and (not result.is_error or result.name == "delete_file")
    }


def _value(result: ToolResult) -> Any:
    text = "".join(part.content for part in result.content)
    return text if result.processed_content is None else result.processed_content
