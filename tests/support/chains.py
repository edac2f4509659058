"""A chain's events as lines one can read, and short names for the tools, calls and replies of the rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from listeners.callbacks import EVENTS
from listeners.chain import (
    ContentPart,
    Function,
    LLMChain,
    Message,
    MessageDelta,
    ModelHooks,
    ScriptedChat,
    TokenUsage,
    ToolCall,
    ToolResult,
)
from listeners.errors import ChainError

SHORT = {
    "on_llm_new_delta": "delta",
    "on_llm_new_message": "new",
    "on_llm_ratelimit_info": "ratelimit",
    "on_llm_response_headers": "headers",
    "on_llm_token_usage": "use",
    "on_llm_error": "lerr",
    "on_message_processed": "proc",
    "on_message_processing_error": "perr",
    "on_error_message_created": "emsg",
    "on_tool_call_identified": "id",
    "on_tool_call_review": "rev",
    "on_tool_execution_started": "st",
    "on_tool_pre_execution": "pre",
    "on_tool_execution_completed": "ok",
    "on_tool_execution_failed": "fail",
    "on_tool_execution_exception": "exc",
    "on_tool_interrupted": "int",
    "on_tool_response_created": "resp",
    "on_retries_exceeded": "rx",
    "on_error": "err",
    "on_run_started": "begin",
    "on_run_ended": "end",
    "on_tool_call_reviewed": "reviewed",
    "on_tool_decision": "decision",
}
OURS = {"on_run_started", "on_run_ended", "on_tool_call_reviewed", "on_tool_decision"}
PIECES = {"on_llm_new_delta", "on_llm_new_message"}


def text_of(parts: str | Sequence[ContentPart]) -> str:
    return repr(parts) if isinstance(parts, str) else f"parts[{''.join(part.content for part in parts)}]"


def shown(value: Any) -> str:
    match value:
        case Message(role="assistant"):
            calls = ",".join(f"{call.call_id}:{call.name}" for call in value.tool_calls)
            return f"A[{calls}]" if calls else f'A"{value.text}"'
        case Message(role="tool"):
            return f"T[{','.join(result.tool_call_id for result in value.tool_results)}]"
        case Message():
            return f'{value.role[0].upper()}"{value.text}"'
        case ToolCall():
            return f"{value.call_id}:{value.name}"
        case ToolResult():
            return text_of(value.content)
        case ChainError():
            return value.type or value.message
        case TokenUsage():
            return f"{value.input},{value.output}"
        case MessageDelta():
            return repr(value.content) if isinstance(value.content, str) else value.status
    return type(value).__name__


class Recorder:
    """Records the 20 events, without review (an answer would be needed) and without the pieces of replies.

    ``pieces=True``: those too. ``ours=True``: the four that stand beside the 20. ``review``: what review answers,
    or a function of (chain, call, function, context). ``does``: by event, what else its handler does.
    """

    def __init__(
        self,
        *,
        pieces: bool = False,
        ours: bool = False,
        review: Any = None,
        does: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.lines: list[str] = []
        self.told: list[tuple[str, tuple[Any, ...]]] = []
        self.counts: list[int] = []
        left_out = (set() if pieces else PIECES) | (set() if ours else OURS)
        if review is None:
            left_out.add("on_tool_call_review")
        self._review = review
        self._does = does or {}
        self.callbacks: Any = {event: self._handler(event) for event in EVENTS if event not in left_out}

    def _handler(self, event: str) -> Callable[..., Any]:
        def handler(*args: Any) -> Any:
            chain, *rest = args
            self.told.append((event, args))
            self.lines.append(self._line(event, rest))
            self.counts.append(chain.failure_count)
            does = self._does.get(event)
            if does is not None:
                return does(*args)
            if event == "on_tool_call_review":
                return self._review(*args) if callable(self._review) else self._review
            return None

        return handler

    @staticmethod
    def _line(event: str, args: Sequence[Any]) -> str:
        name = SHORT[event]
        match event:
            case (
                "on_retries_exceeded" | "on_llm_response_headers" | "on_llm_ratelimit_info" | "on_run_started"
            ):
                return name
            case "on_run_ended":
                return f"{name}({args[0].status})"
            case "on_llm_new_delta":
                return f"{name}({', '.join(map(shown, args[0]))})"
            case "on_tool_interrupted":
                return f"{name}({', '.join(result.tool_call_id for result in args[0])})"
            case "on_tool_call_identified":
                return f"{name}({args[0].call_id or args[0].key}:{args[0].name})"
            case "on_tool_execution_completed":
                return f"{name}({args[0].call_id}, {shown(args[1])})"
            case "on_tool_execution_failed":
                return f"{name}({args[0].call_id}, {text_of(args[1])})"
            case "on_tool_execution_exception":
                return f"{name}({args[0].call_id}, {type(args[1]).__name__})"
            case "on_tool_call_reviewed" | "on_tool_decision":
                return f"{name}({args[0].call_id}, {type(args[-1]).__name__})"
        if event.startswith("on_tool_") and isinstance(args[0], ToolCall):
            return f"{name}({args[0].call_id})"
        return f"{name}({', '.join(map(shown, args))})"

    def of(self, event: str) -> list[tuple[Any, ...]]:
        """The arguments of each telling of ``event``, without the chain."""
        return [args[1:] for told, args in self.told if told == event]


def tool(name: str, does: Any = "R", **options: Any) -> Function:
    """A sync tool that returns ``does``, raises it, or calls it with (arguments, context)."""

    def body(arguments: dict[str, Any], context: Any) -> Any:
        return _done(does, arguments, context)

    return Function(name, body, **options)


def atool(name: str, does: Any = "R", **options: Any) -> Function:
    """An async and concurrent tool; ``does`` may be a coroutine function."""

    async def body(arguments: dict[str, Any], context: Any) -> Any:
        done = _done(does, arguments, context)
        return await done if hasattr(done, "__await__") else done

    return Function(name, body, concurrent=True, **options)


def _done(does: Any, arguments: dict[str, Any], context: Any) -> Any:
    if isinstance(does, BaseException):
        raise does
    return does(arguments, context) if callable(does) else does


def call(id: str | None, name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(call_id=id, name=name, arguments=arguments, status="complete")


def calls(*made: ToolCall) -> Message:
    """An assistant message with these calls."""
    return Message.assistant("", made)


def chain_of(
    model: Any = (),
    *tools: Function,
    last: Message | None = None,
    record: Recorder | None = None,
    **options: Any,
) -> LLMChain:
    """A chain with a user's message, then ``last``; ``model``: one, or the replies of a script."""
    messages = [Message.user("hi"), *([last] if last else [])]
    callbacks = options.pop("callbacks", [record.callbacks] if record else [])
    llm = model if hasattr(model, "stream") else ScriptedChat(model)
    return LLMChain(llm, tools=tools, messages=messages, callbacks=callbacks, **options)


class Yielding:
    """A model that yields or raises what it is given, each request the next list."""

    def __init__(self, *replies: Iterable[Any], retry: bool | Callable[[ChainError], bool] = False) -> None:
        self._replies = [list(reply) for reply in replies]
        self._retry = retry
        self.requests = 0
        self.closed = 0

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[Function], hooks: ModelHooks
    ) -> AsyncIterator[Any]:
        self.requests += 1
        reply = self._replies.pop(0)
        try:
            for item in reply:
                if isinstance(item, BaseException):
                    raise item
                if callable(item):
                    await item(hooks)
                    continue
                yield item
        finally:
            self.closed += 1

    def retry_on_fallback(self, error: ChainError) -> bool:
        return self._retry(error) if callable(self._retry) else self._retry
