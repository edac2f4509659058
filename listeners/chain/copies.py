"""Copies of what a handler or a body may change: mappings and lists, at any depth (no I/O)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["own_mapping", "own_value"]


def own_value(value: Any) -> Any:
    """Return ``value`` with dicts and lists that nobody else holds; what they hold beside these is kept as it is."""
    if isinstance(value, dict):
        return own_mapping(value)
    if isinstance(value, list):
        copy = list(value)
        _own_members(copy, value)
        return copy
    return value


def own_mapping(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping as a dict, with members that nobody else holds."""
    copy = dict(value)
    # Most are flat, and this is done for every handler of every event.
    for inner in copy.values():
        if isinstance(inner, (dict, list)):
            _own_members(copy, value)
            break
    return copy


def _own_members(root: Any, original: object) -> None:
    # Not recursive: a model may nest its arguments deeper than Python's stack. `made` is for those inside themselves.
    made: dict[int, Any] = {id(original): root}
    waiting = [root]
    while waiting:
        owner = waiting.pop()
        for place, inner in owner.items() if isinstance(owner, dict) else enumerate(owner):
            if not isinstance(inner, (dict, list)):
                continue
            copy = made.get(id(inner))
            if copy is None:
                copy = made[id(inner)] = dict(inner) if isinstance(inner, dict) else list(inner)
                waiting.append(copy)
            owner[place] = copy
