"""Command-line flags made from the table of settings, so that no name is spelled twice."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Concatenate

import typer

from gateway.cli.terminal import fail
from gateway.setting_kinds import Setting
from gateway.settings import Settings, SettingsError, settings_table

__all__ = ["with_settings"]


def with_settings(command: Callable[Concatenate[Settings, ...], None]) -> Callable[..., None]:
    """Give ``command``, whose first argument is :class:`Settings`, a flag for every setting.

    A flag is another way to write the environment variable, and wins over it. What isn't usable ends the process
    with status 2 and every error.
    """

    @wraps(command)
    def with_flags(**given: Any) -> None:
        environment = dict(os.environ)
        for row in settings_table():
            value = given.pop(row.name)
            if value is not None:
                environment[row.env] = row.show(value)

        try:
            settings = Settings.from_env(environment)
        except SettingsError as error:
            fail(str(error), status=2)
        command(settings, **given)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    flags = [_flag(row) for row in settings_table()]
    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    # typer reads a command's parameters from its signature.
    with_flags.__dict__["__signature__"] = inspect.Signature([*keyword, *flags])
    with_flags.__annotations__ = {}
    return with_flags


def _flag(row: Setting) -> inspect.Parameter:
    default = row.shown_default
    if row.kind == "switch":
        default = "yes" if row.default else "no"
    about = f"{row.help} [{row.env}{f', default {default}' if default else ''}]"
    if row.kind == "switch":
        names = f"{row.flag}/--no-{row.flag.removeprefix('--')}"
        annotation: Any = Annotated[bool | None, typer.Option(names, help=about, show_default=False)]
    else:
        annotation = Annotated[
            str | None, typer.Option(row.flag, help=about, metavar=row.kind.upper(), show_default=False)
        ]
    return inspect.Parameter(row.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
