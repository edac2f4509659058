"""Exceptions and values that can't say what they are, as half-made errors of SDKs can't."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from listeners.chain import Function, LLMChain, Message, ScriptedChat
from listeners.errors import ChainError, HandlerError
from tests.support.chains import call, calls


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    def __repr__(self) -> str:
        raise ValueError("no text")


def raising(*told: Any) -> None:
    raise Speechless


def asked(model: Any, *callbacks: Any) -> LLMChain:
    model = ScriptedChat(model) if isinstance(model, list) else model
    tools = [Function("f", lambda arguments, context: "x")]
    return LLMChain(model, tools=tools, messages=[Message.user("hi")], callbacks=list(callbacks))


class Swallowing:
    """A model that goes on when a handler raises inside it."""

    async def stream(self, messages: Any, tools: Any, hooks: Any) -> AsyncIterator[Any]:
        with contextlib.suppress(Exception):
            await hooks.response_headers({})
        yield Message.assistant("answer")

    def retry_on_fallback(self, error: ChainError) -> bool:
        return True


@pytest.mark.parametrize("event", ["on_run_ended", "on_error"])
async def test_a_speechless_exception_of_a_handler_leaves_run_as_its_error(event: str) -> None:
    ended: list[str] = []
    listener = {"on_run_ended": lambda chain, outcome: ended.append(outcome.status)}
    with pytest.raises(HandlerError, match=f"{event} raised an exception: .Speechless.$"):
        await asked([ChainError("x", "y")], listener, {event: raising}).run()
    assert ended == ["error"]


async def test_a_speechless_exception_of_a_handler_ends_the_run() -> None:
    outcome = await asked([Message.assistant("x")], {"on_message_processed": raising}).run()
    assert isinstance(outcome.error, HandlerError) and isinstance(outcome.error.original, Speechless)


async def test_a_speechless_exception_that_a_model_swallows_ends_the_run_and_no_other_model_is_tried() -> (
    None
):
    second = ScriptedChat([Message.assistant("second")])
    chain = asked(Swallowing(), {"on_llm_response_headers": raising})
    outcome = await chain.run(with_fallbacks=[second])
    assert isinstance(outcome.error, HandlerError) and not second.requests


async def test_a_speechless_exception_of_a_mode_is_the_runs_error() -> None:
    async def mode(chain: Any) -> Any:
        raise Speechless

    ended: list[str] = []
    chain = asked([], {"on_run_ended": lambda chain, outcome: ended.append(outcome.status)})
    error = (await chain.run(mode=mode)).error
    assert error is not None and (error.type, error.message) == ("exception", "(Speechless)")
    assert ended == ["error"]


async def test_a_speechless_exception_of_a_model_is_an_unknown_error() -> None:
    error = (await asked([Speechless()]).run()).error
    assert error is not None and (error.type, error.message) == ("unknown_error", "Speechless")


async def test_a_speechless_exception_of_a_processor_is_told_to_the_model() -> None:
    def process(chain: LLMChain, message: Message) -> Message:
        if message.text == "x":
            raise Speechless
        return message

    model = ScriptedChat([Message.assistant("x"), Message.assistant("y")])
    chain = LLMChain(model, messages=[Message.user("hi")], message_processors=[process])
    assert (await chain.run()).text == "y"
    assert chain.messages[2].text == "ERROR: An exception was raised! Exception: <Speechless>"


async def test_a_verdict_that_cannot_be_shown_is_refused_like_any_other() -> None:
    chain = asked([calls(call("c1", "f"))], {"on_tool_call_review": lambda *told: Speechless()})
    assert "Unexpected on_tool_call_review result" in str((await chain.run()).error)
