"""The real program, started for a test on a free port, and a proxy that can lose and delay answers."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: A time-out, in seconds, that a busy machine does not reach.
PATIENCE = 60.0
PROGRAM = Path(os.environ.get("TOLLGATE_PROGRAM", ROOT / "target/debug/tollgate"))

CONFIG = """
rules:
  ip: { by: ip, limits: 5/hour }
  user: { by: user, limits: 100/min, on_exceed: wait 1m }
  slots: { by: user, limits: 2 at once for 30s }
  brief: { by: user, limits: 1 at once for 6s }
  deals: { code: MAX_DEALS, by: user, limits: 2 at once }
  pace: { by: api, limits: 20/s burst 1, on_exceed: wait 1m }
  hourly: { by: api, limits: 1/hour burst 1, on_exceed: wait 1m }
  strict: { by: api, limits: 10/s burst 1 }
  recipients: { by: user, count: recipients, limits: 10/hour }
  quiet: { by: user, limits: 1 at once, secret: true }
  quiet_leased: { by: user, limits: 1 at once for 4s, secret: true }
  named: { by: [id, cost], limits: 5/hour }
policies:
  api: [ip]
  work: [user, slots]
  short: [brief]
  deals.create: [user, deals]
  paced: [pace]
  hourly: [hourly]
  strict: [strict]
  mail: [recipients]
  secret: [quiet]
  secret.leased: [quiet_leased]
  named: [named]
guards:
  login: { by: user, ladder: ladder 2 lock 15m }
"""


class Server:
    """A running ``tollgate serve``."""

    def __init__(self, directory: Path, config: str, **environment: str) -> None:
        file = directory / "tollgate.yaml"
        file.write_text(config)
        variables = {"TOLLGATE__LISTEN__HTTP": "127.0.0.1:0", "TOLLGATE__STORE": "memory", **environment}
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(
            [str(PROGRAM), "serve", str(file)], env=variables, cwd=directory, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self._process.stdout is not None
        lines = (line.decode() for line in self._process.stdout)
        first = next((line for line in lines if line.startswith("tollgate ")), None)
        assert first is not None, (directory / "log").read_text()
        self.url = "http://" + first.strip().rsplit("http://", 1)[1]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def get(self, method: str, path: str) -> Any:
        """An answer of the API, asked for without the client."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        assert response.status == 200, text
        return json.loads(text)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers and stops them."""
    started: List[Server] = []

    def start(config: str = CONFIG, **environment: str) -> Server:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Server(directory, config, **environment))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("shared"), CONFIG)
    yield server
    server.stop()


@pytest.fixture
def server(shared: Server) -> Server:
    """A server without counts. Tests that stop theirs start one with ``serve``."""
    shared.get("DELETE", "/api/v1/counters")
    return shared


class Proxy:
    """Forwards to a server. It cuts as many answers as it is told, after the server has sent them, or holds them back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = False
        #: How many answers are still to be lost.
        self.lose = 0
        #: Cleared while answers are held back, and how many are.
        self.delay = threading.Event()
        self.delay.set()
        self.held_back = 0
        #: How many connections were accepted.
        self.accepted = 0
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while True:
                request = client.recv(65536)
                if not request:
                    return
                server.sendall(request)
                answer = server.recv(65536)
                if not self.delay.is_set():
                    self.held_back += 1
                    self.delay.wait(PATIENCE)
                if self.lose > 0:
                    self.lose -= 1
                    return
                client.sendall(answer)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


class OneAnswer:
    """A server that sends the same bytes to every request, and keeps what it got."""

    def __init__(self, answer: bytes, *, hold_back: Optional[threading.Event] = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answer = answer
        self._hold_back = hold_back
        self.requests: List[bytes] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self.requests.append(client.recv(65536))
                if self._hold_back is not None:
                    self._hold_back.wait(10)
                client.sendall(self._answer)


@pytest.fixture
def answering() -> Iterator[Callable[..., OneAnswer]]:
    started: List[OneAnswer] = []

    def start(answer: bytes, hold_back: Optional[threading.Event] = None) -> OneAnswer:
        started.append(OneAnswer(answer, hold_back=hold_back))
        return started[-1]

    yield start
    for one in started:
        one.close()
