"""What a chain shows for a call before anybody knows more: its ``display_text`` (no I/O)."""

from __future__ import annotations

from listeners.chain.function import Function

__all__ = ["display_text"]


def display_text(name: str, function: Function | None) -> str:
    """Return the function's text for a running call, or its name as words: ``web_search`` → ``Web search``.

    A text with ``{names}`` to fill, or a function of the arguments, needs what isn't known yet.
    """
    given = None if function is None else function.display_text
    text = given[0] if isinstance(given, tuple) else given
    if isinstance(text, str) and text and "{" not in text:
        return text
    return name.replace("_", " ").capitalize()
