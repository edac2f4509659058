"""A chain's run as it stands in the log of a real server."""

from __future__ import annotations

import threading
from typing import Any

from redis import Redis

from listeners import RedisListener, RunPublisher, decide, progress
from listeners.chain import (
    Allow,
    Approve,
    Edit,
    Function,
    Interrupt,
    LLMChain,
    Message,
    MessageDelta,
    ScriptedChat,
    ToolCall,
    dump_messages,
    load_messages,
)
from listeners.contract.events import decode
from listeners.contract.fold import fold, waiting
from listeners.contract.keys import Keys
from listeners.contract.log import read_entries
from tests.support.chains import call, calls, chain_of, tool

DONE = Message.assistant("done")


def log_of(redis: Redis, run: str) -> tuple[list[str], Any]:
    """The types of its events, and the state that a reader makes of them."""
    state, types = waiting(run), []
    for entry in read_entries(redis.xrange(Keys(run).log)):
        event = decode(entry.event)
        types.append(event.type)
        state = fold(state, entry.position, event)
    return types, state


async def test_a_held_call_to_its_end(redis: Redis, redis_url: str) -> None:
    """Streamed by name before its id, held, approved, with progress from its thread."""

    def delete(arguments: dict[str, Any], context: Any) -> str:
        progress(1, 2, threading.current_thread().name)
        return "gone"

    def review(chain: Any, call: ToolCall, function: Function, context: Any) -> Any:
        return Allow() if context.human_decision else Interrupt(f"Delete {call.arguments['path']}?")

    reply = [
        MessageDelta(tool_calls=(ToolCall(index=0, name="delete"),)),
        MessageDelta(tool_calls=(ToolCall(index=0, call_id="c1", arguments_text='{"path":"/x"}'),)),
        MessageDelta(status="complete"),
    ]
    reviewed: Any = {"on_tool_call_review": review}
    chain = chain_of([reply, DONE], Function("delete", delete), callbacks=[RedisListener(), reviewed])
    async with RunPublisher("demo", redis=redis_url) as run:
        assert (await chain.run()).status == "interrupted"
        assert run.flush()
        _, state = log_of(redis, "demo")
        assert state.status == "interrupted" and state.calls[0].interrupt.arguments == {"path": "/x"}
        assert (await chain.resume([Approve()])).text == "done"
    types, state = log_of(redis, "demo")
    assert types == [
        "run_started",
        "tool_call_identified",
        "tool_call_review",
        "tool_interrupted",
        "run_interrupted",
        "run_resumed",
        "tool_decision",
        "tool_call_review",
        "tool_execution_started",
        "tool_progress",
        "tool_execution_completed",
        "run_completed",
    ]
    (made,) = state.calls
    assert (made.key, made.id, made.state, made.attempt) == ("m1.0", "c1", "completed", 1)
    assert made.progress["message"] == "tool delete" and state.status == "completed"


async def test_a_held_call_in_the_hands_of_another_publisher(redis: Redis, redis_url: str) -> None:
    """Answered while no agent was there; the chain that takes it up is made of the messages that were kept."""

    def review(chain: Any, call: ToolCall, function: Function, context: Any) -> Any:
        return Allow() if context.human_decision else Interrupt("Really?")

    reviewed: Any = {"on_tool_call_review": review}
    options: Any = {"tools": [tool("a")], "callbacks": [RedisListener(), reviewed]}
    reply = [
        MessageDelta(tool_calls=(ToolCall(index=0, name="a"),)),
        MessageDelta(tool_calls=(ToolCall(index=0, call_id="c1", arguments_text='{"x":1}'),)),
        MessageDelta(status="complete"),
    ]
    async with RunPublisher("demo", redis=redis_url):
        chain = LLMChain(ScriptedChat([reply]), messages=[Message.user("hi")], **options)
        await chain.run()
    kept = dump_messages(chain.messages)
    decide("demo", "m1.0", Edit({"x": 2}), redis=redis_url)

    async with RunPublisher("demo", resume=True, redis=redis_url, arguments="full") as run:
        again = LLMChain(ScriptedChat([DONE]), messages=load_messages(kept), **options)
        assert (await again.resume([await run.decision("m1.0")])).text == "done"
    types, state = log_of(redis, "demo")
    assert types[types.index("run_interrupted") + 1 :] == [
        "tool_decision",
        "run_resumed",
        "tool_call_review",
        "tool_execution_started",
        "tool_execution_completed",
        "run_completed",
    ]
    assert [(made.key, made.id, made.state, made.arguments) for made in state.calls] == [
        ("m1.0", "c1", "completed", {"x": 2})
    ]


async def test_a_chain_ends_its_own_run(redis: Redis, redis_url: str) -> None:
    """Where no block does."""
    run = RunPublisher("demo", redis=redis_url)
    chain = chain_of([calls(call("1", "a"))], tool("a"), callbacks=[RedisListener(run)])
    assert (await chain.run()).status == "error"
    assert run.flush()
    types, state = log_of(redis, "demo")
    assert types[0] == "run_started" and types[-2:] == ["llm_error", "run_failed"]
    assert (state.status, state.error.code) == ("failed", "script_exhausted")
