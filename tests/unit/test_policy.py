"""What may leave the agent, and the cap on an event's size."""

from __future__ import annotations

from collections import UserDict
from types import MappingProxyType
from typing import Any

import pytest

from listeners.contract.events import CallRef, Event, decode, encode
from listeners.errors import ToolError
from listeners.publishing.capping import EVENT_BYTES, capped
from listeners.publishing.policy import UNEXPECTED, Policy, PublicationPolicy

SECRET = "postgres://app:secret@db"


def result(policy: Policy, value: Any, tool: str = "t") -> dict[str, Any]:
    return PublicationPolicy(results=policy).apply("tool_execution_completed", tool, {"result": value})


def test_only_full_fills_arguments_and_result() -> None:
    """A summary has a member of its own, so that nobody takes one for the other."""
    data = {"arguments": {"city": "Oslo", "unit": "C"}}
    for level, expected in (
        ("full", {"arguments": {"city": "Oslo", "unit": "C"}}),
        ("summary", {"arguments_summary": "city: Oslo, unit: C"}),
        ("none", {}),
    ):
        policy = PublicationPolicy(arguments=level)  # type: ignore[arg-type]
        assert policy.apply("tool_execution_started", "t", data) == expected
    assert result("full", [1]) == {"result": [1]}
    assert result("summary", [1]) == {"result_summary": "1 item: 1"}
    assert result("none", [1]) == {}


def test_levels_by_tool() -> None:
    levels: Policy = {"get_weather": "full", "*": "none"}
    assert result(levels, 1, "get_weather") == {"result": 1}
    assert result(levels, 1, "other") == {}
    assert result({"get_weather": "full"}, 1, "other") == {"result_summary": "1"}


def test_a_function_picks_what_the_page_needs() -> None:
    assert result(lambda name, value: {"n": len(value), "of": name}, [1, 2]) == {
        "result": {"n": 2, "of": "t"}
    }
    assert result(lambda name, value: None, [1]) == {}


def test_a_function_that_fails_publishes_nothing_of_the_value() -> None:
    assert result(lambda name, value: value["missing"], {}) == {}


def test_none_is_absent() -> None:
    assert result("full", None) == {}
    assert result("summary", None) == {}
    assert PublicationPolicy().apply("tool_progress", "t", {"progress": 1, "total": None}) == {"progress": 1}


def test_a_tool_without_arguments_has_no_summary() -> None:
    assert PublicationPolicy().apply("tool_execution_started", "t", {"arguments": {}}) == {}


@pytest.mark.parametrize("levels", ["some", 3, {"t": "some"}, None])
def test_what_is_no_level_is_refused(levels: Any) -> None:
    with pytest.raises(ValueError, match="'full', 'summary', 'none'"):
        PublicationPolicy(results=levels)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="errors is 'unsafe'"):
        PublicationPolicy(errors="unsafe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="publish is 'all'"):
        PublicationPolicy(publish="all")  # type: ignore[arg-type]


def test_safe_errors_are_those_written_for_people() -> None:
    policy = PublicationPolicy()
    assert policy.failure(RuntimeError(SECRET)) == {
        "message": UNEXPECTED,
        "reason": "exception",
        "is_error": True,
    }
    assert policy.failure(ToolError("no such city"))["message"] == "no such city"
    assert policy.failure(ToolError("no such city"))["reason"] == "error"
    assert policy.failure("too dangerous", "denied")["message"] == "too dangerous"
    assert policy.run_failure(RuntimeError(SECRET)) == {"code": "exception", "message": UNEXPECTED}
    assert policy.run_failure(ToolError("x")) == {"code": "error", "message": "x"}


def test_a_text_about_an_exception_is_not_published_either() -> None:
    """What a model was told of an exception holds its text: the reason, not the caller, decides."""
    data = {"message": f"ERROR: (RuntimeError) {SECRET}", "reason": "exception"}
    assert PublicationPolicy().apply("tool_execution_failed", "t", data)["message"] == UNEXPECTED
    full = PublicationPolicy(errors="full").apply("tool_execution_failed", "t", data)
    assert SECRET in full["message"]


def test_full_errors_publish_the_text_but_never_the_type() -> None:
    policy = PublicationPolicy(errors="full")
    assert policy.failure(RuntimeError(SECRET))["message"] == SECRET
    assert policy.failure(RuntimeError())["message"] == UNEXPECTED


def test_exceptions_leave_only_if_exposed() -> None:
    assert not PublicationPolicy(publish="full", errors="full").lets_out("tool_execution_exception")
    policy = PublicationPolicy(expose_exceptions=True)
    assert policy.lets_out("tool_execution_exception")
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        data = policy.exception(error, None)
    assert data["exception"] == "RuntimeError" and data["message"] == "boom"
    assert "test_policy.py" in data["stacktrace"]


@pytest.mark.parametrize(
    ("type", "progress", "full"),
    [
        ("run_started", True, True),
        ("tool_progress", True, True),
        ("x_mine", True, True),
        ("llm_new_delta", False, True),
        ("tool_call_arguments", False, True),
        ("llm_response_headers", False, False),
    ],
)
def test_what_is_published_by_default(type: str, progress: bool, full: bool) -> None:
    assert PublicationPolicy().lets_out(type) is progress
    assert PublicationPolicy(publish="full").lets_out(type) is full


def test_redaction_comes_before_everything_else() -> None:
    policy = PublicationPolicy(arguments="full", results="full", redact=["email"])
    shown = policy.apply("tool_execution_started", "t", {"arguments": {"email": "a@b", "api_key": "k"}})
    assert shown == {"arguments": {"email": "[redacted]", "api_key": "[redacted]"}}
    assert policy.apply("x_mine", "", {"user": {"email": "a@b"}}) == {"user": {"email": "[redacted]"}}
    assert policy.title_arguments({"q": 1, "email": "a@b"}) == {"q": 1, "email": "[redacted]"}


def test_a_held_calls_arguments_are_whole() -> None:
    """A person answers for them, whatever the policy; ``edit`` is refused if anything is hidden."""
    policy = PublicationPolicy(arguments="none")
    data = {"message": "Delete?", "arguments": {"path": "/a", "n": 1}}
    assert policy.apply("tool_interrupted", "t", data) == data
    for hidden in ({"token": "t"}, {"f": object()}):
        shown = policy.apply("tool_interrupted", "t", {"message": "?", "arguments": hidden})
        assert shown["editable"] is False


def event(**data: Any) -> Event:
    ref = CallRef(key="c", name="t", title="T", id="c")
    return Event(
        type="tool_execution_completed", run="r", time="2026-11-30T19:47:18.123Z", call=ref, data=data
    )


def test_an_event_that_fits_is_left_alone() -> None:
    small = event(result="x")
    encoded = encode(small)
    assert capped(small, encoded) == (small, encoded)


@pytest.mark.parametrize(
    "data",
    [
        {"result": "x" * 1_000_000},
        {"result": "é" * 100_000},
        {"result": "\x01" * 100_000},
        {"result": "“" * 100_000},
        {"result": {"short": "kept", "a": "x" * 90_000, "b": "y" * 90_000}},
        {"result": list(range(200_000))},
        {"result": [{"a": 1}] * 50_000, "duration_ms": 3},
        {f"k{n}": n for n in range(100_000)},
        {"k" * 100_000: 1},
        {"result": {f"k{n}": "x" * 100 for n in range(5_000)}},
        {"a": list(range(30_000)), "b": list(range(30_000)), "c": "short"},
    ],
    ids=[
        "text",
        "two-byte",
        "controls",
        "quotes",
        "two",
        "numbers",
        "objects",
        "members",
        "name",
        "many",
        "lists",
    ],
)
def test_a_large_event_is_cut_and_says_so(data: dict[str, Any]) -> None:
    """An event is never dropped for its content: what it is about is still there."""
    large = event(**data)
    cut, encoded = capped(large, encode(large))
    assert len(encoded) <= EVENT_BYTES
    assert decode(encoded) == cut
    assert cut.truncated and cut.type == large.type and cut.call == large.call


def test_the_longest_strings_are_cut_first() -> None:
    large = event(result={"short": "kept", "long": "x" * 90_000}, duration_ms=3)
    cut, encoded = capped(large, encode(large))
    assert cut.data["result"]["short"] == "kept" and cut.data["duration_ms"] == 3
    assert cut.data["result"]["long"].endswith("x…")
    assert len(encoded) > EVENT_BYTES - 200


def test_a_held_call_that_was_cut_cannot_be_edited() -> None:
    large = Event(type="tool_interrupted", run="r", time="t", data={"arguments": {"a": "x" * 90_000}})
    assert capped(large, encode(large))[0].data["editable"] is False


def test_long_names_and_ids_are_cut_too() -> None:
    ref = CallRef(key="c", name="n" * 90_000, title="t" * 90_000, id="i" * 90_000)
    large = Event(type="tool_progress", run="r", time="t", call=ref, data={})
    cut, encoded = capped(large, encode(large))
    assert len(encoded) <= EVENT_BYTES and cut.call is not None and cut.call.key == "c"


def test_a_long_agent_or_thread_is_cut_too() -> None:
    """A page may have chosen them: whatever they are, the event is made."""
    large = Event(type="run_started", run="r", time="t", agent="a" * 90_000, thread="é" * 90_000, data={})
    _, encoded = capped(large, encode(large))
    assert len(encoded) <= EVENT_BYTES


def test_deep_nesting_ends_and_hides_what_it_ends() -> None:
    value: dict[str, Any] = {"password": SECRET}
    for _ in range(400):
        value = {"deeper": value}
    data = PublicationPolicy().apply("x_own", "", value)
    assert data and SECRET not in repr(data)


@pytest.mark.parametrize("kind", [UserDict, MappingProxyType])
def test_secrets_in_mappings_of_any_kind_are_hidden(kind: Any) -> None:
    value = {"nested": kind({"password": SECRET, "host": "db"})}
    assert result("full", value) == {"result": {"nested": {"password": "[redacted]", "host": "db"}}}
