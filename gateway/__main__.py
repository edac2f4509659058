"""``toolcast`` and ``python -m gateway``."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["main"]

_NEEDED = ("typer", "starlette", "uvicorn", "structlog", "rich")


def main() -> None:
    """Run the command line; says what to install where the ``gateway`` extra is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"toolcast: this installation has no gateway ({', '.join(missing)} missing): "
            "pip install 'toolcast[gateway]'",
            file=sys.stderr,
        )
        raise SystemExit(1)

    from gateway.cli.commands import build

    build()(prog_name="toolcast")


if __name__ == "__main__":
    main()
