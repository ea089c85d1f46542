"""Middleware for WSGI: Flask, Django, Pyramid and others."""

from __future__ import annotations

from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Iterable, List, Mapping, Optional, Tuple, Type, Union

from . import _door
from ._calls import Value
from ._sync import Client
from .errors import TollgateError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_ExcInfo = Union[Tuple[Type[BaseException], BaseException, TracebackType], Tuple[None, None, None]]


def peer(environ: WSGIEnvironment) -> Mapping[str, Value]:
    """The peer's address as ``ip``. Behind a proxy that is the proxy: let the server, or werkzeug's ProxyFix, set it."""
    return {"ip": str(environ["REMOTE_ADDR"])}


class RateLimit:
    """Checks each request before the application sees it.

    ``policy`` is a policy, or a function that returns one for a request, or None for no limit. ``fields`` returns the
    fields of a request. While tollgate cannot be asked, requests are allowed, unless ``on_outage`` is ``deny``.
    """

    def __init__(
        self,
        app: WSGIApplication,
        client: Client,
        policy: Union[str, Callable[[WSGIEnvironment], Optional[str]]],
        fields: Callable[[WSGIEnvironment], Mapping[str, Value]] = peer,
        on_outage: str = "allow",
    ) -> None:
        self._app = app
        self._client = client
        self._policy = policy
        self._fields = fields
        self._on_outage = _door.check_on_outage(on_outage)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        policy = self._policy if isinstance(self._policy, str) else self._policy(environ)
        if policy is None:
            return self._app(environ, start_response)
        headers: List[Tuple[str, str]] = []
        refused: Optional[_door.Refusal]
        try:
            decision = self._client.check(policy, fields=self._fields(environ))
        except TollgateError as error:
            refused = _door.without_decision(error, self._on_outage)
        else:
            refused = None if decision.allowed else _door.refusal(decision)
            headers = list(decision.headers.items())
        if refused is not None:
            status, lines, body = refused
            start_response(f"{status} {HTTPStatus(status).phrase}", lines)
            return [body]

        def start(status: str, lines: List[Tuple[str, str]], info: Optional[_ExcInfo] = None) -> Callable[[bytes], object]:
            return start_response(status, [*lines, *headers], info)

        return self._app(environ, start)
