"""The current run and the current call: context variables, so that tasks and ``asyncio.to_thread`` inherit them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from listeners.publishing.call import Call
    from listeners.publishing.publisher import RunPublisher

__all__ = ["current_call", "current_run"]

current_run: ContextVar[RunPublisher | None] = ContextVar("toolcast_current_run", default=None)
"""The innermost ``RunPublisher`` that is being used as a context manager."""
current_call: ContextVar[Call | None] = ContextVar("toolcast_current_call", default=None)
"""The tool call whose body is running."""
