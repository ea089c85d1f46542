"""Connections of asyncio: kept, reused, and never shared by two calls at a time."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import List, NamedTuple, Optional

from . import errors
from ._http import Address, Malformed, Response, ResponseReader
from ._pool import IDLE


class _Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    loop: asyncio.AbstractEventLoop
    #: The time since which it is idle.
    since: float


class Streams:
    """The connections to one server."""

    def __init__(self, address: Address, context: Optional[ssl.SSLContext], size: int) -> None:
        self._address = address
        self._context = context
        self._size = size
        #: The latest is used first.
        self._idle: List[_Stream] = []

    async def send(self, request: bytes, timeout: float) -> Response:
        """Sends a request and reads its response, all within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        stream = self._reuse() or await self._connect(timeout)
        try:
            response = await asyncio.wait_for(_exchange(stream, request), deadline - time.monotonic())
        except BaseException as error:
            # What is left on it belongs to this call.
            stream.writer.transport.abort()
            if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
                raise errors.TimedOut(f"tollgate did not answer within {timeout:g} s") from None
            if isinstance(error, (OSError, Malformed)):
                raise errors.ConnectionLost(f"the answer of tollgate was lost: {error}") from error
            raise
        if response.reusable and len(self._idle) < self._size:
            self._idle.append(stream._replace(since=time.monotonic()))
        else:
            stream.writer.close()
        return response

    async def close(self) -> None:
        """Closes all idle connections."""
        idle, self._idle = self._idle, []
        loop = asyncio.get_running_loop()
        for stream in idle:
            if stream.loop is loop:
                stream.writer.close()
                try:
                    await stream.writer.wait_closed()
                except OSError:
                    # It is closed, no matter which side closed it first.
                    pass

    def _reuse(self) -> Optional[_Stream]:
        loop = asyncio.get_running_loop()
        while self._idle:
            stream = self._idle.pop()
            if stream.loop is not loop:
                # Its loop has ended, or is another thread's.
                continue
            fresh = time.monotonic() - stream.since < IDLE
            if fresh and not stream.writer.is_closing() and not stream.reader.at_eof():
                return stream
            stream.writer.close()
        return None

    async def _connect(self, timeout: float) -> _Stream:
        address = self._address
        name = address.host if self._context is not None else None
        opening = asyncio.open_connection(address.host, address.port, ssl=self._context, server_hostname=name)
        try:
            reader, writer = await asyncio.wait_for(opening, timeout)
        except (OSError, asyncio.TimeoutError) as error:
            said = str(error) or "timed out"
            raise errors.ConnectionFailed(f"tollgate at {address.authority} cannot be reached: {said}") from error
        return _Stream(reader, writer, asyncio.get_running_loop(), 0.0)


async def _exchange(stream: _Stream, request: bytes) -> Response:
    stream.writer.write(request)
    await stream.writer.drain()
    reader = ResponseReader()
    while True:
        response = reader.feed(await stream.reader.read(65536))
        if response is not None:
            return response
