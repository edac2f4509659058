from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from gateway.http.cors import Cors, cors_headers
from gateway.settings import Settings
from tests.support.http_scope import Answer, answer, scope

LISTED = Settings(cors_origins=("https://app.example",))


def headers(
    origin: str | None, *, keyless: bool = True, path: str = "/runs/a", root: str = ""
) -> dict[str, str]:
    request = scope(path, headers={} if origin is None else {"origin": origin}, root_path=root)
    return {name.decode(): value.decode() for name, value in cors_headers(request, LISTED, keyless)}


async def preflight(cors: Cors, origin: str | None, **further: str) -> Answer:
    given = {} if origin is None else {"origin": origin}
    return await answer(cors.preflight, scope(method="OPTIONS", headers=given | further))


@pytest.mark.parametrize("keyless", [True, False])
def test_a_listed_origin_may_read_with_credentials(keyless: bool) -> None:
    assert headers("https://app.example", keyless=keyless) == {
        "vary": "Origin",
        "access-control-allow-origin": "https://app.example",
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": "ETag, Retry-After",
    }


@pytest.mark.parametrize(
    "origin", ["http://localhost:5173", "http://127.0.0.1:3000", "http://[::1]", "http://localhost"]
)
def test_without_a_key_the_pages_of_this_machine_may_read_without_credentials(origin: str) -> None:
    allowed = headers(origin)
    assert allowed["access-control-allow-origin"] == origin
    assert "access-control-allow-credentials" not in allowed
    assert headers(origin, keyless=False) == {"vary": "Origin"}


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        "http://localhost.evil.example",
        "https://app.example.evil",
        "http://localhost/x",
        "",
    ],
)
def test_any_other_origin_may_not(origin: str) -> None:
    assert headers(origin) == {"vary": "Origin"}


def test_without_an_origin_a_cache_is_told_that_it_matters() -> None:
    assert headers(None) == {"vary": "Origin"}


def test_the_browser_modules_are_everybodys() -> None:
    public = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}
    assert headers("https://evil.example", path="/web/define.js", keyless=False) == public
    assert headers(None, path="/toolcast/web/define.js", root="/toolcast") == public


async def test_a_preflight_names_what_may_be_sent() -> None:
    said = await preflight(Cors(LISTED, keyless=True), "http://localhost:5173")
    assert said.status == 204
    assert said.body == b""
    assert said.headers["access-control-allow-origin"] == "http://localhost:5173"
    allowed = said.headers["access-control-allow-headers"].split(", ")
    assert {"Last-Event-ID", "Authorization", "Content-Type", "If-None-Match", "Idempotency-Key"} == set(
        allowed
    )
    assert {"GET", "POST", "DELETE"} <= set(said.headers["access-control-allow-methods"].split(", "))
    assert "access-control-allow-private-network" not in said.headers


async def test_a_preflight_from_a_public_page_learns_that_the_private_network_is_meant() -> None:
    asked = {"access-control-request-private-network": "true"}
    said = await preflight(Cors(LISTED, keyless=True), "https://app.example", **asked)
    assert said.headers["access-control-allow-private-network"] == "true"


async def test_a_refused_preflight_says_what_to_set() -> None:
    said = await preflight(Cors(LISTED, keyless=False), "http://localhost:5173")
    assert said.status == 403
    assert b"add http://localhost:5173 to TOOLCAST_CORS_ORIGINS" in said.body
    assert "access-control-allow-origin" not in said.headers
    said = await preflight(Cors(LISTED, keyless=True), "null")
    assert b"python -m http.server" in said.body
    assert (await preflight(Cors(LISTED, keyless=True), None)).status == 403


def test_a_refused_origin_is_logged_once_with_the_setting_that_would_allow_it() -> None:
    cors = Cors(LISTED, keyless=True)
    with capture_logs() as lines:
        for origin in (
            "https://evil.example",
            "https://evil.example",
            "http://localhost:8808",
            "https://app.example",
        ):
            cors.headers(scope(headers={"origin": origin}))
        cors.headers(scope("/web/define.js", headers={"origin": "https://evil.example"}))
    assert [(line["origin"], line["remedy"]) for line in lines] == [
        ("https://evil.example", "add https://evil.example to TOOLCAST_CORS_ORIGINS")
    ]


def test_made_up_origins_fill_neither_the_log_nor_the_memory() -> None:
    cors = Cors(LISTED, keyless=True)
    with capture_logs() as lines:
        for number in range(1000):
            cors.headers(scope(headers={"origin": f"https://{number}.example"}))
    assert len(lines) == 100


def test_a_page_of_the_gateway_itself_is_no_refused_origin() -> None:
    cors = Cors(LISTED, keyless=False)
    with capture_logs() as lines:
        cors.headers(scope(headers={"origin": "https://tools.example"}, host="tools.example", method="POST"))
    assert lines == []
