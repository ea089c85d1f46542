"""Connections of threads: kept, reused, and never shared by two calls at a time."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from typing import List, Optional, Tuple

from . import errors
from ._http import Address, Malformed, Response, ResponseReader

#: A connection that was idle for longer is not used again. The server closes it after ten seconds.
IDLE = 5.0


class Pool:
    """The connections to one server."""

    def __init__(self, address: Address, context: Optional[ssl.SSLContext], size: int) -> None:
        self._address = address
        self._context = context
        self._size = size
        self._lock = threading.Lock()
        #: Each with the time since which it is idle; the latest is used first.
        self._idle: List[Tuple[socket.socket, float]] = []
        self._process = os.getpid()

    def send(self, request: bytes, timeout: float) -> Response:
        """Sends a request and reads its response, all within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        connection = self._reuse() or self._connect(deadline)
        try:
            response = _exchange(connection, request, deadline)
        except BaseException as error:
            # What is left on it belongs to this call.
            connection.close()
            if isinstance(error, (TimeoutError, socket.timeout)):
                raise errors.TimedOut(f"tollgate did not answer within {timeout:g} s") from None
            if isinstance(error, (OSError, Malformed)):
                raise errors.ConnectionLost(f"the answer of tollgate was lost: {error}") from error
            raise
        if response.reusable:
            self._keep(connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        """Closes all idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def __del__(self) -> None:
        for connection, _ in self._idle:
            connection.close()

    def _reuse(self) -> Optional[socket.socket]:
        if self._process != os.getpid():
            # A child of fork must not write to its parent's connections.
            self._process = os.getpid()
            self._lock = threading.Lock()
            self.close()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < IDLE and _is_open(connection):
                return connection
            connection.close()

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._idle) < self._size:
                self._idle.append((connection, time.monotonic()))
                return
        connection.close()

    def _connect(self, deadline: float) -> socket.socket:
        address = self._address
        try:
            connection = socket.create_connection((address.host, address.port), _left(deadline))
        except OSError as error:
            raise errors.ConnectionFailed(f"tollgate at {address.authority} cannot be reached: {error}") from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection.settimeout(_left(deadline))
                connection = self._context.wrap_socket(connection, server_hostname=address.host)
        except OSError as error:
            connection.close()
            raise errors.ConnectionFailed(f"no TLS with tollgate at {address.authority}: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection


def _exchange(connection: socket.socket, request: bytes, deadline: float) -> Response:
    connection.settimeout(_left(deadline))
    connection.sendall(request)
    reader = ResponseReader()
    while True:
        data = connection.recv(65536)
        response = reader.feed(data)
        if response is not None:
            return response
        connection.settimeout(_left(deadline))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _is_open(connection: socket.socket) -> bool:
    """Whether the server has neither closed an idle connection nor written to it."""
    try:
        connection.settimeout(0)
        # The socket below TLS: any bytes there belong to no request.
        socket.socket.recv(connection, 1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
