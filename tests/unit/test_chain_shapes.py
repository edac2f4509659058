"""The frozen shapes that callbacks are told of."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, get_args

import pytest

from listeners.chain import ContentPart, Function, ToolCall, ToolResult
from listeners.contract.events import FailureReason
from listeners.tool_listener import ToolCallListener, wrap


def body(arguments: dict[str, Any], context: Any) -> str:
    """Do something."""
    return str(arguments)


# ContentPart, ToolResult


def test_a_text_becomes_one_text_part() -> None:
    """Blank text too: a tool may have nothing to say."""
    assert ToolResult("hello").content == (ContentPart("text", "hello"),)
    assert ToolResult("").content == (ContentPart("text", ""),)
    parts = [ContentPart("text", "a"), ContentPart("image", "aGk=", options={"media": "image/png"})]
    assert ToolResult(parts).content == tuple(parts)


def test_a_result_says_nothing_but_what_it_was_given() -> None:
    """The chain fills id, name, display text and reason."""
    result = ToolResult("hello")
    assert dataclasses.asdict(result) == {
        "content": ({"type": "text", "content": "hello", "options": {}},),
        "processed_content": None,
        "is_error": False,
        "is_interrupt": False,
        "interrupt_data": None,
        "options": {},
        "tool_call_id": "",
        "name": None,
        "display_text": None,
        "reason": None,
    }
    filled = dataclasses.replace(result, tool_call_id="c1", name="a", is_error=True, reason="timeout")
    assert (filled.content, filled.tool_call_id, filled.reason) == (result.content, "c1", "timeout")


def test_the_reasons_are_those_of_the_contract() -> None:
    """Every word of it, and no other."""
    for reason in get_args(FailureReason):
        assert ToolResult("x", is_error=True, reason=reason).reason == reason
    with pytest.raises(
        ValueError, match=r"ToolResult.reason must be one of error, exception, .*, not 'broken'"
    ):
        ToolResult("x", reason="broken")  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ContentPart(1, "x"), "ContentPart.type must be a str, not int"),
        (lambda: ContentPart("text", None), "ContentPart.content must be a str, not NoneType"),
        (
            lambda: ContentPart("text", "x", options=[]),
            r"ContentPart.options must be a mapping with str keys",
        ),
        (lambda: ToolResult(None), "ToolResult.content must be a text or ContentParts, not NoneType"),
        (lambda: ToolResult({"a": 1}), "ToolResult.content must be a text or ContentParts, not dict"),
        (lambda: ToolResult(b"x"), "ToolResult.content must hold ContentParts only, not int"),
        (lambda: ToolResult([ContentPart("text", "x"), "y"]), "must hold ContentParts only, not str"),
        (lambda: ToolResult("x", is_error="no"), "ToolResult.is_error must be a bool, not str"),
        (lambda: ToolResult("x", is_interrupt=None), "ToolResult.is_interrupt must be a bool"),
        (lambda: ToolResult("x", tool_call_id=None), "ToolResult.tool_call_id must be a str"),
        (lambda: ToolResult("x", name=1), "ToolResult.name must be a str or None, not int"),
        (lambda: ToolResult("x", interrupt_data="no"), "ToolResult.interrupt_data must be a mapping"),
        (lambda: ToolResult("x", options={1: 2}), "ToolResult.options must be a mapping with str keys"),
        (lambda: ToolCall(key=None), "ToolCall.key must be a str, not NoneType"),
        (lambda: ToolCall(name=1), "ToolCall.name must be a str or None, not int"),
        (lambda: ToolCall(arguments=None), "ToolCall.arguments must be a mapping with str keys, not None"),
        (lambda: ToolCall(arguments='{"a": 1}'), "ToolCall.arguments must be a mapping"),
        (lambda: ToolCall(metadata=[]), "ToolCall.metadata must be a mapping"),
        (lambda: ToolCall(index="0"), "ToolCall.index must be an int, not str"),
        (lambda: ToolCall(index=True), "ToolCall.index must be an int, not bool"),
        (lambda: ToolCall(result="done"), "ToolCall.result must be a ToolResult or None, not str"),
    ],
)
def test_a_member_of_another_type_is_a_type_error(make: Callable[[], object], message: str) -> None:
    """With the class and member in the message."""
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ToolCall(key="a b"), "ToolCall.key 'a b' must be 1 to 256 of"),
        (lambda: ToolCall(index=-1), "ToolCall.index counts from 0, it can't be -1"),
        (lambda: ToolCall(status="done"), "ToolCall.status must be one of incomplete, complete, not 'done'"),
    ],
)
def test_a_call_that_cannot_be_is_a_value_error(make: Callable[[], object], message: str) -> None:
    """With the rule in the message."""
    with pytest.raises(ValueError, match=message):
        make()


# ToolCall


def test_a_call_starts_as_an_empty_fragment() -> None:
    """Nothing is known of a call until its fragments arrive."""
    assert dataclasses.asdict(ToolCall()) == {
        "key": "",
        "name": None,
        "call_id": None,
        "index": 0,
        "status": "incomplete",
        "display_text": None,
        "arguments": {},
        "arguments_text": "",
        "metadata": {},
        "result": None,
    }


def test_a_call_is_told_of_with_its_result() -> None:
    """The call of an outcome event is the call, with ``result`` set."""
    call = ToolCall(key="c1", call_id="c1", name="a", status="complete", arguments={"x": 1})
    told = dataclasses.replace(call, result=ToolResult("R", tool_call_id="c1"))
    assert told != call
    assert told.result is not None and told.result.content[0].content == "R"
    assert (told.key, told.arguments) == (call.key, call.arguments)


@pytest.mark.parametrize(
    "value",
    [
        ContentPart("text", "x"),
        ToolResult("x", is_error=True, reason="error"),
        ToolCall(key="c1", arguments={"x": [1]}, result=ToolResult("x")),
        Function("a", body),
    ],
)
def test_values_are_frozen_and_can_be_copied(value: Any) -> None:
    """Assigning is refused; copies and pickles are equal."""
    for member in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, member.name, None)
    with pytest.raises((AttributeError, TypeError)):
        value.other = 1
    for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert copied == value


def test_who_made_a_value_cannot_change_it_afterwards() -> None:
    """Mappings are copied when they are given."""
    given = {"x": 1}
    values = [
        ToolCall(arguments=given, metadata=given),
        ContentPart("text", "x", options=given),
        ToolResult("x", options=given, interrupt_data=given),
        Function("a", body, options=given),
    ]
    before = copy.deepcopy(values)
    given["x"] = 2
    assert values == before


# Function


def test_a_function_keeps_what_it_was_given() -> None:
    """And has the documented defaults for the rest."""
    plain = Function("a", body)
    assert {f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)} == {
        "name": "a",
        "function": body,
        "description": "",
        "parameters": {"type": "object", "properties": {}},
        "parse_args": None,
        "display_text": None,
        "concurrent": False,
        "in_thread": True,
        "timeout": None,
        "strict": False,
        "options": {},
    }
    full = Function(
        "ship_order-2",
        body,
        description="Ships it.",
        parameters={"type": "object", "required": ["id"]},
        parse_args=dict,
        display_text=lambda arguments: f"Shipping {arguments['id']}",
        concurrent=True,
        in_thread=False,
        timeout=5,
        strict=True,
        options={"cache": True},
    )
    assert (full.parameters, full.timeout, full.in_thread) == (
        {"type": "object", "required": ["id"]},
        5,
        False,
    )
    assert dataclasses.replace(full, timeout=1.5).timeout == 1.5


@pytest.mark.parametrize(
    "display_text",
    [
        "Searching…",
        ("Searching…", "Searched", "Failed"),
        ("A", "B", "C", "Search?"),
        lambda arguments: "x",
        None,
    ],
)
def test_a_title_comes_in_three_forms(display_text: Any) -> None:
    """A text, one for each state, or a function of the arguments."""
    assert Function("a", body, display_text=display_text).display_text is display_text


@pytest.mark.parametrize("function", [lambda a, c: 1, lambda *args: 1, print, lambda a, c=None, *, d=1: 1])
def test_a_body_is_anything_that_takes_two_arguments(function: Any) -> None:
    """What has no signature passes."""
    assert Function("a", function).function is function


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": ""}, ValueError, "'' can't be a Function's name: use 1 to 64 of A-Z a-z 0-9 _ -"),
        ({"name": "a b"}, ValueError, "'a b' can't be"),
        ({"name": "a\n"}, ValueError, "can't be"),
        ({"name": "ä"}, ValueError, "can't be"),
        ({"name": "a" * 65}, ValueError, "can't be"),
        ({"name": None}, TypeError, "name must be a str, not NoneType"),
        (
            {"function": "body"},
            TypeError,
            r"a: function must be callable as function\(arguments, context\), not str",
        ),
        ({"function": lambda a: 1}, TypeError, r"a: function .* but it takes \(a\)"),
        ({"function": lambda a, b, c: 1}, TypeError, r"a: function .* but it takes \(a, b, c\)"),
        ({"parse_args": 5}, TypeError, r"a: parse_args must be callable as parse_args\(arguments\), not int"),
        ({"parse_args": lambda: 1}, TypeError, "a: parse_args must be callable"),
        ({"description": None}, TypeError, "a: description must be a str"),
        ({"parameters": []}, TypeError, "a: parameters must be a mapping with str keys"),
        ({"parameters": {"type": "array"}}, ValueError, "a: parameters must be the JSON Schema of an object"),
        ({"parameters": {}}, ValueError, "a: parameters must be the JSON Schema of an object"),
        ({"display_text": 5}, TypeError, "a: display_text must be a text"),
        ({"display_text": ("a", 1, "c")}, TypeError, "a: display_text must be a text"),
        ({"display_text": ()}, ValueError, "a: display_text has 0 texts"),
        ({"display_text": tuple("abcde")}, ValueError, "a: display_text has 5 texts"),
        ({"concurrent": 1}, TypeError, "a: concurrent must be a bool"),
        ({"in_thread": None}, TypeError, "a: in_thread must be a bool"),
        ({"strict": "yes"}, TypeError, "a: strict must be a bool"),
        ({"timeout": "5"}, TypeError, "a: timeout must be seconds or None, not str"),
        ({"timeout": True}, TypeError, "a: timeout must be seconds or None, not bool"),
        ({"timeout": 0}, ValueError, "a: timeout must be a positive number of seconds, not 0"),
        ({"timeout": float("inf")}, ValueError, "a: timeout must be a positive number"),
        ({"timeout": float("nan")}, ValueError, "a: timeout must be a positive number"),
        ({"options": "x"}, TypeError, "a: options must be a mapping"),
    ],
)
def test_what_cannot_be_a_function_is_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """At once, with the member and the rule in the message."""
    given = {"name": "a", "function": body, **options}
    with pytest.raises(error, match=message):
        Function(given.pop("name"), given.pop("function"), **given)


# A wrapped Function


class Recorder(ToolCallListener):
    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
        self.told.append(("before_call", tool_name, tool_input))
        return None

    def after_call(self, context: Any, tool_name: str, tool_input: dict[str, Any], result: Any, /) -> object:
        self.told.append(("after_call", result))
        return None


async def async_body(arguments: dict[str, Any], context: Any) -> str:
    """Do something, waiting."""
    return "waited"


async def test_wrapping_a_function_observes_its_body() -> None:
    """The body keeps its kind and looks; the listener is told the Function's name and the model's arguments."""
    tool = Function("a", async_body, description="Ships it.", timeout=5)
    listener = Recorder()
    observed = wrap(tool, listener)
    assert type(observed) is Function and observed is not tool
    assert tool.function is async_body
    assert inspect.iscoroutinefunction(observed.function)
    assert observed.function.__doc__ == "Do something, waiting."
    arguments = {"x": 1}
    assert await observed.function(arguments, None) == "waited"
    assert listener.told == [("before_call", "a", {"x": 1}), ("after_call", "waited")]
    assert listener.told[0][2] is not arguments
    assert dataclasses.replace(observed, function=async_body) == tool


def test_a_wrapped_function_can_be_renamed_and_subclassed() -> None:
    """``name=`` is for the listener alone, and a subclass stays what it is."""

    class Owned(Function):
        owner = "me"

    listener = Recorder()
    observed = wrap(Owned("a", body), listener, name="b")
    assert (type(observed), observed.name, observed.owner) == (Owned, "a", "me")
    observed.function(5, None)  # type: ignore[arg-type]  # a wrong call is told as it was given
    observed.function(arguments={"x": 1}, context=None)  # type: ignore[call-arg]  # by keyword, as nobody should
    assert [told[1:] for told in listener.told[::2]] == [("b", {"args": (5, None)}), ("b", {"x": 1})]
