"""Running one tool's body: on the loop or in a thread of its own, for as long as it may take."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from listeners.chain.binding import Binding
from listeners.chain.function import Function
from listeners.chain.invalid import check_required
from listeners.chain.messages import ToolCall
from listeners.chain.returns import Arguments, Settled, error_result, failure, settle
from listeners.chain.tool_context import ToolContext
from listeners.likeness import kind_of
from listeners.progress import yielded
from listeners.texts import repr_of

__all__ = ["run_body"]


async def run_body(
    function: Function, call: ToolCall, context: ToolContext, *, timeout: float | None
) -> Settled:
    """Parse the arguments of ``call``, run the body and make a result of what comes out.

    Never raises an ``Exception``: it is in the result. ``timeout``: seconds from the start of the body. When the
    time is over, or the task is cancelled, nobody waits for a thread any longer, and ``context.cancelled`` is set.
    """
    arguments = Arguments(call.own().arguments)
    try:
        if function.parse_args is None:
            check_required(arguments, function.parameters)
        else:
            parsed: object = function.parse_args(arguments)
            if not isinstance(parsed, Mapping):
                if inspect.iscoroutine(parsed):
                    parsed.close()
                text = f"parse_args returned unexpected shape: {repr_of(parsed)}"
                return Settled(error_result(text, call, function))
            arguments = Arguments(parsed)
    except Exception as error:
        return failure(error, call, function)
    try:
        async with asyncio.timeout(timeout) as limit:
            end = await _end(_Body(function, arguments, _given(function, context), context.cancelled))
        late = limit.expired()
    except TimeoutError:
        # The limit's own: what a body raises comes as a value.
        late = True
    except BaseException:
        context.cancelled.set()
        raise
    if late:
        # What a body makes of being stopped, a value or an exception, comes too late.
        context.cancelled.set()
        text = f"Tool '{function.name}' did not finish within {timeout:g} s."
        return Settled(error_result(text, call, function, "timeout"))
    if end.error is not None:
        return failure(end.error, call, function, arguments)
    return Settled(settle(end.value, call, function))


def _given(function: Function, context: ToolContext) -> Any:
    if isinstance(function.parse_args, Binding):
        return context
    custom = context.custom_context
    if custom is None or isinstance(custom, Mapping):
        return {**(custom or {}), "tool_call_id": context.tool_call_id}
    return custom


@dataclass(slots=True)
class _Body:
    function: Function
    arguments: Arguments
    context: Any
    cancelled: threading.Event

    def begin(self) -> Any:
        return self.function.function(self.arguments, self.context)

    def finish(self) -> Any:
        """Run it to its end, a generator included."""
        value = self.begin()
        return self.drain(value) if inspect.isgenerator(value) and not inspect.isawaitable(value) else value

    def drain(self, generator: Generator[Any, Any, Any]) -> Any:
        items: list[Any] = []
        while not self.cancelled.is_set():
            try:
                item = next(generator)
            except StopIteration as end:
                return items if end.value is None else end.value
            items.append(item)
            if not self.cancelled.is_set():
                yielded(item)
        generator.close()
        return None

    async def drain_async(self, generator: AsyncGenerator[Any, Any]) -> Any:
        items: list[Any] = []
        try:
            async for item in generator:
                items.append(item)
                yielded(item)
        finally:
            await generator.aclose()
        return items


@dataclass(slots=True)
class _End:
    """How a body ended. Its exception is a value: a coroutine can raise no ``StopIteration``, nor a future take one."""

    value: Any = None
    error: Exception | None = None


async def _end(body: _Body) -> _End:
    try:
        if kind_of(body.function.function) in ("coroutine", "async_generator") or not body.function.in_thread:
            value = body.finish()
        else:
            ended = await _in_thread(body.finish, body.function.name)
            if ended.error is not None:
                return ended
            value = ended.value
        if inspect.isasyncgen(value):
            return _End(await body.drain_async(value))
        return _End(await value if inspect.isawaitable(value) else value)
    except Exception as error:
        return _End(error=error)


async def _in_thread(body: Callable[[], Any], name: str) -> _End:
    # A thread of its own: the loop's executor has few, and one that never ends would keep the process alive.
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_End | BaseException] = loop.create_future()

    def work() -> None:
        end: _End | BaseException
        try:
            end = _End(body())
        except Exception as error:
            end = _End(error=error)
        except BaseException as error:
            # For the loop's thread: a thread's own SystemExit would be lost.
            end = error
        # Nobody waits if the loop is closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, ended, end)

    threading.Thread(target=copy_context().run, args=(work,), name=f"tool {name}", daemon=True).start()
    end = await ended
    if isinstance(end, BaseException):
        raise end
    return end


def _settle(future: asyncio.Future[_End | BaseException], end: _End | BaseException) -> None:
    if not future.done():
        future.set_result(end)
    elif isinstance(end, _End) and inspect.iscoroutine(end.value):
        end.value.close()  # too late to be awaited
