"""Arguments that a tool can't be called with, and what the model is told about them (no I/O)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from listeners.errors import ToolError

__all__ = ["InvalidArguments", "check_required", "described"]


class InvalidArguments(ToolError):
    """The model's arguments are not those of the tool; the text says what to change."""


def check_required(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidArguments` if one that the schema requires is missing; others than it names may be there."""
    required = schema.get("required")
    missing = (
        [name for name in required if name not in arguments] if isinstance(required, list | tuple) else []
    )
    if missing:
        raise InvalidArguments(
            f"Missing required parameters: {', '.join(missing)}. {described(arguments, schema)}"
        )


def described(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return sentences: which of ``arguments`` the schema doesn't name, which parameters it has, which were given."""
    accepted = list(schema.get("properties") or {})
    sentences = []
    if unknown := [name for name in arguments if name not in accepted]:
        sentences.append(f"Unrecognised parameters: {unrecognised(unknown, accepted)}.")
    sentences.append(f"Accepted parameters: {', '.join(accepted) or 'none'}.")
    sentences.append(f"Received parameters: {', '.join(arguments) or 'none'}.")
    return " ".join(sentences)


def unrecognised(unknown: Iterable[str], accepted: Iterable[str]) -> str:
    """Return the unknown names, each with the one that was probably meant."""
    accepted = list(accepted)
    shown = []
    for name in unknown:
        near = difflib.get_close_matches(name, accepted, n=1)
        shown.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return ", ".join(shown)
