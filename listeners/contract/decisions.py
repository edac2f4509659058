"""What a person answers about a held call, and how it travels (contract §3).

On the wire it is ``{"decision": "approve" | "edit" | "reject", "arguments"?, "reason"?, "by"?}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = ["Answer", "Approve", "Decision", "Edit", "Reject", "check_decision", "parse_decision"]


@dataclass(frozen=True, slots=True)
class Approve:
    """Run the call as it is."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Run the call with other arguments."""

    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reject:
    """Don't run the call; ``reason`` is added to what the model is told."""

    reason: str | None = None


Decision = Approve | Edit | Reject


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision, and by whom if that is known."""

    decision: Decision
    by: str | None = None

    def wire(self) -> dict[str, Any]:
        """Return it as it travels; members are absent rather than null."""
        wire: dict[str, Any] = {}
        match self.decision:
            case Approve():
                wire["decision"] = "approve"
            case Edit(arguments):
                wire |= {"decision": "edit", "arguments": dict(arguments)}
            case Reject(reason):
                wire["decision"] = "reject"
                if reason is not None:
                    wire["reason"] = reason
        if self.by is not None:
            wire["by"] = self.by
        return wire

    def encode(self) -> bytes:
        """Return it as JSON; raises ``ValueError`` for arguments that JSON can't carry."""
        try:
            return msgspec.json.encode(self.wire())
        except (TypeError, ValueError) as error:
            raise ValueError(f"the edited arguments are not JSON: {error}") from error

    @classmethod
    def decode(cls, data: bytes) -> Answer | None:
        """Read what :meth:`encode` wrote; ``None`` for anything else, since it may be a newer writer's."""
        try:
            wire = msgspec.json.decode(data)
            by = wire.get("by") if isinstance(wire, dict) else None
            return cls(parse_decision(wire), by if isinstance(by, str) else None)
        except ValueError:
            return None


def check_decision(decision: object) -> Decision:
    """Return ``decision`` if it is one; raises ``ValueError`` otherwise."""
    match decision:
        case Approve():
            return decision
        case Edit():
            if isinstance(decision.arguments, Mapping) and all(
                isinstance(name, str) for name in decision.arguments
            ):
                return decision
            raise ValueError("Edit.arguments must be a mapping with str keys")
        case Reject():
            if decision.reason is None or isinstance(decision.reason, str):
                return decision
            raise ValueError("Reject.reason must be a text or None")
    raise ValueError(f"{decision!r:.200} is no decision: give Approve(), Edit(arguments) or Reject(reason)")


def parse_decision(wire: Mapping[str, Any]) -> Decision:
    """Make a decision of ``{"decision": "approve" | "edit" | "reject", "arguments"?, "reason"?}``.

    The word may stand under ``"type"`` too; other members are ignored. Raises ``ValueError`` for another word, none,
    or an edit without arguments.
    """
    if not isinstance(wire, Mapping):
        raise ValueError(f"a decision must be a mapping, not {type(wire).__name__}")
    word = wire.get("decision", wire.get("type"))
    if word == "approve":
        return Approve()
    if word == "edit":
        if "arguments" not in wire:
            raise ValueError("the decision to edit needs the arguments to run with")
        return check_decision(Edit(wire["arguments"]))
    if word == "reject":
        return check_decision(Reject(wire.get("reason")))
    raise ValueError(f"the decision must be approve, edit or reject, not {word!r:.80}")
