"""Ids of runs: fresh ones, and whose they are."""

from __future__ import annotations

import pytest

from listeners import RunIdError, RunPublisher, new_run_id
from listeners.contract.events import is_run_id
from listeners.testing import RecordedRun


def test_new_ids_are_usable_and_all_different() -> None:
    ids = {new_run_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(map(is_run_id, ids))


def test_an_id_may_be_a_users() -> None:
    run = new_run_id("user-42")
    assert run.startswith("user-42.") and is_run_id(run)
    assert RecordedRun(run, user="user-42").run == run
    assert RecordedRun(user="user-42").run.startswith("user-42.")


@pytest.mark.parametrize("run", ["user-4.x", "user-42", "user-421.x", "other.x", ".x"])
def test_another_users_run_is_refused(run: str) -> None:
    """The page chose it."""
    with pytest.raises(RunIdError) as refused:
        RunPublisher(run, user="user-42")
    assert refused.value.run == run


@pytest.mark.parametrize("user", ["", "a b", "a.b", "é", "x" * 128])
def test_a_user_that_cannot_begin_an_id_is_refused(user: str) -> None:
    with pytest.raises(RunIdError):
        new_run_id(user)
    with pytest.raises(RunIdError):
        RunPublisher(f"{user}.x", user=user)


@pytest.mark.parametrize("run", ["", "a b", "../etc", "{x}", "a\nb", "é", "-a", ".a", "x" * 129, "<script>"])
def test_a_hostile_id_is_refused_with_what_would_do(run: str) -> None:
    with pytest.raises(RunIdError, match=r"use 1 to 128 of the characters A-Z a-z 0-9"):
        RunPublisher(run)
