"""Which of a run's published calls a chain's call is: by the chain and the key that it gave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from listeners.chain.messages import ToolCall, Unplaced
from listeners.publishing.call import Call
from listeners.publishing.composer import Composer
from listeners.publishing.titles import Title

if TYPE_CHECKING:
    from listeners.chain.chain import LLMChain

__all__ = ["ChainCalls"]


class ChainCalls:
    """The calls of chains, each as it is published. Two chains of a run may give the same keys. Thread-safe.

    A held call may be another chain's that was made of the same messages, or stand in a log that was taken up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: WeakKeyDictionary[LLMChain, dict[str, Call]] = WeakKeyDictionary()

    def identify(
        self, composer: Composer, chain: LLMChain, call: ToolCall, name: str, title: Title | None
    ) -> Call:
        """Publish that the model calls the tool ``name``."""
        key, calls = _key(call), self._calls_of(chain)
        calls[key] = composer.identify(
            name,
            id=call.call_id,
            index=None if isinstance(call.index, Unplaced) else call.index,
            title=title,
            arguments=call.arguments or None,
            key=key,
            call=_in(composer, calls.get(key)),
        )
        return calls[key]

    def take(self, composer: Composer, chain: LLMChain, call: ToolCall, title: Title | None) -> Call:
        """Return the call that is to be started now, with the arguments that it has now."""
        key, calls = _key(call), self._calls_of(chain)
        taken = calls[key] = composer.take(
            call.name or "",
            id=call.call_id,
            arguments=call.arguments,
            title=title,
            key=key,
            call=_in(composer, calls.get(key)) or self._waiting(composer, key),
        )
        return taken

    def told(self, composer: Composer, chain: LLMChain, call: ToolCall, title: Title | None) -> Call:
        """Return the call that something is told of; a new one, if nothing of it was told before."""
        key, calls = _key(call), self._calls_of(chain)
        known = _in(composer, calls.get(key)) or self._waiting(composer, key)
        if known is None:
            return self.take(composer, chain, call, title)
        known.id = known.id or call.call_id
        calls[key] = known
        return known

    def find(self, composer: Composer, chain: LLMChain, key: str) -> Call | None:
        """Return the call that was told under this key in the run that is published now."""
        return _in(composer, self._calls_of(chain).get(key))

    def open(self, composer: Composer, chain: LLMChain) -> Iterator[Call]:
        """Return the calls of ``chain`` that have neither ended nor are held."""
        calls = list(self._calls_of(chain).values())
        return (call for call in calls if _in(composer, call) and call.stage in ("identified", "running"))

    def forget_ended(self, chain: LLMChain) -> None:
        """Forget calls of which nothing more will be told."""
        calls = self._calls_of(chain)
        for key in [key for key, call in calls.items() if call.stage == "ended"]:
            del calls[key]

    def _calls_of(self, chain: LLMChain) -> dict[str, Call]:
        with self._lock:
            calls = self._of.get(chain)
            if calls is None:
                calls = self._of[chain] = {}
            return calls

    def _waiting(self, composer: Composer, key: str) -> Call | None:
        found = composer.waiting(key)
        if found is None or found.stage == "interrupted":
            return found
        with self._lock:
            others = any(found is call for calls in self._of.values() for call in list(calls.values()))
        return None if others else found


def _in(composer: Composer, call: Call | None) -> Call | None:
    # A chain may go on in another run.
    return call if call is not None and call.composer is composer else None


def _key(call: ToolCall) -> str:
    return call.key or call.call_id or f"{call.name or 'call'}.{int(call.index)}"
