"""Titles: what a widget shows for a call now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from listeners.publishing.titles import Phase, Title, humanised, title_of

FORMS = ("Searching for “{q}”…", "Searched for “{q}”", "Couldn't search for “{q}”")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("web_search", "Web search"), ("fetchPage", "Fetchpage"), ("x", "X"), ("", ""), ("_a__b_", "A b")],
)
def test_a_name_is_humanised(name: str, shown: str) -> None:
    assert humanised(name) == shown


@pytest.mark.parametrize(
    ("title", "phase", "shown"),
    [
        (None, "running", "Web search"),
        ("Searching the web…", "running", "Searching the web…"),
        ("Searching the web…", "done", "Searching the web…"),
        (FORMS, "running", "Searching for “solar”…"),
        (FORMS, "done", "Searched for “solar”"),
        (FORMS, "failed", "Couldn't search for “solar”"),
        (FORMS, "asking", "Searching for “solar”…"),
        ((*FORMS, "Search for {q}?"), "asking", "Search for solar?"),
        (lambda arguments: f"{len(arguments)} arguments", "running", "2 arguments"),
        ("{{q}} {q}", "running", "{q} solar"),
        ("{n} {q!r} {q.x} {0}", "running", "3 {q!r} {q.x} {0}"),
    ],
)
def test_a_title_has_forms_and_fields(title: Title | None, phase: Phase, shown: str) -> None:
    assert title_of(title, "web_search", {"q": "solar", "n": 3}, phase) == shown


@pytest.mark.parametrize("arguments", [None, {}, {"other": 1}])
@pytest.mark.parametrize("title", [FORMS, "{q}", lambda arguments: str(arguments["q"])])
def test_while_the_arguments_are_unknown_the_name_stands(
    title: Title, arguments: Mapping[str, Any] | None
) -> None:
    """Never a template with holes, and never an exception out of the application's function."""
    assert title_of(title, "web_search", arguments, "running") == "Web search"


def test_a_title_without_fields_stands_before_the_arguments_are_known() -> None:
    assert title_of("Searching the web…", "web_search", None, "running") == "Searching the web…"


def test_a_value_is_one_line_of_at_most_sixty_characters() -> None:
    """Line breaks, controls and bidirectional marks' neighbours don't tear a widget apart."""
    shown = title_of("{q}", "t", {"q": "a\nb\x00c\t d\u2028e " + "x" * 100}, "running")
    assert shown.startswith("a b c d e xxx") and len(shown) == 60 and shown.endswith("…")


def test_a_long_title_is_cut() -> None:
    assert len(title_of("x" * 1000, "t", {}, "running")) == 200
    assert len(title_of(lambda _: "x" * 10_000_000, "t", {}, "running")) == 200


def test_a_function_that_returns_no_text_is_shown_as_text() -> None:
    assert title_of(lambda _: 3, "t", {}, "running") == "3"  # type: ignore[arg-type, return-value]
    assert title_of(lambda _: "", "t", {}, "running") == "T"
