"""One invocation of a tool, and what its listener is told of it: the rules of before, after, error and cancel.

Calls to a listener are not guarded, because a failure to observe must not pass for a failure of the tool.
Only ``on_cancel`` is: it comes while an interruption is on its way out, and nothing may take its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any

__all__ = ["AwaitedInvocation", "Hooks", "Invocation"]

_log = logging.getLogger("listeners")
_NO_STEP = nullcontext()


@dataclass(frozen=True, slots=True)
class Hooks:
    """A listener as a wrapper needs it: bound methods, ``None`` for those it leaves alone.

    ``awaited`` names the methods that are coroutine functions. This is settled when a tool is wrapped, so that
    a correlation context that happens to be awaitable is never awaited.
    """

    listener: object
    before_call: Callable[..., Any] | None
    after_call: Callable[..., Any] | None
    on_error: Callable[..., Any] | None
    on_cancel: Callable[..., Any] | None
    on_yield: Callable[..., Any] | None
    step: Callable[[Any], AbstractContextManager[Any] | None] | None
    awaited: frozenset[str]


class _Step:
    """A context manager whose wish to swallow an exception does not count: the caller's result depends on it."""

    __slots__ = ("_manager",)

    def __init__(self, manager: AbstractContextManager[Any]) -> None:
        self._manager = manager

    def __enter__(self) -> None:
        self._manager.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._manager.__exit__(kind, error, traceback)


class _Invocation:
    __slots__ = ("context", "hooks", "name", "tool_input")

    def __init__(self, hooks: Hooks, name: str, tool_input: dict[str, Any]) -> None:
        self.hooks = hooks
        self.name = name
        self.tool_input = tool_input
        self.context: Any = None

    def step(self) -> AbstractContextManager[Any, None]:
        """What to enter around the next step of the body."""
        if self.hooks.step is None:
            return _NO_STEP
        entered = self.hooks.step(self.context)
        return _NO_STEP if entered is None else _Step(entered)

    def _checked(self, text: object, error: Exception) -> str | None:
        if text is None or isinstance(text, str):
            return text
        raise TypeError(
            f"on_error of {type(self.hooks.listener).__name__} returned {type(text).__name__} for tool "
            f"{self.name}: return the text to use as the tool's result, or None to let the exception go on"
        ) from error

    def _log_cancel(self, what: str, *, exc_info: bool) -> None:
        listener = type(self.hooks.listener).__name__
        _log.error("on_cancel of %s for tool %s %s", listener, self.name, what, exc_info=exc_info)


class Invocation(_Invocation):
    """For tools whose listener is called where they are called: functions and generators."""

    __slots__ = ()

    def begin(self) -> None:
        """Tell ``before_call`` and keep its context; what it raises keeps the tool from running."""
        if self.hooks.before_call is not None:
            self.context = self.hooks.before_call(self.name, self.tool_input)

    def yielded(self, item: object) -> None:
        """Tell ``on_yield`` of one item of a generator."""
        if self.hooks.on_yield is not None:
            self.hooks.on_yield(self.context, self.name, self.tool_input, item)

    def returned(self, result: object) -> None:
        """Tell ``after_call``; what it raises leaves the call in the result's place."""
        if self.hooks.after_call is not None:
            self.hooks.after_call(self.context, self.name, self.tool_input, result)

    def failed(self, error: Exception) -> str | None:
        """Tell ``on_error``; the text is the tool's result, ``None`` means: raise ``error`` again."""
        if self.hooks.on_error is None:
            return None
        try:
            text = self.hooks.on_error(self.context, self.name, self.tool_input, error)
        except Exception as failure:
            _blame(failure, error)
            raise
        return self._checked(text, error)

    def cancelled(self) -> None:
        """Tell ``on_cancel``; never raises."""
        if self.hooks.on_cancel is None:
            return
        try:
            self.hooks.on_cancel(self.context, self.name, self.tool_input)
        except BaseException:
            self._log_cancel("failed", exc_info=True)


class AwaitedInvocation(_Invocation):
    """For coroutine functions and async generators: the same, awaiting the methods that ``hooks.awaited`` names."""

    __slots__ = ()

    async def begin(self) -> None:
        """Tell ``before_call`` and keep its context; what it raises keeps the tool from running."""
        if self.hooks.before_call is not None:
            told = self.hooks.before_call(self.name, self.tool_input)
            self.context = await told if "before_call" in self.hooks.awaited else told

    async def yielded(self, item: object) -> None:
        """Tell ``on_yield`` of one item of a generator."""
        if self.hooks.on_yield is not None:
            told = self.hooks.on_yield(self.context, self.name, self.tool_input, item)
            if "on_yield" in self.hooks.awaited:
                await told

    async def returned(self, result: object) -> None:
        """Tell ``after_call``; what it raises leaves the call in the result's place."""
        if self.hooks.after_call is not None:
            told = self.hooks.after_call(self.context, self.name, self.tool_input, result)
            if "after_call" in self.hooks.awaited:
                await told

    async def failed(self, error: Exception) -> str | None:
        """Tell ``on_error``; the text is the tool's result, ``None`` means: raise ``error`` again."""
        if self.hooks.on_error is None:
            return None
        try:
            text = self.hooks.on_error(self.context, self.name, self.tool_input, error)
            if "on_error" in self.hooks.awaited:
                text = await text
        except Exception as failure:
            _blame(failure, error)
            raise
        return self._checked(text, error)

    async def cancelled(self, *, may_wait: bool) -> None:
        """Tell ``on_cancel``; never raises. ``may_wait`` is false where a coroutine is being closed."""
        if self.hooks.on_cancel is None:
            return
        try:
            told = self.hooks.on_cancel(self.context, self.name, self.tool_input)
            if "on_cancel" not in self.hooks.awaited:
                return
            if may_wait:
                await told
            elif not _finishes_at_once(told):
                self._log_cancel("wanted to wait, but the call was closed, not cancelled", exc_info=False)
        except BaseException:
            self._log_cancel("failed", exc_info=True)


def _blame(failure: Exception, error: Exception) -> None:
    # As `raise failure from error` would, but without overwriting a cause that the listener gave itself.
    if failure is not error and failure.__cause__ is None:
        failure.__cause__ = error


def _finishes_at_once(coroutine: Coroutine[Any, Any, Any]) -> bool:
    # A coroutine that is being closed must not wait: Python would raise "coroutine ignored GeneratorExit".
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False
