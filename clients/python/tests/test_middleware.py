"""The middlewares, and the examples of Flask and FastAPI on real web servers."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from conftest import PATIENCE, Server
from tollgate import AsyncClient, BadRequest, Client
from tollgate import asgi, wsgi

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CONFIG = """
rules:
  ip: { by: ip, limits: 5/hour }
  deals: { by: user, code: MAX_DEALS, limits: 1/hour }
policies:
  api: [ip]
  deals: [deals]
"""
Answer = Tuple[int, Dict[str, str], Any]


def ask(port: int, method: str, path: str, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    kind = response.getheader("content-type", "")
    return response.status, {n.lower(): v for n, v in response.getheaders()}, json.loads(body) if "json" in kind else body


@pytest.fixture(params=["flask", "fastapi"])
def application(request: pytest.FixtureRequest, serve: Callable[..., Server]) -> Iterator[Tuple[int, Server]]:
    """The port of an example application, and its tollgate."""
    server = serve(CONFIG)
    flask = ["-m", "flask", "--app", "flask_app", "run", "--port", "0"]
    fastapi = ["-m", "uvicorn", "fastapi_app:app", "--port", "0"]
    arguments = [sys.executable, *(flask if request.param == "flask" else fastapi)]
    variables = {**os.environ, "TOLLGATE_URL": server.url, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        arguments, cwd=EXAMPLES, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    said: List[str] = []
    found = None
    for line in process.stdout:
        said.append(line)
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found:
            break
    try:
        assert found, "".join(said)
        yield int(found[1]), server
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_examples_limit_requests_and_functions(application: Tuple[int, Server]) -> None:
    port, server = application
    status, headers, body = ask(port, "POST", "/deals", **{"X-User": "ada"})
    assert (status, body) == (201, {"created": True})
    assert headers["x-ratelimit-limit"] == "5" and headers["x-ratelimit-remaining"] == "4"
    # The function's own limit, and its code.
    status, headers, body = ask(port, "POST", "/deals", **{"X-User": "ada"})
    assert (status, body["code"]) == (429, "MAX_DEALS") and int(headers["retry-after"]) > 3500
    assert ask(port, "POST", "/deals", **{"X-User": "bob"})[0] == 201
    assert [ask(port, "GET", "/nothing")[0] for _ in range(3)] == [404, 404, 429]
    status, headers, body = ask(port, "GET", "/nothing")
    assert headers["content-type"] == "application/problem+json" and "retry-after" in headers
    assert body["type"] == "/problems/rate-limit-exceeded" and "rules" not in body
    # Without tollgate the middleware lets requests pass, and the function raises.
    server.stop()
    assert ask(port, "GET", "/nothing")[0] == 404
    assert ask(port, "POST", "/deals", **{"X-User": "eve"})[0] == 500


def call_wsgi(app: Any) -> Tuple[str, Dict[str, str]]:
    found: List[Tuple[str, Dict[str, str]]] = []

    def start(status: str, headers: List[Tuple[str, str]], info: Any = None) -> Callable[[bytes], object]:
        found.append((status, dict(headers)))
        return lambda data: None

    list(app({"REMOTE_ADDR": "192.0.2.7", "PATH_INFO": "/a"}, start))
    return found[0]


def plain(environ: Any, start: Any) -> List[bytes]:
    start("200 OK", [])
    return [b"ok"]


def test_an_outage_denies_if_the_application_says_so(serve: Callable[..., Server]) -> None:
    server = serve()
    client = Client(server.url, retries=0)
    server.stop()
    allowing, denying = wsgi.RateLimit(plain, client, "api"), wsgi.RateLimit(plain, client, "api", on_outage="deny")
    assert call_wsgi(allowing)[0] == "200 OK"
    status, headers = call_wsgi(denying)
    assert status == "503 Service Unavailable" and headers["retry-after"] == "1"
    with pytest.raises(ValueError, match="on_outage"):
        wsgi.RateLimit(plain, client, "api", on_outage="perhaps")


def test_a_mistake_is_not_an_outage(server: Server) -> None:
    with pytest.raises(BadRequest):
        call_wsgi(wsgi.RateLimit(plain, Client(server.url, timeout=PATIENCE), "nosuch"))


def test_policies_and_fields_can_depend_on_the_request(server: Server) -> None:
    client = Client(server.url, timeout=PATIENCE)
    none = wsgi.RateLimit(plain, client, lambda environ: None)
    assert call_wsgi(none) == ("200 OK", {})
    by_path = wsgi.RateLimit(plain, client, lambda environ: "work", lambda environ: {"user": str(environ["PATH_INFO"])})
    assert call_wsgi(by_path)[1]["x-ratelimit-remaining"] == "1"


def test_websockets_are_limited_when_they_open(server: Server) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    async def scene() -> List[str]:
        sent: List[str] = []

        async def send(event: Any) -> None:
            sent.append(event["type"])

        async def receive() -> Any:
            raise AssertionError("nothing is received")

        async with AsyncClient(server.url, timeout=PATIENCE) as client:
            limited = asgi.RateLimit(app, client, "api")
            for _ in range(6):
                await limited({"type": "websocket", "client": ("192.0.2.7", 1)}, receive, send)
            await limited({"type": "lifespan"}, receive, send)
        return sent

    assert asyncio.run(scene()) == ["websocket.accept"] * 5 + ["websocket.close", "websocket.accept"]
