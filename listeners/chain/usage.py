"""What a reply cost in tokens (no I/O)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["TokenUsage"]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one reply, or of several added up; ``None`` is unknown.

    ``raw`` is what the provider said. ``cumulative`` marks a report that holds all the earlier ones of its stream.
    """

    input: int | None = None
    output: int | None = None
    raw: dict[str, Any] = field(default_factory=dict)
    cumulative: bool = False

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            given = getattr(self, name)
            if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
                raise TypeError(f"TokenUsage.{name} must be an int or None, not {type(given).__name__}")
            if given is not None and given < 0:
                raise ValueError(f"TokenUsage.{name} can't be negative: {given}")
        object.__setattr__(self, "raw", dict(self.raw))

    @property
    def total(self) -> int:
        """Input and output together."""
        return (self.input or 0) + (self.output or 0)

    def add(self, other: TokenUsage | None) -> TokenUsage:
        """Return both together; a cumulative ``other`` takes this one's place. Numbers in ``raw`` are added."""
        if other is None:
            return self
        if other.cumulative:
            return other
        raw = dict(self.raw)
        for name, value in other.raw.items():
            known = raw.get(name)
            raw[name] = known + value if _is_number(known) and _is_number(value) else value
        return TokenUsage(
            _sum(self.input, other.input), _sum(self.output, other.output), raw, self.cumulative
        )


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
