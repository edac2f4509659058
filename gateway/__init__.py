"""The gateway: watches Redis for the runs somebody watches, and fans each run out as Server-Sent Events.

``Gateway`` is an ASGI application, alone or mounted; ``Settings`` is what it can be told.
"""

from __future__ import annotations

from gateway.app import Gateway, create_app
from gateway.http.access import Action, Authorize, Grant
from gateway.settings import Settings, SettingsError

__all__ = ["Action", "Authorize", "Gateway", "Grant", "Settings", "SettingsError", "create_app"]
