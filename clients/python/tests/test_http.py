"""The reader of responses: any split of the bytes gives the same, and nothing malformed passes."""

from __future__ import annotations

from typing import List, Optional

import pytest

from tollgate._http import Address, Head, Malformed, Response, ResponseReader

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b \r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
CLOSED = b"HTTP/1.0 200 OK\r\n\r\nhello"


def read(pieces: List[bytes]) -> Optional[Response]:
    reader = ResponseReader()
    for piece in pieces:
        response = reader.feed(piece)
        if response is not None:
            return response
    return None


@pytest.mark.parametrize("whole", [PLAIN, CHUNKED, CONTINUED])
def test_every_split_gives_the_same_response(whole: bytes) -> None:
    for cut in range(1, len(whole)):
        response = read([whole[:cut], whole[cut:]])
        assert response is not None and response.status == 200 and response.body == b"hello" and response.reusable
    single = read([bytes([byte]) for byte in whole])
    assert single is not None and single.body == b"hello"


def test_a_response_without_a_length_ends_with_the_connection() -> None:
    assert read([CLOSED]) is None
    response = read([CLOSED, b""])
    assert response is not None and response.body == b"hello" and not response.reusable


@pytest.mark.parametrize("end", [b"Connection: close\r\n", b"connection: Close\r\n"])
def test_a_connection_that_closes_is_not_reused(end: bytes) -> None:
    response = read([PLAIN.replace(b"X-A", end + b"X-A")])
    assert response is not None and not response.reusable


def test_bytes_after_the_response_spoil_the_connection() -> None:
    response = read([PLAIN + b"HTTP/1.1 200 OK\r\n"])
    assert response is not None and response.body == b"hello" and not response.reusable


@pytest.mark.parametrize(
    "bad",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
        pytest.param(b"x" * 70_000, id="long"),
    ],
)
def test_what_is_malformed_is_refused(bad: bytes) -> None:
    with pytest.raises(Malformed):
        read([bad])


@pytest.mark.parametrize("cut", [b"", PLAIN[:20], PLAIN[:-1], CHUNKED[:-1]])
def test_a_response_that_breaks_off_is_refused(cut: bytes) -> None:
    with pytest.raises(Malformed, match="ended"):
        read([cut, b""] if cut else [b""])


def test_a_header_cannot_add_lines() -> None:
    head = Head(Address.parse("http://[::1]:8080/base/"), "t", "agent")
    text = head.encode("GET", "/x", None, {"A": "b"})
    assert text.startswith(b"GET /base/x HTTP/1.1\r\nHost: [::1]:8080\r\n") and text.endswith(b"A: b\r\n\r\n")
    with pytest.raises(ValueError, match="A"):
        head.encode("GET", "/x", None, {"A": "b\r\nC: d"})
