"""Who may do what: the rule that a gateway without a key serves one machine, and the application's own word.

The rule is checked per request and not at bind: what matters is where a request came from, not which address
somebody chose to listen on. It errs on the side of refusing; every refusal names what was seen.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Scope

from gateway.http.problems import Problem
from gateway.http.provenance import is_loopback, why_not_local
from gateway.settings import Settings

__all__ = ["Access", "Action", "Authorize", "Grant"]

Action = Literal["subscribe", "list", "publish", "decide", "cancel", "delete", "admin"]

_ONE_MACHINE: Final = (
    "This gateway has no key, so it serves only this machine. "
    "Set TOOLCAST_JWT_SECRET or TOOLCAST_AUTH_URL, or TOOLCAST_INSECURE=1."
)
# Without this the sentence above would send people to settings that this version refuses.
_TODAY: Final = (
    "Keys come with a later version; an application that mounts the gateway can decide with authorize=."
)

AUTHORIZE: Final = 2.0
"""Seconds that ``authorize`` may take: one that hangs would hold up the host's end, since nothing else ends it."""

_log = structlog.get_logger("toolcast.access")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A yes. ``by`` names who asks; ``until`` is when the yes ends, in seconds since 1970, ``None`` for never."""

    by: str | None = None
    until: float | None = None


Authorize = Callable[[Request, Action, str | None], Awaitable[bool | Grant]]
"""The application's word: asked with the request, what it wants to do, and the run, if it is about one."""


class Access:
    """Decides over requests. With ``authorize`` the application decides alone; without, the one-machine rule does.

    Raises ``TypeError`` for an ``authorize`` that isn't ``async``.
    """

    def __init__(self, settings: Settings, authorize: Authorize | None = None) -> None:
        if inspect.isroutine(authorize) and not inspect.iscoroutinefunction(authorize):
            raise TypeError("authorize must be `async def authorize(request, action, run) -> bool | Grant`")

        self._settings = settings
        self._authorize = authorize
        self._claims_are_local = False

    @property
    def keyless(self) -> bool:
        """Whether nobody but the one-machine rule decides."""
        return self._authorize is None

    def served_by(self, server: Any | None) -> None:
        """Learn from uvicorn's ``Server`` whose X-Forwarded-For it puts in place of a peer's address.

        By default this machine's alone, which Next and Vite need; of an unknown server the worst is assumed.
        """
        config = getattr(server, "config", None)
        believed = getattr(config, "forwarded_allow_ips", "*")
        peers = believed.split(",") if isinstance(believed, str) else list(believed)
        believes_nobody = getattr(config, "proxy_headers", True) is False
        self._claims_are_local = believes_nobody or all(is_loopback(peer.strip()) for peer in peers)

    def guard(self, scope: Scope) -> None:
        """Refuse what the one-machine rule refuses; for requests that ask for nothing of a run, ``/web/*`` too.

        Raises :class:`Problem` 403. Mounted with ``authorize``, or with ``TOOLCAST_INSECURE``, it lets all pass.
        """
        if self._authorize is not None or self._settings.insecure:
            return

        seen = self._why_not_local(scope)
        if seen is not None:
            raise Problem(403, "Only for this machine", f"{_ONE_MACHINE} Seen: {seen}. {_TODAY}")

    async def check(self, scope: Scope, action: Action, run: str | None) -> Grant:
        """Return the grant for ``action`` on ``run``; raises :class:`Problem` 403 for a no.

        A 401 or 403 that ``authorize`` raises as an ``HTTPException`` is passed on with its text. An ``authorize``
        that breaks, or answers neither a bool nor a :class:`Grant`, is a 500, one that takes more than 2 s a 503, both
        logged: neither ever lets pass.
        """
        self.guard(scope)
        if self._authorize is None:
            return Grant()

        about = action if run is None else f"{action} {run}"
        try:
            async with asyncio.timeout(AUTHORIZE):
                answer = await self._authorize(Request(scope), action, run)
        except TimeoutError:
            _log.error("authorize took too long", action=action, run=run, seconds=AUTHORIZE)
            raise Problem(
                503,
                "Authorization timed out",
                f"The application didn't answer in {AUTHORIZE} s over {about}.",
            ) from None
        except HTTPException as refusal:
            if refusal.status_code not in {401, 403}:
                raise

            title = "Not signed in" if refusal.status_code == 401 else "Not allowed"
            headers = [
                (name.lower().encode(), value.encode()) for name, value in (refusal.headers or {}).items()
            ]
            raise Problem(refusal.status_code, title, str(refusal.detail), headers=headers) from None
        except Exception:
            _log.exception("authorize raised", action=action, run=run)
            raise Problem(
                500, "Authorization failed", f"authorize raised over {about}; see the log."
            ) from None

        if isinstance(answer, Grant):
            return answer
        if answer is True:
            return Grant()
        if answer is False:
            raise Problem(403, "Not allowed", f"The application does not allow: {about}.")

        _log.error(
            "authorize answered neither bool nor Grant", action=action, run=run, answer=type(answer).__name__
        )
        raise Problem(
            500, "Authorization failed", f"authorize gave no bool and no Grant for {about}; see the log."
        )

    async def may_administer(self, scope: Scope) -> bool:
        """Whether the inspector and what else is for the operator is shown: to this machine, to ``admin``, and to
        everybody where ``TOOLCAST_INSECURE`` shows everybody every run. Who may not gets a 404."""
        if self._settings.insecure and self.keyless:
            return True
        if self._why_not_local(scope) is None:
            return True
        return not self.keyless and await self._says_yes(scope, "admin", None)

    async def visible(self, scope: Scope, runs: Iterable[str]) -> Sequence[str]:
        """Return those of ``runs`` that the caller may see in a list, in order.

        Who may ``list`` sees all; who may not sees the runs it may ``subscribe`` to.
        """
        listed = list(runs)
        if await self._says_yes(scope, "list", None):
            return listed

        answers = await asyncio.gather(*(self._says_yes(scope, "subscribe", run) for run in listed))
        return [run for run, yes in zip(listed, answers, strict=True) if yes]

    def _why_not_local(self, scope: Scope) -> str | None:
        return why_not_local(scope, self._settings.cors_origins, claims_are_local=self._claims_are_local)

    async def _says_yes(self, scope: Scope, action: Action, run: str | None) -> bool:
        try:
            await self.check(scope, action, run)
        except Problem as refusal:
            if refusal.status in {401, 403} and not self.keyless:
                return False
            raise
        return True
