"""What is said once a process, at most: hints, and what goes wrong in observing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

__all__ = ["harmless", "hint_at_results", "hint_at_run"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

_log = logging.getLogger("listeners")
_MOST: Final = 1_000
_said: Final[set[str]] = set()


def hint_at_results(tool: str) -> None:
    """Say, once for each tool, that its results leave as a summary, and how to publish them whole."""
    if _first(f"results of {tool}"):
        _log.info(
            'results of %s are published as a summary; to publish them whole: RunPublisher(…, results={"%s": "full"})',
            tool,
            tool,
        )


def hint_at_run() -> None:
    """Say that a tool ran where nobody publishes."""
    if _first("no run"):
        _log.debug(
            "a tool ran outside of any run, so nothing is published: put `with RunPublisher(…):` around it"
        )


def harmless(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Keep what goes wrong in observing away from the agent: it is logged, once for each method."""

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception:
            if _first(method.__qualname__):
                _log.exception("%s failed, and may again; the agent goes on", method.__qualname__)
            return None

    return guarded


def _first(what: str) -> bool:
    if what in _said or len(_said) >= _MOST:
        return False
    _said.add(what)
    return True
