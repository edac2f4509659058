"""A network of one's own, where every port is free: for what uses the ports that everybody uses."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["own_network"]

_NAMESPACE: Final = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET: Final = 0x40000000
_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


@contextmanager
def own_network() -> Iterator[bool]:
    """Give this thread, and what it starts meanwhile, a loopback of its own and nothing else.

    Tells whether that could be had: it takes Linux and root. Sockets that exist stay where they are.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not _NAMESPACE.exists():
        yield False
        return

    before = os.open(_NAMESPACE, os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            yield False
            return

        try:
            _raise_loopback()
            yield True
        finally:
            if libc.setns(before, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "can't go back into the machine's network")
    finally:
        os.close(before)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh", b"lo", 0)
        _, flags = struct.unpack("16sh", fcntl.ioctl(control, _SIOCGIFFLAGS, request.ljust(40, b"\0"))[:18])
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | _IFF_UP).ljust(40, b"\0"))
