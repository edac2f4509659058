"""What the publishers of one process share: a flusher per server, and what happens at ``fork`` and at exit."""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Hashable
from typing import Final

from listeners.publishing.composer import Composer
from listeners.publishing.flusher import Flusher
from listeners.publishing.server import Server
from listeners.publishing.writer import Writer

__all__ = ["desert_at_exit", "flusher_for"]

_log = logging.getLogger("listeners")


class _Process:
    """The flushers of this process, by server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flushers: dict[Hashable, Flusher] = {}
        self._held: list[threading.Lock | threading.RLock] = []
        self.composers: weakref.WeakSet[Composer] = weakref.WeakSet()
        self._registered = False

    def flusher_for(self, server: Server) -> Flusher:
        with self._lock:
            flusher = self._flushers.get(server.identity)
            if flusher is None:
                flusher = self._flushers[server.identity] = Flusher(server)
            if not self._registered:
                self._registered = True
                atexit.register(self.finish)
                os.register_at_fork(
                    before=self._before_fork,
                    after_in_parent=self._release,
                    after_in_child=self._after_fork,
                )
                _finish_with_multiprocessing(self)
        return flusher

    def finish(self) -> None:
        """End what nobody will end any more, wait for what was published, as long as its publishers would, and say in
        one line what is lost."""
        for composer in list(self.composers):
            composer.desert()
        waiting = self._waiting()
        now = time.monotonic()
        for writer in waiting:
            writer.flush(now + writer.patience - time.monotonic())
        lost = [(writer, writer.dropped) for writer in waiting if writer.abandon()]
        if lost:
            self._say_lost(lost)

    def _waiting(self) -> list[Writer]:
        writers = [writer for flusher in self._flushers.values() for writer in flusher.writers()]
        return [writer for writer in writers if writer.waiting]

    def _say_lost(self, lost: list[tuple[Writer, Counter[str]]]) -> None:
        kinds: Counter[str] = Counter()
        for _, counts in lost:
            kinds += counts
        runs = sorted({writer.keys.run for writer, _ in lost})
        errors = {flusher.shown: flusher.last_error for flusher in self._flushers.values()}
        servers = [
            f"{shown} ({errors[shown] or 'no answer'})"
            for shown in dict.fromkeys(writer.shown for writer, _ in lost)
        ]
        more = ", …" if len(runs) > 3 else ""
        _log.warning(
            "%d events of %s could not be published to %s and are lost: %s",
            kinds.total(),
            f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs ({', '.join(runs[:3])}{more})",
            ", ".join(servers),
            ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        )

    def _before_fork(self) -> None:
        # All in one order, and none is held while another of these is waited for.
        self._lock.acquire()
        self._held.append(self._lock)
        for flusher in self._flushers.values():
            writers = flusher.writers()
            flusher.lock.acquire()
            self._held.append(flusher.lock)
            for writer in writers:
                writer.lock.acquire()
                self._held.append(writer.lock)

    def _release(self) -> None:
        while self._held:
            self._held.pop().release()

    def _after_fork(self) -> None:
        self._release()
        for flusher in self._flushers.values():
            flusher.after_fork()


def _finish_with_multiprocessing(process: _Process) -> None:
    """Flush at the end of children of ``multiprocessing`` too, which leave without ``atexit``."""
    # After forking, multiprocessing forgets the finalizers it knew and calls who asked for it.
    multiprocessing.util.register_after_fork(process, _register_finalizer)
    if multiprocessing.parent_process() is not None:
        _register_finalizer(process)


def _register_finalizer(process: _Process) -> None:
    multiprocessing.util.Finalize(None, process.finish, exitpriority=100)


_PROCESS: Final = _Process()


def flusher_for(server: Server) -> Flusher:
    """Return the flusher that this process has for ``server``."""
    return _PROCESS.flusher_for(server)


def desert_at_exit(composer: Composer) -> None:
    """End the run of ``composer`` when the interpreter exits, unless it has ended by then."""
    _PROCESS.composers.add(composer)
