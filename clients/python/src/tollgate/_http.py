"""HTTP/1.1 without input and output: requests to bytes, bytes to a response.

Both clients use it, so there is one reader of responses. It refuses what it cannot read in exactly one way.
A library such as h11 would do more than is needed here, and would be this package's only dependency.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional
from urllib.parse import urlsplit

_MOST_HEAD = 64 * 1024
_MOST_BODY = 64 * 1024 * 1024


class Malformed(Exception):
    """The peer does not speak HTTP/1.1, or the response exceeds a bound."""


class Address(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    secure: bool
    #: The path before every target, without a final slash.
    base: str
    #: The value of the header ``Host``.
    authority: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Reads ``http://host:port/base`` or ``https://…``."""
        # Before it is split: that would drop line breaks.
        _check_visible(url, "the address of tollgate")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the address of tollgate must be like http://127.0.0.1:8080, not {url!r}")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("the address of tollgate must have no user, query or fragment: pass the token as `token`")
        secure = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if secure else 80), secure, parts.path.rstrip("/"), parts.netloc)


class Response(NamedTuple):
    """A whole response."""

    status: int
    #: By name in lower case.
    headers: Dict[str, str]
    body: bytes
    #: Whether the connection can be used again.
    reusable: bool


class Head:
    """The fixed part of every request to one server."""

    def __init__(self, address: Address, token: Optional[str], agent: str) -> None:
        lines = f" HTTP/1.1\r\nHost: {address.authority}\r\nUser-Agent: {agent}\r\nAccept: application/json\r\n"
        if token is not None:
            _check_visible(token, "the token")
            lines += f"Authorization: Bearer {token}\r\n"
        self._lines = lines.encode("ascii")
        self._base = address.base.encode("ascii")

    def encode(self, method: str, target: str, body: Optional[bytes], headers: Dict[str, str]) -> bytes:
        """A whole request. ``target`` is already percent-encoded."""
        more = ""
        for name, value in headers.items():
            _check_visible(value, f"the header {name}")
            more += f"{name}: {value}\r\n"
        if body is not None:
            more += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return b"%s %s%s%s%s\r\n%s" % (
            method.encode("ascii"), self._base, target.encode("ascii"), self._lines, more.encode("ascii"), body or b"",
        )  # fmt: skip


class ResponseReader:
    """Collects the bytes of one response."""

    __slots__ = ("_bytes", "_status", "_headers", "_body_at", "_length", "_chunks")

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._status = 0
        self._headers: Dict[str, str] = {}
        self._body_at = 0
        #: The length of the body; None if it ends with the connection.
        self._length: Optional[int] = None
        self._chunks: Optional[bytearray] = None

    def feed(self, data: bytes) -> Optional[Response]:
        """Takes what the connection brought, b"" for its end. Returns the response when it is complete."""
        self._bytes += data
        while self._status < 200:
            if not self._read_head():
                if not data:
                    raise Malformed("the connection ended before the response")
                return None
        if self._chunks is not None:
            done = self._read_chunks()
        elif self._length is None:
            done = not data
        else:
            done = len(self._bytes) - self._body_at >= self._length
        if len(self._bytes) - self._body_at > _MOST_BODY:
            raise Malformed("the response is too long")
        if done:
            return self._whole()
        if not data:
            raise Malformed("the connection ended within the response")
        return None

    def _whole(self) -> Response:
        body = bytes(self._bytes[self._body_at :] if self._chunks is None else self._chunks)
        # Bytes after the response belong to no request of ours.
        exact = self._chunks is not None or self._length == len(body)
        if self._length is not None:
            body = body[: self._length]
        reusable = exact and self._headers.get("connection", "").lower() != "close"
        return Response(self._status, self._headers, body, reusable)

    def _read_head(self) -> bool:
        end = self._bytes.find(b"\r\n\r\n")
        if end < 0:
            if len(self._bytes) > _MOST_HEAD:
                raise Malformed("the head of the response is too long")
            return False
        first, *lines = self._bytes[:end].decode("latin-1").split("\r\n")
        if not (first.startswith("HTTP/1.1 ") or first.startswith("HTTP/1.0 ")) or not _is_number(first[9:12]):
            raise Malformed("the peer does not speak HTTP/1.1")
        self._status = int(first[9:12])
        self._headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise Malformed("a header line of the response is malformed")
            name, value = name.lower(), value.strip()
            if name == "content-length" and self._headers.get(name, value) != value:
                raise Malformed("the response has two lengths")
            self._headers[name] = value
        if first.startswith("HTTP/1.0"):
            self._headers["connection"] = "close"
        self._body_at = end + 4
        if self._status < 200:
            del self._bytes[: self._body_at]
        else:
            self._measure()
        return True

    def _measure(self) -> None:
        coding, length = self._headers.get("transfer-encoding"), self._headers.get("content-length")
        if self._status in (204, 304):
            self._length = 0
        elif coding is not None:
            if coding.lower() != "chunked":
                raise Malformed(f"the transfer coding {coding!r} is unknown")
            self._chunks = bytearray()
        elif length is not None:
            if not _is_number(length) or int(length) > _MOST_BODY:
                raise Malformed("the length of the response is malformed or too large")
            self._length = int(length)

    def _read_chunks(self) -> bool:
        assert self._chunks is not None
        while True:
            end = self._bytes.find(b"\r\n", self._body_at)
            if end < 0:
                return False
            digits = bytes(self._bytes[self._body_at : end]).split(b";")[0].strip()
            if not digits or digits.strip(b"0123456789abcdefABCDEF"):
                raise Malformed("a chunk of the response is malformed")
            size = int(digits, 16)
            if len(self._chunks) + size > _MOST_BODY:
                raise Malformed("the response is too long")
            # A last chunk is followed by trailers and an empty line.
            after = self._bytes.find(b"\r\n\r\n", end) + 4 if size == 0 else end + 2 + size + 2
            if after < 4 or len(self._bytes) < after:
                return False
            self._chunks += self._bytes[end + 2 : end + 2 + size]
            self._body_at = after
            if size == 0:
                return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _check_visible(text: str, what: str) -> None:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"{what} must consist of visible ASCII characters")
