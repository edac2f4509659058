"""What fanning out costs: our gateway beside nchan and beside bare system calls, in one run.

Absolute times say little on a shared machine, so the goals are ratios: the server has a core for itself, readers,
publisher and Valkey share another, the rigs take turns, and medians of several rounds are compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import rigs
from benchmarks.processes import Child, allow_many_files, cores, cpu_seconds, on_core, resident_bytes
from benchmarks.report import Measurements, judge, table

__all__ = ["main"]

MISSED: Final = 1
INCOMPLETE: Final = 2
BURSTS: Final = 3
"""Bursts in a round: one lasts a tenth of a second, in which anything may come between."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """The work of one round; ``seconds`` of pacing, ``rate`` events a second over all ``runs``."""

    readers: int = 500
    runs: int = 10
    rate: int = 1_000
    seconds: float = 10.0
    burst: int = 2_000
    idle: int = 2_000


class Bench:
    """Programs, cores and a directory for one benchmark; every measurement gets runs that nobody has used."""

    def __init__(self, load: Load, run_dir: Path) -> None:
        self.load = load
        self.run_dir = run_dir
        self.server_core, self.load_core = cores()
        self._sseload = rigs.build("sseload", run_dir)
        self._floor = rigs.build("floor", run_dir)
        self._names = (f"bench{number}" for number in itertools.count(1))

    def paced(self, server: rigs.Server) -> dict[str, float]:
        """Measure CPU per delivery (µs) and latency (ms) at a steady rate."""
        load = self.load
        events = round(load.rate * load.seconds)
        found = self._deliver(server, events=events, rate=load.rate, seconds=2 * load.seconds + 10)
        return {
            "cpu_us": found["server_cpu_s"] / found["deliveries"] * 1e6,
            "p50_ms": found["p50_ms"],
            "p99_ms": found["p99_ms"],
            "per_read": found["deliveries"] / found["reads"],
            "core": found["server_cpu_s"] / found["span_s"],
            "late_ms": found["late_ms"],
            "missing": found["missing"],
        }

    def burst(self, server: rigs.Server) -> dict[str, float]:
        """Measure how events sent at once go out: deliveries a second from the first to the last delivery, and the
        time (ms) from the first event's stamp until every reader has everything."""
        found = self._deliver(server, events=self.load.burst, rate=0, seconds=20)
        return {
            "burst_per_s": found["deliveries"] / found["span_s"],
            "burst_ms": found["whole_s"] * 1e3,
            "missing": found["missing"],
        }

    def idle(self, server: rigs.Server) -> dict[str, float]:
        """Measure the memory (bytes) that a reader who gets nothing costs the server."""
        path = f"/runs/{next(self._names)}-%d/events"
        with self._publisher(server, path, events=0, rate=0):
            # Whatever grows once, for the first readers, is not the price of a reader.
            with self._readers(server, path, readers=self.load.runs * 5, expected=0, seconds=60):
                time.sleep(0.5)
            before = resident_bytes(server.pid)
            with self._readers(server, path, readers=self.load.idle, expected=0, seconds=60):
                time.sleep(1.5)
                after = resident_bytes(server.pid)
        return {"idle_bytes": (after - before) / self.load.idle}

    def floor(self) -> dict[str, float]:
        """Measure the CPU (µs) of the bare system calls, paced."""
        load = self.load
        events = round(load.rate * load.seconds)
        port = rigs.free_port()
        command = [
            str(self._floor),
            str(port),
            str(load.readers),
            str(load.runs),
            str(events),
            str(load.rate),
        ]
        with on_core(self.server_core):
            child = Child(command, self.run_dir / "floor.log")
        with child:
            child.line(5)
            with self._readers(
                rigs.Server(child.pid, port, ""), "/%d", readers=load.readers, expected=0, seconds=60
            ):
                found: dict[str, float] = json.loads(child.line(load.seconds + 15))
        return {"cpu_us": found["cpu_s"] / found["deliveries"] * 1e6}

    def _deliver(self, server: rigs.Server, *, events: int, rate: float, seconds: float) -> dict[str, float]:
        load = self.load
        path = f"/runs/{next(self._names)}-%d/events"
        # A run's readers differ by one at most where the numbers don't divide; the workload's do.
        expected = events * load.readers // load.runs
        with (
            self._publisher(server, path, events=events, rate=rate) as publisher,
            self._readers(server, path, readers=load.readers, expected=expected, seconds=seconds) as readers,
        ):
            time.sleep(0.3)  # whatever connecting has left to do is not the price of a delivery
            before = cpu_seconds(server.pid)
            publisher.say("go")
            sent: dict[str, float] = json.loads(publisher.line(seconds + 10))
            found: dict[str, float] = json.loads(readers.line(seconds + 10))
            found["server_cpu_s"] = cpu_seconds(server.pid) - before
        if found["dead"] or not found["deliveries"]:
            raise RuntimeError(f"readers were cut off, or got nothing: {found}")
        found["missing"] = expected - found["deliveries"]
        found["late_ms"] = sent["late_s"] * 1e3
        return found

    @contextmanager
    def _publisher(self, server: rigs.Server, path: str, *, events: int, rate: float) -> Iterator[Child]:
        runs = ",".join(path.split("/")[2] % number for number in range(self.load.runs))
        command = [sys.executable, "-m", "benchmarks.publish", server.target, "--runs", runs]
        command += ["--events", str(events), "--rate", str(rate)]
        with on_core(self.load_core):
            child = Child(command, self.run_dir / "publish.log", cwd=rigs.HERE.parent)
        with child:
            child.line(20)
            yield child

    @contextmanager
    def _readers(
        self, server: rigs.Server, path: str, *, readers: int, expected: int, seconds: float
    ) -> Iterator[Child]:
        command = [str(self._sseload), str(server.port), path, str(readers), str(self.load.runs)]
        command += [str(expected), str(seconds)]
        with on_core(self.load_core):
            child = Child(command, self.run_dir / "sseload.log")
        with child:
            child.line(25)
            yield child


Start = Callable[[], AbstractContextManager[rigs.Server]]


def measure(bench: Bench, starts: Mapping[str, Start], *, rounds: int) -> Measurements:
    """Measure the rigs that ``starts`` starts, in turn, so that whatever else the machine does hits all alike."""
    found = Measurements()
    _progress("floor")
    found.add("floor", bench.floor())
    for number in range(1, rounds + 1):
        for name, start in starts.items():
            _progress(f"{name}, round {number} of {rounds}")
            with start() as server:
                if number == 1:
                    # Memory doesn't depend on what else the machine does: once is enough.
                    found.add(name, bench.idle(server))
                found.add(name, bench.paced(server))
                for _ in range(BURSTS):
                    found.add(name, bench.burst(server))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns 0, 1 for a missed goal, 2 if a yardstick is missing and no goal is missed."""
    given = _parser().parse_args(arguments)
    # An exit like any other, so that every child is stopped.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    allow_many_files()
    load = Load(seconds=given.seconds or (2.0 if given.quick else Load.seconds))
    if (busy := os.getloadavg()[0]) > 1:
        _progress(
            f"the machine is busy (load {busy:.1f}): whoever waits for a core writes less often and more at once"
        )
    advice = rigs.missing_nchan()
    if advice is not None:
        _progress(advice)
    with ExitStack() as stack:
        run_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolcast-bench-")))
        bench = Bench(load, run_dir)
        redis_url = stack.enter_context(rigs.valkey(bench.load_core))
        starts: dict[str, Start] = {"gateway": partial(rigs.gateway, bench.server_core, redis_url, run_dir)}
        if advice is None:
            starts = {"nchan": partial(rigs.nchan, bench.server_core, run_dir), **starts}
        found = measure(bench, starts, rounds=given.rounds or (1 if given.quick else 3))

    medians = found.medians()
    verdicts = judge(medians)
    if given.json:
        goals = [
            {"metric": v.goal.metric, "goal": v.goal.text, "value": v.value, "verdict": v.word}
            for v in verdicts
        ]
        print(json.dumps({"load": asdict(load), "medians": medians, "goals": goals}, indent=2))
    else:
        print(
            f"{load.readers} readers, {load.runs} runs, {load.rate:,} events/s for {load.seconds:g} s, ",
            end="",
        )
        print(f"a burst of {load.burst:,}, {load.idle:,} idle readers\n")
        print(table(medians))
    if any(verdict.word == "MISSED" for verdict in verdicts):
        return MISSED
    return INCOMPLETE if advice is not None else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fanout", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of 2 s, to see that all works")
    parser.add_argument("--rounds", type=int, help="rounds to take medians of (3)")
    parser.add_argument("--seconds", type=float, help="how long a round publishes at a steady rate (10)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
