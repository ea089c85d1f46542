"""The client of threads, against the real server."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

import pytest

from conftest import CONFIG, PATIENCE, OneAnswer, Proxy, Server
from tollgate import (
    ApiError,
    BadRequest,
    Client,
    ConnectionFailed,
    ConnectionLost,
    Denied,
    HoldLost,
    NotFound,
    TimedOut,
    Unauthorized,
    Unavailable,
)


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.url, timeout=PATIENCE)


def held(client: Client, rule: str, key: str) -> int:
    """How many places are held, as the server counts."""
    free = client.check({"slots": "work", "deals": "deals.create", "brief": "short"}[rule], cost=0, user=key)
    return next(one.capacity - one.remaining for one in free.rules if one.rule == rule)


def test_check_tells_what_is_left_and_when_to_retry(client: Client) -> None:
    first = client.check("api", ip="192.0.2.7")
    assert first.allowed and first
    assert (first.rules[0].rule, first.rules[0].key, first.rules[0].remaining) == ("ip", "192.0.2.7", 4)
    assert first.rules[0].limits[0].limit == "5/hour"
    assert first.retry_after is None and first.receipt
    assert first.headers["x-ratelimit-remaining"] == "4"
    denied = client.check("api", cost=5, ip="192.0.2.7")
    assert not denied.allowed and not denied
    assert (denied.status, denied.verdict, denied.denied_by, denied.denied_key) == (429, "deny", "ip", "192.0.2.7")
    assert denied.retry_after is not None and 3590 < denied.retry_after <= 3600
    assert "retry-after" in denied.headers and denied.receipt is None


def test_dry_runs_and_cost_zero_charge_nothing(client: Client) -> None:
    assert client.check("api", dry_run=True, ip="192.0.2.7").allowed
    assert client.check("api", cost=0, ip="192.0.2.7").rules[0].remaining == 5


def test_fields_with_the_names_of_arguments_go_into_the_mapping(client: Client) -> None:
    assert client.check("named", fields={"id": "x", "cost": 7}).rules[0].key == "x,7"


def test_refund_works_once_and_knows_what_charged_nothing(client: Client) -> None:
    decision = client.check("api", ip="192.0.2.7")
    assert client.refund(decision) == "back"
    assert decision.receipt is not None and client.refund(decision.receipt) == "already"
    assert client.check("api", cost=0, ip="192.0.2.7").rules[0].remaining == 5
    assert client.refund(client.check("api", dry_run=True, ip="192.0.2.7")) == "nothing"


def test_refund_of_a_part(client: Client) -> None:
    decision = client.check("mail", user="ada", recipients=6)
    assert client.refund(decision, counts={"recipients": 4}) == "back"
    assert client.check("mail", dry_run=True, user="ada", recipients=8).allowed
    assert not client.check("mail", dry_run=True, user="ada", recipients=9).allowed


def test_mistakes_are_errors_with_the_explanation(client: Client) -> None:
    with pytest.raises(BadRequest, match="nosuch") as caught:
        client.check("nosuch", ip="192.0.2.7")
    assert caught.value.status == 400 and caught.value.correlation_id
    with pytest.raises(NotFound):
        client.release("nosuch", "a", "b")


def test_a_wrong_token_is_refused_and_the_right_one_is_not(serve: Callable[..., Server]) -> None:
    keys = "keys: [{ name: a, role: check, token_env: CHECK }]\n"
    server = serve(keys + CONFIG, CHECK="a-token-of-a-checker")
    assert Client(server.url, token="a-token-of-a-checker", timeout=PATIENCE).check("api", ip="192.0.2.7").allowed
    for token in (None, "another-token-of-anybody"):
        with pytest.raises(Unauthorized):
            Client(server.url, token=token, timeout=PATIENCE).check("api", ip="192.0.2.7")


@pytest.mark.parametrize("token", ["a\r\nX-Injected: 1", "a\nb", "ключ", "a\0b"])
def test_a_token_cannot_add_lines_to_a_request(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        Client("http://127.0.0.1:1", token=token)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://a", "http://", "http://u:p@a", "http://a/?b", "http://a/\r\nX"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="the address of tollgate|Port"):
        Client(url)


def test_odd_keys_and_ids_reach_the_server_unchanged(client: Client) -> None:
    key = 'a/b c?d=é%2F&"\\'
    hold = client.hold("work", id="i/j?k", user=key)
    assert hold.decision.rules[1].key == key
    assert held(client, "slots", key) == 1
    hold.release()
    assert held(client, "slots", key) == 0


def test_one_connection_is_reused_and_one_that_the_server_closed_is_not(proxy: Proxy) -> None:
    client = Client(proxy.url, timeout=PATIENCE)
    for _ in range(3):
        client.check("api", ip="192.0.2.7")
    assert proxy.accepted == 1
    # The server closes the idle connection: the next call must notice before it sends.
    connection, _ = client._pool._idle[0]
    connection.shutdown(socket.SHUT_RDWR)
    assert client.check("api", ip="192.0.2.7").rules[0].remaining == 1
    assert proxy.accepted == 2


def test_many_threads_share_a_client(client: Client) -> None:
    with ThreadPoolExecutor(8) as threads:
        attempts = [threads.submit(client.check, "work", id=str(n), user=str(n)) for n in range(200)]
        answers = [attempt.result() for attempt in attempts]
    assert all(answer.allowed and answer.rules[0].key == str(n) for n, answer in enumerate(answers))
    assert len(client._pool._idle) <= 8


def test_a_check_whose_answer_is_lost_is_not_repeated(proxy: Proxy) -> None:
    client = Client(proxy.url, timeout=PATIENCE)
    proxy.lose = 1
    with pytest.raises(ConnectionLost):
        client.check("api", ip="192.0.2.7")
    assert client.check("api", cost=0, ip="192.0.2.7").rules[0].remaining == 4


def test_calls_that_carry_an_id_are_repeated_and_executed_once(proxy: Proxy) -> None:
    client = Client(proxy.url, timeout=PATIENCE)
    proxy.lose = 1
    hold = client.hold("deals.create", id="d1", user="ada")
    assert hold.decision.repeated and held(client, "deals", "ada") == 1
    decision = client.check("api", ip="192.0.2.7")
    proxy.lose = 1
    assert client.refund(decision) == "already"
    proxy.lose = 1
    hold.release()
    assert held(client, "deals", "ada") == 0
    attempt = client.guards.begin("login", user="ada")
    proxy.lose = 2
    assert client.guards.finish(attempt, "failure") == "already"
    proxy.lose = 3
    with pytest.raises(ConnectionLost):
        client.guards.finish(attempt, "failure")


def test_a_server_that_is_not_there_is_asked_again_and_then_given_up(serve: Callable[..., Server]) -> None:
    server = serve()
    client = Client(server.url, retries=2)
    server.stop()
    begun = time.monotonic()
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        client.check("api", ip="192.0.2.7")
    assert time.monotonic() - begun >= 0.15


def test_an_answer_that_does_not_come_in_time_is_given_up(answering: Callable[..., OneAnswer]) -> None:
    never = threading.Event()
    silent = answering(b"", hold_back=never)
    with pytest.raises(TimedOut, match="0.2 s"):
        Client(silent.url, timeout=0.2).check("api", ip="192.0.2.7")
    never.set()
    assert len(silent.requests) == 1


def test_the_time_that_the_server_states_is_waited_for(answering: Callable[..., OneAnswer]) -> None:
    busy = answering(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
    begun = time.monotonic()
    with pytest.raises(Exception, match="503"):
        Client(busy.url, retries=1).refund("r")
    assert len(busy.requests) == 2 and time.monotonic() - begun >= 1
    # Too long a time is not waited for, and a check is not repeated at all.
    with pytest.raises(Exception, match="503"):
        Client(busy.url, max_retry_wait=0.5).refund("r")
    with pytest.raises(Exception, match="503"):
        Client(busy.url).check("api", ip="192.0.2.7")
    assert len(busy.requests) == 4


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 100_000, b"<html>", b"\xff", b"[]"])
def test_an_answer_of_another_server_is_an_error_of_ours(answering: Callable[..., OneAnswer], body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with pytest.raises(ApiError, match="not that of tollgate"):
        Client(answering(head + body).url).check("api", ip="192.0.2.7")


def test_an_outage_is_not_a_denial(answering: Callable[..., OneAnswer]) -> None:
    body = b'{"allowed":false,"verdict":"deny","origin":"outage","error":"store unavailable"}'
    head = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    down = Client(answering(head % len(body) + body).url)
    decision = down.check("api", ip="192.0.2.7")
    assert (decision.allowed, decision.status, decision.origin) == (False, 503, "outage")
    with pytest.raises(Unavailable, match="store unavailable"):
        down.hold("work", user="ada")
    with pytest.raises(Unavailable):
        down.acquire("paced", api="a")


def test_acquire_waits_for_its_turn(client: Client) -> None:
    waited = [client.acquire("paced", api="a").waited for _ in range(3)]
    assert waited[0] == 0 and waited[2] > 0
    client.acquire("hourly", api="a")
    with pytest.raises(Denied) as caught:
        client.acquire("hourly", max_wait=0, api="a")
    assert caught.value.retry_after is not None and caught.value.decision.status == 429


def test_acquire_waits_at_the_client_where_the_server_does_not(client: Client) -> None:
    for _ in range(3):
        assert client.acquire("strict", max_wait=PATIENCE, api="a").allowed
    # Without a wait, and with a wait that is too short.
    client.acquire("api", cost=5, ip="192.0.2.7")
    for wait in (None, 1.0):
        with pytest.raises(Denied):
            client.acquire("api", max_wait=wait, ip="192.0.2.7")


def test_a_pause_of_the_upstream_is_reported(client: Client) -> None:
    client.pause("paced", 120, api="b")
    with pytest.raises(Denied) as caught:
        client.acquire("paced", max_wait=1, api="b")
    assert caught.value.retry_after is not None and caught.value.retry_after > 100
    assert client.acquire("paced", api="c").allowed


def test_a_hold_lasts_as_long_as_its_block(client: Client) -> None:
    with client.hold("work", user="ada") as hold:
        assert held(client, "slots", "ada") == 1 and hold.id
        with client.hold("work", user="ada"):
            with pytest.raises(Denied) as caught:
                client.hold("work", user="ada")
    assert caught.value.decision.denied_by == "slots"
    assert held(client, "slots", "ada") == 0


def test_a_hold_ends_with_an_error_in_its_block_and_charges_stay(client: Client) -> None:
    with pytest.raises(KeyError):
        with client.hold("deals.create", id="d1", user="ada"):
            raise KeyError
    assert held(client, "deals", "ada") == 0
    assert client.check("deals.create", cost=0, user="ada").rules[0].remaining == 99


def test_a_refunded_hold_gives_back_everything(client: Client) -> None:
    hold = client.hold("deals.create", id="d1", user="ada")
    hold.refund()
    hold.release()
    rules = client.check("deals.create", cost=0, user="ada").rules
    assert [one.remaining for one in rules] == [100, 2]


def test_a_hold_is_renewed_while_its_block_runs(client: Client, server: Server) -> None:
    with client.hold("short", id="a", user="ada"):
        first = held_now = server.get("GET", "/api/v1/holds/brief/ada")["holds"]
        while held_now == first:
            time.sleep(0.1)
            held_now = server.get("GET", "/api/v1/holds/brief/ada")["holds"]
        assert held_now and held_now[0]["expires"] > first[0]["expires"]


def test_a_hold_that_ended_earlier_is_reported(client: Client) -> None:
    with pytest.raises(HoldLost):
        with client.hold("short", id="a", user="ada") as hold:
            client.release("brief", "ada", "a")
            deadline = time.monotonic() + PATIENCE
            while not hold.lost and time.monotonic() < deadline:
                time.sleep(0.02)


def test_holds_are_reconciled_and_codes_are_told(client: Client) -> None:
    client.replace_holds("deals", "ada", ["d1", "d2"])
    with pytest.raises(Denied) as caught:
        client.hold("deals.create", id="d3", user="ada")
    assert (caught.value.decision.code, caught.value.decision.limit) == ("MAX_DEALS", 2)
    assert caught.value.retry_after is None


def test_a_hold_under_a_secret_key_is_ended_by_its_receipt(client: Client) -> None:
    hold = client.hold("secret", user="ada")
    assert hold.decision.rules[0].key.startswith("#")
    hold.release()
    client.hold("secret", user="ada").release()


def test_a_hold_under_a_secret_key_lasts_for_its_lease_and_is_lost_after_it(client: Client) -> None:
    # Longer than a renewal would take to come, and shorter than the lease.
    with client.hold("secret.leased", user="ada") as hold:
        assert hold.decision.rules[0].key.startswith("#")
        time.sleep(1.8)
    with pytest.raises(HoldLost):
        with client.hold("secret.leased", user="ada"):
            time.sleep(4.1)


def test_a_login_begins_and_is_finished_once(client: Client) -> None:
    attempt = client.guards.begin("login", user="ada")
    assert attempt.allowed and attempt.ticket and not attempt.captcha and attempt.delay == 0
    assert client.guards.finish(attempt, "failure") == "now"
    assert client.guards.finish(attempt, "failure") == "already"
    client.guards.finish(client.guards.begin("login", user="ada"), "failure")
    locked = client.guards.begin("login", user="ada")
    assert not locked.allowed and locked.locked_until and locked.retry_after is not None
    assert client.guards.finish(locked, "failure") == "nothing"
    with pytest.raises(BadRequest):
        client.guards.begin("login")


def test_a_decorated_function_is_limited(client: Client) -> None:
    @client.limit("api", ip=lambda address, **_: address)
    def serve(address: str, *, fails: bool = False) -> str:
        return address

    assert [serve("192.0.2.7") for _ in range(5)] == ["192.0.2.7"] * 5
    with pytest.raises(Denied):
        serve("192.0.2.7", fails=True)
    assert serve("192.0.2.8") == "192.0.2.8" and serve.__name__ == "serve"


def test_a_decorated_function_that_fails_is_refunded_if_it_says_so(client: Client) -> None:
    @client.limit("api", ip="192.0.2.7", refund_on=(KeyError,))
    def fail(error: Exception) -> None:
        raise error

    for error in (KeyError("a"), ValueError("b")):
        with pytest.raises(type(error)):
            fail(error)
    assert client.check("api", cost=0, ip="192.0.2.7").rules[0].remaining == 4
