"""Middleware for ASGI: FastAPI, Starlette, Django and others."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Mapping, MutableMapping, Optional, Union

from . import _door
from ._async import AsyncClient
from ._calls import Value
from .errors import TollgateError

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The code of a WebSocket that is closed because of a policy.
_POLICY_VIOLATION = 1008


def peer(scope: Scope) -> Mapping[str, Value]:
    """The peer's address as ``ip``. Behind a proxy that is the proxy: let the server set it (``--proxy-headers``)."""
    client = scope.get("client")
    return {"ip": str(client[0])} if client else {}


class RateLimit:
    """Checks each request, and each WebSocket when it opens, before the application sees it.

    ``policy`` is a policy, or a function that returns one for a request, or None for no limit. ``fields`` returns the
    fields of a request. While tollgate cannot be asked, requests are allowed, unless ``on_outage`` is ``deny``.
    """

    def __init__(
        self,
        app: App,
        client: AsyncClient,
        policy: Union[str, Callable[[Scope], Optional[str]]],
        fields: Callable[[Scope], Mapping[str, Value]] = peer,
        on_outage: str = "allow",
    ) -> None:
        self._app = app
        self._client = client
        self._policy = policy
        self._fields = fields
        self._on_outage = _door.check_on_outage(on_outage)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        policy = None
        if scope["type"] in ("http", "websocket"):
            policy = self._policy if isinstance(self._policy, str) else self._policy(scope)
        if policy is None:
            return await self._app(scope, receive, send)
        headers: Mapping[str, str] = {}
        refused: Optional[_door.Refusal]
        try:
            decision = await self._client.check(policy, fields=self._fields(scope))
        except TollgateError as error:
            refused = _door.without_decision(error, self._on_outage)
        else:
            refused = None if decision.allowed else _door.refusal(decision)
            headers = decision.headers
        if refused is None:
            return await self._app(scope, receive, _with_headers(send, headers))
        if scope["type"] == "websocket":
            # The handshake is answered with 403.
            return await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        status, lines, body = refused
        raw = [(name.encode("ascii"), value.encode("latin-1")) for name, value in lines]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    added = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]

    async def send_on(event: Event) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": [*event.get("headers", ()), *added]}
        await send(event)

    return send_on
