"""Tools made of plain callables: what the model is told of them, and what they are called with."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from listeners import ToolCallListener, wrap
from listeners.chain import Function, LLMChain, Message, ScriptedChat, ToolContext, ToolResult
from tests.support.chains import call, calls


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


@dataclasses.dataclass
class Place:
    name: str
    height: float = 0.0


class Filter(pydantic.BaseModel):
    field: str
    among: list[Place2] = []


class Place2(pydantic.BaseModel):
    name: str


class Range(TypedDict):
    first: int


class Point(msgspec.Struct):
    x: int


async def result_of(tool: Any, **arguments: Any) -> ToolResult:
    """What a call of ``tool`` with these arguments comes to."""
    chain = LLMChain(ScriptedChat([]), tools=[tool], messages=[Message.user("hi")])
    chain.add_message(calls(call("c1", chain.tools[0].name, **arguments)))
    message = await chain.execute_tool_calls()
    assert message is not None
    return message.tool_results[0]


async def text_of(tool: Any, **arguments: Any) -> str:
    return (await result_of(tool, **arguments)).content[0].content


def get_weather(
    city: Annotated[str, "Where to look"],
    unit: Unit = Unit.C,
    *,
    days: int = 3,
    place: Place | None = None,
    exact: Literal["yes", "no"] = "no",
) -> str:
    """Tell the weather.

    It may be wrong.

    Args:
        city: not this, the annotation goes first
        days: how many days,
            today included
        unit (Unit): degrees

    Returns:
        A sentence.
    """
    return f"{city} {unit.name} {days!r} {place} {exact}"


def test_what_the_model_is_told() -> None:
    """Name, description and schema; annotations go before the docstring, no default means required."""
    function = Function.from_callable(get_weather)
    assert (function.name, function.description) == ("get_weather", "Tell the weather.\n\nIt may be wrong.")
    assert function.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to look"},
            "unit": {"$ref": "#/$defs/Unit", "default": "celsius", "description": "degrees"},
            "days": {"type": "integer", "default": 3, "description": "how many days, today included"},
            "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
            "exact": {"enum": ["no", "yes"], "default": "no"},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {
            "Unit": {"title": "Unit", "enum": ["celsius", "fahrenheit"]},
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {"name": {"type": "string"}, "height": {"type": "number", "default": 0.0}},
                "required": ["name"],
            },
        },
    }


async def test_arguments_are_converted() -> None:
    """To the annotated types; a text for a number is taken, as models write them."""
    assert await text_of(get_weather, city="Oslo", unit="fahrenheit", days="5", place={"name": "x"}) == (
        "Oslo F 5 Place(name='x', height=0.0) no"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"citty": "Oslo"},
            "Missing required parameters: city. Unrecognised parameters: citty (did you mean city?). "
            "Accepted parameters: city, unit, days, place, exact. Received parameters: citty.",
        ),
        (
            {"city": "Oslo", "dais": 1},
            "Unrecognised parameters: dais (did you mean days?). Accepted parameters: city, unit, days, place, exact.",
        ),
    ],
)
async def test_wrong_arguments_are_explained(arguments: dict[str, Any], text: str) -> None:
    result = await result_of(get_weather, **arguments)
    assert (result.content[0].content, result.is_error, result.reason) == (text, True, "invalid_arguments")


async def test_an_unconvertible_argument_is_named() -> None:
    text = await text_of(get_weather, city=5, days="many")
    assert text.startswith(
        "Parameter city: Expected `str`, got `int`. Parameter days: Expected `int`, got `str`."
    )


async def test_a_text_stays_a_text() -> None:
    """Where the annotation takes one."""

    def f(x: int | str) -> str:
        return repr(x)

    assert await text_of(f, x="5") == "'5'"


async def test_further_arguments() -> None:
    """Are taken with ``**kwargs``, converted to its annotation."""

    def f(x: int, **others: int) -> str:
        return f"{x} {others}"

    function = Function.from_callable(f)
    assert function.parameters["additionalProperties"] is True
    assert await text_of(function, x=1, y="2") == "1 {'y': 2}"


def pydantic_tool(filter: Filter, many: list[Filter] | None = None) -> str:
    return f"{filter!r} {many!r}"


async def test_pydantic_models() -> None:
    """In parameters, at any depth."""
    function = Function.from_callable(pydantic_tool)
    assert set(function.parameters["$defs"]) == {"Place2"}
    assert function.parameters["properties"]["filter"]["properties"]["field"] == {
        "title": "Field",
        "type": "string",
    }
    made = await text_of(function, filter={"field": "a", "among": [{"name": "x"}]}, many=[{"field": "b"}])
    assert made == "Filter(field='a', among=[Place2(name='x')]) [Filter(field='b', among=[])]"
    refused = await text_of(function, filter={"among": []})
    assert refused.startswith("Parameter filter: field: Field required.")


async def test_other_plain_types() -> None:
    def f(a: Range, b: Point, c: datetime.date, d: set[int], e: Any, g=None) -> str:  # type: ignore[no-untyped-def]  # untyped is allowed
        return f"{a} {b} {c!r} {d} {e} {g}"

    made = await text_of(f, a={"first": 1}, b={"x": 2}, c="2024-01-02", d=[3], e={"z": 1}, g=[1])
    assert made == "{'first': 1} Point(x=2) datetime.date(2024, 1, 2) {3} {'z': 1} [1]"
    assert Function.from_callable(f).parameters["required"] == ["a", "b", "c", "d", "e"]


class NotData:
    pass


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (NotData, "f: parameter 'x' has a type without a JSON Schema"),
        ("Nowhere", "f: the annotation of parameter 'x' can't be resolved: name 'Nowhere' is not defined"),
    ],
)
def test_a_type_without_a_schema_is_refused(annotation: Any, message: str) -> None:
    """When the tool is made, with the parameter's name."""

    def f(x): ...  # type: ignore[no-untyped-def]  # annotated below

    f.__annotations__["x"] = annotation
    with pytest.raises(TypeError, match=message):
        LLMChain(ScriptedChat([]), tools=[f])


def test_what_cannot_be_passed_by_keyword_is_refused() -> None:
    def positional(x: int, /) -> None: ...

    def variable(*x: int) -> None: ...

    for f in (positional, variable):
        with pytest.raises(TypeError, match="can't be passed by keyword"):
            Function.from_callable(f)
    with pytest.raises(TypeError, match="int can't be called"):
        Function.from_callable(5)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="'<lambda>' can't be a Function's name"):
        Function.from_callable(lambda x: x)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are called get_weather"):
        LLMChain(ScriptedChat([]), tools=[get_weather, Function("get_weather", lambda a, c: 1)])


async def test_the_context_is_injected() -> None:
    """And isn't in the schema."""

    def f(x: int, context: ToolContext) -> str:
        return f"{x} {context.tool_call_id} {context.custom_context} {context.call.name} {context.cancelled.is_set()}"

    function = Function.from_callable(
        f, name="g", description="D", display_text="Doing", concurrent=True, timeout=5
    )
    assert list(function.parameters["properties"]) == ["x"]
    assert (function.name, function.description, function.display_text) == ("g", "D", "Doing")
    assert (function.concurrent, function.timeout) == (True, 5)
    chain = LLMChain(
        ScriptedChat([]), tools=[function], custom_context="ctx", messages=[calls(call("c1", "g", x=1))]
    )
    message = await chain.execute_tool_calls()
    assert message is not None and message.tool_results[0].content[0].content == "1 c1 ctx g False"


class Tools:
    def method(self, x: int) -> str:
        """Do it."""
        return f"method {x}"

    async def __call__(self, x: int) -> str:
        return f"called {x}"


async def async_tool(x: int) -> str:
    await asyncio.sleep(0)
    return f"async {x}"


def generator(x: int) -> Iterator[str]:
    yield "a"
    yield f"b{x}"


async def async_generator(x: int) -> AsyncIterator[int]:
    yield 1
    yield x


def generator_with_value(x: int) -> Any:
    yield "step"
    return {"x": x}


@pytest.mark.parametrize(
    ("tool", "name", "text"),
    [
        (Tools().method, "method", "method 1"),
        (Tools(), "Tools", "called 1"),
        (functools.partial(get_weather, "Oslo"), "get_weather", None),
        (async_tool, "async_tool", "async 1"),
        (generator, "generator", '["a","b1"]'),
        (async_generator, "async_generator", "[1,1]"),
        (generator_with_value, "generator_with_value", '{"x":1}'),
    ],
)
async def test_every_kind_of_callable(tool: Any, name: str, text: str | None) -> None:
    function = Function.from_callable(tool)
    assert function.name == name
    if text is not None:
        assert await text_of(function, x=1) == text


async def test_a_wrapped_callable_and_a_wrapped_function() -> None:
    """Are told of alike, with the model's arguments converted."""
    told: list[Any] = []

    class Listener(ToolCallListener):
        def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> None:
            told.append((tool_name, tool_input))

        def after_call(
            self, context: Any, tool_name: str, tool_input: dict[str, Any], result: Any, /
        ) -> None:
            told.append(result)

    for observed in (wrap(get_weather, Listener()), wrap(Function.from_callable(get_weather), Listener())):
        told.clear()
        assert await text_of(observed, city="Oslo", days="2") == "Oslo C 2 None no"
        assert told == [("get_weather", {"city": "Oslo", "days": 2}), "Oslo C 2 None no"]


def sphinx(a: int, b: str) -> None:
    """Do.

    :param a: the first
        of two
    :param str b: the second
    :returns: nothing
    """


def numpy(a: int, b: str) -> None:
    """Do.

    Parameters
    ----------
    a : int
        the first
        of two
    b
        the second

    Returns
    -------
    None
    """


@pytest.mark.parametrize("tool", [sphinx, numpy])
def test_other_docstrings(tool: Any) -> None:
    function = Function.from_callable(tool)
    told = {name: schema["description"] for name, schema in function.parameters["properties"].items()}
    assert (told, function.description) == ({"a": "the first of two", "b": "the second"}, "Do.")
