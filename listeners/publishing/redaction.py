"""What is hidden before anything else happens to it: members whose names look like secrets (contract §6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

__all__ = ["REDACTED", "Redact", "Redaction", "looks_secret"]

Redact = Callable[[str, Any], Any] | Collection[str | Callable[[str, Any], Any]]
"""Names to hide, and functions ``(name, value) -> value`` that are told of every named member, in one collection or
alone. They add to the names that look like secrets; an empty collection hides nothing."""

REDACTED: Final = "[redacted]"
_DEPTH: Final = 64
"""Levels of nesting that are kept: what nobody could look through for secrets doesn't leave."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS: Final = frozenset(
    {
        *("password", "passwd", "pwd", "passphrase", "passcode", "otp"),
        *("secret", "secrets", "credential", "credentials", "dsn"),
        *("authorization", "bearer", "jwt", "cookie", "cookies", "apikey"),
    }
)
_KEY_WORDS: Final = frozenset(
    {"api", "private", "access", "signing", "encryption", "ssh", "auth", "client", "account"}
)


@lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Tell whether a member called ``name`` is likely to hold a secret (``api_key``, ``dbPassword``, ``token``)."""
    words = [word.lower() for word in _WORD.findall(name[:256])]
    if not words:
        return False
    # `token_count` and `max_tokens` are numbers; a token's own name ends with the word.
    if words[-1] == "token" or not _SECRET_WORDS.isdisjoint(words):
        return True
    return any(one in _KEY_WORDS and two in ("key", "keys") for one, two in pairwise(words))


class Redaction:
    """What ``redact=`` means. Raises ``TypeError`` for what is neither names nor functions."""

    def __init__(self, redact: Redact | None = None) -> None:
        given = (redact,) if callable(redact) else tuple(redact or ())
        if isinstance(redact, str) or not all(isinstance(one, str) or callable(one) for one in given):
            raise TypeError("redact= takes argument names and functions (name, value) -> value, in a list")
        self._names = frozenset(one for one in given if isinstance(one, str))
        self._functions = tuple(one for one in given if not isinstance(one, str))
        self._guesses = redact is None or bool(given)

    def hides(self, name: str) -> bool:
        """Tell whether the member ``name`` may be hidden: it is, or a function will decide by its value."""
        return bool(self._functions) or name in self._names or (self._guesses and looks_secret(name))

    def member(self, name: str, value: Any) -> Any:
        """Return what may be shown of the member ``name``; a function that fails hides it."""
        if name in self._names or (self._guesses and looks_secret(name)):
            return REDACTED
        for function in self._functions:
            try:
                value = function(name, value)
            except Exception:
                return REDACTED
        return value

    def members(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``value`` with every member at any depth shown or hidden; ``value`` itself is left alone."""
        return self._members(value, 0)

    def _members(self, value: Mapping[str, Any], depth: int) -> dict[str, Any]:
        return {
            name: self.within(self.member(str(name), member), depth + 1) for name, member in value.items()
        }

    def within(self, value: Any, depth: int = 0) -> Any:
        """Return ``value`` with the members of every mapping in it shown or hidden."""
        # Objects of other kinds are turned into plain values first, by who publishes them whole.
        if depth >= _DEPTH and isinstance(value, (dict, list, tuple)):
            return "…"
        if isinstance(value, dict):
            return self._members(value, depth)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._members(dict(zip(value._fields, value, strict=True)), depth)
        if isinstance(value, (list, tuple)):
            return [self.within(item, depth + 1) for item in value]
        return value
