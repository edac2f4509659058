"""The Valkey that ``toolcast serve`` starts for who has none: real processes, on ports the system chose."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from gateway.embedded import EmbeddedValkey, Listener, RedisUnusable, listener_at, provide_redis
from gateway.settings import Settings
from tests.support.servers import wait_until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def stranger(says: bytes) -> Iterator[int]:
    """Something that listens and says ``says`` to whoever connects."""
    code = (
        "import socket, sys\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "while True:\n"
        "    c, _ = s.accept(); c.recv(64); c.sendall(sys.argv[1].encode()); c.close()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, says.decode()], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def provide(port: int, **settings: object) -> tuple[EmbeddedValkey | None, list[str]]:
    said: list[str] = []
    made = provide_redis(Settings.from_env({}, **settings), say=said.append, url=f"redis://127.0.0.1:{port}")
    return made, said


def test_where_nobody_listens_a_valkey_is_started_and_stopped_with_us() -> None:
    port = free_port()
    assert listener_at("127.0.0.1", port) is Listener.NOBODY
    valkey, said = provide(port)
    assert valkey is not None
    try:
        assert len(said) == 1
        assert f"Started a Valkey at 127.0.0.1:{port}" in said[0]
        with Redis(port=port) as client:
            assert client.ping()
            assert client.config_get("bind")["bind"] == "127.0.0.1"
            assert client.config_get("save")["save"] == ""

        # A second gateway on this machine uses the first one's.
        other, said = provide(port)
        assert other is None
        assert said == [f"Using the Redis at 127.0.0.1:{port}."]
    finally:
        valkey.stop()
    assert listener_at("127.0.0.1", port) is Listener.NOBODY
    valkey.stop()


def test_it_ends_with_a_process_that_is_killed() -> None:
    port = free_port()
    code = (
        "import sys, time\n"
        "from gateway.embedded import EmbeddedValkey\n"
        "valkey = EmbeddedValkey('127.0.0.1', int(sys.argv[1])); valkey.start()\n"
        "print('up', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert listener_at("127.0.0.1", port) is Listener.REDIS
        process.kill()
    wait_until(
        "the Valkey of a killed process is gone", lambda: listener_at("127.0.0.1", port) is Listener.NOBODY
    )


def test_a_ctrl_c_for_the_gateway_does_not_reach_it() -> None:
    """In a terminal SIGINT goes to the whole group: the gateway drains while its Redis still answers."""
    port = free_port()
    code = (
        "import sys, signal\n"
        "from gateway.embedded import EmbeddedValkey\n"
        "signal.signal(signal.SIGINT, lambda *_: print('asked', flush=True))\n"
        "with EmbeddedValkey('127.0.0.1', int(sys.argv[1])):\n"
        "    print('up', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == b"asked\n"
        assert listener_at("127.0.0.1", port) is Listener.REDIS
        process.stdin.close()
    assert process.returncode == 0
    assert listener_at("127.0.0.1", port) is Listener.NOBODY


@pytest.mark.parametrize(
    ("says", "who", "remedy"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Listener.STRANGER, "isn't Redis"),
        (b"-NOAUTH Authentication required.\r\n", Listener.LOCKED, "REDIS_URL=redis://:<password>@127.0.0.1"),
    ],
)
def test_an_address_that_somebody_else_holds_is_named_with_the_remedy(
    says: bytes, who: Listener, remedy: str
) -> None:
    with stranger(says) as port:
        assert listener_at("127.0.0.1", port) is who
        with pytest.raises(RedisUnusable) as caught:
            provide(port)
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert remedy in str(caught.value)
    assert "REDIS_URL" in str(caught.value)


def test_one_that_is_still_loading_is_a_redis() -> None:
    with stranger(b"-LOADING Redis is loading the dataset in memory\r\n") as port:
        made, said = provide(port)
    assert made is None
    assert said == [f"Using the Redis at 127.0.0.1:{port}."]


def test_who_wants_none_started_is_told_how_to_start_one() -> None:
    made, (said,) = provide(free_port(), embedded=False)
    assert made is None
    assert "--no-embedded" in said
    assert "valkey-server" in said


def test_with_a_url_of_ones_own_nothing_is_asked_and_nothing_started() -> None:
    assert provide(free_port(), redis_url="redis://redis.example:6379") == (None, [])


def test_a_valkey_that_cannot_start_says_why() -> None:
    with stranger(b"") as port, pytest.raises(RedisUnusable) as caught:
        EmbeddedValkey("127.0.0.1", port).start()
    assert str(port) in str(caught.value)
    assert len(caught.value.reason) > 10
