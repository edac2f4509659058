"""Wrapping keeps the type of the tool, and listeners must have the right methods."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, assert_type

from listeners.chain import Function
from listeners.tool_listener import ToolCallListener, wrap, wrap_all


class Timing(ToolCallListener):
    """Names of one's own, a narrower context, plain methods."""

    def before_call(self, name: str, arguments: Mapping[str, Any]) -> float:
        return time.monotonic()

    def after_call(self, started: float, name: str, arguments: dict[str, Any], result: object) -> None:
        print(name, time.monotonic() - started)

    def on_error(self, started: float, name: str, arguments: object, error: Exception) -> str | None:
        return None

    def on_cancel(self, *_: object) -> None:
        pass

    def on_yield(self, started: float, name: str, arguments: dict[str, Any], item: object) -> None:
        pass

    @contextmanager
    def step(self, started: float) -> Iterator[None]:
        yield


class Waiting(ToolCallListener):
    """The same, ``async``."""

    async def before_call(self, tool_name: str, tool_input: dict[str, Any]) -> float:
        return 0.0

    async def after_call(
        self, context: float, tool_name: str, tool_input: dict[str, Any], result: Any
    ) -> None:
        pass

    async def on_error(
        self, context: float, tool_name: str, tool_input: dict[str, Any], error: Exception
    ) -> str:
        return "sorry"

    async def on_cancel(self, context: float, tool_name: str, tool_input: dict[str, Any]) -> None:
        pass


class ReadyMade:
    """Reports to the same place as its property."""

    @property
    def tool_listener(self) -> Timing:
        return Timing()


class Attribute:
    """An attribute does as well."""

    def __init__(self) -> None:
        self.tool_listener = Waiting()


def search(query: str, limit: int = 3) -> list[str]:
    return [query] * limit


async def fetch(url: str) -> bytes:
    return url.encode()


def pages(query: str) -> Iterator[str]:
    yield query


async def pages_async(query: str) -> AsyncIterator[str]:
    yield query


class Library:
    def find(self, title: str) -> str:
        return title

    def __call__(self, title: str) -> int:
        return len(title)


listener = Timing()

assert_type(wrap(search, listener)("x", limit=1), list[str])
assert_type(wrap(pages, listener)("x"), Iterator[str])
assert_type(wrap(pages_async, listener)("x"), AsyncIterator[str])
assert_type(wrap(Library().find, listener)("x"), str)
assert_type(wrap(Library(), listener)("x"), int)
assert_type(wrap(partial(search, limit=1), ReadyMade())("x"), list[str])
assert_type(wrap(Function("a", lambda arguments, context: 1), listener), Function)
finders: list[Callable[[str], str]] = [Library().find]
assert_type(wrap_all(finders, Attribute()), list[Callable[[str], str]])
assert_type(wrap_all((Library(), Library()), listener), list[Library])


async def main() -> None:
    assert_type(await wrap(fetch, Waiting())("x"), bytes)


wrap(search, listener)(5)  # refused: arg-type
wrap(search, listener)("x", wrong=1)  # refused: call-arg
wrap(search, listener, "name")  # refused: call-arg|misc
wrap(search, None)  # refused: arg-type
wrap(search, object())  # refused: arg-type
wrap(search, Timing)  # refused: arg-type
wrap_all([search], print)  # refused: arg-type
wrap_all(None, listener)  # refused: arg-type


class WrongProperty:
    @property
    def tool_listener(self) -> str:
        return "no"


wrap(search, WrongProperty())  # refused: arg-type


class TooFew(ToolCallListener):
    def before_call(self, tool_name: str) -> None:  # refused: override
        pass


class TooMany(ToolCallListener):
    def after_call(  # refused: override
        self, context: Any, tool_name: str, tool_input: dict[str, Any], result: Any, more: Any
    ) -> None:
        pass


class WrongInput(ToolCallListener):
    def before_call(self, tool_name: str, tool_input: str) -> None:  # refused: override
        pass


class WrongError(ToolCallListener):
    def on_error(self, context: Any, name: str, given: Any, error: ValueError) -> None:  # refused: override
        pass


class WrongAnswer(ToolCallListener):
    def on_error(self, context: Any, name: str, given: Any, error: Exception) -> int:  # refused: override
        return 0


class AsyncStep(ToolCallListener):
    async def step(self, context: Any) -> None:  # refused: override
        pass
