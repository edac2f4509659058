"""``progress()``: from inside any tool, how far it is."""

from __future__ import annotations

import logging

from listeners.publishing.current import current_call

__all__ = ["progress", "yielded"]

_log = logging.getLogger("listeners")
_said: list[bool] = []


def progress(
    progress: float | None = None,
    total: float | None = None,
    message: str | None = None,
    *,
    chunk: str | None = None,
) -> None:
    """Publish how far the running tool is: ``progress`` of ``total`` (any unit), a ``message`` for people, a
    ``chunk`` of its output.

    It goes to the call whose body this runs in, in threads too that were started with the call's context
    (``asyncio.to_thread``, ``run.bind``). Outside of a call it does nothing, and says so once at debug level.
    """
    call = current_call.get()
    if call is not None:
        call.progress(progress, total, message, chunk=chunk)
    elif not _said:
        _said.append(True)
        _log.debug("progress() was called outside of a tool call that is published; nothing is")


def yielded(item: object) -> None:
    """Publish what a generator tool has yielded, as far as results may leave; for who runs its body."""
    call = current_call.get()
    if call is not None:
        call.chunk(item)
