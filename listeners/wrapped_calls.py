"""What wrapped tools tell, as calls of the current run: the listener behind ``RedisListener.tool_listener``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import Token
from types import TracebackType
from typing import Any

from listeners.publishing.call import Call
from listeners.publishing.composer import Composer
from listeners.publishing.current import current_call
from listeners.publishing.hints import harmless
from listeners.publishing.titles import Title
from listeners.tool_listener import ToolCallListener

__all__ = ["WrappedCalls"]


class WrappedCalls(ToolCallListener):
    """Tells each invocation of a wrapped tool to the run that ``composer`` finds, if it finds one.

    An invocation takes up the oldest call of its tool's name that is identified and not started. Inside a call of
    that name that somebody else tells of (``run.call``, a chain) the first one is that call's body, and only adds
    progress.
    """

    def __init__(self, composer: Callable[[], Composer | None], titles: Mapping[str, Title]) -> None:
        self._composer = composer
        self._titles = titles

    @harmless
    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> _Invocation | None:
        """Return the invocation's call, started; ``None`` without a run."""
        composer = self._composer()
        if composer is None:
            return None
        title = self._titles.get(tool_name)
        outer = current_call.get()
        if outer is not None and outer.composer is composer and outer.claim(tool_name, title):
            return _Invocation(outer, told=False)
        call = composer.take(tool_name, arguments=tool_input, title=title)
        call.start()
        return _Invocation(call, told=True)

    @harmless
    def after_call(
        self, context: _Invocation | None, tool_name: str, tool_input: dict[str, Any], result: Any, /
    ) -> None:
        """The call has completed."""
        if context is not None and context.told:
            context.call.complete(result)

    @harmless
    def on_error(
        self, context: _Invocation | None, tool_name: str, tool_input: dict[str, Any], error: Exception, /
    ) -> None:
        """The call has failed; the exception goes on."""
        if context is not None and context.told:
            context.call.fail(error)

    @harmless
    def on_cancel(self, context: _Invocation | None, tool_name: str, tool_input: dict[str, Any], /) -> None:
        """The call was cancelled."""
        if context is not None and context.told:
            context.call.cancel()

    @harmless
    def on_yield(
        self, context: _Invocation | None, tool_name: str, tool_input: dict[str, Any], item: Any, /
    ) -> None:
        """A piece of a generator's output is progress."""
        if context is not None and (context.told or not context.call.yields_told):
            context.call.chunk(item)

    @harmless
    def step(self, context: _Invocation | None, /) -> AbstractContextManager[object] | None:
        """Make the call the current one while its body runs, for ``progress()``."""
        return _Current(context.call) if context is not None and context.told else None


class _Invocation:
    """The call that an invocation is; ``told``: what becomes of it is told here, not by who opened it."""

    __slots__ = ("call", "told")

    def __init__(self, call: Call, *, told: bool) -> None:
        self.call = call
        self.told = told


class _Current(AbstractContextManager[None]):
    """Makes ``call`` the current one while a piece of its body runs."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token: Token[Call | None] = current_call.set(self._call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            current_call.reset(self._token)
        except ValueError:
            # The step ended in another context than it began in: a coroutine that the garbage collector closed.
            current_call.set(None)
