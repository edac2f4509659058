"""What may be said about a call before it runs: a review handler's verdict, a person's decision (no I/O)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from listeners.chain.copies import own_mapping
from listeners.chain.messages import ToolCall
from listeners.contract.decisions import Approve, Decision, Edit, Reject, check_decision, parse_decision
from listeners.errors import ChainError
from listeners.texts import repr_of

__all__ = [
    "Allow",
    "Approve",
    "Decision",
    "Deny",
    "Edit",
    "HeldCall",
    "Interrupt",
    "Reject",
    "ReviewContext",
    "UpdateArguments",
    "Verdict",
    "check_decision",
    "check_verdict",
    "is_interrupt",
    "parse_decision",
]


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run; the next review handler is asked."""


@dataclass(frozen=True, slots=True)
class UpdateArguments:
    """The call may run with these arguments, which the next review handler sees."""

    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deny:
    """The call may not run; ``reason`` is what the model and people are told. Nobody else is asked."""

    reason: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The call is held until a person decides: a verdict, or what a tool returns.

    ``message`` is the question, ``data`` the application's own. The chain checks both, so that a wrong one from a
    tool is an error result like any other.
    """

    message: str
    data: Mapping[str, Any] | None = None


Verdict = Allow | UpdateArguments | Deny | Interrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewContext:
    """What a review handler is told beside the call. It gains fields: never compare it whole.

    ``human_decision``: what a person has decided about the call already, ``None`` on the first pass.
    """

    human_decision: Literal["approve", "edit"] | None = None
    custom_context: Any = None


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that waits for a decision: its question, and ``data`` with ``tool_call_id`` added."""

    tool_call_id: str
    call: ToolCall
    message: str
    data: Mapping[str, Any]

    def own(self) -> HeldCall:
        """Return the same with data and arguments that nobody else holds."""
        return HeldCall(self.tool_call_id, self.call.own(), self.message, own_mapping(self.data))


def check_verdict(verdict: object, tool: str) -> Verdict:
    """Return ``verdict`` if it is one; raises :class:`ChainError` otherwise, a blank reason or message included."""
    problem = None
    match verdict:
        case Allow():
            return verdict
        case UpdateArguments():
            if _is_arguments(verdict.arguments):
                return verdict
            problem = "its arguments must be a mapping with str keys"
        case Deny():
            if _is_text(verdict.reason):
                return verdict
            problem = "its reason must be a text that says something"
        case Interrupt():
            if is_interrupt(verdict):
                return verdict
            problem = "its message must be a text that says something, its data a mapping or None"
    advice = problem or "return Allow(), UpdateArguments(…), Deny(…) or Interrupt(…)"
    raise ChainError(
        None, f'Unexpected on_tool_call_review result for tool "{tool}": {repr_of(verdict)}; {advice}'
    )


def is_interrupt(value: object) -> bool:
    """Tell whether ``value`` is an ``Interrupt`` that can hold a call."""
    return isinstance(value, Interrupt) and _is_text(value.message) and _is_data(value.data)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_arguments(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_data(value: object) -> bool:
    return value is None or _is_arguments(value)
