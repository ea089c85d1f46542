"""A Flask application with limits: each request by address, and deals by user."""

import os

from flask import Flask, request
from flask.typing import ResponseReturnValue

from tollgate import Client, Denied
from tollgate.wsgi import RateLimit

client = Client(os.environ.get("TOLLGATE_URL", "http://127.0.0.1:8080"), token=os.environ.get("TOLLGATE_TOKEN"))
app = Flask(__name__)
# Every request, before Flask sees it.
app.wsgi_app = RateLimit(app.wsgi_app, client, policy="api")  # type: ignore[method-assign]


@app.errorhandler(Denied)
def too_many(denied: Denied) -> ResponseReturnValue:
    return {"detail": str(denied), "code": denied.decision.code}, 429, denied.decision.headers


@app.post("/deals")
@client.limit("deals", user=lambda: request.headers["X-User"])
def create_deal() -> ResponseReturnValue:
    return {"created": True}, 201
