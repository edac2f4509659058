"""A TCP proxy in front of a real server whose line can be cut, held up, or robbed of its answers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """Passes bytes on to ``127.0.0.1:<port>`` while it is ``open``.

    ``hold()``: bytes are taken and not passed on. ``swallow()``: requests reach the server, answers don't come back.
    ``cut()``: connections are closed and new ones refused. ``resume()``: all is well again.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener: socket.socket | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._forward = threading.Event()
        self._back = threading.Event()
        self._lock = threading.Lock()
        probe = socket.create_server(("127.0.0.1", 0))
        self.port: int = probe.getsockname()[1]
        self._listen(probe)
        self.resume()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def hold(self) -> None:
        self._forward.clear()

    def swallow(self) -> None:
        self._back.clear()

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
            for one in pair:
                _close(one)

    def resume(self) -> None:
        self._forward.set()
        self._back.set()
        if self._listener is None:
            self._listen(socket.create_server(("127.0.0.1", self.port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forward.set()
        self._back.set()
        self.cut()

    def _listen(self, listener: socket.socket) -> None:
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._pump, args=(near, far, self._forward), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, self._back), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, may_pass: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                may_pass.wait()
                sink.sendall(data)
        _close(source)
        _close(sink)


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
