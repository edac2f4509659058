from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from gateway.logs import configure_logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Logging belongs to the process: put back what was there."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    server = logging.getLogger("uvicorn.error").level
    yield
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "asyncio"):
        logging.getLogger(name).setLevel(server)


def test_json_is_one_object_a_line_from_both_kinds_of_loggers() -> None:
    out = io.StringIO()
    configure_logs("json", own_process=True, stream=out)
    structlog.get_logger("toolcast.stream").info("reader dropped", run="demo", reason="took nothing")
    logging.getLogger("listeners").warning("run %s: %d events lost", "demo", 3)
    logging.getLogger("uvicorn.error").info("Started server process [1]")
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (first["event"], first["run"], first["reason"], first["level"]) == (
        "reader dropped",
        "demo",
        "took nothing",
        "info",
    )
    assert (second["event"], second["level"]) == ("run demo: 3 events lost", "warning")
    assert first["timestamp"].endswith("Z")


def test_the_console_has_no_colour_codes_where_nobody_sees_colours() -> None:
    out = io.StringIO()
    configure_logs("console", own_process=True, stream=out)
    structlog.get_logger("x").warning("origin refused", origin="https://evil.example")
    logging.getLogger("listeners").info("hello")
    assert "\x1b" not in out.getvalue()
    assert "origin refused" in out.getvalue()
    assert "https://evil.example" in out.getvalue()
    assert "hello" in out.getvalue()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_no_local_variables(log_format: str) -> None:
    out = io.StringIO()
    configure_logs("json" if log_format == "json" else "console", own_process=True, stream=out)
    token = "".join(["s3", "cret"])
    try:
        raise ValueError(len(token))
    except ValueError:
        structlog.get_logger("x").exception("authorize raised")
    assert "ValueError" in out.getvalue()
    assert "s3cret" not in out.getvalue()


def test_debug_lines_stay_out() -> None:
    out = io.StringIO()
    configure_logs("json", own_process=True, stream=out)
    structlog.get_logger("x").debug("traffic")
    assert out.getvalue() == ""


def test_what_an_application_configured_stays() -> None:
    mine, ours = io.StringIO(), io.StringIO()
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(mine))
    handler = logging.StreamHandler(mine)
    root = logging.getLogger()
    root.handlers = [handler]
    configure_logs("json", stream=ours)
    structlog.get_logger("x").info("hello")
    logging.getLogger("listeners").warning("hello")
    assert root.handlers == [handler]
    assert ours.getvalue() == ""
    assert mine.getvalue().count("hello") == 2
