"""``toolcast demo``: a real agent in a process of its own, and whatever is needed to watch it."""

from __future__ import annotations

import enum
import http.client
import json
import os
import re
import signal
import socket
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Annotated, Final

import typer

from gateway.cli.answering import how_to_answer, program
from gateway.cli.client import GatewayClient
from gateway.cli.performance import NOT_BEGUN, Performance
from gateway.cli.serve import free_port, listen, run_server, shown_url
from gateway.cli.terminal import fail, say
from gateway.settings import Settings, SettingsError
from listeners.contract.events import RunIdError, check_run_id

__all__ = ["demo"]

_MODEL: Final = re.compile(r"(openai|anthropic):.+")
_PROBE: Final = 2.0
"""Seconds that whoever holds the port may take to say what it is."""


def demo(
    port: Annotated[
        int | None,
        typer.Option(help="The gateway's port, 0 for any. [PORT, default 8808]", show_default=False),
    ] = None,
    run: Annotated[str, typer.Option(help="Id of the run.")] = "demo",
    speed: Annotated[float, typer.Option(help="2 is twice as fast.")] = 1.0,
    model: Annotated[
        str | None,
        typer.Option(
            help="A provider's model in place of the script, with the provider's usual environment variables.",
            metavar="openai:NAME|anthropic:NAME",
            show_default=False,
        ),
    ] = None,
    ask: Annotated[
        bool | None,
        typer.Option(
            "--ask/--no-ask", help="End with a question to you. [without --once]", show_default=False
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            help="Take up a run whose agent has asked and is gone, and wait for the answer.",
            metavar="RUN",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="End with the run: with 0 if it has completed and all of it arrived over HTTP, else with 1; with "
            "--ask end when it asks, with 75, unless a Valkey of its own would end, too.",
        ),
    ] = False,
) -> None:
    """Watch a real agent at work.

    It answers one question about this Python's standard library: its tools are real, its model is a script. At its
    end it asks you before it deletes a file (one that it has made). A gateway and a Valkey are started where there
    are none, and serve until Ctrl-C.
    """
    settings = _settings(port, run if resume is None else resume, speed, model)
    part = _Part(run=run, speed=speed, model=model, asks=not once if ask is None else ask, once=once)
    if resume is not None:
        part = replace(part, run=resume, resumes=True, asks=True)
    # As Ctrl-C, so that whatever was started is stopped.
    signal.signal(signal.SIGTERM, _interrupt)
    status = 1 if once else 0
    try:
        with ExitStack() as started:
            status = _play(settings, part, started=started)
    except KeyboardInterrupt:
        pass
    raise SystemExit(status)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What is to be performed."""

    run: str
    speed: float
    model: str | None
    asks: bool
    once: bool
    resumes: bool = False

    def leaves(self, *, redis_stays: bool) -> bool:
        """Whether the agent ends when it has asked: only where the run outlives this process."""
        return self.asks and self.once and redis_stays and not self.resumes

    def arguments(self, *, redis_stays: bool) -> list[str]:
        """What the agent's process is told."""
        ask = "no" if not self.asks else "leave" if self.leaves(redis_stays=redis_stays) else "wait"
        arguments = ["--speed", str(self.speed), "--ask", ask]
        arguments += [] if self.model is None else ["--model", self.model]
        return [*arguments, "--resume"] if self.resumes else arguments


def _settings(port: int | None, run: str, speed: float, model: str | None) -> Settings:
    if not 0 < speed < float("inf"):
        fail(f"--speed: {speed:g}, but must be above 0: 1 as meant, 2 twice as fast", status=2)
    if model is not None and not _MODEL.fullmatch(model):
        fail(f"--model: {model!r} is no model: it looks like openai:NAME or anthropic:NAME", status=2)
    environment = dict(os.environ)
    if port is not None:
        environment["PORT"] = str(port)
    try:
        check_run_id(run)
        return Settings.from_env(environment)
    except (RunIdError, SettingsError) as error:
        fail(str(error), status=2)


def _play(settings: Settings, part: _Part, *, started: ExitStack) -> int:
    """Play one run and serve it; ``started`` stops what was started. Returns the status to end with."""
    from gateway.embedded import RedisUnusable, provide_redis
    from gateway.logs import configure_logs

    configure_logs(settings.log_format, own_process=True)
    listening = _listen(settings)
    if listening is not None:
        started.callback(listening.close)
    redis = [shown_url(settings.redis)]
    try:
        valkey = provide_redis(settings, say=redis.append)
    except RedisUnusable as error:
        fail(str(error), status=1)
    if valkey is not None:
        started.callback(valkey.stop)

    port = settings.port if listening is None else listening.getsockname()[1]
    host = _reachable(settings.host)
    if listening is not None:
        # Lines that are printed work at once: who connects now is answered as soon as the gateway serves.
        listening.listen()
    _introduce(host, port, part.run, redis=redis[-1], joined=listening is None)
    performance = Performance(
        GatewayClient(f"http://{host}:{port}"),
        part.run,
        agent=part.arguments(redis_stays=valkey is None),
        resumes=part.resumes,
        asked=partial(how_to_answer, settings=settings, leaves=part.leaves(redis_stays=valkey is None)),
    )
    if valkey is None:
        started.callback(_say_how_to_resume, performance, part)
    if listening is not None:
        _serve(settings, performance, listening, once=part.once, started=started)
    else:
        started.callback(performance.stop)
        _perform(performance)
        if valkey is not None and not part.once and performance.status != NOT_BEGUN:
            print("\nThe Valkey goes on until Ctrl-C.", flush=True)
            threading.Event().wait()
    return performance.status


def _serve(
    settings: Settings, performance: Performance, listening: socket.socket, *, once: bool, started: ExitStack
) -> None:
    """Serve in the main thread, which signals reach, while the run is performed in another."""
    from gateway.app import Gateway

    def ends() -> bool:
        return once or performance.status == NOT_BEGUN

    def perform() -> None:
        try:
            _perform(performance)
            if not ends() and not performance.stopped:
                print("\nServing until Ctrl-C: open the page, or paste the curl line.", flush=True)
        finally:
            if ends() and not performance.stopped:
                # A server ends its open streams on a signal, and on nothing else.
                os.kill(os.getpid(), signal.SIGINT)

    performing = threading.Thread(target=perform, name="performing")

    def finish() -> None:
        performance.stop()
        if performing.ident is not None:
            performing.join()

    started.callback(finish)
    try:
        run_server(settings, Gateway(settings), listening=listening, started=performing.start)
    except KeyboardInterrupt:
        if not ends():
            raise


def _say_how_to_resume(performance: Performance, part: _Part) -> None:
    if performance.held:
        print(f"\nThe run waits. To take it up: {program()} demo --resume {part.run}", flush=True)


def _perform(performance: Performance) -> None:
    missing = performance.play()
    if missing is not None and not performance.stopped:
        say(f"toolcast: the run did not arrive whole: {missing}")


def _introduce(host: str, port: int, run: str, *, redis: str, joined: bool) -> None:
    """Print where the run can be watched, in lines that work as they are."""
    base = f"{'localhost' if host == '127.0.0.1' else host}:{port}"
    lines = {
        "page": f"http://{base}/?run={run}",
        "curl": f"curl -N {base}/runs/{run}/events",
        "redis": redis,
    }
    if joined:
        lines["gateway"] = f"the one that serves on port {port} already"
    print("toolcast demo")
    for name, text in lines.items():
        print(f"  {name:<7} {text}", flush=True)


# -- the port ---------------------------------------------------------------------------------------------------


class _Holder(enum.Enum):
    NOBODY = enum.auto()
    GATEWAY = enum.auto()
    STRANGER = enum.auto()


def _listen(settings: Settings) -> socket.socket | None:
    """Return a bound socket, or ``None`` where a gateway serves already."""
    host, port = settings.host, settings.port
    holder = _holder(_reachable(host).strip("[]"), port) if port else _Holder.NOBODY
    if holder is _Holder.GATEWAY:
        return None
    if holder is _Holder.STRANGER:
        another = free_port(host, port, socket.AF_INET6 if ":" in host else socket.AF_INET)
        fail(f"port {port} is taken; another: toolcast demo --port {another}", status=1)
    return listen(settings)


def _holder(host: str, port: int) -> _Holder:
    """Ask who answers on the port."""
    connection = http.client.HTTPConnection(host, port, timeout=_PROBE)
    try:
        connection.connect()
    except OSError as error:
        return _Holder.STRANGER if isinstance(error, TimeoutError) else _Holder.NOBODY
    try:
        connection.request("GET", "/healthz")
        answer = json.loads(connection.getresponse().read(1_000))
    except (OSError, http.client.HTTPException, ValueError):
        return _Holder.STRANGER
    finally:
        connection.close()
    return _Holder.GATEWAY if answer == {"status": "alive"} else _Holder.STRANGER


def _reachable(host: str) -> str:
    """The host of a URL by which a server that listens on ``host`` is reached from this machine."""
    if host in ("", "0.0.0.0", "localhost"):
        return "127.0.0.1"
    return f"[{'::1' if host == '::' else host}]" if ":" in host else host


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
