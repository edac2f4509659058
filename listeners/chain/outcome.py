"""What a run comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from listeners.chain.messages import Message, TokenUsage, ToolResult
from listeners.chain.review import HeldCall
from listeners.errors import ChainError

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain
    from listeners.chain.models.base import ChatModel

__all__ = ["Outcome", "Status"]

Status = Literal["ok", "interrupted", "paused", "error", "cancelled"]


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
