"""Ids for new runs."""

from __future__ import annotations

import secrets

from listeners.contract.events import RunIdError, check_run_id

__all__ = ["check_owner", "new_run_id"]


def new_run_id(user: str | None = None) -> str:
    """Return a fresh id that nobody can guess, of the user ``user`` if given: ``user-42.kf3…``.

    Raises :class:`RunIdError` if ``user`` holds what a run id can't.
    """
    unguessable = secrets.token_urlsafe(16)
    return check_run_id(f"run_{unguessable}") if user is None else check_owner(f"{user}.{unguessable}", user)


def check_owner(run: str, user: str) -> str:
    """Return ``run`` if it is one of ``user``'s; raises :class:`RunIdError` otherwise, since a page chose it."""
    check_run_id(run)
    if "." in user:
        raise RunIdError(
            run, f"user {user!r} holds a dot, and so could be taken for a part of another user's id"
        )
    if not user or not run.startswith(f"{user}."):
        raise RunIdError(run, f"it is not one of {user!r}'s: it must begin with '{user}.'")
    return run
