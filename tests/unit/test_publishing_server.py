"""Which Redis a publisher writes to."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.connection import SSLConnection, UnixDomainSocketConnection

from listeners.publishing.server import Server


def server(given: Any = None, *, namespace: str | None = None, **environ: str) -> Server:
    return Server(given, namespace=namespace, environ=environ)


def test_a_url_comes_before_the_environment_and_that_before_the_default() -> None:
    assert server("redis://one:1/0", REDIS_URL="redis://two:2").shown == "redis://one:1/0"
    assert server(REDIS_URL="redis://two:2").shown == "redis://two:2"
    assert server(REDIS_URL="").shown == server().shown == "redis://127.0.0.1:6379"


def test_passwords_are_never_shown() -> None:
    assert server("rediss://me:secret@host:1/2?ssl_cert_reqs=none").shown == "rediss://host:1/2"
    assert server(redis.Redis(host="host", password="secret", db=3)).shown == "redis://host:6379/3"
    with pytest.raises(ValueError, match="is no Redis URL") as refused:
        server("http://me:secret@host")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "environ", "namespace"),
    [
        ("redis://h", {}, "toolcast"),
        ("redis://h/0", {}, "toolcast"),
        ("redis://h/3", {}, "toolcast3"),
        ("redis://h?db=4", {}, "toolcast4"),
        ("unix:///run/redis.sock?db=2", {}, "toolcast2"),
        (redis.Redis(db=5), {}, "toolcast5"),
        ("redis://h/3", {"TOOLCAST_NAMESPACE": "staging"}, "staging"),
        ("redis://h/3", {"TOOLCAST_NAMESPACE": ""}, "toolcast3"),
    ],
)
def test_the_namespace_separates_databases(given: Any, environ: dict[str, str], namespace: str) -> None:
    assert server(given, **environ).namespace == namespace
    assert server(given, namespace="mine", **environ).namespace == "mine"


def test_an_unusable_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="namespace 'a b' is not usable"):
        server("redis://h", namespace="a b")


def test_publishers_of_one_server_share_a_connection() -> None:
    assert server("redis://h:1").identity == server("redis://h:1").identity
    assert server("redis://h:1").identity != server("redis://h:2").identity
    assert server("redis://h:1").identity != server("redis://h:1/1").identity
    assert server("redis://h:1").identity != server("redis://:secret@h:1").identity


def test_an_asyncio_client_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match="give the URL instead"):
        server(redis.asyncio.Redis())


@pytest.mark.parametrize("given", [3, b"redis://h", object(), redis.ConnectionPool()])
def test_what_is_no_redis_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"give a URL, a redis\.Redis, or nothing"):
        server(given)


def test_a_clients_settings_are_taken_over_but_for_what_publishing_needs_itself() -> None:
    given = redis.Redis(
        host="h", port=1, username="me", password="p", db=2, decode_responses=True, socket_timeout=60
    )
    options = server(given).connect().connection_pool.connection_kwargs
    assert {name: options[name] for name in ("host", "port", "username", "password", "db")} == {
        "host": "h",
        "port": 1,
        "username": "me",
        "password": "p",
        "db": 2,
    }
    assert options["decode_responses"] is False and options["socket_timeout"] <= 5
    assert given.connection_pool.connection_kwargs["socket_timeout"] == 60


def test_the_kind_of_connection_is_kept() -> None:
    secure = server(redis.Redis(host="h", ssl=True, ssl_cert_reqs="none")).connect().connection_pool
    assert secure.connection_class is SSLConnection
    assert secure.connection_kwargs["ssl_cert_reqs"] in ("none", ssl.CERT_NONE)
    assert server("unix:///x").connect().connection_pool.connection_class is UnixDomainSocketConnection
