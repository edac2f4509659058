"""Functions that take the current run along into threads that inherit no context."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from listeners.publishing.current import current_run

if TYPE_CHECKING:
    from listeners.publishing.publisher import RunPublisher

__all__ = ["bound"]

P = ParamSpec("P")
R = TypeVar("R")


def bound(function: Callable[P, R], run: RunPublisher) -> Callable[P, R]:
    """Return ``function`` such that it runs in a copy of the present context, with ``run`` as the current run.

    A coroutine function stays one; it runs in its task's own context, and only the run is set.
    """
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            token = current_run.set(run)
            try:
                return await function(*args, **kwargs)
            finally:
                current_run.reset(token)

        return cast(Callable[P, R], awaited)

    context = copy_context()
    context.run(current_run.set, run)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered by one thread at a time: each call gets a copy.
        return context.copy().run(function, *args, **kwargs)

    return called
