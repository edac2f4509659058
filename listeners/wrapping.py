"""What a wrapped tool is made of: a callable of the tool's own kind that tells a listener.

The kind of a tool is what calling it gives. Frameworks ask ``inspect`` for it, and before Python 3.12 only a real
``async def`` answers ``iscoroutinefunction``; therefore there is one wrapper a kind, and no generic one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

from listeners.invocation import AwaitedInvocation, Hooks, Invocation
from listeners.likeness import Kind, ToolInput, binder, dress, kind_of, tool_name

__all__ = ["observe", "wrap_tool"]


@functools.singledispatch
def wrap_tool(tool: Any, hooks: Hooks, name: str | None) -> Any:
    """Wrap one tool; the classes of framework tools register their own way here.

    What is registered returns an object of the tool's class whose call is observed (:func:`observe`) and whose
    other attributes are the tool's own objects.
    """
    if not callable(tool):
        raise TypeError(
            f"{type(tool).__name__} is not a tool: give a callable, or a tool object of a framework "
            "whose integration is imported"
        )
    return observe(tool, hooks, tool_name(tool) if name is None else name)


@wrap_tool.register
def _(tool: staticmethod, hooks: Hooks, name: str | None) -> Any:  # type: ignore[type-arg]  # dispatch needs the bare class
    return staticmethod(wrap_tool(tool.__func__, hooks, name))


def observe(
    tool: Callable[..., Any], hooks: Hooks, name: str, *, tool_input: ToolInput | None = None
) -> Callable[..., Any]:
    """Return a callable of ``tool``'s kind, name, doc, signature and annotations that tells ``hooks``.

    ``tool_input`` replaces the binding of arguments to ``tool``'s signature. Raises ``TypeError`` if a method of
    the listener would have to be awaited and the tool isn't async.
    """
    kind = kind_of(tool)
    if hooks.awaited and kind in ("function", "generator"):
        methods = ", ".join(sorted(hooks.awaited))
        raise TypeError(
            f"{methods} of {type(hooks.listener).__name__} cannot be awaited by {name}, a tool that is not async: "
            f"make them plain methods, or the tool an `async def`"
        )
    wrapper = _WRAPPERS[kind](tool, hooks, name, tool_input or binder(tool))
    dress(wrapper, tool)
    return wrapper


def _wrap_function(tool: Callable[..., Any], hooks: Hooks, name: str, bind: ToolInput) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = Invocation(hooks, name, bind(args, kwargs))
        call.begin()
        with call.step():
            try:
                result = tool(*args, **kwargs)
            except Exception as error:
                if (text := call.failed(error)) is None:
                    raise
                return text
            except BaseException:
                call.cancelled()
                raise
            if inspect.isawaitable(result):
                return _finish(result, call)
            call.returned(result)
            return result

    return wrapper


async def _finish(awaitable: Awaitable[Any], call: Invocation) -> Any:
    """The rest of a function that returned an awaitable."""
    with call.step():
        try:
            result = await awaitable
        except Exception as error:
            if (text := call.failed(error)) is None:
                raise
            return text
        except BaseException:
            call.cancelled()
            raise
        call.returned(result)
        return result


def _wrap_coroutine(
    tool: Callable[..., Awaitable[Any]], hooks: Hooks, name: str, bind: ToolInput
) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        call = AwaitedInvocation(hooks, name, bind(args, kwargs))
        await call.begin()
        with call.step():
            try:
                result = await tool(*args, **kwargs)
            except Exception as error:
                if (text := await call.failed(error)) is None:
                    raise
                return text
            except BaseException as interruption:
                await call.cancelled(may_wait=not isinstance(interruption, GeneratorExit))
                raise
            await call.returned(result)
            return result

    return wrapper


def _wrap_generator(
    tool: Callable[..., Generator[Any, Any, Any]], hooks: Hooks, name: str, bind: ToolInput
) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = Invocation(hooks, name, bind(args, kwargs))
        call.begin()
        items: list[Any] | None = None if hooks.after_call is None else []
        body: Generator[Any, Any, Any] | None = None
        sent: Any = None
        thrown: BaseException | None = None
        ended, value, text = False, None, None
        try:
            while not ended:
                closing = isinstance(thrown, GeneratorExit)
                with call.step():
                    try:
                        if body is None:
                            body = tool(*args, **kwargs)
                        # `close` arrives as a GeneratorExit; handing it on by `throw` keeps what the tool makes of it.
                        item = body.send(sent) if thrown is None else body.throw(thrown)
                    except StopIteration as stop:
                        ended, value = True, stop.value
                    except Exception as error:
                        ended = True
                        if closing:
                            call.cancelled()
                            raise
                        if (text := call.failed(error)) is None:
                            raise
                    except BaseException:
                        ended = True
                        call.cancelled()
                        raise
                    finally:
                        thrown = None
                    if not ended:
                        call.yielded(item)
                        if items is not None:
                            items.append(item)
                    elif closing:
                        call.cancelled()
                    elif text is None:
                        call.returned(items if value is None else value)
                if not ended:
                    try:
                        sent = yield item
                    except BaseException as error:
                        # Handed on outside of this block: within it, what the tool raises would get it as context.
                        thrown = error
        finally:
            # Left half-way only if the listener raised: then the tool is closed here, not when it is collected.
            if body is not None and not ended:
                body.close()
        if text is not None:
            yield text
        return value

    return wrapper


def _wrap_async_generator(
    tool: Callable[..., AsyncGenerator[Any, Any]], hooks: Hooks, name: str, bind: ToolInput
) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        call = AwaitedInvocation(hooks, name, bind(args, kwargs))
        await call.begin()
        items: list[Any] | None = None if hooks.after_call is None else []
        body: AsyncGenerator[Any, Any] | None = None
        sent: Any = None
        thrown: BaseException | None = None
        ended, text = False, None
        try:
            while not ended:
                closing = isinstance(thrown, GeneratorExit)
                with call.step():
                    try:
                        if body is None:
                            body = tool(*args, **kwargs)
                        item = await (body.asend(sent) if thrown is None else body.athrow(thrown))
                    except StopAsyncIteration:
                        ended = True
                    except Exception as error:
                        ended = True
                        if closing:
                            await call.cancelled(may_wait=True)
                            raise
                        if (text := await call.failed(error)) is None:
                            raise
                    except BaseException as interruption:
                        ended = True
                        # `aclose` can be waited for; any other GeneratorExit closes the coroutine that awaits.
                        await call.cancelled(may_wait=closing or not isinstance(interruption, GeneratorExit))
                        raise
                    finally:
                        thrown = None
                    if not ended:
                        await call.yielded(item)
                        if items is not None:
                            items.append(item)
                    elif closing:
                        await call.cancelled(may_wait=True)
                    elif text is None:
                        await call.returned(items)
                if not ended:
                    try:
                        sent = yield item
                    except BaseException as error:
                        thrown = error
        finally:
            if body is not None and not ended:
                await body.aclose()
        if text is not None:
            yield text

    return wrapper


_WRAPPERS: dict[Kind, Callable[[Any, Hooks, str, ToolInput], Callable[..., Any]]] = {
    "function": _wrap_function,
    "coroutine": _wrap_coroutine,
    "generator": _wrap_generator,
    "async_generator": _wrap_async_generator,
}
