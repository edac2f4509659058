"""What a reader asks for: run, format, place, filter. Read once, before anything is sent (no I/O)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, cast
from urllib.parse import parse_qsl

from gateway.fanout.frames import Format
from gateway.fanout.runlog import TypeFilter
from gateway.http.problems import Problem
from listeners.contract.events import TERMINAL_TYPES, RunIdError, check_run_id
from listeners.contract.position import Position

if TYPE_CHECKING:
    from starlette.types import Scope

__all__ = ["Asked", "Origin", "run_of"]

Origin = Literal["start", "snapshot", "now"]

_ACCEPT: Final[dict[str, Format]] = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "text/plain": "text",
}
_TYPES = re.compile(r"[a-z0-9_*,]{1,1000}")
_MOST_WAIT: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for a stream. ``after`` is the position a reader has, ``"garbage"`` for one that can't be read."""

    run: str
    format: Format
    origin: Origin
    after: Position | Literal["garbage"] | None
    types: TypeFilter | None
    wait: float

    @classmethod
    def read(cls, scope: Scope, *, wait: float) -> Asked:
        """Read a request; ``wait`` is how many seconds an unpublished run is waited for unless it says otherwise.

        Raises :class:`Problem` 400 for everything but a position, which is never bad input (contract §4).
        """
        query, last = _query(scope), _last_event_id(scope)
        return cls._of(scope, query, run_of(scope), last or query.get("after", ""), "start", wait)

    @classmethod
    def read_several(cls, scope: Scope, *, wait: float, most: int) -> list[Asked]:
        """Read a request for several runs, ``run=<id>`` or ``run=<id>@<position>`` each, at most ``most``; none if the
        reader says that it has had the end of all.

        A run without a position begins with a snapshot, unless ``from`` says otherwise. Raises :class:`Problem` 400.
        """
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        wanted = [value.partition("@") for name, value in pairs if name == "run"]
        if not 1 <= len(wanted) <= most:
            raise _bad("run", f"{len(wanted)} runs", f"run=<id> once for each run, at most {most} times")
        if _last_event_id(scope) == "ended":
            return []
        asked = []
        for run, _, last in wanted:
            try:
                check_run_id(run)
            except RunIdError as error:
                raise Problem(400, "Not a run id", str(error)) from error
            one = cls._of(scope, dict(pairs), run, last, "snapshot", wait)
            asked.append(replace(one, format="sse-runs") if one.format == "sse" else one)
        if twice := [run for run, count in Counter(one.run for one in asked).items() if count > 1]:
            raise _bad("run", twice[0], "each run once")
        return asked

    @classmethod
    def _of(
        cls, scope: Scope, query: dict[str, str], run: str, last: str, otherwise: Origin, wait: float
    ) -> Asked:
        origin = query.get("from", otherwise)
        if origin not in ("start", "snapshot", "now"):
            raise _bad("from", origin, "start, snapshot or now")
        accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
        return cls(
            run=run,
            format=_format(query.get("format"), accept),
            origin=cast("Origin", origin),
            after=(Position.parse(last) or "garbage") if last else None,
            types=_filter(query["types"]) if "types" in query else None,
            wait=_wait(query["wait"]) if "wait" in query else wait,
        )


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def _last_event_id(scope: Scope) -> str:
    value: bytes = dict(scope["headers"]).get(b"last-event-id", b"")
    return value.decode("latin-1")


def run_of(scope: Scope) -> str:
    """Return the run id in the path; raises :class:`Problem` 400 for one that can't be."""
    try:
        return check_run_id(scope["path_params"]["run"])
    except RunIdError as error:
        raise Problem(400, "Not a run id", str(error)) from error


def _bad(name: str, value: str, expected: str) -> Problem:
    shown = value if len(value) <= 40 else value[:39] + "…"
    return Problem(400, "Bad query parameter", f"{name}={shown!r} is not understood: use {expected}.")


def _format(asked: str | None, accept: str) -> Format:
    if asked is not None:
        if asked not in ("sse", "ndjson", "text"):
            raise _bad("format", asked, "sse, ndjson or text")
        return asked  # type: ignore[return-value]  # just compared
    for part in accept.split(","):
        format = _ACCEPT.get(part.split(";")[0].strip().lower())
        if format is not None:
            return format
    return "sse"


def _wait(asked: str) -> float:
    try:
        # Python reads more than people write: 1_0, and other alphabets' digits.
        seconds = float(asked) if re.fullmatch(r"[0-9.eE+-]{1,20}", asked) else -1
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _MOST_WAIT:
        raise _bad("wait", asked, f"seconds from 0 to {_MOST_WAIT:.0f}")
    return seconds


def _filter(asked: str) -> TypeFilter:
    if not _TYPES.fullmatch(asked):
        raise _bad("types", asked, "event types separated by commas, with * for any part: tool_*,run_*")
    return _compiled(asked)


@lru_cache(maxsize=256)
def _compiled(asked: str) -> TypeFilter:
    wanted = re.compile("|".join(translate(pattern) for pattern in asked.split(",") if pattern) or "(?!)")
    always = TERMINAL_TYPES | {"snapshot"}

    @lru_cache(maxsize=256)
    def passes(type: str) -> bool:
        return type in always or wanted.fullmatch(type) is not None

    return passes
