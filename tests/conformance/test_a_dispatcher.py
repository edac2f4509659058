"""The A rows: handlers in their order, what they may be, and what becomes of one that raises."""

from __future__ import annotations

from typing import Any, cast

import pytest

from listeners.callbacks import EVENTS, ChainListener
from listeners.chain import Allow, LLMChain, Message, ScriptedChat
from listeners.dispatch import Handlers
from listeners.errors import HandlerError
from tests.support.chains import Recorder, call, calls, chain_of, tool


async def test_a_01_no_handlers() -> None:
    """Nothing happens, whatever is told."""
    handlers = Handlers()
    for event in EVENTS:
        await handlers.fire(event, *EVENTS[event])


async def test_a_02_a_handler_is_told_once() -> None:
    """With the event's arguments."""
    told: list[tuple[Any, ...]] = []
    handlers = Handlers()
    handlers.add({"on_retries_exceeded": lambda *args: told.append(args)})
    await handlers.fire("on_retries_exceeded", "123")
    assert told == [("123",)]


async def test_a_03_a_mapping_without_the_event() -> None:
    """Isn't called, and nothing is wrong with that."""
    told: list[object] = []
    handlers = Handlers()
    handlers.add({"on_error": lambda *args: told.append(args)})
    await handlers.fire("on_llm_error", "chain", "error")
    assert told == []


async def test_a_04_several_are_told_in_their_order() -> None:
    """Once each."""
    told: list[str] = []
    handlers = Handlers()
    handlers.add({"on_retries_exceeded": lambda chain: told.append("h1")})
    handlers.add({"on_retries_exceeded": lambda chain: told.append("h2")})
    await handlers.fire("on_retries_exceeded", "chain")
    assert told == ["h1", "h2"]


async def test_a_05_registered_twice_is_told_twice() -> None:
    """The same mapping, two places in the list."""
    told: list[str] = []
    mapping = {"on_retries_exceeded": lambda chain: told.append("h")}
    handlers = Handlers()
    handlers.add(mapping)
    handlers.add(mapping)
    await handlers.fire("on_retries_exceeded", "chain")
    assert told == ["h", "h"]


async def test_a_06_a_raising_handler() -> None:
    """Becomes a HandlerError that names the event, without a location."""

    def raises(chain: object, message: object) -> None:
        raise ValueError("BOOM!")

    handlers = Handlers()
    told: list[object] = []
    handlers.add({"on_message_processed": raises})
    handlers.add({"on_message_processed": lambda chain, message: told.append(message)})
    with pytest.raises(HandlerError) as caught:
        await handlers.fire("on_message_processed", "chain", "message")
    error = caught.value
    assert (
        str(error)
        == error.message
        == "Callback handler for on_message_processed raised an exception: (ValueError) BOOM!"
    )
    assert (error.type, error.event) == (None, "on_message_processed")
    assert isinstance(error.__cause__, ValueError) and error.original is error.__cause__
    assert told == []


def test_a_08_a_value_that_cannot_be_called() -> None:
    """Is refused when it is registered."""
    with pytest.raises(ValueError, match="'on_error' is 'invalid', which can't be called"):
        chain_of().add_callback(cast(Any, {"on_error": "invalid"}))


async def test_a_09_none_is_absent() -> None:
    """As if the event weren't in the mapping."""
    handlers = Handlers()
    handlers.add({"on_error": None})
    await handlers.fire("on_error", "chain", "error")


def test_a_11_the_wrong_number_of_arguments() -> None:
    """Is refused when it is registered, with the right signature."""
    with pytest.raises(
        ValueError,
        match=r"'on_llm_ratelimit_info' takes \(info\), but is called as on_llm_ratelimit_info\(chain, info\)",
    ):
        chain_of().add_callback(cast(Any, {"on_llm_ratelimit_info": lambda info: None}))


async def test_a_12_new_message_is_told_to_the_chain_s_handler() -> None:
    """Once, with the chain: a model takes no handlers."""
    told: list[tuple[Any, ...]] = []
    reply = Message.assistant("Hi")
    chain = chain_of([reply], callbacks=[{"on_llm_new_message": lambda *args: told.append(args)}])
    await chain.run()
    assert told == [(chain, reply)]


async def test_a_13_what_handlers_return_is_dropped() -> None:
    """Junk, and awaitables too, once they were awaited."""
    awaited: list[str] = []

    async def late(event: str) -> str:
        awaited.append(event)
        return "junk"

    def handler(event: str) -> Any:
        return lambda *args: late(event)

    junk: Any = {event: handler(event) for event in EVENTS if event != "on_tool_call_review"}
    record = Recorder(review=Allow())
    chain = chain_of(
        [calls(call("c1", "a")), Message.assistant("done")], tool("a"), callbacks=[junk, record.callbacks]
    )
    outcome = await chain.run()
    assert outcome.text == "done"
    assert record.lines == [
        "id(c1:a)",
        "proc(A[c1:a])",
        "rev(c1)",
        "st(c1)",
        "pre(c1)",
        "ok(c1, parts[R])",
        "proc(T[c1])",
        "resp(T[c1])",
        'proc(A"done")',
    ]
    assert {"on_run_started", "on_tool_execution_completed", "on_run_ended"} <= set(awaited)


def test_a_14_callbacks_are_a_list() -> None:
    """In the order they were added."""

    class Mine(ChainListener):
        def on_retries_exceeded(self, chain: LLMChain, /) -> None:
            pass

    h1: Any = {"on_error": lambda chain, error: None}
    h2 = Mine()
    chain = LLMChain(ScriptedChat([])).add_callback(h1).add_callback(h2)
    assert list(chain.callbacks) == [h1, h2]
