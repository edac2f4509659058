"""What a wrapper must have of its tool: the kind, the name, and what ``inspect`` and ``functools.wraps`` look at."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

__all__ = ["Kind", "ToolInput", "binder", "dress", "kind_of", "tool_name"]

Kind = Literal["function", "coroutine", "generator", "async_generator"]
ToolInput = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]
"""From a call's positional and keyword arguments to the mapping a listener is told."""


def kind_of(tool: Callable[..., Any]) -> Kind:
    """Tell what calling ``tool`` gives, looking through partials and at the ``__call__`` of objects."""
    body: Any = _without_partials(tool)
    candidates = [tool] if inspect.isclass(body) or inspect.isroutine(body) else [tool, type(body).__call__]
    for candidate in candidates:
        if inspect.iscoroutinefunction(candidate):
            return "coroutine"
        if inspect.isasyncgenfunction(candidate):
            return "async_generator"
        if inspect.isgeneratorfunction(candidate) and not _is_legacy_coroutine(candidate):
            return "generator"
    return "function"


def tool_name(tool: Any) -> str:
    """The tool's ``__name__``; of a partial its function's, of an object its class's."""
    named = getattr(tool, "__name__", None)
    if isinstance(named, str):
        return named
    return tool_name(tool.func) if isinstance(tool, functools.partial) else type(tool).__name__


def binder(tool: Callable[..., Any]) -> ToolInput:
    """Bind a call's arguments to ``tool``'s signature, which is read once."""
    if isinstance(tool, functools.partial):
        # One that was dressed as its function has that function's signature: too many parameters to bind to.
        tool = functools.partial(tool.func, *tool.args, **tool.keywords)
    try:
        signature = inspect.signature(tool)
    except (TypeError, ValueError):  # several builtins have none
        return _as_given
    extra = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError:
            # The tool is about to raise its own TypeError: an audit wants to see what it was given.
            return _as_given(args, kwargs)
        if extra is not None and extra in bound:
            others: Mapping[str, Any] = bound.pop(extra)
            bound = {**others, **bound} if others.keys() & bound.keys() else {**bound, **others}
        return bound

    return bind


def _as_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"args": args, **kwargs} if args else dict(kwargs)


def dress(wrapper: Callable[..., Any], tool: Callable[..., Any]) -> None:
    """Give ``wrapper`` the name, doc, signature and annotations of ``tool``, as ``functools.wraps`` does.

    Partials and objects need more: they have no name, a partial's doc is that of ``functools.partial``, and the
    names in string annotations can't be found through them, so these are resolved here.
    """
    inner = _without_partials(tool)
    if inspect.isclass(inner) or inspect.isroutine(inner) or "__wrapped__" in _attributes(inner):
        body = owner = inner
    else:
        body, owner = type(inner).__call__, type(inner)
    wrapper.__annotations__ = {}
    if body is tool:
        functools.update_wrapper(wrapper, tool, updated=() if inspect.isclass(tool) else ("__dict__",))
        return
    own = _attributes(tool)
    wrapper.__dict__.update({k: v for k, v in own.items() if k not in functools.WRAPPER_ASSIGNMENTS})
    wrapper.__module__ = owner.__module__
    wrapper.__name__ = tool_name(tool)
    wrapper.__qualname__ = own.get("__qualname__", getattr(owner, "__qualname__", wrapper.__name__))
    wrapper.__doc__ = own.get("__doc__", inner.__doc__)
    wrapper.__annotations__ = _hints(body, tool)
    wrapper.__dict__["__wrapped__"] = tool


def _attributes(tool: Any) -> Mapping[str, Any]:
    # Not hasattr: an object that answers every attribute would seem to be a decorated function.
    attributes: Mapping[str, Any] = getattr(tool, "__dict__", {})
    return attributes


def _hints(body: Any, tool: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(body, include_extras=True)
    except Exception:  # a name that exists for type checkers only, or no annotations at all
        hints = dict(getattr(body, "__annotations__", {}))
    try:
        parameters = inspect.signature(tool).parameters
    except (TypeError, ValueError):
        return hints
    return {name: hint for name, hint in hints.items() if name == "return" or name in parameters}


def _without_partials(tool: Any) -> Any:
    while isinstance(tool, functools.partial):
        tool = tool.func
    return tool


def _is_legacy_coroutine(function: Any) -> bool:
    # types.coroutine makes a generator function whose result is awaited, not iterated.
    code = getattr(_without_partials(function), "__code__", None)
    return code is not None and bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)
