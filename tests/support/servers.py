"""Server processes for tests, on ports the system chooses; each is ended by its own pid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

__all__ = ["FACTORY", "Process", "start_gateway", "wait_until"]

ROOT = Path(__file__).parents[2]
FACTORY = "gateway.app:create_app"


def wait_until(description: str, condition: Callable[[], object], *, seconds: float = 10) -> None:
    """Return once ``condition`` holds; fails with ``description`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s still waiting: {description}"
        time.sleep(0.02)


class Process:
    """A child process whose output is kept; ``spoken_to``: with :meth:`say`, line by line."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: dict[str, str] | None = None,
        cwd: Path = ROOT,
        spoken_to: bool = False,
    ) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TOOLCAST_") and k != "REDIS_URL"}
        self._popen = subprocess.Popen(
            command,
            env=clean | {"PYTHONUNBUFFERED": "1"} | (env or {}),
            cwd=cwd,
            stdin=subprocess.PIPE if spoken_to else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A job in the background inherits SIGINT as ignored, and so would what it starts.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def expect(self, pattern: str, *, seconds: float = 15) -> re.Match[str]:
        """Wait until the output matches ``pattern``."""
        found: list[re.Match[str]] = []

        def seen() -> bool:
            match = re.search(pattern, self.output)
            if match:
                found.append(match)
            assert match or self._popen.poll() is None, f"ended before {pattern!r}:\n{self.output}"
            return bool(match)

        wait_until(f"{pattern!r} in the output:\n{self.output}", seen, seconds=seconds)
        return found[0]

    def say(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self._popen.send_signal(number)

    def wait(self, *, seconds: float = 10) -> int:
        """Wait for the end and return the exit code."""
        code = self._popen.wait(seconds)
        self._reader.join(5)
        return code

    def stop(self) -> None:
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(5)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait(5)
        self._reader.join(5)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self.lines.append(line)


class GatewayProcess(Process):
    """A gateway under plain uvicorn."""

    port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def start_gateway(
    redis_url: str,
    *,
    app: str | None = None,
    factory: str = FACTORY,
    env: dict[str, str] | None = None,
    port: int = 0,
) -> GatewayProcess:
    """Start ``uvicorn`` with ``factory``, or with ``app``, and wait until it serves; ``port`` 0 is any."""
    target = [app] if app else ["--factory", factory]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        *target,
        "--port",
        str(port),
        "--http",
        "httptools",
        "--no-access-log",
    ]
    process = GatewayProcess(command, env={"REDIS_URL": redis_url} | (env or {}))
    try:
        process.port = int(process.expect(r"running on http://127\.0\.0\.1:(\d+)")[1])
    except BaseException:
        process.stop()
        raise
    return process
