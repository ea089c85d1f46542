"""The client of asyncio, against the real server. What it shares with the other is tested there."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Awaitable, Callable, Coroutine

import pytest

from conftest import PATIENCE, OneAnswer, Proxy, Server
from tollgate import AsyncClient, BadRequest, ConnectionFailed, ConnectionLost, Denied, HoldLost, TimedOut


def run(scene: Callable[[AsyncClient], Coroutine[Any, Any, None]], url: str, **settings: Any) -> None:
    async def whole() -> None:
        async with AsyncClient(url, **{"timeout": PATIENCE, **settings}) as client:
            await scene(client)

    asyncio.run(whole())


async def used(client: AsyncClient, policy: str, rule: str, user: str) -> int:
    free = await client.check(policy, cost=0, user=user)
    return next(one.capacity - one.remaining for one in free.rules if one.rule == rule)


def test_check_refund_and_errors(server: Server) -> None:
    async def scene(client: AsyncClient) -> None:
        decision = await client.check("api", ip="192.0.2.7")
        assert decision.allowed and decision.rules[0].remaining == 4
        assert await client.refund(decision) == "back"
        denied = await client.check("api", cost=6, ip="192.0.2.7")
        assert not denied.allowed and denied.denied_by == "ip"
        with pytest.raises(BadRequest, match="nosuch"):
            await client.check("nosuch", ip="192.0.2.7")

    run(scene, server.url)


def test_many_tasks_share_a_client_and_its_connections(proxy: Proxy) -> None:
    async def scene(client: AsyncClient) -> None:
        answers = await asyncio.gather(*(client.check("work", id=str(n), user=str(n)) for n in range(20)))
        assert all(answer.rules[0].key == str(n) for n, answer in enumerate(answers))
        opened = proxy.accepted
        for _ in range(5):
            await client.check("api", ip="192.0.2.7")
        assert proxy.accepted == opened

    run(scene, proxy.url)


def test_a_client_outlives_an_event_loop(server: Server) -> None:
    client = AsyncClient(server.url, timeout=PATIENCE)

    async def once() -> int:
        remaining = (await client.check("api", ip="192.0.2.7")).rules[0].remaining
        await client.close()
        return remaining

    assert [asyncio.run(once()), asyncio.run(once())] == [4, 3]


def test_a_lost_check_is_not_repeated_and_a_lost_hold_is(proxy: Proxy) -> None:
    async def scene(client: AsyncClient) -> None:
        proxy.lose = 1
        with pytest.raises(ConnectionLost):
            await client.check("api", ip="192.0.2.7")
        assert (await client.check("api", cost=0, ip="192.0.2.7")).rules[0].remaining == 4
        proxy.lose = 1
        hold = await client.hold("deals.create", id="d1", user="ada")
        assert hold.decision.repeated and await used(client, "deals.create", "deals", "ada") == 1
        await hold.release()
        assert await used(client, "deals.create", "deals", "ada") == 0

    run(scene, proxy.url)


def test_no_server_and_no_answer(serve: Callable[..., Server], answering: Callable[..., OneAnswer]) -> None:
    never = threading.Event()
    silent = answering(b"", hold_back=never)

    async def late(client: AsyncClient) -> None:
        with pytest.raises(TimedOut):
            await client.check("api", ip="192.0.2.7")

    run(late, silent.url, timeout=0.2)
    never.set()

    server = serve()

    async def gone(client: AsyncClient) -> None:
        server.stop()
        with pytest.raises(ConnectionFailed):
            await client.check("api", ip="192.0.2.7")

    run(gone, server.url)


def test_a_cancelled_call_leaves_no_answer_to_the_next(server: Server) -> None:
    async def scene(client: AsyncClient) -> None:
        await client.pause("paced", 30, api="c1")
        waiting = asyncio.ensure_future(client.acquire("paced", api="c1"))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await client.check("api", ip="192.0.2.7")).rules[0].rule == "ip"

    run(scene, server.url)


def test_acquire_waits_and_tells_when_it_is_too_long(server: Server) -> None:
    async def scene(client: AsyncClient) -> None:
        turns = await asyncio.gather(*(client.acquire("paced", api="a") for _ in range(3)))
        assert all(turn.allowed for turn in turns) and max(turn.waited for turn in turns) > 0
        await client.pause("paced", 120, api="c2")
        with pytest.raises(Denied):
            await client.acquire("paced", max_wait=0.1, api="c2")

    run(scene, server.url)


def test_a_hold_is_renewed_in_its_block_and_released_at_its_end(server: Server) -> None:
    async def scene(client: AsyncClient) -> None:
        async with client.hold("short", user="ada"):
            first = held = server.get("GET", "/api/v1/holds/brief/ada")["holds"]
            while held == first:
                await asyncio.sleep(0.1)
                held = server.get("GET", "/api/v1/holds/brief/ada")["holds"]
            assert held and held[0]["expires"] > first[0]["expires"]
        assert await used(client, "short", "brief", "ada") == 0

    run(scene, server.url)


def test_a_hold_that_ended_earlier_is_reported_and_a_cancelled_one_is_released(server: Server) -> None:
    async def scene(client: AsyncClient) -> None:
        with pytest.raises(HoldLost):
            async with client.hold("short", id="a", user="ada") as hold:
                await client.release("brief", "ada", "a")
                while not hold.lost:
                    await asyncio.sleep(0.02)

        async def forever() -> None:
            async with client.hold("work", user="bob"):
                await asyncio.sleep(60)

        task = asyncio.ensure_future(forever())
        while await used(client, "work", "slots", "bob") == 0:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await used(client, "work", "slots", "bob") == 0

    run(scene, server.url)


def test_a_hold_that_is_cancelled_while_it_is_taken_is_given_back(proxy: Proxy) -> None:
    async def scene(client: AsyncClient) -> None:
        proxy.delay.clear()
        task = asyncio.ensure_future(_hold(client))
        # The server has given the place, and its answer is on the way.
        while proxy.held_back == 0:
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0.05)
        proxy.delay.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await used(client, "work", "slots", "eve") == 0
        assert await used(client, "work", "user", "eve") == 0

    async def _hold(client: AsyncClient) -> None:
        async with client.hold("work", user="eve"):
            raise AssertionError("it is cancelled before")

    run(scene, proxy.url)


def test_logins_and_the_decorator(server: Server) -> None:
    async def scene(client: AsyncClient) -> None:
        attempt = await client.guards.begin("login", user="ada")
        assert await client.guards.finish(attempt, "success") == "now"

        @client.limit("api", ip=lambda address: address, refund_on=(KeyError,))
        async def serve(address: str) -> str:
            if address == "192.0.2.9":
                raise KeyError
            return address

        limited: Callable[[str], Awaitable[str]] = serve
        assert [await limited("192.0.2.7") for _ in range(5)] == ["192.0.2.7"] * 5
        with pytest.raises(Denied):
            await limited("192.0.2.7")
        for _ in range(7):
            with pytest.raises(KeyError):
                await limited("192.0.2.9")

    run(scene, server.url)
