"""A TCP proxy in front of a real server whose line can be cut, held up, or robbed of what it carries."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self


@dataclass
class _Way:
    """One direction of every line: whether bytes may pass, and whether they vanish instead."""

    passing: threading.Event = field(default_factory=threading.Event)
    losing: bool = False


@dataclass(eq=False)
class _Pair:
    """One connection, from who opened it to the server. ``dead``: it stays open, and whatever is sent vanishes."""

    near: socket.socket
    far: socket.socket
    dead: bool = False

    def close(self) -> None:
        _close(self.near)
        _close(self.far)


class Proxy:
    """Passes bytes on to ``127.0.0.1:<port>``.

    ``hold()``: bytes are taken and not passed on. ``swallow()``: requests reach the server, answers don't come back.
    ``lose()``: bytes vanish, in the ways it names. ``bury()``: so they do for ever on the connections there are, while
    new ones are well, as after a firewall forgot them. ``cut()``: connections are closed and new ones refused.
    ``turn_to()``: new connections go to another server. ``resume()``: all is well again, but for what is buried.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener: socket.socket | None = None
        self._pairs: list[_Pair] = []
        self._forward = _Way()
        self._back = _Way()
        self._lock = threading.Lock()
        probe = socket.create_server(("127.0.0.1", 0))
        self.port: int = probe.getsockname()[1]
        self._listen(probe)
        self.resume()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def hold(self) -> None:
        self._forward.passing.clear()

    def swallow(self) -> None:
        self._back.passing.clear()

    def lose(self, *, forward: bool = True, back: bool = True) -> None:
        self._forward.losing, self._back.losing = forward, back

    def bury(self) -> None:
        with self._lock:
            for pair in self._pairs:
                pair.dead = True

    def cut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            _close(listener)
        self.drop()

    def drop(self) -> None:
        """Close the connections there are; new ones may come."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.close()

    def turn_to(self, target: int) -> None:
        self._target = target

    def resume(self) -> None:
        self.lose(forward=False, back=False)
        self._forward.passing.set()
        self._back.passing.set()
        if self._listener is None:
            self._listen(socket.create_server(("127.0.0.1", self.port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forward.passing.set()
        self._back.passing.set()
        self.cut()

    def _listen(self, listener: socket.socket) -> None:
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                # The server is away: so it looks from the other end too.
                _close(near)
                continue
            pair = _Pair(near, far)
            with self._lock:
                self._pairs.append(pair)
            for source, sink, way in ((near, far, self._forward), (far, near, self._back)):
                threading.Thread(target=_pump, args=(source, sink, way, pair), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, way: _Way, pair: _Pair) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            way.passing.wait()
            if not (way.losing or pair.dead):
                sink.sendall(data)
    if not pair.dead:
        pair.close()


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
