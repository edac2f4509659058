"""The commands of ``toolcast``: one file each, listed here."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Final

import typer

from gateway.cli.decide import decide
from gateway.cli.demo import demo
from gateway.cli.runs import runs
from gateway.cli.serve import serve
from gateway.cli.tail import tail

__all__ = ["COMMANDS", "build"]

COMMANDS: Final[tuple[Callable[..., None], ...]] = (serve, demo, tail, runs, decide)
"""Each is called like its function and described by its docstring."""


def build() -> typer.Typer:
    """Return the command line."""
    # Plain help can be searched and piped; a traceback with local variables would show tokens.
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    for command in COMMANDS:
        app.command()(command)
    app.callback()(_toolcast)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolcast {version('toolcast')}")
        raise typer.Exit


def _toolcast(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Live tool calls of an AI agent, from its process through Redis to browsers and curl."""
