"""What ``listeners.chain`` gives, and the small rules of its shapes."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

import listeners.chain
from listeners.chain import Message, MessageDelta, ScriptedChat, TokenUsage, ToolCall, ToolResult
from listeners.chain.titles import display_text
from listeners.errors import ChainError
from tests.support.chains import call, calls, chain_of, tool


def test_every_name_is_there() -> None:
    """And no other: the list is sorted, and says where each comes from."""
    names = listeners.chain.__all__
    assert names == sorted(names) and set(names) <= set(dir(listeners.chain))
    for name in names:
        assert getattr(listeners.chain, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        listeners.chain.Nothing  # noqa: B018  # what is refused


def test_models_with_extras_are_loaded_when_asked_for() -> None:
    models = import_module("listeners.chain.models")
    assert (models.OpenAIChat.__name__, models.AnthropicChat.__name__) == ("OpenAIChat", "AnthropicChat")
    with pytest.raises(AttributeError):
        models.OtherChat  # noqa: B018  # what is refused


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        (None, "Web search"),
        ("Searching…", "Searching…"),
        (("Searching…", "Searched"), "Searching…"),
        ("Searching for {q}", "Web search"),
        (lambda arguments: "x", "Web search"),
        ("", "Web search"),
    ],
)
def test_display_texts(title: Any, shown: str) -> None:
    """What needs the arguments isn't known yet."""
    assert display_text("web_search", tool("web_search", display_text=title)) == shown


def test_an_id_used_twice_in_one_message() -> None:
    """Is replaced for the second; a missing one is made up; keys are of their own."""
    made = [ToolCall(call_id=id, name="a") for id in ("c1", "c1", None)]
    chain = chain_of((), tool("a"), last=Message.assistant("", made))
    stored = chain.messages[1].tool_calls
    assert [(call.call_id, call.key, call.index) for call in stored] == [
        ("c1", "c1", 0),
        ("call_1_1", "call_1_1", 1),
        ("call_1_2", "call_1_2", 2),
    ]


@pytest.mark.parametrize(("id", "key"), [("toolu_01:x", "toolu_01:x"), ("ä", "m1.0"), ("x" * 65, "m1.0")])
def test_keys(id: str, key: str) -> None:
    """The provider's id if it can be one, else the call's place in the conversation."""
    chain = chain_of((), last=Message.assistant("", [ToolCall(call_id=id, name="a")]))
    (call,) = chain.messages[1].tool_calls
    assert (call.call_id, call.key) == (id, key)


def test_keys_of_a_conversation_that_was_kept() -> None:
    """Stay, and aren't given again."""
    kept = Message.assistant("", [ToolCall(call_id="c1", key="old", name="a")])
    chain = chain_of((), last=kept).add_message(Message.assistant("", [ToolCall(call_id="old", name="a")]))
    assert [message.tool_calls[0].key for message in chain.messages[1:]] == ["old", "old~2"]
    assert chain.find_call("old") == chain.messages[2].tool_calls[0] and chain.find_call("zzz") is None


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Message("robot"), ValueError, "Message.role must be one of system, user, assistant, tool"),
        (lambda: Message("user", status="gone"), ValueError, "Message.status must be one of complete"),
        (lambda: Message("user", 5), TypeError, "Message.content must be a text or ContentParts, not int"),
        (
            lambda: Message("user", tool_calls=["x"]),
            TypeError,
            "Message.tool_calls must be a sequence of ToolCalls",
        ),
        (lambda: Message("user", metadata=5), TypeError, "Message.metadata must be a mapping"),
        (lambda: MessageDelta(5), TypeError, "MessageDelta.content must be a str, a ContentPart or None"),
        (lambda: MessageDelta(status="done"), ValueError, "MessageDelta.status must be one of"),
        (lambda: TokenUsage("5"), TypeError, "TokenUsage.input must be an int or None"),
        (lambda: TokenUsage(1, -1), ValueError, "TokenUsage.output can't be negative"),
        (lambda: chain_of().add_message("hi"), TypeError, "add_message takes a Message, not str"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_usage_is_added() -> None:
    """Unknown is nothing."""
    assert TokenUsage(1, None).add(None) == TokenUsage(1, None)
    assert TokenUsage(None, 2).add(TokenUsage(3, None)) == TokenUsage(3, 2)
    assert TokenUsage(1, 2).total == 3 and TokenUsage().total == 0


def test_needs_response() -> None:
    """After a user, a tool and a call; not after instructions and answers."""
    seen = []
    chain = chain_of(())
    for message in (
        Message.user("x"),
        Message.system("x"),
        Message.assistant("x", [ToolCall(call_id="c1", name="a")]),
        Message("tool", tool_results=[ToolResult("R", tool_call_id="c1")]),
        Message.assistant("x"),
        replace(Message.user("x"), name="me"),
    ):
        chain.add_message(message)
        seen.append(chain.needs_response)
    assert seen == [True, False, True, True, False, True]


async def test_calls_that_nobody_answered_are_when_the_user_goes_on() -> None:
    model = ScriptedChat([calls(call("c1", "f")), Message.assistant("ok")])
    chain = chain_of(model, tool("f"))
    await chain.run(mode="once")
    chain.add_message(Message.user("Never mind"))
    await chain.run()
    assert [message.role for message in model.requests[-1]] == ["user", "assistant", "tool", "user"]
    assert chain.messages[2].tool_results[0].reason == "cancelled"


async def test_the_bound_of_model_calls_holds_for_all_models_together() -> None:
    failing = ScriptedChat([calls(call("c1", "f")), ChainError("overloaded", "x")], retry_on=["overloaded"])
    second = ScriptedChat([calls(call(f"d{n}", "f")) for n in range(5)])
    outcome = await chain_of(failing, tool("f")).run(max_runs=4, with_fallbacks=[second])
    assert outcome.error is not None and outcome.error.type == "exceeded_max_runs"
    assert len(failing.requests) + len(second.requests) == 4
