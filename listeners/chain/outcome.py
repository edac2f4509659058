"""What a run comes to, and what one may ask of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self, TypedDict

from listeners.chain.messages import Message, TokenUsage, ToolResult
from listeners.chain.review import HeldCall
from listeners.errors import ChainError

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.models.base import ChatModel

__all__ = ["Outcome", "RunOptions", "Status"]

Status = Literal["ok", "interrupted", "paused", "error", "cancelled"]
ModeName = Literal["once", "while_needs_response", "until_success", "until_tool_used", "step"]


class RunOptions(TypedDict, total=False):
    """How to run.

    - ``mode``: ``"while_needs_response"`` unless given, or ``async def mode(chain) -> Outcome`` made of the steps in
      ``listeners.chain.modes``.
    - ``until_tool``: the names of which one must be used, for ``"until_tool_used"``.
    - ``should_continue(chain)``: whether ``"step"`` takes another one.
    - ``max_runs``: how often the model is asked at most, 25 unless given; ``None`` for no bound.
    - ``with_fallbacks``: models to try in turn when one fails in a way that another may not.
    - ``before_fallback(chain)``: changes the chain before each model's attempt, the first one included.
    """

    mode: ModeName | Callable[[LLMChain], Awaitable[Outcome]]
    until_tool: str | Collection[str]
    should_continue: Callable[[LLMChain], bool]
    max_runs: int | None
    with_fallbacks: Sequence[ChatModel] | None
    before_fallback: Callable[[LLMChain], object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to.

    - ``status``; ``"cancelled"`` is told to ``on_run_ended`` only.
    - ``llm``: the model that answered; ``error``: what a failed run failed with; ``usage``: of the whole run.
    - ``interrupts``: the calls that wait for a decision, in call order.
    - ``tool_result``: of ``"until_tool_used"``.
    - ``exchanged_messages``: what was added during the run, a valid transcript even if a handler raised.
    """

    status: Status
    chain: LLMChain = field(repr=False)
    llm: ChatModel = field(repr=False)
    error: ChainError | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)
    interrupts: tuple[HeldCall, ...] = ()
    tool_result: ToolResult | None = None
    exchanged_messages: tuple[Message, ...] = ()
    answer: Message | None = field(default=None, repr=False)

    @property
    def message(self) -> Message | None:
        """The last assistant message since a user spoke; raises the error of a failed run."""
        return self.raise_for_error().answer

    @property
    def text(self) -> str:
        """The text of :attr:`message`, ``""`` without one; raises the error of a failed run."""
        message = self.message
        return "" if message is None else message.text

    def raise_for_error(self) -> Self:
        """Return the outcome itself; raises the error of a failed run."""
        if self.error is not None:
            raise self.error
        return self
