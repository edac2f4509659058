"""``ToolObserver``: each tool call told once, when its body begins and when it has ended, however it is run."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

from listeners.callbacks import ChainListener
from listeners.chain.messages import ContentPart, ToolCall, ToolResult
from listeners.contract.events import FailureReason
from listeners.errors import ToolError
from listeners.publishing.hints import harmless
from listeners.tool_listener import ToolCallListener

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.function import Function
    from listeners.chain.outcome import Outcome

__all__ = ["End", "Observed", "ToolObserver"]


@dataclass(slots=True, kw_only=True)
class Observed:
    """One invocation of a tool: ``call_id`` is the provider's, ``None`` for a wrapped tool outside of a chain.

    ``note`` is the observer's own.
    """

    name: str
    arguments: Mapping[str, Any]
    call_id: str | None = None
    note: Any = None
    began: float = field(default_factory=time.monotonic)
    body: str | None = None
    unclaimed: bool = False

    @property
    def seconds(self) -> float:
        """How long it has been running, by a clock that is never set."""
        return time.monotonic() - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an invocation ended: with ``result``, with ``error`` (an exception, or the text that the model is told) and
    its ``reason``, or held until a person decides, ``result`` being the question."""

    status: Literal["completed", "failed", "held"]
    result: Any = None
    error: Exception | str = ""
    reason: FailureReason | None = None


_Inside = Mapping[int, Observed]
_inside: Final[ContextVar[_Inside]] = ContextVar("toolcast_observed", default={})  # noqa: B039  # never changed


class ToolObserver(ChainListener):
    """A chain's callbacks, and by ``tool_listener`` wrapped tools, as two methods to override.

    A wrapped tool that is the body of a chain's call is told once. What the two methods raise is logged, once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: WeakKeyDictionary[LLMChain, dict[str, Observed]] = WeakKeyDictionary()
        self._wrapped = _Wrapped(self)

    @property
    def tool_listener(self) -> ToolCallListener:
        """The listener to wrap tools with; ``wrap`` takes it from here."""
        return self._wrapped

    def begun(self, observed: Observed) -> None:
        """A body is about to run."""

    def ended(self, observed: Observed, end: End) -> None:
        """An invocation has ended. One that never ran (denied, rejected, unknown) is told of here alone."""

    # --- A chain's callbacks ---

    @harmless
    def on_tool_pre_execution(self, chain: LLMChain, call: ToolCall, function: Function, /) -> None:
        """A body is about to run, in this context."""
        observed = _observed(call)
        observed.body = getattr(function.function, "__name__", None)
        observed.unclaimed = True
        with self._lock:
            self._running.setdefault(chain, {})[_key(call)] = observed
        _inside.set({**_inside.get(), id(self): observed})
        self.begun(observed)

    @harmless
    def on_tool_execution_completed(self, chain: LLMChain, call: ToolCall, result: ToolResult, /) -> None:
        """A call has come to a result."""
        value = result.processed_content
        value = _text(result.content) if value is None else value
        self.ended(self._taken(chain, call), End(status="completed", result=value))

    @harmless
    def on_tool_execution_failed(
        self, chain: LLMChain, call: ToolCall, error: str | Sequence[ContentPart], /
    ) -> None:
        """A call has failed, or will never run."""
        # Without a reason the text may be anything, an exception's included.
        reason = (call.result and call.result.reason) or "exception"
        self.ended(self._taken(chain, call), End(status="failed", error=_text(error), reason=reason))

    @harmless
    def on_tool_interrupted(self, chain: LLMChain, results: Sequence[ToolResult], /) -> None:
        """Calls are held; of these, those whose body ran have ended for now."""
        for result in results:
            call = chain.find_call(result.tool_call_id)
            observed = None if call is None else self._take(chain, _key(call))
            if observed is not None:
                self.ended(observed, End(status="held", result=_text(result.content)))

    @harmless
    def on_run_ended(self, chain: LLMChain, outcome: Outcome, /) -> None:
        """Nobody will tell more of calls that are still running: a handler has raised."""
        with self._lock:
            left = self._running.pop(chain, {})
        for observed in left.values():
            self.ended(observed, End(status="failed", error="the call was cancelled", reason="cancelled"))

    def _take(self, chain: LLMChain, key: str) -> Observed | None:
        with self._lock:
            return self._running.get(chain, {}).pop(key, None)

    def _taken(self, chain: LLMChain, call: ToolCall) -> Observed:
        return self._take(chain, _key(call)) or _observed(call)


class _Wrapped(ToolCallListener):
    def __init__(self, observer: ToolObserver) -> None:
        self._observer = observer

    @harmless
    def before_call(self, tool_name: str, tool_input: dict[str, Any], /) -> Observed | None:
        outer = _inside.get().get(id(self._observer))
        if outer is not None and outer.unclaimed and tool_name in (outer.name, outer.body):
            outer.unclaimed = False
            return None
        observed = Observed(name=tool_name, arguments=tool_input)
        self._observer.begun(observed)
        return observed

    @harmless
    def after_call(
        self, context: Observed | None, tool_name: str, tool_input: dict[str, Any], result: Any, /
    ) -> None:
        if context is not None:
            self._observer.ended(context, End(status="completed", result=result))

    @harmless
    def on_error(
        self, context: Observed | None, tool_name: str, tool_input: dict[str, Any], error: Exception, /
    ) -> None:
        if context is not None:
            reason: FailureReason = "error" if isinstance(error, ToolError) else "exception"
            self._observer.ended(context, End(status="failed", error=error, reason=reason))

    @harmless
    def on_cancel(self, context: Observed | None, tool_name: str, tool_input: dict[str, Any], /) -> None:
        if context is not None:
            end = End(status="failed", error="the call was cancelled", reason="cancelled")
            self._observer.ended(context, end)

    @harmless
    def step(self, context: Observed | None, /) -> AbstractContextManager[object] | None:
        return None if context is None else _Inner(self._observer, context)


class _Inner(AbstractContextManager[None]):
    """Makes ``observed`` the innermost invocation, so that what it calls isn't taken for an outer one's body."""

    __slots__ = ("_observed", "_observer", "_token")

    def __init__(self, observer: ToolObserver, observed: Observed) -> None:
        self._observer = observer
        self._observed = observed

    def __enter__(self) -> None:
        self._token: Token[_Inside] = _inside.set({**_inside.get(), id(self._observer): self._observed})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            _inside.reset(self._token)
        except ValueError:
            # The step ended in another context than it began in: a coroutine that the garbage collector closed.
            _inside.set({})


def _observed(call: ToolCall) -> Observed:
    return Observed(name=call.name or "", arguments=call.arguments, call_id=call.call_id)


def _key(call: ToolCall) -> str:
    return call.key or call.call_id or call.name or ""


def _text(content: str | Sequence[ContentPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.content for part in content if part.type == "text")
