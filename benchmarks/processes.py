"""Processes that a benchmark starts, pins, measures and stops, each by its own id."""

from __future__ import annotations

import os
import resource
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "Child",
    "allow_many_files",
    "children",
    "cores",
    "cpu_seconds",
    "on_core",
    "resident_bytes",
]

_TICKS = os.sysconf("SC_CLK_TCK")


def allow_many_files() -> None:
    """Raise the limit of open files for this process and its children as far as thousands of readers need."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def cores() -> tuple[int, int]:
    """The cores for the server and for everything else; raises ``RuntimeError`` where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise RuntimeError("two cores are needed: one for the server, one for readers and publisher")
    return usable[0], usable[1]


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Start children on ``core``: they inherit it, every thread and process of theirs too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Child:
    """A child process that talks in lines; leaving the ``with`` block ends it.

    ``log`` takes its stderr. Raises ``RuntimeError`` with the end of that log for a child that says nothing in time.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._name = Path(command[0]).name
        self._log = log
        with log.open("ab") as stderr:
            # Unbuffered, so that `select` sees every line that has come.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                env=env,
                cwd=cwd,
            )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    def line(self, seconds: float) -> str:
        """Return the next line that the child prints."""
        stdout = self.process.stdout
        assert stdout is not None  # opened above
        if not select.select([stdout], [], [], seconds)[0]:
            raise RuntimeError(f"{self._name} said nothing for {seconds:g} s\n{self.last_words}")
        line = stdout.readline().decode().strip()
        if not line:
            raise RuntimeError(f"{self._name} ended\n{self.last_words}")
        return line

    def say(self, text: str) -> None:
        """Write a line to the child."""
        stdin = self.process.stdin
        assert stdin is not None  # opened above
        stdin.write(f"{text}\n".encode())

    def hush(self) -> None:
        """Close the child's stdin, which asks it to come to an end."""
        assert self.process.stdin is not None  # opened above
        self.process.stdin.close()

    def stop(self) -> None:
        """End the process: politely, after three seconds by force."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(3)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None and not stream.closed:
                stream.close()

    @property
    def last_words(self) -> str:
        """The end of what the child wrote to stderr."""
        return self._log.read_text("utf-8", "replace")[-2000:]


def cpu_seconds(pid: int) -> float:
    """CPU that the process has used, user and system."""
    # The name in brackets may hold spaces; utime and stime are the 14th and 15th field.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
