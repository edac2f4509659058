"""The calls of one run as one publisher knows them: their keys, which are open, and how to find them again."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final

from listeners.publishing.call import Call

__all__ = ["CallBook", "usable_id"]

_PROVIDER_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:~-]{0,63}")
_KEY_LENGTH: Final = 256


def usable_id(id: str | None) -> str | None:
    """Return a provider's id if it can be a key: at most 64 characters of those that keys are made of."""
    return id if id is not None and _PROVIDER_ID.fullmatch(id) else None


class CallBook:
    """Keys and calls of a run. Its owner locks."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._made_up = 0
        self._latest: dict[Hashable, Call] = {}
        self._open: dict[str, Call] = {}

    @property
    def open(self) -> list[Call]:
        """The calls that have not ended, the one first known first."""
        return list(self._open.values())

    def new_key(self, wanted: str | None, *, parent: str | None, suffix: str) -> str:
        """Return a key that no call of the run had: ``wanted``, else ``w1``, ``w2`` …

        ``parent`` is the key of the call inside which this one runs and becomes its prefix; ``suffix`` keeps the
        made-up keys of a forked child apart from its parent's.
        """
        prefix = f"{parent}." if parent else ""
        if wanted is not None:
            base = wanted if wanted.startswith(prefix) else prefix + wanted
            key, again = base, 1
            while key in self._keys:
                again += 1
                key = f"{base}~{again}"
        if wanted is None or len(key) > _KEY_LENGTH:
            # Nested too deep for a key, a call is told as one of the run's own.
            prefix = prefix if len(prefix) <= _KEY_LENGTH - 32 else ""
            key = ""
            while not key or key in self._keys:
                self._made_up += 1
                key = f"{prefix}w{self._made_up}{suffix}"
        self._keys.add(key)
        return key

    def take_up(self, keys: Collection[str], calls: Iterable[Call]) -> None:
        """Take in what a log tells: all ``keys``, and the open calls that aren't known here."""
        known = set(self._keys)
        self._keys.update(keys)
        for call in calls:
            if call.key not in known:
                self.add(call, call.key, *(() if call.id is None else (call.id,)))

    def get(self, key: str) -> Call | None:
        """Return the open call with this key."""
        return self._open.get(key)

    def add(self, call: Call, *handles: Hashable) -> None:
        """Remember a new call, also under ``handles``, of which the latest call has each."""
        self._open[call.key] = call
        call.handles = handles
        self._latest.update(dict.fromkeys(handles, call))

    def latest(self, *handles: Hashable) -> Call | None:
        """Return the open call that is known by the first of ``handles`` that is known."""
        return next((self._latest[handle] for handle in handles if handle in self._latest), None)

    def oldest(self, fits: Callable[[Call], bool]) -> Call | None:
        """Return the open call that was first known of those that fit."""
        return next((call for call in self._open.values() if fits(call)), None)

    def stepped(self, call: Call) -> None:
        """Note whether a call is open after its latest step; one that has ended is let go, with what it holds."""
        if call.stage != "ended":
            self._open[call.key] = call
            return
        self._open.pop(call.key, None)
        call.arguments = None
        for handle in call.handles:
            if self._latest.get(handle) is call:
                del self._latest[handle]
