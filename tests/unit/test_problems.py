from __future__ import annotations

import json

import pytest

from gateway.http.problems import Problem, check_read_only
from tests.support.http_scope import answer, scope

PROBLEM = Problem(404, "No such run", "Nobody has published run “x”.", headers=[(b"retry-after", b"1")])


async def test_a_problem_answers_the_request_with_json_that_says_what_to_do() -> None:
    said = await answer(PROBLEM, scope())
    assert said.status == 404
    assert said.headers["content-type"] == "application/problem+json"
    assert said.headers["content-length"] == str(len(said.body))
    assert said.headers["retry-after"] == "1"
    assert json.loads(said.body) == {
        "status": 404,
        "title": "No such run",
        "detail": "Nobody has published run “x”.",
    }


async def test_head_gets_the_headers_alone() -> None:
    said = await answer(PROBLEM, scope(method="HEAD"))
    assert said.body == b""
    assert int(said.headers["content-length"]) == len(PROBLEM.body)


async def test_further_headers_leave_the_problem_as_it_was() -> None:
    said = await answer(PROBLEM.with_headers([(b"vary", b"Origin")]), scope())
    assert (said.headers["vary"], said.headers["retry-after"]) == ("Origin", "1")
    assert PROBLEM.headers == ((b"retry-after", b"1"),)


def test_its_text_is_for_logs() -> None:
    assert str(PROBLEM) == "404 No such run: Nobody has published run “x”."


async def test_what_is_only_read_says_so_to_other_methods() -> None:
    for method in ("GET", "HEAD"):
        check_read_only(scope(method=method))
    with pytest.raises(Problem) as caught:
        check_read_only(scope(method="POST"))
    said = await answer(caught.value, scope(method="POST"))
    assert (said.status, said.headers["allow"]) == (405, "GET, HEAD")
