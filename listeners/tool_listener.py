"""Observe every call of a tool without writing a decorator by hand: ``ToolCallListener``, ``wrap``, ``wrap_all``.

.. code-block:: python

    observed = wrap_all([search, fetch_page], RedisListener())

The rules are those of Spring AI's ``ToolCallListener``, in Python's terms:

- An invocation is told once before it and once after it: ``after_call`` with the result, ``on_error`` with the
  tool's own ``Exception``, or ``on_cancel`` when a ``BaseException`` passes or a generator is closed half-way.
- Calls to a listener are not guarded: what it raises leaves the call.
- Several listeners are nested: ``wrap(wrap(tool, inner), outer)``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from listeners.invocation import Hooks
from listeners.likeness import kind_of
from listeners.wrapping import wrap_tool

__all__ = ["SupportsToolListener", "ToolCallListener", "wrap", "wrap_all"]

T = TypeVar("T")

_METHODS = ("before_call", "after_call", "on_error", "on_cancel", "on_yield", "step")


class ToolCallListener:
    """What to do around every call of a wrapped tool: every method is a no-op, override what you need.

    ``tool_input`` is the mapping of the call's bound arguments: without defaults, ``**kwargs`` merged in. If they
    can't be bound it holds the keywords as given and the positional ones as ``args``, and the tool's own
    ``TypeError`` follows. One mapping serves all the methods of one invocation; the tool isn't called with it.

    Methods run in the thread (and, in async tools, the task) that runs the tool. They may be ``async`` if every
    tool they are wrapped around is. One object may serve many tools and concurrent calls: what belongs to one
    invocation goes into the context that ``before_call`` returns.
    """

    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
        """Called before the tool runs; a generator tool runs from its first step on.

        Whatever is returned, ``None`` included, is this invocation's correlation context: the other methods get
        it. It is never awaited. An exception keeps the tool from running and leaves the call; no other method is
        told.
        """

    def after_call(self, context: Any, tool_name: str, tool_input: dict[str, Any], result: Any, /) -> object:
        """Called when the tool has returned; what this returns is dropped.

        ``result`` is the object the tool returned; of a generator tool its return value, or else the list of what
        it yielded (kept only for listeners that override this method). An exception leaves the call, the result
        is lost, and ``on_error`` is not called.
        """

    def on_error(
        self, context: Any, tool_name: str, tool_input: dict[str, Any], error: Exception, /
    ) -> str | Awaitable[str | None] | None:
        """Called when the tool raised an ``Exception``; returns the text to use as its result, or ``None``.

        ``None`` raises the same exception again. A generator tool yields the text as its last item. Anything else
        is a ``TypeError``. An exception takes the place of the tool's, which becomes its ``__cause__``.
        """

    def on_cancel(self, context: Any, tool_name: str, tool_input: dict[str, Any], /) -> object:
        """Called when a ``BaseException`` passes (cancellation, ``KeyboardInterrupt``, ``SystemExit``) or a
        generator tool is closed half-way; what this returns is dropped and what it raises is logged.

        Not in Spring's interface. If a coroutine is closed instead of cancelled, an ``async`` override can't wait.
        """

    def on_yield(self, context: Any, tool_name: str, tool_input: dict[str, Any], item: Any, /) -> object:
        """Called for each item of a generator tool, before it is handed on; what this returns is dropped.

        Not in Spring's interface. An exception closes the tool and leaves the call; nothing else is told.
        """

    def step(self, context: Any, /) -> AbstractContextManager[object] | None:
        """Return a context manager to enter around the tool's body, or ``None`` (the default) for none.

        It is entered around the whole body of a function or coroutine function, around the call and around the
        awaiting of a function that returns an awaitable, and around each step of a generator: what runs between
        two steps is the caller's. So this is the place to set and reset a context variable, which from
        ``before_call`` a generator's caller would see too, and which might have to be reset in another task than
        it was set in. ``before_call`` comes before it, items and the outcome are told inside it.

        An exception passes even if the context manager would swallow it. Never ``async``. Not in Spring's
        interface.
        """
        return None


class SupportsToolListener(Protocol):
    """An object that has a ``ToolCallListener`` reporting to the same place, as all ready-made listeners do."""

    @property
    def tool_listener(self) -> ToolCallListener:
        """The listener to wrap tools with."""
        ...


def wrap(tool: T, listener: ToolCallListener | SupportsToolListener, *, name: str | None = None) -> T:
    """Return a tool of the same kind whose every call is told to ``listener``; the tool itself is left alone.

    ``tool`` is a function, coroutine function, generator or async generator function, bound method, partial or
    callable object, or a tool object of a framework. A callable object comes back as a function of its signature.
    ``name`` is what the listener is told instead of the tool's own name.

    Raises ``TypeError`` for ``None``, for what isn't a tool or a listener, and for a listener with ``async``
    methods around a tool that is not async.
    """
    if tool is None:
        raise TypeError("tool is None: give a callable, or a tool object of a framework")
    wrapped: T = wrap_tool(tool, _hooks(listener), name)
    return wrapped


def wrap_all(tools: Iterable[T], listener: ToolCallListener | SupportsToolListener) -> list[T]:
    """Wrap each of ``tools`` with the same listener; returns a new list in the same order, raises as :func:`wrap`."""
    if tools is None:
        raise TypeError("tools is None: give the tools as a list, which may be empty")
    return [wrap(tool, listener) for tool in tools]


def _hooks(listener: object) -> Hooks:
    if listener is None:
        raise TypeError(
            "listener is None: give a ToolCallListener, or an object that has one as tool_listener"
        )
    if isinstance(listener, type):
        raise TypeError(f"{listener.__name__} is a class: give an instance, {listener.__name__}(…)")
    if not isinstance(listener, ToolCallListener):
        given, listener = listener, getattr(listener, "tool_listener", None)
        if not isinstance(listener, ToolCallListener):
            raise TypeError(
                f"{type(given).__name__} is not a listener: subclass ToolCallListener, or give the object a "
                "property tool_listener that returns one"
            )
    awaited = set()

    def overridden(method: str) -> Callable[..., Any] | None:
        bound: Callable[..., Any] = getattr(listener, method)
        if getattr(bound, "__func__", None) is getattr(ToolCallListener, method):
            return None
        kind = kind_of(bound)
        if kind in ("generator", "async_generator") or (kind == "coroutine" and method == "step"):
            raise TypeError(f"{method} of {type(listener).__name__} must be a plain method, not {kind}")
        if kind == "coroutine":
            awaited.add(method)
        return bound

    methods = {method: overridden(method) for method in _METHODS}
    return Hooks(listener, awaited=frozenset(awaited), **methods)
