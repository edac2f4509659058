"""``toolcast serve``: a gateway, and a Valkey if there is no Redis."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable
from importlib.metadata import version
from types import FrameType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gateway.cli.options import with_settings
from gateway.cli.terminal import fail, say
from gateway.settings import Settings, setting_of, settings_table

if TYPE_CHECKING:
    from gateway.app import Gateway

__all__ = ["free_port", "listen", "run_server", "run_workers", "serve", "shown_url"]

_BACKLOG: Final = 4096
"""Connections the system holds until they are accepted: a deploy brings every reader back at once."""
_GRACE: Final = 2
"""Seconds after which uvicorn gives up on a request that still runs; streams end before, by themselves."""


@with_settings
def serve(settings: Settings) -> None:
    """Serve runs to browsers and curl; without a Redis a Valkey is started beside it."""
    # uvicorn and Starlette take half a second to import, and `toolcast tail` needs neither.
    from gateway.app import Gateway
    from gateway.embedded import RedisUnusable, provide_redis
    from gateway.logs import configure_logs

    configure_logs(settings.log_format, own_process=True)
    listening = listen(settings)
    # uvicorn raises the signal again once it has stopped: end with status 0 then, and past the `finally` below.
    signal.signal(signal.SIGTERM, _exit_quietly)
    try:
        valkey = provide_redis(settings, say=say)
    except RedisUnusable as error:
        listening.close()
        fail(str(error), status=1)

    try:
        if settings.workers > 1:
            run_workers(settings, listening)
        else:
            run_server(settings, Gateway(settings), listening=listening)
    except KeyboardInterrupt:
        pass
    finally:
        listening.close()
        if valkey is not None:
            valkey.stop()


def listen(settings: Settings) -> socket.socket:
    """Return a socket bound to the address in ``settings``; ends the command where that can't be had.

    Without a key only loopback may be bound, unless ``insecure`` says otherwise.
    """
    host, port = settings.host, settings.port
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        fail(
            f"{setting_of('host').label}: {host!r} is no address of this machine ({error.strerror})", status=2
        )

    if not settings.insecure and not _is_loopback(str(address[0])):
        fail(
            f"without a key this gateway serves one machine, so it won't listen on {host}. Leave --host at 127.0.0.1, "
            "or let whoever reaches the port see every run with TOOLCAST_INSECURE=1 (--insecure).",
            status=2,
        )

    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            fail(
                f"port {port} is taken; another: toolcast serve --port {free_port(host, port, family)}",
                status=1,
            )
        if error.errno == errno.EACCES:
            fail(f"port {port} needs more rights; another: toolcast serve --port 8808", status=1)
        fail(f"can't listen on {host}:{port}: {error.strerror}", status=1)
    return listening


def run_server(
    settings: Settings,
    gateway: Gateway,
    *,
    listening: socket.socket | None = None,
    started: Callable[[], object] | None = None,
) -> None:
    """Serve ``gateway`` in this process until a signal ends it.

    ``listening`` is a bound socket, else one is made; ``started`` is called once it serves, in place of the banner.
    """
    import uvicorn

    bound = listen(settings) if listening is None else listening
    bound.listen(_BACKLOG)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.should_exit:
                return
            if started is None:
                _tell(settings, bound)
            else:
                started()

    config = uvicorn.Config(
        gateway,
        http="httptools",
        loop="auto",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
    )
    Server(config).run(sockets=[bound])


def run_workers(settings: Settings, listening: socket.socket) -> None:
    """Serve in ``settings.workers`` processes that accept from one socket, until a signal ends them."""
    import uvicorn

    # Children make their settings from the environment, where flags must not be contradicted.
    for row in settings_table():
        os.environ.pop(row.env, None)
    os.environ.update(settings.environ())
    _tell(settings, listening)
    uvicorn.run(
        "gateway.app:create_app",
        factory=True,
        fd=listening.fileno(),
        workers=settings.workers,
        http="httptools",
        loop="auto",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE,
    )


def _tell(settings: Settings, listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    mode = "this machine only, since there is no key; behind a proxy, set a key"
    if settings.insecure:
        mode = "INSECURE: whoever reaches this port sees every run"
    if settings.log_format == "json":
        import structlog

        structlog.get_logger("toolcast").info("serving", url=base, redis=shown_url(settings.redis), mode=mode)
        return

    lines = {
        "page": f"{base}/",
        "stream": f"curl -N {base}/runs/<run>/events",
        "redis": shown_url(settings.redis)
        + (f", namespace {settings.prefix}" if settings.prefix != "toolcast" else ""),
        "mode": mode,
    }
    say(
        f"toolcast {version('toolcast')}"
        + (f", {settings.workers} processes" if settings.workers > 1 else "")
    )
    for name, text in lines.items():
        say(f"  {name:<7} {text}")


def shown_url(url: str) -> str:
    """Return ``url`` without name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if parts.netloc else url


def _is_loopback(address: str) -> bool:
    from ipaddress import ip_address

    return ip_address(address.partition("%")[0]).is_loopback


def free_port(host: str, taken: int, family: int = socket.AF_INET) -> int:
    """Return the next port of ``host`` after ``taken`` that nobody has; 0 if the next fifty are taken too."""
    for port in range(taken + 1, min(taken + 50, 65_536)):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    return 0


def _exit_quietly(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
