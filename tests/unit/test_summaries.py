"""A value as a short text, as plain data, and with its secrets hidden."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import msgspec
import pydantic
import pytest

from listeners.publishing.plain import plain
from listeners.publishing.redaction import REDACTED, Redaction, looks_secret
from listeners.publishing.summaries import summary


@dataclass
class Place:
    city: str
    unit: str


class Model(pydantic.BaseModel):
    city: str
    when: datetime.date


class Struct(msgspec.Struct):
    city: str


class Colour(enum.Enum):
    RED = "red"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain text", "plain text"),
        ("two\nlines", "two\nlines"),
        ({"city": "Oslo", "unit": "C"}, "city: Oslo, unit: C"),
        (["queue.py", "sched.py"], "2 items: queue.py, sched.py"),
        (["one"], "1 item: one"),
        ([], "0 items"),
        ({}, "0 items"),
        ((1, 2.5, None, True), "4 items: 1, 2.5, null, true"),
        ({"a": {"b": [1, {"c": 2}]}}, "a: {b: [1, {…}]}"),
        (None, "null"),
        (False, "false"),
        (42, "42"),
        (b"abc", "3 bytes"),
        ([b"abc"], "1 item: 3 bytes"),
        (Place("Oslo", "C"), "city: Oslo, unit: C"),
        ([Place("Oslo", "C")], "1 item: {city: Oslo, unit: C}"),
        (Model(city="Oslo", when=datetime.date(2026, 11, 30)), "city: Oslo, when: 2026-11-30"),
        (Struct("Oslo"), "city: Oslo"),
        (Colour.RED, "red"),
        (datetime.date(2026, 11, 30), "2026-11-30"),
        (PurePosixPath("/a"), "PurePosixPath('/a')"),
    ],
)
def test_a_summary_says_what_a_value_is(value: Any, shown: str) -> None:
    assert summary(value) == shown


def test_a_long_list_shows_its_first_items() -> None:
    shown = summary([f"module_{n}.py" for n in range(100_000)])
    assert shown.startswith("100000 items: module_0.py, module_1.py, ") and shown.endswith(", …")
    assert len(shown) < 200


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000_000,
        {"a": "x" * 10_000},
        {f"k{n}": "x" * 50 for n in range(1000)},
        ["x" * 10_000] * 1000,
        ["" for _ in range(1_000_000)],
        [[["x" * 100] * 100] * 100] * 100,
        {"x" * 10_000: 1},
    ],
    ids=["text", "member", "members", "texts", "blanks", "nested", "name"],
)
def test_a_summary_has_at_most_five_hundred_characters(value: Any) -> None:
    shown = summary(value)
    assert len(shown) <= 500 and "…" in shown


def test_a_number_too_long_to_print_is_said_to_be_one() -> None:
    assert summary(10**5000) == "a large number"


def test_a_list_that_holds_itself_ends() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert summary(loop) == "2 items: 1, [1, [1, […]]]"
    assert plain(loop)[1] is False


@pytest.mark.parametrize(
    ("value", "known", "whole"),
    [
        ({"a": [1, "x", None, True, 2.5]}, {"a": [1, "x", None, True, 2.5]}, True),
        ((1, 2), [1, 2], True),
        ({1: "one"}, {"1": "one"}, True),
        (Decimal("1.5"), "1.5", True),
        (Place("Oslo", "C"), {"city": "Oslo", "unit": "C"}, True),
        (Model(city="Oslo", when=datetime.date(2026, 11, 30)), {"city": "Oslo", "when": "2026-11-30"}, True),
        ([PurePosixPath("/a")], ["PurePosixPath('/a')"], False),
        ({(1, 2): 3}, {"(1, 2)": 3}, False),
        ([float("nan"), 1.0], ["nan", 1.0], False),
        ({"half": "a\ud800b"}, {"half": "a?b"}, False),
        ([2**70], [2**70], True),
        ({"a": None, "b": (1,)}, {"a": None, "b": [1]}, True),
        (msgspec.Raw(b'{"a":\n1}'), {"a": 1}, True),
        (msgspec.Raw(b"{"), None, False),
        (Hostile(), "<Hostile>", False),
        (Hostile, None, False),
    ],
)
def test_a_value_becomes_plain(value: Any, known: Any, whole: bool) -> None:
    """What JSON can't carry is replaced by its ``repr``; nothing raises, and nothing is null that wasn't."""
    result, is_whole = plain(value)
    assert is_whole is whole
    assert known is None or result == known
    assert b"\n" not in msgspec.json.encode(result)


def test_plain_values_are_copies() -> None:
    inner = [1]
    known, _ = plain({"a": inner})
    inner.append(2)
    assert known == {"a": [1]}


def test_a_long_repr_is_cut() -> None:
    class Long:
        def __repr__(self) -> str:
            return "x" * 10_000

    assert len(plain(Long())[0]) == 500


@pytest.mark.parametrize(
    "name",
    [
        *("password", "db_password", "DB_PASSWORD", "dbPassword", "passwd", "user-pwd", "passphrase"),
        *("secret", "client_secret", "token", "access_token", "accessToken", "refresh-token", "apikey"),
        *("api_key", "API-Key", "apiKey", "X-API-KEY", "private_key", "ssh_key", "credentials", "dsn"),
        *("authorization", "Authorization", "cookie", "set-cookie", "jwt", "password2"),
    ],
)
def test_names_that_look_like_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("q", "key", "keys", "tokens", "token_count", "max_tokens", "input", "total", "message", "author"),
        *("keyboard", "primary_key", "passage", "bypass", "cook", "path", "", "日本", "secretary"),
    ],
)
def test_names_that_do_not(name: str) -> None:
    assert not looks_secret(name)


def test_redaction_hides_members_at_any_depth() -> None:
    given = {"q": 1, "token": "t", "list": [{"api_key": "k", "ok": (2, {"password": "p"})}]}
    assert Redaction().members(given) == {
        "q": 1,
        "token": REDACTED,
        "list": [{"api_key": REDACTED, "ok": [2, {"password": REDACTED}]}],
    }
    assert given["token"] == "t"


def test_names_and_functions_add_to_what_looks_secret() -> None:
    def shout(name: str, value: Any) -> Any:
        return value.upper() if name == "q" else value

    redaction = Redaction(["email", shout])
    assert redaction.members({"email": "a@b", "q": "x", "token": "t", "n": 1}) == {
        "email": REDACTED,
        "q": "X",
        "token": REDACTED,
        "n": 1,
    }
    assert Redaction(shout).members({"q": "x", "token": "t"}) == {"q": "X", "token": REDACTED}


def test_an_empty_collection_hides_nothing() -> None:
    assert Redaction(()).members({"token": "t"}) == {"token": "t"}


def test_a_function_that_fails_hides_the_member() -> None:
    assert Redaction([lambda name, value: value / 0]).members({"a": 1}) == {"a": REDACTED}


@pytest.mark.parametrize("redact", ["password", [3], [None], 3])
def test_what_is_no_redaction_is_refused(redact: Any) -> None:
    with pytest.raises(TypeError):
        Redaction(redact)


def test_summaries_hide_too() -> None:
    shown = summary(
        {"q": 1, "token": "abc", "in": {"password": "abc"}, "l": [{"secret": "abc"}]}, Redaction()
    )
    assert "abc" not in shown and shown.startswith("q: 1, token: [redacted], in: {password: [redacted]}")
    assert "abc" not in summary([{"token": "abc"}], Redaction())
    assert "abc" not in summary(Holder("abc"), Redaction())


@dataclass
class Holder:
    password: str
