"""JsonProcessor: a reply as data, or asked for again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from listeners.chain import Halt, JsonProcessor, LLMChain, Message, ToolCall
from tests.support.chains import Recorder, call, calls, chain_of, tool


@pytest.mark.parametrize(
    ("text", "pattern", "value"),
    [
        ('{"x": 1}', None, {"x": 1}),
        ('```json\n{"x": 1}\n```', None, {"x": 1}),
        ("```\n[1]\n```\n", None, [1]),
        ("Here: <json>5</json>!", r"<json>(.*?)</json>", 5),
        ("It is 5.", r"\d", 5),
    ],
)
async def test_json(text: str, pattern: str | None, value: Any) -> None:
    chain = chain_of([Message.assistant(text)], message_processors=[JsonProcessor(pattern)])
    outcome = await chain.run()
    assert outcome.message is not None
    assert (outcome.text, outcome.message.processed_content) == (text, value)


@pytest.mark.parametrize(
    ("text", "pattern"), [("no", None), ("{", None), ("x", r"<json>(.*)</json>"), ("[" * 9999, None)]
)
async def test_no_json_is_asked_for_again(text: str, pattern: str | None) -> None:
    chain = chain_of(
        [Message.assistant(text), Message.assistant("<json>{}</json>" if pattern else "{}")],
        message_processors=[JsonProcessor(pattern)],
    )
    outcome = await chain.run()
    assert outcome.message is not None and outcome.message.processed_content == {}
    assert chain.messages[2].text.startswith("ERROR: Invalid JSON data: ")


async def test_messages_with_calls_are_left_alone() -> None:
    chain = chain_of(
        [calls(call("c1", "a")), Message.assistant("5")], tool("a"), message_processors=[JsonProcessor()]
    )
    outcome = await chain.run()
    assert outcome.message is not None and outcome.message.processed_content == 5


async def test_a_processor_that_returns_something_else_answers_the_model() -> None:
    """As one that raises."""
    answers = iter([None, Message.user("x"), "text"])
    chain = chain_of(
        [Message.assistant("a")] * 4,
        message_processors=[lambda chain, message: next(answers)],
    )
    outcome = await chain.run()
    assert outcome.error is not None and isinstance(outcome.error.original, TypeError)
    assert "not an assistant Message or a Halt" in chain.messages[2].text


def test_halt_takes_a_message() -> None:
    with pytest.raises(TypeError, match=r"Halt\.message must be a Message, not str"):
        Halt("no")  # type: ignore[arg-type]  # what is refused


def test_a_halt_takes_a_user_message_only() -> None:
    with pytest.raises(ValueError, match="user message"):
        Halt(Message.system("no"))


async def test_calls_that_a_processor_adds_get_ids_and_keys() -> None:
    def add(chain: LLMChain, message: Message) -> Message:
        return replace(message, tool_calls=(ToolCall(name="f"),)) if message.text == "x" else message

    record = Recorder()
    replies = [Message.assistant("x"), Message.assistant("y")]
    chain = chain_of(replies, tool("f"), record=record, message_processors=[add])
    await chain.run()
    [call] = chain.messages[1].tool_calls
    assert call.call_id and call.key
    assert chain.messages[2].tool_results[0].tool_call_id == call.call_id
    assert [line for line in record.lines if line.startswith("id(")] == [f"id({call.call_id}:f)"]
