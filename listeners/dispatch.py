"""Handlers in their order: what may be registered, and how an event is told to them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from listeners.callbacks import EVENTS, ChainListener
from listeners.errors import HandlerError
from listeners.likeness import kind_of
from listeners.texts import repr_of
from listeners.tool_listener import ToolCallListener

__all__ = ["Handler", "Handlers"]

Handler = Callable[..., object]

_LIKELY: Final = 0.6


class Handlers:
    """An ordered list of handlers. ``own(value)`` makes of an argument the copy that one handler gets."""

    def __init__(self, own: Callable[[Any], Any] = lambda value: value) -> None:
        self._own = own
        self._given: tuple[Any, ...] = ()
        self._told: dict[str, tuple[Handler, ...]] = {}

    @property
    def given(self) -> tuple[Any, ...]:
        """The mappings and listeners in the order they were added."""
        return self._given

    def add(self, handlers: object) -> None:
        """Append a mapping or a listener; raises ``ValueError`` for what would never be told, or couldn't be."""
        named = dict(_checked(handlers))
        self._given = (*self._given, handlers)
        for event, handler in named.items():
            # A new tuple: who is being told meanwhile goes on with the old one.
            self._told[event] = (*self.of(event), handler)

    def of(self, event: str) -> tuple[Handler, ...]:
        """Return who is told of ``event``, in order."""
        return self._told.get(event, ())

    async def fire(self, event: str, *args: Any) -> None:
        """Tell everybody in order, one after the other; raises :class:`HandlerError` for the first that raises."""
        for handler in self._told.get(event, ()):
            await self.ask(handler, event, *args)

    async def ask(self, handler: Handler, event: str, *args: Any) -> Any:
        """Tell one handler and return its answer, awaited if it is awaitable."""
        try:
            answer = handler(*map(self._own, args))
            return await answer if answer is not None and inspect.isawaitable(answer) else answer
        except Exception as error:
            raise HandlerError(event, error) from error


def _checked(handlers: object) -> Iterator[tuple[str, Handler]]:
    if isinstance(handlers, type):
        raise ValueError(f"{handlers.__name__} is a class: give an instance, {handlers.__name__}(…)")
    if isinstance(handlers, ToolCallListener):
        raise ValueError(
            f"{type(handlers).__name__} is a ToolCallListener, which observes wrapped tools: give it to wrap_all, "
            "and to a chain a ChainListener or a mapping"
        )
    if isinstance(handlers, Mapping):
        for event, handler in handlers.items():
            if event not in EVENTS:
                raise ValueError(_unknown(f"key {event!r}", str(event)))
            if handler is not None:
                yield event, _callable(event, handler, f"{event!r}")
        return
    owner = type(handlers).__name__
    found = False
    for name in [name for name in dir(handlers) if name.startswith("on_")]:
        if name not in EVENTS:
            raise ValueError(_unknown(f"{owner}.{name}", name))
        handler = getattr(handlers, name)
        if getattr(handler, "__func__", None) is not getattr(ChainListener, name) and handler is not None:
            found = True
            yield name, _callable(name, handler, f"{owner}.{name}")
    if not found:
        raise ValueError(
            f"{owner} handles no event: give a mapping of events to functions, or a ChainListener that overrides "
            "at least one method"
        )


def _unknown(what: str, name: str) -> str:
    bare = {event.removeprefix("on_"): event for event in EVENTS}
    near = difflib.get_close_matches(name.removeprefix("on_").lower(), bare, n=1, cutoff=_LIKELY)
    hint = f"did you mean {bare[near[0]]}?" if near else f"the events are {', '.join(sorted(EVENTS))}"
    return f"{what} is no event of a chain; {hint}"


def _callable(event: str, handler: Any, what: str) -> Handler:
    signature = f"{event}({', '.join(EVENTS[event])})"
    if not callable(handler):
        raise ValueError(
            f"{what} is {repr_of(handler, 80)}, which can't be called: give a function {signature}"
        )
    if kind_of(handler) in ("generator", "async_generator"):
        raise ValueError(
            f"{what} is a generator function, which would never run: give a function {signature}"
        )
    try:
        taken = inspect.signature(handler)
    except (TypeError, ValueError):  # several builtins have none
        return handler  # type: ignore[no-any-return]  # narrowed to a callable of unknown type
    try:
        taken.bind(*EVENTS[event])
    except TypeError:
        raise ValueError(f"{what} takes {taken}, but is called as {signature}") from None
    return handler  # type: ignore[no-any-return]  # narrowed to a callable of unknown type
