"""The gateway: watches Redis for the runs somebody watches, and fans each run out as Server-Sent Events.

``Gateway`` is an ASGI application, alone or mounted; ``Settings`` is what it can be told.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway.app import Gateway, create_app
    from gateway.http.access import Action, Authorize, Grant
    from gateway.settings import Settings, SettingsError

__all__ = ["Action", "Authorize", "Gateway", "Grant", "Settings", "SettingsError", "create_app"]

_HOMES: Final = {
    "Action": "gateway.http.access",
    "Authorize": "gateway.http.access",
    "Gateway": "gateway.app",
    "Grant": "gateway.http.access",
    "Settings": "gateway.settings",
    "SettingsError": "gateway.settings",
    "create_app": "gateway.app",
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: `toolcast` must be able to say that the `gateway` extra is missing, and its other
    # commands need no web server.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
