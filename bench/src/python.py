"""Prints microseconds for each call, in rounds: bare `http.client`, the client, the client of asyncio."""

import asyncio
import http.client
import json
import sys
import time

from tollgate import AsyncClient, Client

ROUNDS, CALLS = 15, 1000
port = int(sys.argv[1])
bare = http.client.HTTPConnection("127.0.0.1", port)
client = Client(f"http://127.0.0.1:{port}")
tasks = AsyncClient(f"http://127.0.0.1:{port}")


def call_bare() -> None:
    for _ in range(CALLS):
        body = json.dumps({"policy": "api", "fields": {"user": "user-00000007"}})
        bare.request("POST", "/api/v1/check", body, {"Content-Type": "application/json"})
        response = bare.getresponse()
        assert json.loads(response.read())["allowed"]


def call_client() -> None:
    for _ in range(CALLS):
        assert client.check("api", user="user-00000007").allowed


async def call_tasks() -> None:
    for _ in range(CALLS):
        assert (await tasks.check("api", user="user-00000007")).allowed


def timed(begun: float) -> str:
    return f"{(time.perf_counter() - begun) / CALLS * 1e6:.1f}"


async def main() -> None:
    for _ in range(ROUNDS):
        times = []
        for call in (call_bare, call_client, call_tasks):
            begun = time.perf_counter()
            running = call()
            if running is not None:
                await running
            times.append(timed(begun))
        print(*times, flush=True)


asyncio.run(main())
