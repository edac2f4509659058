from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.http.access import Access, Action, Grant
from gateway.http.problems import Problem
from gateway.settings import Settings
from tests.support.http_scope import scope

SENTENCE = (
    "This gateway has no key, so it serves only this machine. "
    "Set TOOLCAST_JWT_SECRET or TOOLCAST_AUTH_URL, or TOOLCAST_INSECURE=1."
)


def refusal(request: dict[str, Any], settings: Settings | None = None) -> str | None:
    try:
        Access(settings or Settings()).guard(request)
    except Problem as problem:
        assert problem.status == 403
        assert problem.detail.startswith(SENTENCE)
        return problem.detail.removeprefix(SENTENCE + " Seen: ")
    return None


@pytest.mark.parametrize(
    "request_",
    [
        scope(),
        scope(client=("127.8.8.8", 1)),
        scope(client=("::1", 1)),
        scope(client=("::ffff:127.0.0.1", 1)),
        scope(host="127.0.0.1"),
        scope(host="[::1]:8808"),
        scope(host="LOCALHOST.:8808"),
        scope(host="app.localhost"),
        scope(headers={"origin": "http://localhost:5173"}),
        scope(
            headers={"origin": "http://[::1]:5173", "referer": "http://127.0.0.1:3000/chat?x=https://evil"}
        ),
        # What Next's rewrites and Vite's xfwd add.
        scope(
            headers={
                "x-forwarded-for": "::ffff:127.0.0.1",
                "x-forwarded-host": "localhost:3000",
                "x-forwarded-port": "3000",
                "x-forwarded-proto": "http",
            }
        ),
        scope(headers={"forwarded": 'for="[::1]:4711";host="localhost:3000";proto=http, for=127.0.0.1'}),
        scope(headers={"x-real-ip": "127.0.0.1"}),
        scope(headers={"cf-connecting-ip": "127.0.0.1"}),
        scope(http_version="2"),
    ],
)
def test_this_machine_is_served(request_: dict[str, Any]) -> None:
    assert refusal(request_) is None


@pytest.mark.parametrize(
    ("request_", "seen"),
    [
        (scope(client=("192.168.1.7", 1)), "the peer 192.168.1.7"),
        (scope(client=("::ffff:10.0.0.1", 1)), "the peer"),
        (scope(client=("0.0.0.0", 1)), "the peer"),
        (scope(client=None), "without an address"),
        (scope(client=("testclient", 50000)), "the peer testclient"),
        (scope(http_version="1.0"), "HTTP/1.0, so a proxy"),
        (scope(headers={"via": "1.1 localhost"}), "Via"),
        (scope(host="gateway.example"), "Host: gateway.example"),
        (scope(host="localhost.evil.example"), "Host"),
        (scope(host="0.0.0.0:8808"), "Host"),
        (scope(host="localhost:8808@evil.example"), "Host"),
        (scope(host=""), "Host"),
        (scope(host=None), "no Host"),
        (scope(headers={"Host": "evil.example"}), "more than one Host"),
        (scope(headers={"origin": "https://evil.example"}), "Origin: https://evil.example"),
        (scope(headers={"origin": "null"}), "Origin: null"),
        (scope(headers={"origin": "http://localhost@evil.example"}), "Origin"),
        (scope(headers={"origin": "http://[::1"}), "Origin"),
        (scope(headers={"referer": "https://evil.example/localhost"}), "Referer"),
        (scope(headers={"x-forwarded-for": "127.0.0.1, 203.0.113.9"}), "X-Forwarded-For"),
        (
            scope(headers=[("x-forwarded-for", "127.0.0.1"), ("x-forwarded-for", "10.0.0.1")]),
            "X-Forwarded-For",
        ),
        (scope(headers={"x-forwarded-for": "unknown"}), "X-Forwarded-For"),
        (scope(headers={"x-forwarded-host": "gateway.example"}), "X-Forwarded-Host"),
        (scope(headers={"x-forwarded-server": "proxy"}), "X-Forwarded-Server"),
        (scope(headers={"x-forwarded-user": "ada"}), "X-Forwarded-User"),
        # It names nobody, so nobody is vouched for, and still only a proxy adds it.
        (scope(headers={"x-forwarded-proto": "https"}), "X-Forwarded-Proto"),
        (scope(headers={"x-forwarded-for": ""}), "X-Forwarded-For"),
        (scope(headers={"forwarded": "for=203.0.113.9"}), "Forwarded"),
        (scope(headers={"forwarded": "for=127.0.0.1;host=gateway.example"}), "Forwarded"),
        (scope(headers={"forwarded": "for=127.0.0.1, for=_hidden"}), "Forwarded"),
        (scope(headers={"forwarded": 'for="127.0.0.1'}), "Forwarded"),
        (scope(headers={"forwarded": "proto=https"}), "Forwarded"),
        (scope(headers={"x-real-ip": "203.0.113.9"}), "X-Real-Ip"),
        (scope(headers={"true-client-ip": "203.0.113.9"}), "True-Client-Ip"),
        (scope(headers={"cf-ray": "8f2c-OSL"}), "Cf-Ray"),
        (scope(headers={"cf-connecting-ip": "203.0.113.9"}), "Cf-Connecting-Ip"),
    ],
)
def test_whatever_may_come_from_elsewhere_is_refused_with_what_was_seen(
    request_: dict[str, Any], seen: str
) -> None:
    said = refusal(request_)
    assert said is not None
    assert seen in said


@pytest.mark.parametrize("claim", ["127.0.0.1", "127.0.0.1:40000", "[::1]:40000"])
def test_a_peer_address_that_a_header_claimed_is_no_peer_address(claim: str) -> None:
    """uvicorn told to trust every proxy puts the claim of a stranger where the peer stood."""
    host, _, port = claim.rpartition(":") if ":" in claim else (claim, "", "0")
    said = refusal(scope(client=(host.strip("[]"), int(port)), headers={"x-forwarded-for": claim}))
    assert said is not None
    assert "--no-proxy-headers" in said


@pytest.mark.parametrize(
    ("config", "served"),
    [
        ({"proxy_headers": True, "forwarded_allow_ips": "127.0.0.1"}, True),
        ({"proxy_headers": True, "forwarded_allow_ips": ["127.0.0.1", "::1"]}, True),
        ({"proxy_headers": False, "forwarded_allow_ips": "*"}, True),
        ({"proxy_headers": True, "forwarded_allow_ips": "*"}, False),
        ({"proxy_headers": True, "forwarded_allow_ips": "127.0.0.1, 10.0.0.0/8"}, False),
        ({}, False),
    ],
)
def test_a_claim_counts_where_the_server_believes_this_machine_alone(
    config: dict[str, object], served: bool
) -> None:
    access = Access(Settings())
    access.served_by(SimpleNamespace(config=SimpleNamespace(**config)))
    request = scope(client=("127.0.0.1", 0), headers={"x-forwarded-for": "127.0.0.1"})
    with nullcontext() if served else pytest.raises(Problem):
        access.guard(request)
    with pytest.raises(Problem):
        access.guard(scope(client=("127.0.0.1", 0), headers={"x-forwarded-for": "127.0.0.1, 10.0.0.1"}))


def test_the_browser_modules_are_for_the_pages_of_everybody_on_this_machine() -> None:
    page = {"origin": "https://elsewhere.example", "referer": "https://elsewhere.example/"}
    assert refusal(scope("/web/define.js", headers=page)) is None
    assert refusal(scope("/toolcast/web/define.js", headers=page, root_path="/toolcast")) is None
    assert refusal(scope("/web/../runs", host="evil.example")) is not None
    assert refusal(scope("/web/define.js", client=("10.0.0.1", 1))) is not None
    assert refusal(scope("/runs/web/events", headers=page)) is not None


def test_a_page_the_operator_listed_may_read_from_this_machine() -> None:
    settings = Settings(cors_origins=("https://app.example",))
    page = {"origin": "https://app.example", "referer": "https://app.example/chat"}
    assert refusal(scope(headers=page), settings) is None
    assert refusal(scope(headers={"referer": "https://app.example.evil/"}), settings) is not None


def test_a_refusal_points_to_the_setting_that_lists_pages() -> None:
    assert "TOOLCAST_CORS_ORIGINS" in (refusal(scope(headers={"origin": "https://evil.example"})) or "")


def test_insecure_switches_the_rule_off() -> None:
    settings = Settings(insecure=True)
    assert refusal(scope(client=("203.0.113.9", 1), host="x", http_version="1.0"), settings) is None


def test_a_long_header_is_cut_in_the_answer() -> None:
    assert len(refusal(scope(headers={"via": "x" * 9000})) or "") < 400


async def test_without_authorize_this_machine_may_do_everything() -> None:
    access = Access(Settings())
    assert access.keyless
    assert await access.check(scope(), "subscribe", "demo") == Grant()
    assert list(await access.visible(scope(), ["a", "b"])) == ["a", "b"]
    with pytest.raises(Problem):
        await access.visible(scope(host="evil.example"), ["a"])


async def test_with_authorize_the_application_alone_decides() -> None:
    asked: list[tuple[str, Action, str | None]] = []

    async def may(request: Request, action: Action, run: str | None) -> bool | Grant:
        asked.append((request.headers["cookie"], action, run))
        return Grant(by="ada", until=2e9) if run == "hers" else False

    access = Access(Settings(), may)
    request = scope(client=("203.0.113.9", 1), host="app.example", headers={"cookie": "s=1"})
    assert not access.keyless
    access.guard(request)
    assert await access.check(request, "subscribe", "hers") == Grant(by="ada", until=2e9)
    with pytest.raises(Problem) as caught:
        await access.check(request, "decide", "his")
    assert caught.value.status == 403
    assert "decide his" in caught.value.detail
    assert asked == [("s=1", "subscribe", "hers"), ("s=1", "decide", "his")]


async def test_who_may_not_list_sees_the_runs_it_may_subscribe_to() -> None:
    async def may(request: Request, action: Action, run: str | None) -> bool:
        return action == "subscribe" and run is not None and run.startswith("user-42.")

    access = Access(Settings(), may)
    assert list(await access.visible(scope(), ["user-42.b", "user-7.a", "user-42.a"])) == [
        "user-42.b",
        "user-42.a",
    ]


async def test_who_may_list_sees_all_and_is_asked_once() -> None:
    asked: list[Action] = []

    async def may(request: Request, action: Action, run: str | None) -> bool:
        asked.append(action)
        return True

    assert list(await Access(Settings(), may).visible(scope(), ["a", "b"])) == ["a", "b"]
    assert asked == ["list"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_in_the_applications_words_is_passed_on(status: int) -> None:
    async def may(request: Request, action: Action, run: str | None) -> bool:
        raise HTTPException(status, "Sign in first.", headers={"WWW-Authenticate": "Session"})

    with pytest.raises(Problem) as caught:
        await Access(Settings(), may).check(scope(), "subscribe", "a")
    assert (caught.value.status, caught.value.detail) == (status, "Sign in first.")
    assert caught.value.headers == ((b"www-authenticate", b"Session"),)


async def test_an_authorize_that_breaks_lets_nobody_pass() -> None:
    async def broken(request: Request, action: Action, run: str | None) -> bool:
        raise RuntimeError("postgres://app:secret@db")

    async def vague(request: Request, action: Action, run: str | None) -> Any:
        return "yes"

    for authorize in (broken, vague):
        with pytest.raises(Problem) as caught:
            await Access(Settings(), authorize).check(scope(), "subscribe", "a")
        assert caught.value.status == 500
        assert "secret" not in caught.value.detail
        with pytest.raises(Problem):
            await Access(Settings(), authorize).visible(scope(), ["a"])


def test_an_authorize_that_is_not_async_is_refused_at_once() -> None:
    def may(request: Request, action: Action, run: str | None) -> bool:
        return True

    with pytest.raises(TypeError, match="async def authorize"):
        Access(Settings(), may)  # type: ignore[arg-type]  # the mistake under test


async def test_the_operators_pages_are_for_this_machine_and_for_admins() -> None:
    async def admins(request: Request, action: Action, run: str | None) -> bool:
        return action == "admin" and request.headers.get("cookie") == "admin"

    far = scope(client=("203.0.113.9", 1))
    assert await Access(Settings()).may_administer(scope())
    assert not await Access(Settings()).may_administer(far)
    assert await Access(Settings(insecure=True)).may_administer(far)
    assert await Access(Settings(), admins).may_administer(scope())
    assert not await Access(Settings(), admins).may_administer(far)
    assert await Access(Settings(), admins).may_administer(
        scope(client=("203.0.113.9", 1), headers={"cookie": "admin"})
    )
    # With an application that decides, the switch for gateways without a key says nothing.
    assert not await Access(Settings(insecure=True), admins).may_administer(far)


async def test_an_authorize_that_hangs_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else would ever end it: not the client's hang-up, and not the server's stop."""
    monkeypatch.setattr("gateway.http.access.AUTHORIZE", 0.01)

    async def authorize(request: Request, action: Action, run: str | None) -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(Problem) as caught:
        await Access(Settings(), authorize).check(scope(), "subscribe", "run_1")
    assert caught.value.status == 503
