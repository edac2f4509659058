"""Handlers of a chain: each event's signature is the type checker's business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, assert_type

from listeners.callbacks import ChainCallbacks, ChainListener
from listeners.chain import (
    Allow,
    Approve,
    ChainError,
    ContentPart,
    Deny,
    Edit,
    Function,
    HeldCall,
    LLMChain,
    Message,
    MessageDelta,
    Outcome,
    ReviewContext,
    ScriptedChat,
    TokenUsage,
    ToolCall,
    ToolContext,
    ToolResult,
    Verdict,
)


def deltas(chain: LLMChain, deltas: Sequence[MessageDelta]) -> None: ...
def message(chain: LLMChain, message: Message) -> None: ...
def info(chain: LLMChain, info: Mapping[str, Any]) -> None: ...
def headers(chain: LLMChain, headers: Mapping[str, Sequence[str]]) -> None: ...
def usage(chain: LLMChain, usage: TokenUsage) -> int:
    return usage.total


async def error(chain: LLMChain, error: ChainError) -> None: ...
async def tool(chain: LLMChain, call: ToolCall, function: Function) -> None: ...
def review(chain: LLMChain, call: ToolCall, function: Function, review: ReviewContext) -> Verdict:
    return Allow()


async def slow_review(chain: LLMChain, call: ToolCall, function: Function, review: ReviewContext) -> Deny:
    return Deny("no")


def says_nothing(chain: LLMChain, call: ToolCall, function: Function, review: ReviewContext) -> None: ...
def completed(chain: LLMChain, call: ToolCall, result: ToolResult) -> None: ...
def failed(chain: LLMChain, call: ToolCall, error: str | Sequence[ContentPart]) -> None: ...
def failed_with_text(chain: LLMChain, call: ToolCall, error: str) -> None: ...
def exception(chain: LLMChain, call: ToolCall, exception: Exception, traceback: TracebackType) -> None: ...
def interrupted(chain: LLMChain, results: Sequence[ToolResult]) -> None: ...
def ended(chain: LLMChain, outcome: Outcome) -> None: ...
def search(q: str, context: ToolContext) -> list[str]:
    return [q]


right: ChainCallbacks = {
    "on_llm_new_delta": deltas,
    "on_llm_new_message": message,
    "on_llm_ratelimit_info": info,
    "on_llm_response_headers": headers,
    "on_llm_token_usage": usage,
    "on_llm_error": error,
    "on_message_processed": message,
    "on_tool_call_identified": tool,
    "on_tool_call_review": review,
    "on_tool_execution_completed": completed,
    "on_tool_execution_failed": failed,
    "on_tool_execution_exception": exception,
    "on_tool_interrupted": interrupted,
    "on_run_ended": ended,
    "on_error": None,
}
slow: ChainCallbacks = {"on_tool_call_review": slow_review}
LLMChain(
    ScriptedChat([]), callbacks=[right, {"on_error": error}], tools=[search, Function.from_callable(search)]
)
LLMChain(ScriptedChat([])).add_callback(
    {"on_tool_call_review": lambda chain, call, function, review: Allow()}
)

wrong_arguments: ChainCallbacks = {"on_llm_error": message}  # refused: typeddict-item
too_few: ChainCallbacks = {"on_tool_execution_started": message}  # refused: typeddict-item
narrow: ChainCallbacks = {"on_tool_execution_failed": failed_with_text}  # refused: typeddict-item
no_verdict: ChainCallbacks = {"on_tool_call_review": tool}  # refused: typeddict-item
silent: ChainCallbacks = {"on_tool_call_review": says_nothing}  # refused: typeddict-item
typo: ChainCallbacks = {"on_eror": error}  # refused: typeddict-unknown-key
not_called: ChainCallbacks = {"on_error": "x"}  # refused: typeddict-item


class Right(ChainListener):
    def on_tool_execution_completed(self, chain: LLMChain, call: ToolCall, result: ToolResult, /) -> None: ...

    async def on_error(self, chain: LLMChain, error: ChainError, /) -> None: ...

    async def on_tool_call_review(
        self, chain: LLMChain, call: ToolCall, function: Function, review: ReviewContext, /
    ) -> Verdict:
        return Allow()


class Wrong(ChainListener):
    def on_retries_exceeded(self, /) -> None:  # refused: override
        ...

    def on_llm_error(self, chain: LLMChain, error: str, /) -> None:  # refused: override
        ...


LLMChain(ScriptedChat([]), callbacks=[Right(), {"on_run_ended": ended}])
LLMChain(ScriptedChat([]), callbacks=[Right])  # refused: list-item
LLMChain(ScriptedChat([]), callbacks=[object()])  # refused: list-item
LLMChain(object())  # refused: arg-type


async def use(chain: LLMChain) -> None:
    outcome = await chain.run(mode="until_tool_used", until_tool=["a"], max_runs=None)
    assert_type(outcome, Outcome)
    assert_type(outcome.text, str)
    assert_type(outcome.message, Message | None)
    assert_type(outcome.interrupts, tuple[HeldCall, ...])
    assert_type(outcome.raise_for_error(), Outcome)
    assert_type(await chain.execute_tool_calls(), Message | None)
    await chain.resume({"c1": Approve(), "c2": Edit({"x": 1})}, max_runs=3)
    await chain.resume([Approve()])
    assert_type(Message.user("x"), Message)
    assert_type(chain.messages, tuple[Message, ...])
    await chain.run(mode="never")  # refused: arg-type
    await chain.run(max_run=3)  # refused: call-arg
    await chain.resume([True])  # refused: list-item
    await chain.execute_tool_calls_with_decisions([], ["approve"])  # refused: list-item
