"""A FastAPI application with limits: each request by address, and deals by user."""

import os
from typing import Annotated

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse

from tollgate import AsyncClient, Denied
from tollgate.asgi import RateLimit

client = AsyncClient(os.environ.get("TOLLGATE_URL", "http://127.0.0.1:8080"), token=os.environ.get("TOLLGATE_TOKEN"))
app = FastAPI()
# Every request and every WebSocket, before FastAPI sees it.
app.add_middleware(RateLimit, client=client, policy="api")


@app.exception_handler(Denied)
async def too_many(request: Request, denied: Denied) -> JSONResponse:
    body = {"detail": str(denied), "code": denied.decision.code}
    return JSONResponse(body, 429, headers=denied.decision.headers)


@app.post("/deals", status_code=201)
@client.limit("deals", user=lambda x_user: x_user)
async def create_deal(x_user: Annotated[str, Header()]) -> dict[str, bool]:
    return {"created": True}
