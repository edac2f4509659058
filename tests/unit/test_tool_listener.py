"""Every kind of tool, every outcome: what the caller gets and what the listener is told."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from listeners.tool_listener import ToolCallListener, wrap, wrap_all

Tool = Callable[..., Any]


class Recorder(ToolCallListener):
    """Writes down what it is told; ``answers`` says what a method returns, an exception among them is raised."""

    def __init__(self, **answers: Any) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._answers = answers

    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
        return self._tell("before_call", tool_name, tool_input)

    def after_call(self, context: Any, tool_name: str, tool_input: dict[str, Any], result: Any, /) -> object:
        return self._tell("after_call", context, tool_name, tool_input, result)

    def on_error(
        self, context: Any, tool_name: str, tool_input: dict[str, Any], error: Exception, /
    ) -> str | None:
        return self._tell("on_error", context, tool_name, tool_input, error)

    def on_cancel(self, context: Any, tool_name: str, tool_input: dict[str, Any], /) -> object:
        return self._tell("on_cancel", context, tool_name, tool_input)

    def _tell(self, method: str, *told: Any) -> Any:
        self.told.append((method, *told))
        answer = self._answers.get(method)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def methods(self) -> list[str]:
        return [method for method, *_ in self.told]


class AsyncRecorder(Recorder):
    async def before_call(self, *told: Any) -> object:  # type: ignore[override]  # one signature for all four
        await asyncio.sleep(0)
        return self._tell("before_call", *told)

    async def after_call(self, *told: Any) -> object:  # type: ignore[override]  # one signature for all four
        await asyncio.sleep(0)
        return self._tell("after_call", *told)

    async def on_error(self, *told: Any) -> str | None:  # type: ignore[override]  # one signature for all four
        await asyncio.sleep(0)
        return self._tell("on_error", *told)

    async def on_cancel(self, *told: Any) -> object:  # type: ignore[override]  # one signature for all four
        await asyncio.sleep(0)
        return self._tell("on_cancel", *told)


# A tool that does what it is given: returns a value, raises an exception.


def plain(outcome: Any) -> Any:
    """Do as told."""
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


async def coroutine(outcome: Any) -> Any:
    """Do as told."""
    await asyncio.sleep(0)
    return plain(outcome)


def awaitable(outcome: Any) -> Awaitable[Any]:
    """Do as told."""
    return coroutine(outcome)


def generator(outcome: Any) -> Any:
    """Do as told."""
    yield "one"
    return plain(outcome)


async def async_generator(outcome: Any) -> Any:
    """Do as told."""
    yield "one"
    yield plain(outcome)


async def finish(given: Any) -> tuple[list[Any], Any]:
    """Drive what a call of any kind gave to its end: what it yielded, and what it returned."""
    items = []
    if inspect.isasyncgen(given):
        async for item in given:
            items.append(item)  # noqa: PERF401 - what was yielded before an exception must not get lost
        return items, None
    if inspect.isgenerator(given):
        while True:
            try:
                items.append(next(given))
            except StopIteration as stop:
                return items, stop.value
    return items, await given if inspect.isawaitable(given) else given


def forms(tool: Tool) -> dict[str, Tool]:
    """The ways in which a function comes as a tool."""

    if inspect.iscoroutinefunction(tool):

        async def method(self: object, outcome: Any) -> Any:
            return await tool(outcome)
    elif inspect.isgeneratorfunction(tool):

        def method(self: object, outcome: Any) -> Any:
            return (yield from tool(outcome))
    elif inspect.isasyncgenfunction(tool):

        async def method(self: object, outcome: Any) -> Any:
            async for item in tool(outcome):
                yield item
    else:

        def method(self: object, outcome: Any) -> Any:
            return tool(outcome)

    methods: Any = type(
        "Methods",
        (),
        {"method": method, "class_method": classmethod(method), "static_method": staticmethod(tool)},
    )
    callable_object: Any = type("CallableObject", (), {"__call__": method})()
    return {
        "function": tool,
        "bound method": methods().method,
        "class method": methods.class_method,
        "static method": methods.static_method,
        "partial": functools.partial(tool),
        "partial of a method": functools.partial(methods().method),
        "callable object": callable_object,
        "partial of an object": functools.partial(callable_object),
    }


KINDS: dict[str, Tool] = {f.__name__: f for f in (plain, coroutine, awaitable, generator, async_generator)}
YIELDING = ("generator", "async_generator")
TOOLS = [
    pytest.param(kind, tool, id=f"{kind}-{form}")
    for kind, function in KINDS.items()
    for form, tool in forms(function).items()
]
every_tool = pytest.mark.parametrize(("kind", "tool"), TOOLS)


def result_of(kind: str, outcome: Any) -> Any:
    """What ``after_call`` is told when a tool of this kind is called with ``outcome``."""
    return ["one", outcome] if kind == "async_generator" else outcome


@every_tool
async def test_a_result_is_unchanged_and_told_once(kind: str, tool: Tool) -> None:
    """before, then after with the very object; the caller gets what the bare tool gives."""
    outcome = object()
    listener = Recorder(before_call="context")
    observed = wrap(tool, listener, name="it")
    assert await finish(tool(outcome)) == await finish(observed(outcome))
    given = {"outcome": outcome}
    assert listener.told == [
        ("before_call", "it", given),
        ("after_call", "context", "it", given, result_of(kind, outcome)),
    ]


@every_tool
async def test_an_exception_is_the_same_object(kind: str, tool: Tool) -> None:
    """on_error returning None lets the tool's exception go on, with the tool's own traceback."""
    error = ValueError("kaboom")
    listener = Recorder(before_call="context")
    observed = wrap(tool, listener, name="it")
    with pytest.raises(ValueError, match="kaboom") as caught:
        await finish(observed(error))
    assert caught.value is error
    assert error.__cause__ is None and error.__context__ is None
    assert "plain" in [entry.name for entry in caught.traceback]
    given = {"outcome": error}
    assert listener.told == [
        ("before_call", "it", given),
        ("on_error", "context", "it", given, error),
    ]


@every_tool
@pytest.mark.parametrize("text", ["sorry", ""])
async def test_a_text_from_on_error_becomes_the_result(kind: str, tool: Tool, text: str) -> None:
    """The text, even an empty one, is returned; a generator yields it as its last item."""
    listener = Recorder(on_error=text)
    items, value = await finish(wrap(tool, listener)(ValueError("kaboom")))
    if kind in YIELDING:
        assert (items, value) == (["one", text], None)
    else:
        assert value == text
    assert listener.methods == ["before_call", "on_error"]


@every_tool
@pytest.mark.parametrize(
    "interruption", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit]
)
async def test_an_interruption_goes_to_on_cancel_and_on(
    kind: str, tool: Tool, interruption: type[BaseException]
) -> None:
    """A BaseException is told to on_cancel, never to on_error, and always propagates."""
    error = interruption()
    listener = Recorder(before_call="context", on_error="swallowed")
    with pytest.raises(interruption) as caught:
        await finish(wrap(tool, listener, name="it")(error))
    assert caught.value is error
    given = {"outcome": error}
    assert listener.told == [("before_call", "it", given), ("on_cancel", "context", "it", given)]


@every_tool
@pytest.mark.parametrize("raised", [RuntimeError("a"), KeyboardInterrupt()])
async def test_what_on_cancel_raises_is_logged(
    kind: str, tool: Tool, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """It never takes the place of the interruption."""
    error = SystemExit()
    with pytest.raises(SystemExit) as caught, caplog.at_level(logging.ERROR, "listeners"):
        await finish(wrap(tool, Recorder(on_cancel=raised), name="it")(error))
    assert caught.value is error
    assert [record.getMessage() for record in caplog.records] == ["on_cancel of Recorder for tool it failed"]


@every_tool
async def test_a_raising_before_call_keeps_the_tool_from_running(kind: str, tool: Tool) -> None:
    """Nothing else is told, and the exception leaves the call."""
    failure = LookupError("no")
    listener = Recorder(before_call=failure, on_error="swallowed")
    ran = SystemExit("the tool ran")
    with pytest.raises(LookupError) as caught:
        await finish(wrap(tool, listener)(ran))
    assert caught.value is failure
    assert listener.methods == ["before_call"]


@every_tool
async def test_a_raising_after_call_loses_the_result(kind: str, tool: Tool) -> None:
    """Its exception leaves the call and isn't told to on_error: the tool did not fail."""
    failure = LookupError("no")
    listener = Recorder(after_call=failure, on_error="swallowed")
    with pytest.raises(LookupError) as caught:
        await finish(wrap(tool, listener)(1))
    assert caught.value is failure
    assert failure.__context__ is None
    assert listener.methods == ["before_call", "after_call"]


@every_tool
async def test_a_raising_on_error_takes_the_exceptions_place(kind: str, tool: Tool) -> None:
    """The tool's exception is its cause."""
    error, failure = ValueError("kaboom"), LookupError("no")
    listener = Recorder(on_error=failure)
    with pytest.raises(LookupError) as caught:
        await finish(wrap(tool, listener)(error))
    assert caught.value is failure
    assert failure.__cause__ is error
    assert listener.methods == ["before_call", "on_error"]


@every_tool
@pytest.mark.parametrize("answer", [0, False, b"bytes", ["text"]])
async def test_on_error_returning_anything_else_is_a_type_error(
    kind: str, tool: Tool, answer: object
) -> None:
    """The TypeError comes from the tool's exception and names listener, tool and remedy."""
    error = ValueError("kaboom")
    with pytest.raises(
        TypeError, match=r"on_error of Recorder returned .* for tool it: return the text"
    ) as caught:
        await finish(wrap(tool, Recorder(on_error=answer), name="it")(error))
    assert caught.value.__cause__ is error


@every_tool
async def test_a_listener_without_overrides_changes_nothing(kind: str, tool: Tool) -> None:
    """The base class is a listener too."""
    observed = wrap(tool, ToolCallListener())
    assert await finish(observed(7)) == await finish(tool(7))
    error = ValueError("kaboom")
    with pytest.raises(ValueError, match="kaboom") as caught:
        await finish(observed(error))
    assert caught.value is error
    with pytest.raises(KeyboardInterrupt):
        await finish(observed(KeyboardInterrupt()))


@every_tool
async def test_wrong_arguments_are_told_and_raise_the_tools_own_type_error(kind: str, tool: Tool) -> None:
    """What a model got wrong is what an audit wants to see."""
    listener = Recorder()
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'") as caught:
        await finish(wrap(tool, listener, name="it")(1, wrong=2))
    given = {"args": (1,), "wrong": 2}
    assert listener.told == [
        ("before_call", "it", given),
        ("on_error", None, "it", given, caught.value),
    ]


ASYNC_TOOLS = [tool for tool in TOOLS if tool.values[0] in ("coroutine", "async_generator")]


@pytest.mark.parametrize(("kind", "tool"), ASYNC_TOOLS)
async def test_async_listener_methods_are_awaited_around_async_tools(kind: str, tool: Tool) -> None:
    """Each outcome, with every method awaited."""
    for outcome, told in (
        (1, ["before_call", "after_call"]),
        (ValueError("kaboom"), ["before_call", "on_error"]),
        (KeyboardInterrupt(), ["before_call", "on_cancel"]),
    ):
        listener = AsyncRecorder(before_call="context")
        try:
            await finish(wrap(tool, listener)(outcome))
        except (ValueError, KeyboardInterrupt) as error:
            assert error is outcome
        assert listener.methods == told
        assert listener.told[1][1] == "context"
    listener = AsyncRecorder(on_error="sorry")
    items, value = await finish(wrap(tool, listener)(ValueError("kaboom")))
    assert (items[-1:] or [value]) == ["sorry"]


@pytest.mark.parametrize(("kind", "tool"), [tool for tool in TOOLS if tool not in ASYNC_TOOLS])
def test_async_listener_methods_are_refused_around_tools_that_are_not(kind: str, tool: Tool) -> None:
    """When wrapping, with the methods, the tool and the remedy in the message."""
    with pytest.raises(
        TypeError,
        match="after_call, before_call, on_cancel, on_error of AsyncRecorder cannot be awaited by it, a tool that "
        "is not async",
    ):
        wrap(tool, AsyncRecorder(), name="it")


class AwaitableContext(ToolCallListener):
    def __init__(self) -> None:
        self.contexts: list[object] = []

    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
        return self

    def after_call(self, context: Any, *_: Any) -> object:
        self.contexts.append(context)
        return self

    def __await__(self) -> Any:
        raise AssertionError("awaited")
        yield


@every_tool
async def test_an_awaitable_context_is_never_awaited(kind: str, tool: Tool) -> None:
    """Whether a method is awaited was decided when wrapping, by its kind and not by what it returns."""
    listener = AwaitableContext()
    await finish(wrap(tool, listener)(1))
    assert listener.contexts == [listener]


async def test_concurrent_calls_keep_their_contexts_apart() -> None:
    """A context belongs to one invocation."""

    class Numbering(Recorder):
        def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
            return tool_input["outcome"]

    listener = Numbering()
    observed = wrap(coroutine, listener)
    await asyncio.gather(*(observed(n) for n in range(20)))
    assert len(listener.told) == 20
    assert all(context == result for _, context, _, _, result in listener.told)


async def test_methods_run_in_the_thread_and_context_of_the_tool() -> None:
    """What before_call sets is seen by the body and by after_call, in whatever thread the tool is called."""
    spot: ContextVar[str] = ContextVar("spot", default="unset")

    class Placing(ToolCallListener):
        def before_call(self, *_: Any) -> int:
            spot.set("set by before_call")
            return threading.get_ident()

        def after_call(self, context: Any, tool_name: str, tool_input: Any, result: Any, /) -> None:
            assert (context, spot.get()) == (threading.get_ident(), "set by before_call")

    def function() -> tuple[int, str]:
        return threading.get_ident(), spot.get()

    async def waiting() -> tuple[int, str]:
        await asyncio.sleep(0)
        return function()

    thread, seen = await asyncio.to_thread(wrap(function, Placing()))
    assert (thread != threading.get_ident(), seen) == (True, "set by before_call")
    assert await wrap(waiting, Placing())() == (threading.get_ident(), "set by before_call")


async def test_cancelling_a_task_tells_on_cancel_and_goes_on() -> None:
    """A cancelled coroutine tool is told once; the task ends as cancelled."""
    started = asyncio.Event()

    async def wait_for_ever() -> None:
        started.set()
        await asyncio.Event().wait()

    listener = AsyncRecorder()
    task = asyncio.create_task(wrap(wait_for_ever, listener)())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert listener.methods == ["before_call", "on_cancel"]


async def test_closing_a_coroutine_never_waits_for_on_cancel(caplog: pytest.LogCaptureFixture) -> None:
    """Python forbids to await in a closed coroutine; an async on_cancel that wants to is cut off and logged."""

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    listener = AsyncRecorder()
    call = wrap(wait_for_ever, listener, name="it")()
    call.send(None)
    call.send(None)
    call.close()
    assert listener.methods == ["before_call"]
    assert caplog.messages == [
        "on_cancel of AsyncRecorder for tool it wanted to wait, but the call was closed, not cancelled"
    ]

    class Prompt(ToolCallListener):
        cancelled = False

        async def on_cancel(self, *_: Any) -> None:
            self.cancelled = True

    prompt = Prompt()
    call = wrap(wait_for_ever, prompt)()
    call.send(None)
    call.close()
    assert prompt.cancelled


async def test_a_cause_that_on_error_gave_itself_is_kept() -> None:
    """Chaining must not overwrite what the listener said."""
    cause = KeyError("why")

    class Explaining(ToolCallListener):
        def on_error(self, *_: Any) -> None:
            raise LookupError("no") from cause

    with pytest.raises(LookupError) as caught:
        wrap(plain, Explaining())(ValueError("kaboom"))
    assert caught.value.__cause__ is cause


async def test_on_error_raising_the_tools_exception_itself() -> None:
    """It goes on as it is, without becoming its own cause."""

    class Again(ToolCallListener):
        def on_error(self, context: Any, tool_name: str, tool_input: Any, error: Exception, /) -> None:
            raise error

    error = ValueError("kaboom")
    with pytest.raises(ValueError, match="kaboom") as caught:
        wrap(plain, Again())(error)
    assert caught.value is error and error.__cause__ is None


def test_the_name_is_that_of_the_function_or_class() -> None:
    """``__name__``; of a partial its function's, of an object its class's; ``name=`` goes before it."""

    class Search:
        def __call__(self, q: str) -> str:
            return q

    for tool, name in (
        (plain, "plain"),
        (functools.partial(functools.partial(plain, 1)), "plain"),
        (Search(), "Search"),
        (functools.partial(Search(), "x"), "Search"),
        (Search().__call__, "__call__"),
        (len, "len"),
    ):
        listener = Recorder(before_call=LookupError("enough"))
        with pytest.raises(LookupError):
            wrap(tool, listener)("x")
        assert listener.told[0][1] == name
    listener = Recorder()
    wrap(plain, listener, name="other")(1)
    assert {told[1] for told in listener.told if told[0] == "before_call"} == {"other"}


def test_anything_with_a_tool_listener_is_accepted() -> None:
    """A ready-made listener reports its tool calls through its property."""

    class ReadyMade:
        def __init__(self) -> None:
            self.recorder = Recorder()

        @property
        def tool_listener(self) -> Recorder:
            return self.recorder

    listener = ReadyMade()
    [observed] = wrap_all([plain], listener)
    observed(1)
    assert listener.recorder.methods == ["before_call", "after_call"]


@pytest.mark.parametrize(
    ("listener", "message"),
    [
        (None, "listener is None"),
        (Recorder, r"Recorder is a class: give an instance, Recorder\(…\)"),
        (object(), "object is not a listener: subclass ToolCallListener"),
        ({"before_call": print}, "dict is not a listener"),
    ],
)
def test_what_is_no_listener_is_refused(listener: Any, message: str) -> None:
    """At once, with the remedy."""
    with pytest.raises(TypeError, match=message):
        wrap(plain, listener)


@pytest.mark.parametrize("tool", [None, 5, "search", {"name": "search"}, [plain]])
def test_what_is_no_tool_is_refused(tool: Any) -> None:
    """At once, with the remedy."""
    with pytest.raises(TypeError, match="give a callable, or a tool object of a framework"):
        wrap(tool, Recorder())


def test_listener_methods_that_are_generators_are_refused() -> None:
    """They would never run; an async ``step`` could not be entered."""

    class Yielding(ToolCallListener):
        def before_call(self, *_: Any) -> Any:
            yield

    class AsyncStep(ToolCallListener):
        async def step(self, context: Any, /) -> None:  # type: ignore[override]  # what is refused
            return None

    with pytest.raises(TypeError, match="before_call of Yielding must be a plain method, not generator"):
        wrap(plain, Yielding())
    with pytest.raises(TypeError, match="step of AsyncStep must be a plain method, not coroutine"):
        wrap(coroutine, AsyncStep())


def test_wrap_all_takes_any_iterable_and_leaves_it_alone() -> None:
    """A new list, same order; None is refused."""
    tools = (plain, generator)
    observed = wrap_all((tool for tool in tools), Recorder())
    assert [tool.__name__ for tool in observed] == ["plain", "generator"]
    with pytest.raises(TypeError, match="tools is None"):
        wrap_all(None, Recorder())  # type: ignore[type-var]  # what is refused
