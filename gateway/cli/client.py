"""A reader of a gateway for the terminal: the standard library's HTTP is enough for a line a time.

Follows the rule of every reader: only a terminal event, a 204 or a refusal ends a stream; the end of a body does not.
"""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from listeners.contract.events import TERMINAL_TYPES, Event, InvalidEvent, decode
from listeners.contract.position import ABSENT, Position

__all__ = ["DEFAULT_GATEWAY", "GatewayClient", "Received", "Refused", "Unreachable"]

DEFAULT_GATEWAY: Final = "http://127.0.0.1:8808"
CONNECT_TIMEOUT: Final = 10.0
"""Seconds a gateway may take to accept and to answer."""
SILENCE: Final = 40.0
"""Seconds without a byte after which a stream counts as dead: a gateway promises one every 15."""
LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts at most."""

_GONE: Final = frozenset({"absent", "expired", "deleted"})


class Unreachable(Exception):
    """No gateway answers at ``url``."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"no gateway at {url} ({reason}); start one with `toolcast serve`, or name another with --url"
        )
        self.url = url


class Refused(Exception):
    """The gateway said no: ``status``, and in its own words ``title`` and ``detail``."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(f"{title}: {detail}" if detail else title)
        self.status = status
        self.title = title
        self.detail = detail


class Received(NamedTuple):
    """An event as it came: where it stands, what it is, and the line of NDJSON."""

    position: Position
    event: Event
    line: bytes

    @property
    def last(self) -> bool:
        """Whether nothing follows in this stream."""
        if self.event.type == "snapshot":
            return self.event.data.get("reason") in _GONE
        return self.event.type in TERMINAL_TYPES


class _Id(msgspec.Struct):
    id: str = ""


class _Problem(msgspec.Struct):
    title: str = ""
    detail: str = ""


class GatewayClient:
    """Speaks to the gateway at ``url``; raises ``ValueError`` for what is no http or https URL.

    ``wait`` is called with the seconds to pause between attempts.
    """

    def __init__(self, url: str = DEFAULT_GATEWAY, *, wait: Callable[[float], None] = time.sleep) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in {"http", "https"} or not host:
            raise ValueError(f"{url!r} is not a gateway's URL: write one such as {DEFAULT_GATEWAY}")

        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host = host
        self._port = port
        self._root = parts.path.rstrip("/")
        self._wait = wait

    def get(self, path: str) -> Any:
        """Return the JSON at ``path``; raises :class:`Unreachable` or :class:`Refused`."""
        connection = self._connection()
        try:
            return msgspec.json.decode(self._answer(connection, path, {"accept": "application/json"}).read())
        except msgspec.DecodeError:
            raise Refused(
                200, "Not a gateway", f"{self.url}{path} answers with something else than JSON."
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(self.url, _reason(error)) from None
        finally:
            connection.close()

    def events(
        self, run: str, *, trouble: Callable[[str | None], None] = lambda reason: None
    ) -> Iterator[Received]:
        """Yield the events of ``run`` from its start to its end, over any number of connections.

        ``trouble`` is told why there is no connection at the moment, and ``None`` when there is one again. Raises
        :class:`Unreachable` if the first attempt finds no gateway, and :class:`Refused` whenever one says no.
        """
        last: Position | None = None
        connected = False
        pause = 1.0
        while True:
            try:
                for received in self._one_connection(run, last):
                    if not connected or pause > 1.0:
                        trouble(None)
                    connected, pause = True, 1.0
                    if received is None:
                        continue

                    last = received.position if received.position != ABSENT else last
                    yield received
                    if received.last:
                        return
                reason = "the stream was interrupted"
            except Refused as refusal:
                if refusal.status == 204:
                    return
                if refusal.status < 500 or not connected:
                    raise
                reason = str(refusal)
            except (OSError, http.client.HTTPException) as error:
                if not connected:
                    raise Unreachable(self.url, _reason(error)) from None
                reason = _reason(error)

            trouble(reason)
            self._wait(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _one_connection(self, run: str, after: Position | None) -> Iterator[Received | None]:
        headers = {"accept": "application/x-ndjson"}
        if after is not None:
            headers["last-event-id"] = str(after)
        connection = self._connection()
        try:
            response = self._answer(connection, f"/runs/{quote(run, safe='')}/events", headers)
            yield None
            while line := response.readline():
                if not line.endswith(b"\n"):
                    return
                yield _read(line)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=CONNECT_TIMEOUT)

    def _answer(
        self, connection: http.client.HTTPConnection, path: str, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        connection.request("GET", self._root + path, headers=headers)
        if connection.sock is not None:
            connection.sock.settimeout(SILENCE)
        response = connection.getresponse()
        if response.status != 200:
            raise _refusal(response)
        return response


def _read(line: bytes) -> Received | None:
    """Read one line of NDJSON; an empty one is a heartbeat, and what can't be read is passed over."""
    if not line.strip():
        return None
    try:
        position = Position.parse(msgspec.json.decode(line, type=_Id).id)
        return Received(position or ABSENT, decode(line), line)
    except (msgspec.DecodeError, InvalidEvent):
        return None


def _refusal(response: http.client.HTTPResponse) -> Refused:
    body = response.read(65_536)
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem()
    return Refused(response.status, problem.title or f"{response.status} {response.reason}", problem.detail)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
