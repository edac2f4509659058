"""Generator tools: observed from the first step to the last, and otherwise left as they are."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listeners.tool_listener import ToolCallListener, wrap


class Recorder(ToolCallListener):
    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
        self.told.append(("before_call", tool_name))
        return "context"

    def after_call(self, context: Any, tool_name: str, tool_input: dict[str, Any], result: Any, /) -> object:
        self.told.append(("after_call", result))
        return None

    def on_error(
        self, context: Any, tool_name: str, tool_input: dict[str, Any], error: Exception, /
    ) -> str | None:
        self.told.append(("on_error", error))
        return None

    def on_cancel(self, context: Any, tool_name: str, tool_input: dict[str, Any], /) -> object:
        self.told.append(("on_cancel", None))
        return None


class YieldRecorder(Recorder):
    def on_yield(self, context: Any, tool_name: str, tool_input: dict[str, Any], item: Any, /) -> object:
        self.told.append(("on_yield", (context, tool_name, tool_input, item)))
        return None


def count(to: int) -> Generator[int, None, None]:
    yield from range(to)


async def count_async(to: int) -> AsyncGenerator[int, None]:
    for n in range(to):
        yield n


# Equivalence: whatever a caller does to a generator, the wrapped one answers as the bare one.

Action = tuple[str, Any]
ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("thrown"),
    "KeyError": lambda: KeyError("thrown"),
    "StopIteration": lambda: StopIteration("thrown"),
    "StopAsyncIteration": lambda: StopAsyncIteration("thrown"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
}
actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.none() | st.integers(0, 9)),
        st.tuples(st.just("throw"), st.sampled_from(sorted(ERRORS))),
        st.tuples(st.just("close"), st.none()),
    ),
    max_size=6,
)
scripts = st.lists(
    st.sampled_from(["yield", "pass over", "answer", "replace", "return then", "raise", "return"]), max_size=5
)


def scripted(script: list[str]) -> Generator[Any, Any, Any]:
    """Does one thing a line: raises, returns, or yields and treats what is thrown there in some way."""
    for number, line in enumerate(script):
        if line == "raise":
            raise LookupError(number)
        if line == "return":
            return f"returned {number}"
        try:
            got = yield number
            yield ("got", got)
        except BaseException as error:
            if line == "yield":
                raise
            if line == "replace":
                raise RuntimeError(number) from error
            if line == "return then":
                return "early"
            if line == "answer":
                yield ("answered", type(error).__name__)


async def scripted_async(script: list[str]) -> AsyncGenerator[Any, Any]:
    """The same, waiting now and then."""
    for number, line in enumerate(script):
        if line == "raise":
            raise LookupError(number)
        if line == "return":
            return
        try:
            got = yield number
            await asyncio.sleep(0)
            yield ("got", got)
        except BaseException as error:
            if line == "yield":
                raise
            if line == "replace":
                raise RuntimeError(number) from error
            if line == "return then":
                return
            await asyncio.sleep(0)
            if line == "answer":
                yield ("answered", type(error).__name__)


def observe(step: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        return ("gave", step())
    except BaseException as error:
        return _described(error)


async def observe_async(step: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        return ("gave", await step())
    except BaseException as error:
        return _described(error)


def _described(error: BaseException | None) -> tuple[Any, ...]:
    if error is None:
        return ()
    return (type(error), error.args, *_described(error.__cause__), *_described(error.__context__))


def drive(generator: Generator[Any, Any, Any], actions: list[Action]) -> list[tuple[Any, ...]]:
    steps: dict[str, Callable[[Any], Any]] = {
        "send": generator.send,
        "throw": lambda name: generator.throw(ERRORS[name]()),
        "close": lambda _: generator.close(),
    }
    seen = [observe(lambda: next(generator))]
    seen += [observe(lambda action=action, value=value: steps[action](value)) for action, value in actions]
    seen += [observe(generator.close), observe(generator.close)]
    return seen


async def drive_async(generator: AsyncGenerator[Any, Any], actions: list[Action]) -> list[tuple[Any, ...]]:
    steps: dict[str, Callable[[Any], Any]] = {
        "send": generator.asend,
        "throw": lambda name: generator.athrow(ERRORS[name]()),
        "close": lambda _: generator.aclose(),
    }
    seen = [await observe_async(lambda: anext(generator))]
    for action, value in actions:
        seen.append(await observe_async(lambda action=action, value=value: steps[action](value)))
    seen += [await observe_async(generator.aclose), await observe_async(generator.aclose)]
    return seen


def assert_told_once(listener: Recorder, seen: list[tuple[Any, ...]]) -> None:
    methods = [method for method, _ in listener.told]
    outcomes = [method for method in methods if method in ("after_call", "on_error", "on_cancel")]
    assert methods[0] == "before_call"
    # A generator that yields when it is closed is broken: it may live on, until it is collected.
    assert len(outcomes) == 1 or (not outcomes and "ignored GeneratorExit" in str(seen))
    assert methods[-1] == (outcomes or methods)[-1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=400, deadline=None)
@given(scripts, actions)
def test_a_wrapped_generator_answers_as_the_bare_one(script: list[str], actions: list[Action]) -> None:
    """send, throw and close in any order, with tools that swallow, answer, replace or clean up."""
    listener = YieldRecorder()
    expected = drive(scripted(script), actions)
    observed = wrap(scripted, listener)(script)
    assert expected == drive(observed, actions)
    assert_told_once(listener, expected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=400, deadline=None)
@given(scripts, actions)
def test_a_wrapped_async_generator_answers_as_the_bare_one(script: list[str], actions: list[Action]) -> None:
    """asend, athrow and aclose in any order."""
    listener = YieldRecorder()

    async def both() -> None:
        expected = await drive_async(scripted_async(script), actions)
        observed = wrap(scripted_async, listener)(script)
        assert expected == await drive_async(observed, actions)
        assert_told_once(listener, expected)

    asyncio.run(both())


# What a listener is told.


def test_nothing_is_told_before_the_first_step() -> None:
    """Making a generator runs nothing of it."""
    listener = Recorder()
    generator = wrap(count, listener)(2)
    assert listener.told == []
    generator.close()
    assert listener.told == []
    generator = wrap(count, listener)(2)
    next(generator)
    assert listener.told == [("before_call", "count")]
    generator.close()


def test_the_return_value_goes_before_the_list() -> None:
    """after_call is told what the generator returned; without that, what it yielded."""

    def tool(value: object) -> Generator[int, None, object]:
        yield 1
        yield 2
        return value

    for value, told in (("done", "done"), (None, [1, 2]), (0, 0)):
        listener = Recorder()
        observed = wrap(tool, listener)

        def caller() -> Generator[int, None, object]:
            return (yield from observed(value))  # noqa: B023 - run at once

        assert list(caller()) == [1, 2]
        assert listener.told[-1] == ("after_call", told)


def test_the_list_is_kept_only_for_who_wants_it() -> None:
    """A listener without after_call costs no memory for what was yielded."""

    class Item:
        """Something whose life can be watched."""

    def tool() -> Generator[Item, None, None]:
        for _ in range(3):
            yield Item()

    class Deaf(ToolCallListener):
        def before_call(self, *_: Any) -> None: ...

    for _ in wrap(tool, Deaf())():
        assert len([o for o in gc.get_objects() if isinstance(o, Item)]) <= 2


def test_closing_half_way_is_a_cancellation() -> None:
    """on_cancel, and nothing else; also for a break, and for a generator that is only dropped."""
    listener = Recorder()
    observed = wrap(count, listener)
    generator = observed(5)
    next(generator)
    generator.close()
    generator.close()
    assert listener.told == [("before_call", "count"), ("on_cancel", None)]
    listener.told.clear()
    for _ in observed(5):
        break
    gc.collect()
    assert listener.told == [("before_call", "count"), ("on_cancel", None)]


async def test_closing_an_async_generator_half_way_is_a_cancellation() -> None:
    """aclose tells on_cancel, plain or async."""

    class AsyncCancel(Recorder):
        async def on_cancel(self, context: Any, tool_name: str, tool_input: dict[str, Any], /) -> None:
            await asyncio.sleep(0)
            self.told.append(("on_cancel", None))

    for listener in (Recorder(), AsyncCancel()):
        async with aclosing(wrap(count_async, listener)(5)) as generator:
            async for _ in generator:
                break
        assert listener.told == [("before_call", "count_async"), ("on_cancel", None)]


async def test_cancelling_inside_a_step_is_a_cancellation() -> None:
    """A task cancelled while the tool waits: the tool cleans up, on_cancel is told, the cancellation goes on."""
    waiting, cleaned = asyncio.Event(), []

    async def tool() -> AsyncGenerator[int, None]:
        yield 1
        try:
            waiting.set()
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    listener = Recorder()

    async def consume() -> None:
        async for _ in wrap(tool, listener)():
            pass

    task = asyncio.create_task(consume())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned and listener.told == [("before_call", "tool"), ("on_cancel", None)]


def test_an_exception_while_closing_goes_on_and_counts_as_cancelled() -> None:
    """A text could no longer be yielded, so on_error isn't asked."""

    def tool() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            raise ValueError("in the end")

    listener = Recorder()
    generator = wrap(tool, listener)()
    next(generator)
    with pytest.raises(ValueError, match="in the end"):
        generator.close()
    assert listener.told == [("before_call", "tool"), ("on_cancel", None)]


def test_closing_at_the_text_of_on_error_tells_nothing_more() -> None:
    """The outcome was told already."""

    class Rescuer(Recorder):
        def on_error(self, *_: Any) -> str:
            self.told.append(("on_error", None))
            return "sorry"

    def tool() -> Generator[Any, None, None]:
        yield 1
        raise ValueError("kaboom")

    listener = Rescuer()
    generator = wrap(tool, listener)()
    assert [next(generator), next(generator)] == [1, "sorry"]
    generator.close()
    assert [method for method, _ in listener.told] == ["before_call", "on_error"]


async def test_items_are_told_before_they_are_handed_on() -> None:
    """on_yield gets context, name, arguments and the item; of an async tool it may be async."""

    class AsyncYield(YieldRecorder):
        async def on_yield(self, *told: Any) -> None:  # type: ignore[override]  # all of it at once
            await asyncio.sleep(0)
            self.told.append(("on_yield", told))

    listener: Recorder = YieldRecorder()
    for n, _ in enumerate(wrap(count, listener)(2)):
        assert listener.told[-1] == ("on_yield", ("context", "count", {"to": 2}, n))
    listener = AsyncYield()
    async for n in wrap(count_async, listener)(2):
        assert listener.told[-1] == ("on_yield", ("context", "count_async", {"to": 2}, n))
    assert listener.told[-1] == ("after_call", [0, 1])


async def test_a_raising_on_yield_closes_the_tool() -> None:
    """The tool is cleaned up at once, the exception leaves the call, and no outcome is told."""
    cleaned: list[str] = []

    def tool() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            cleaned.append("plain")

    async def async_tool() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            cleaned.append("async")

    class Failing(Recorder):
        def on_yield(self, *_: Any) -> None:
            raise LookupError("no")

    listener = Failing()
    with pytest.raises(LookupError):
        next(wrap(tool, listener)())
    with pytest.raises(LookupError):
        await anext(wrap(async_tool, listener)())
    assert cleaned == ["plain", "async"]
    assert [method for method, _ in listener.told] == ["before_call", "before_call"]


# The hook around each step.

current: ContextVar[str] = ContextVar("current", default="nobody")


class Stepping(Recorder):
    @contextmanager
    def _entered(self, context: Any) -> Iterator[None]:
        token = current.set(context)
        self.told.append(("enter", None))
        try:
            yield
        finally:
            current.reset(token)
            self.told.append(("exit", None))

    def step(self, context: Any, /) -> AbstractContextManager[None]:
        return self._entered(context)


async def test_a_step_encloses_the_body_of_every_kind() -> None:
    """A context variable set by ``step`` is seen by the body, and by nobody between a generator's steps."""

    def function() -> str:
        return current.get()

    async def coroutine() -> str:
        await asyncio.sleep(0)
        return current.get()

    def awaitable() -> Any:
        assert current.get() == "context"
        return coroutine()

    def generator() -> Generator[str, None, None]:
        yield current.get()
        yield current.get()

    async def async_generator() -> AsyncGenerator[str, None]:
        yield current.get()
        await asyncio.sleep(0)
        yield current.get()

    once = ["before_call", "enter", "after_call", "exit"]
    for tool, told in (
        (function, once),
        (coroutine, once),
        (awaitable, ["before_call", "enter", "exit", "enter", "after_call", "exit"]),
    ):
        listener = Stepping()
        result: Any = wrap(tool, listener)()
        assert (await result if inspect.isawaitable(result) else result) == "context"
        assert [method for method, _ in listener.told] == told
    steps = ["before_call", "enter", "exit", "enter", "exit", "enter", "after_call", "exit"]
    listener = Stepping()
    for item in wrap(generator, listener)():
        assert (item, current.get()) == ("context", "nobody")
    assert [method for method, _ in listener.told] == steps
    listener = Stepping()
    async for item in wrap(async_generator, listener)():
        assert (item, current.get()) == ("context", "nobody")
    assert [method for method, _ in listener.told] == steps


async def test_steps_may_run_in_different_tasks() -> None:
    """Each step is entered and left in the context of whoever asked for it."""
    generator = wrap(count_async, Stepping())(3)

    async def take() -> int:
        return await anext(generator)

    assert [await asyncio.create_task(take()) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(StopAsyncIteration):
        await take()


def test_a_step_cannot_swallow_what_the_tool_raises() -> None:
    """The caller's result depends on the exception, so it passes all the same."""

    class Swallowing(Recorder):
        @contextmanager
        def _swallow(self) -> Iterator[None]:
            try:
                yield
            except ValueError:
                self.told.append(("swallowed", None))

        def step(self, context: Any, /) -> AbstractContextManager[None]:
            return self._swallow()

    def tool() -> None:
        raise ValueError("kaboom")

    listener = Swallowing()
    with pytest.raises(ValueError, match="kaboom"):
        wrap(tool, listener)()
    assert listener.told[-1] == ("swallowed", None)


def test_a_step_that_cannot_be_entered_keeps_the_tool_from_running() -> None:
    """As a raising before_call does; it isn't the tool's failure."""

    class Failing(Recorder):
        def step(self, context: Any, /) -> AbstractContextManager[None]:
            raise LookupError("no")

    listener = Failing()
    with pytest.raises(LookupError):
        wrap(lambda: pytest.fail("the tool ran"), listener)()
    with pytest.raises(LookupError):
        next(wrap(count, listener)(1))
    assert {method for method, _ in listener.told} == {"before_call"}


def test_a_step_may_be_nothing() -> None:
    """A listener may have nothing to enter for this call."""

    class Idle(Recorder):
        def step(self, context: Any, /) -> None:
            return None

    assert wrap(lambda: 1, Idle())() == 1
