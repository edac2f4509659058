"""Testing an agent without Redis: ``recorded()`` is a current run that keeps its events in a list."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from listeners.testing.recording import RecordedRun, recorded

__all__ = ["RecordedRun", "recorded"]


def __getattr__(name: str) -> Any:
    # Every pytest run imports this package on its way to the plugin beside it.
    if name in __all__:
        return getattr(import_module("listeners.testing.recording"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
