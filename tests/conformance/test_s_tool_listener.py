"""The S rows: a ``ToolCallListener`` observes a tool as Spring AI's does, as far as Python doesn't differ.

Each test is named by its row. What differs: ``tool_input`` is a mapping and ``result`` the object that the tool
returned; an exception of ``after_call`` isn't told to ``on_error``; a ``BaseException`` is told to ``on_cancel``.
"""

from __future__ import annotations

from typing import Any

import pytest

from listeners.chain import Function
from listeners.tool_listener import ToolCallListener, wrap, wrap_all


class Recording(ToolCallListener):
    """Records under its own name; ``answer`` is what ``on_error`` returns, or raises if it is an exception."""

    def __init__(
        self, name: str = "", *, context: object = "ctx", answer: str | Exception | None = None
    ) -> None:
        self.name = name
        self.told: list[tuple[Any, ...]] = []
        self._context = context
        self._answer = answer

    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
        self.told.append((f"{self.name}before", tool_name, tool_input))
        return self._context

    def after_call(self, context: Any, tool_name: str, tool_input: dict[str, Any], result: Any, /) -> object:
        self.told.append((f"{self.name}after", tool_name, context, result))
        return None

    def on_error(
        self, context: Any, tool_name: str, tool_input: dict[str, Any], error: Exception, /
    ) -> str | None:
        self.told.append((f"{self.name}on_error", tool_name, context, error))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def on_cancel(self, context: Any, tool_name: str, tool_input: dict[str, Any], /) -> object:
        self.told.append((f"{self.name}on_cancel", tool_name, context))
        return None


def echo(text: str) -> str:
    """Say it again."""
    return f"echo: {text}"


KABOOM = RuntimeError("kaboom")


def boom() -> str:
    """Fail."""
    raise KABOOM


def test_s_01_a_recording_listener_around_an_echo() -> None:
    """before, then after with context and result; the result is unchanged."""
    listener = Recording()
    assert wrap(echo, listener)("hi") == "echo: hi"
    assert listener.told == [
        ("before", "echo", {"text": "hi"}),
        ("after", "echo", "ctx", "echo: hi"),
    ]


def test_s_02_a_text_from_on_error_is_the_result() -> None:
    """No exception leaves the call, and after isn't called."""
    listener = Recording(answer="Tool 'boom' failed: kaboom")
    assert wrap(boom, listener)() == "Tool 'boom' failed: kaboom"
    assert listener.told == [("before", "boom", {}), ("on_error", "boom", "ctx", KABOOM)]


def test_s_03_none_from_on_error_raises_the_same_exception() -> None:
    """The very object."""
    with pytest.raises(RuntimeError) as caught:
        wrap(boom, Recording())()
    assert caught.value is KABOOM


def test_s_05_a_no_op_listener_changes_nothing() -> None:
    """Success and failure are both unchanged."""
    assert wrap(echo, ToolCallListener())("hi") == "echo: hi"
    with pytest.raises(RuntimeError) as caught:
        wrap(boom, ToolCallListener())()
    assert caught.value is KABOOM


def test_s_06_a_raising_before_call_keeps_the_tool_from_running() -> None:
    """Neither after nor on_error is called, and the exception leaves the call."""
    ran = []

    class Refusing(Recording):
        def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> object:
            raise PermissionError(tool_name)

    def tool() -> None:
        ran.append(True)

    listener = Refusing()
    with pytest.raises(PermissionError):
        wrap(tool, listener)()
    assert not ran and listener.told == []


def test_s_07_an_exception_of_after_call_leaves_the_call() -> None:
    """The result is lost and on_error isn't called: the tool did not fail."""

    class Failing(Recording):
        def after_call(self, *told: Any) -> object:
            raise OSError("disk full")

    listener = Failing(answer="never asked")
    with pytest.raises(OSError, match="disk full"):
        wrap(echo, listener)("hi")
    assert listener.told == [("before", "echo", {"text": "hi"})]


def test_s_08_an_exception_of_on_error_takes_the_tools_place() -> None:
    """The tool's exception is its cause."""
    listener = Recording(answer=LookupError("Y"))
    with pytest.raises(LookupError, match="Y") as caught:
        wrap(boom, listener)()
    assert caught.value.__cause__ is KABOOM


def test_s_09_what_is_no_exception_goes_to_on_cancel() -> None:
    """A BaseException leaves the call after before and on_cancel."""
    stop = SystemExit(3)

    def tool() -> None:
        raise stop

    listener = Recording(answer="never asked")
    with pytest.raises(SystemExit) as caught:
        wrap(tool, listener)()
    assert caught.value is stop
    assert listener.told == [("before", "tool", {}), ("on_cancel", "tool", "ctx")]


def test_s_11_nested_listeners_around_a_failing_tool() -> None:
    """Outer before, inner before, inner on_error, outer on_error."""
    told: list[tuple[Any, ...]] = []
    a, b = Recording("A."), Recording("B.")
    a.told = b.told = told
    with pytest.raises(RuntimeError) as caught:
        wrap(wrap(boom, a), b)()
    assert caught.value is KABOOM
    assert [entry[0] for entry in told] == ["B.before", "A.before", "A.on_error", "B.on_error"]


def test_s_12_nested_listeners_around_a_success() -> None:
    """Outer before, inner before, inner after, outer after."""
    told: list[tuple[Any, ...]] = []
    a, b = Recording("A."), Recording("B.")
    a.told = b.told = told
    assert wrap(wrap(echo, a), b)("hi") == "echo: hi"
    assert [entry[0] for entry in told] == ["B.before", "A.before", "A.after", "B.after"]


def test_s_11_a_text_of_the_inner_listener_is_a_success_to_the_outer() -> None:
    """The outer one is told after_call with that text."""
    told: list[tuple[Any, ...]] = []
    a, b = Recording("A.", answer="sorry"), Recording("B.")
    a.told = b.told = told
    assert wrap(wrap(boom, a), b)() == "sorry"
    assert told[-1] == ("B.after", "boom", "ctx", "sorry")


def test_s_13_wrapping_two_at_once() -> None:
    """Two tools in the same order that share the listener; all but the call is the delegate's own."""
    listener = Recording()
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    shout = Function(
        "shout",
        lambda arguments, context: arguments["text"].upper(),
        parameters=parameters,
        display_text=("Shouting…", "Shouted", "Couldn't shout"),
        options={"cache": True},
    )
    observed_echo, observed_shout = wrap_all([echo, shout], listener)
    assert (observed_echo.__name__, observed_echo.__doc__) == ("echo", "Say it again.")  # type: ignore[union-attr]  # one is a Function
    assert isinstance(observed_shout, Function)
    for member in ("name", "description", "parameters", "parse_args", "display_text", "options"):
        assert getattr(observed_shout, member) is getattr(shout, member)
    assert observed_echo("hi") == "echo: hi"  # type: ignore[operator]  # one is a Function
    assert observed_shout.function({"text": "hi"}, None) == "HI"
    assert listener.told == [
        ("before", "echo", {"text": "hi"}),
        ("after", "echo", "ctx", "echo: hi"),
        ("before", "shout", {"text": "hi"}),
        ("after", "shout", "ctx", "HI"),
    ]


def test_s_15_nothing_in_place_of_a_tool_or_listener() -> None:
    """A TypeError; but there is nothing wrong with no tools."""
    nothing: Any = None
    for refused in (
        lambda: wrap(nothing, Recording()),
        lambda: wrap(echo, nothing),
        lambda: wrap_all(nothing, Recording()),
        lambda: wrap_all([echo], nothing),
        lambda: wrap_all([nothing], Recording()),
    ):
        with pytest.raises(TypeError, match="is None"):
            refused()
    assert wrap_all([], nothing) == []


def test_s_16_none_is_a_context_like_any_other() -> None:
    """after and on_error are told None."""
    listener = Recording(context=None)
    wrap(echo, listener)("hi")
    with pytest.raises(RuntimeError):
        wrap(boom, listener)()
    assert [entry[2] for entry in listener.told if entry[0] != "before"] == [None, None]
