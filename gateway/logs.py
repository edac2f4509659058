"""How log lines look when this process is ours: one line a lifecycle step, for people or as JSON.

Called by ``toolcast serve``, which owns the process, and by ``create_app``, which may not; a ``Gateway`` logs the way
its application says.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import Processor

__all__ = ["configure_logs"]

# uvicorn tells of its start and its stop in lines of its own; ours say the same, with the address.
_QUIET: Final = ("uvicorn", "uvicorn.error", "uvicorn.asgi", "asyncio")


def configure_logs(
    log_format: Literal["console", "json"], *, own_process: bool = False, stream: TextIO | None = None
) -> None:
    """Send structlog's lines and the standard library's to ``stream`` (standard error) in ``log_format``.

    ``own_process``: nobody else has a say, so the server's own lines are left out below a warning. Else what
    somebody has configured stays as it is.
    """
    out = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer = _renderer(log_format, colours=out.isatty())
    if own_process or not structlog.is_configured():
        structlog.configure(
            processors=[*shared, *renderer],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=structlog.WriteLoggerFactory(out),
            cache_logger_on_first_use=False,
        )

    root = logging.getLogger()
    if root.handlers and not own_process:
        return

    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    if own_process:
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)


def _renderer(log_format: Literal["console", "json"], *, colours: bool) -> list[Processor]:
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=_text)]
    # structlog's default draws tracebacks with every local variable: tokens and arguments among them.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=plain)]


def _text(value: Any) -> str:
    return str(value)
