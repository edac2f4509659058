"""``toolcast decide``: a person's answer about a held call, from a terminal."""

from __future__ import annotations

import enum
import json
import secrets
import time
from typing import Annotated, Any, Final

import typer
from redis import Redis
from redis.exceptions import RedisError

from gateway.cli.terminal import fail, printable
from listeners.contract.deciding import DecisionError, RunNotFound, deciding
from listeners.contract.decisions import Decision, parse_decision
from listeners.contract.events import format_time
from listeners.contract.exchange import carry_out
from listeners.contract.keys import DEFAULT_URL, Keys, namespace_of
from listeners.contract.position import Position

__all__ = ["Word", "decide"]

NOT_TAKEN: Final = 1
WRONG_USE: Final = 2
NOTHING_THERE: Final = 3
_ANSWER_TIMEOUT: Final = 5


class Word(enum.StrEnum):
    """What may be decided."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"


def decide(
    run: Annotated[str, typer.Argument(help="The run's id.", metavar="RUN", show_default=False)],
    call: Annotated[str, typer.Argument(help="The held call's key.", metavar="CALL", show_default=False)],
    decision: Annotated[
        Word,
        typer.Argument(help="What is to happen with it.", metavar="approve|edit|reject", show_default=False),
    ],
    arguments: Annotated[
        str | None,
        typer.Option(help="What to run it with instead, a JSON object (edit only).", metavar="JSON"),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="What the model is told (reject only).", metavar="TEXT")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Who decides.", metavar="TEXT")] = None,
    question: Annotated[
        str | None,
        typer.Option(
            help="Answer only the question at this position; else the open one.", metavar="POSITION"
        ),
    ] = None,
    redis: Annotated[
        str, typer.Option(help="Where the agent's Redis is.", envvar="REDIS_URL", metavar="URL")
    ] = DEFAULT_URL,
    namespace: Annotated[
        str | None,
        typer.Option(help="What its keys begin with.", envvar="TOOLCAST_NAMESPACE", metavar="NAME"),
    ] = None,
) -> None:
    """Answer the question that a held call asks; the agent goes on within about a second.

    Ends with 0 once it is answered, 1 where the question isn't open or can't be answered so, 2 for wrong use, 3 where
    there is no such run or no Redis.
    """
    try:
        chosen = _parsed(decision, arguments, reason)
        asked = None if question is None else Position.parse(question)
        if question is not None and asked is None:
            raise ValueError(f"--question {question!r} is no position: it looks like 1758000000000-7")
        client = Redis.from_url(redis, socket_timeout=_ANSWER_TIMEOUT, socket_connect_timeout=_ANSWER_TIMEOUT)
        keys = Keys(run, namespace_of(redis, namespace or None))
        steps = deciding(
            keys,
            call,
            chosen,
            writer=secrets.token_hex(8),
            time=format_time(time.time()),
            question=asked,
            by=by,
        )
        with client:
            position = carry_out(steps, client.execute_command)
    except RunNotFound as error:
        fail(printable(str(error)), status=NOTHING_THERE)
    except DecisionError as error:
        fail(printable(str(error)), status=NOT_TAKEN)
    except ValueError as error:
        fail(printable(str(error)), status=WRONG_USE)
    except (RedisError, OSError) as error:
        fail(f"Redis gave no answer: {printable(str(error))}", status=NOTHING_THERE)
    print(position)


def _parsed(word: Word, arguments: str | None, reason: str | None) -> Decision:
    wire: dict[str, Any] = {"decision": word.value}
    if arguments is not None:
        if word is not Word.EDIT:
            raise ValueError("--arguments goes with edit alone")
        try:
            wire["arguments"] = json.loads(arguments)
        except ValueError as error:
            raise ValueError(f"--arguments is no JSON: {error}") from error
    elif word is Word.EDIT:
        raise ValueError("edit needs --arguments with what to run the call with, a JSON object")
    if reason is not None:
        if word is not Word.REJECT:
            raise ValueError("--reason goes with reject alone")
        wire["reason"] = reason
    return parse_decision(wire)
