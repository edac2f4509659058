"""A wrapped tool looks like the tool: to ``inspect``, to ``typing``, to any framework that asks them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import types
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from listeners.tool_listener import ToolCallListener, wrap

Tool = Callable[..., Any]


class Inputs(ToolCallListener):
    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []

    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
        self.inputs.append(tool_input)
        return None


def search(query: Annotated[str, "what to look for"], limit: int = 3, *, deep: bool = False) -> list[str]:
    """Search the library."""
    return [query] * limit


async def search_async(query: str, limit: int = 3) -> list[str]:
    """Search the library, waiting."""
    return [query] * limit


def pages(query: str) -> Iterator[str]:
    """Search page by page."""
    yield query


async def pages_async(query: str) -> AsyncIterator[str]:
    """Search page by page, waiting."""
    yield query


search.tags = ["library"]  # type: ignore[attr-defined]  # what a framework might put there


class Library:
    """A library."""

    def search(self, query: str) -> str:
        """Search this library."""
        return query

    @classmethod
    async def open(cls, path: str) -> Library:
        """Open one."""
        return cls()

    @staticmethod
    def close(when: float) -> None:
        """Close one."""


class Finder:
    """Finds things."""

    limit: int = 3

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, query: str, *more: str) -> Annotated[list[str], "found"]:
        """Find one thing."""
        self.calls += 1
        return [query, *more]


class AsyncFinder:
    """Finds things, waiting."""

    async def __call__(self, query: str) -> str:
        return query


class PageFinder:
    def __call__(self, query: str) -> Iterator[str]:
        yield query


class AsyncPageFinder:
    async def __call__(self, query: str) -> AsyncIterator[str]:
        yield query


@functools.lru_cache
def cached(query: str) -> str:
    """Remembered."""
    return query


WITH_NAME: list[Tool] = [
    search,
    search_async,
    pages,
    pages_async,
    Library().search,
    Library.open,
    Library.close,
    Library.search,
    cached,
    len,
    lambda query: query,
]
WITHOUT_NAME: list[Tool] = [
    functools.partial(search, limit=1),
    functools.partial(search_async, "x"),
    functools.partial(pages, "x"),
    functools.partial(pages_async, "x"),
    functools.partial(Library().search, "x"),
    Finder(),
    functools.partial(Finder(), "x"),
]


def name_of(tool: Tool) -> str:
    return getattr(tool, "__name__", type(tool).__name__)


@pytest.mark.parametrize("tool", WITH_NAME, ids=name_of)
def test_looks_of_functions_and_methods(tool: Tool) -> None:
    """Name, module, doc, signature, annotations and attributes are equal; the kinds answer as before."""
    observed = wrap(tool, ToolCallListener())
    assert observed is not tool
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(tool, attribute, {}) == getattr(observed, attribute)
    assert inspect.signature(observed) == inspect.signature(tool)
    assert inspect.unwrap(observed) is inspect.unwrap(tool)
    for question in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        assert question(observed) == question(tool)
    if inspect.isroutine(tool) and tool is not len:
        assert typing.get_type_hints(observed, include_extras=True) == typing.get_type_hints(
            tool, include_extras=True
        )
    assert getattr(observed, "tags", None) == getattr(tool, "tags", None)


@pytest.mark.parametrize("tool", WITHOUT_NAME, ids=name_of)
def test_looks_of_partials_and_objects(tool: Tool) -> None:
    """The signature is theirs; what they lack is the function's or the class's, and the hints can be resolved."""
    observed = wrap(tool, ToolCallListener())
    inner = tool.func if isinstance(tool, functools.partial) else tool
    described = inner if hasattr(inner, "__name__") else type(inner)
    assert (observed.__name__, observed.__doc__) == (described.__name__, described.__doc__)
    assert observed.__module__ == __name__
    assert inspect.signature(observed) == inspect.signature(tool)
    assert observed.__wrapped__ is tool  # type: ignore[attr-defined]  # what functools.wraps sets
    for question in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        assert question(observed) == question(tool)
    hints = typing.get_type_hints(observed, include_extras=True)
    parameters = inspect.signature(tool).parameters
    assert set(hints) <= {*parameters, "return"} and "return" in hints
    assert all(not isinstance(hint, str) for hint in hints.values())


def test_the_kind_of_an_object_is_what_a_call_gives() -> None:
    """An object with ``async def __call__`` is a coroutine function, and so on."""
    for tool, question in (
        (AsyncFinder(), inspect.iscoroutinefunction),
        (PageFinder(), inspect.isgeneratorfunction),
        (AsyncPageFinder(), inspect.isasyncgenfunction),
        (functools.partial(AsyncFinder()), inspect.iscoroutinefunction),
        (functools.partial(PageFinder(), "x"), inspect.isgeneratorfunction),
    ):
        assert question(wrap(tool, ToolCallListener()))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="inspect.markcoroutinefunction came with Python 3.12")
def test_a_marked_function_is_a_coroutine_function() -> None:
    """A plain function that was marked as a coroutine function counts as one."""
    marked = inspect.markcoroutinefunction(lambda query: search_async(query))  # type: ignore[attr-defined]  # 3.12
    observed = wrap(marked, ToolCallListener())
    assert inspect.iscoroutinefunction(observed)
    assert asyncio.run(observed("x")) == ["x", "x", "x"]


def test_a_legacy_coroutine_stays_awaitable() -> None:
    """``types.coroutine`` makes a generator function that is awaited, not iterated."""

    @types.coroutine
    def legacy(query: str) -> Any:
        yield from asyncio.sleep(0).__await__()
        return query

    async def main() -> str:
        result: str = await wrap(legacy, ToolCallListener())("x")
        return result

    assert asyncio.run(main()) == "x"


def test_names_that_a_partial_was_given_are_kept() -> None:
    """A partial may have been dressed by hand."""
    tool = functools.partial(search, limit=1)
    tool.__name__ = "find_one"  # type: ignore[attr-defined]  # a partial takes attributes
    tool.__doc__ = "Find one."
    observed = wrap(tool, ToolCallListener())
    assert (observed.__name__, observed.__doc__) == ("find_one", "Find one.")  # type: ignore[attr-defined]  # above


def test_a_partial_dressed_as_its_function_is_bound_as_a_partial() -> None:
    """``inspect`` sees the whole function's signature then, but the call's arguments are the partial's."""
    tool = functools.update_wrapper(functools.partial(search, "x"), search)
    listener = Inputs()
    observed = wrap(tool, listener)
    assert (observed.__name__, observed.__doc__) == ("search", "Search the library.")  # type: ignore[attr-defined]  # above
    assert inspect.signature(observed) == inspect.signature(tool)
    assert observed(1) == ["x"]
    assert listener.inputs == [{"limit": 1}]


def test_hints_that_only_type_checkers_know_stay_texts() -> None:
    """A name that can't be resolved is no reason to refuse the tool."""

    def lookup(key: OnlyForTypeCheckers) -> int:  # type: ignore[name-defined]  # noqa: F821 - the point of the test
        return 1

    observed = wrap(functools.partial(lookup), ToolCallListener())
    assert observed.__annotations__ == {"key": "OnlyForTypeCheckers", "return": "int"}


def test_an_object_that_answers_every_attribute_is_an_object() -> None:
    """A client that makes up its attributes isn't taken for a decorated function."""

    class Anything:
        def __getattr__(self, name: str) -> Any:
            return 7

        def __call__(self, query: str) -> str:
            return query

    observed = wrap(Anything(), ToolCallListener())
    assert observed("x") == "x"
    assert observed.__name__ == "Anything"
    assert observed.__annotations__ == {"query": str, "return": str}


def test_a_static_method_object_stays_one() -> None:
    """So a class body can hold a wrapped one; a classmethod object isn't callable, and is refused."""

    class Tools:
        find = wrap(staticmethod(search), ToolCallListener())

    assert Tools().find("x", 1) == ["x"]
    with pytest.raises(TypeError, match="classmethod is not a tool"):
        wrap(classmethod(search), ToolCallListener())


def test_a_class_is_a_tool_too() -> None:
    """Its call makes an instance."""
    listener = Inputs()
    observed = wrap(str, listener)
    assert observed(object="x") == "x"
    assert observed.__name__ == "str"
    assert isinstance(wrap(Library, listener)(), Library)


# What tool_input is.


def no_parameters() -> None: ...
def defaults(a: int, b: int = 2, *, c: int = 3) -> None: ...
def positional_only(a: int, b: int = 2, /, c: int = 3) -> None: ...
def variadic(a: int, *args: int, b: int = 2, **kwargs: int) -> None: ...
def clash(a: int, /, **kwargs: int) -> None: ...


class Unsigned:
    """A callable without a signature, as some of C are."""

    __signature__ = "unknown"

    def __call__(self, *args: object, **kwargs: object) -> None: ...


@pytest.mark.parametrize(
    ("tool", "args", "kwargs", "expected"),
    [
        (no_parameters, (), {}, {}),
        (defaults, (1,), {}, {"a": 1}),
        (defaults, (1, 2), {}, {"a": 1, "b": 2}),
        (defaults, (), {"c": 5, "a": 1}, {"a": 1, "c": 5}),
        (positional_only, (1, 2, 3), {}, {"a": 1, "b": 2, "c": 3}),
        (variadic, (1, 2, 3), {"b": 4, "x": 5}, {"a": 1, "args": (2, 3), "b": 4, "x": 5}),
        (variadic, (1,), {"kwargs": 5}, {"a": 1, "kwargs": 5}),
        (clash, (1,), {"a": 2, "b": 3}, {"a": 1, "b": 3}),
        (functools.partial(defaults, 1, c=9), (2,), {}, {"b": 2}),
        (functools.partial(variadic, 1, 2, x=3), (4,), {"y": 5}, {"args": (4,), "y": 5}),
        (Library().search, ("x",), {}, {"query": "x"}),
        (Finder(), ("x", "y"), {}, {"query": "x", "more": ("y",)}),
        (print, ("x", "y"), {"end": ""}, {"args": ("x", "y"), "end": ""}),
        (dict, (), {"a": 1}, {"a": 1}),
        (Unsigned(), ("x",), {"end": ""}, {"args": ("x",), "end": ""}),
    ],
)
def test_tool_input_is_what_was_bound(
    tool: Tool, args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Without defaults, in the signature's order, ``**kwargs`` merged in; what a partial holds isn't the call's."""
    listener = Inputs()
    wrap(tool, listener)(*args, **kwargs)
    assert [list(given.items()) for given in listener.inputs] == [list(expected.items())]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {}, {}),
        ((), {"b": 1}, {"b": 1}),
        ((1,), {"a": 2}, {"args": (1,), "a": 2}),
        ((1, 2, 3), {}, {"args": (1, 2, 3)}),
    ],
)
def test_what_cannot_be_bound_is_told_as_given(
    args: tuple[Any, ...], kwargs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The keywords as they are, positional arguments as ``args``; then the tool's own TypeError."""
    listener = Inputs()
    with pytest.raises(TypeError, match=r"defaults\(\)"):
        wrap(defaults, listener)(*args, **kwargs)
    assert listener.inputs == [expected]


values = st.integers(0, 9)


@given(st.lists(values, max_size=4), st.dictionaries(st.sampled_from(["a", "b", "c", "x", "y"]), values))
def test_tool_input_is_what_the_tool_gets(args: list[int], kwargs: dict[str, int]) -> None:
    """Whenever the tool accepts a call, the mapping says what it was given."""
    got: dict[str, int] = {}

    def tool(a: int, b: int = -1, *rest: int, c: int = -2, **others: int) -> None:
        bound = {"a": a, "b": b, "rest": rest, "c": c}
        got.update({name: value for name, value in bound.items() if value not in (-1, -2, ())}, **others)

    listener = Inputs()
    try:
        wrap(tool, listener)(*args, **kwargs)
    except TypeError:
        assert listener.inputs == [{"args": tuple(args), **kwargs} if args else kwargs]
    else:
        assert listener.inputs == [got]


def test_one_mapping_serves_one_invocation() -> None:
    """What a listener does to it reaches neither the tool nor another call."""

    class Meddling(Inputs):
        def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
            super().before_call(tool_name, dict(tool_input))
            tool_input.clear()
            return None

    listener = Meddling()
    observed = wrap(search, listener)
    assert [observed("x", limit=1), observed("y", limit=1)] == [["x"], ["y"]]
    assert listener.inputs == [{"query": "x", "limit": 1}, {"query": "y", "limit": 1}]
