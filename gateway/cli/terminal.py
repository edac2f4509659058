"""What every command says to a terminal."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["fail", "printable", "say"]


def say(line: str) -> None:
    """Write a line for the person at the terminal; standard output is for data."""
    print(line, file=sys.stderr, flush=True)


def fail(reason: str, *, status: int) -> NoReturn:
    """End the command with ``status`` and one reason."""
    say(f"toolcast: {reason}")
    raise SystemExit(status)


def printable(text: str) -> str:
    """``text`` on one line, without what would steer a terminal or turn the writing direction: it comes from agents."""
    return "".join(character if character.isprintable() else " " for character in text)
