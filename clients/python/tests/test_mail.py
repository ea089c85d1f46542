"""Accounts and messages of the relay, against the real server."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Callable

import pytest

from conftest import PATIENCE, Proxy, Server
from tollgate import AsyncClient, Attachment, Client, Conflict, Denied, NotFound

CONFIG = """
keys: [{ name: ops, role: admin, token_env: ADMIN }]
rules:
  sender: { by: sender, limits: 3/hour }
policies:
  mail.accept: [sender]
relay:
  hostname: relay.example
  listen: [{ smtp: 127.0.0.1:0 }]
  queue: { dir: ./queue, min_free: 1KiB }
  accept: mail.accept
  secret_env: SECRET
"""
TOKEN = "a-token-of-the-admin"


@pytest.fixture
def relay(serve: Callable[..., Server]) -> Server:
    return serve(CONFIG, ADMIN=TOKEN, SECRET="a-secret-that-all-nodes-know")


def test_an_account_is_created_with_the_arguments_of_genro_mail_proxy(relay: Server) -> None:
    client = Client(relay.url, token=TOKEN, timeout=PATIENCE)
    account = client.accounts.create(
        id="primary-smtp",
        tenant_id="acme",
        host="smtp.example.com",
        port=587,
        user="sender@example.com",
        password="secret",
        use_tls=True,
        limit_per_minute=10,
        limit_per_hour=100,
        limit_per_day=1000,
    )
    assert (account.id, account.tenant, account.host, account.port) == ("primary-smtp", "acme", "smtp.example.com", 587)
    assert account.limits == ("10/min sliding", "100/hour sliding", "1000/day sliding") and account.usable
    assert "secret" not in str(account)
    with pytest.raises(Conflict):
        client.accounts.create(id="primary-smtp", tenant_id="acme", host="smtp.example.com")
    assert [one.id for one in client.accounts.list(tenant="acme").accounts] == ["primary-smtp"]
    client.accounts.remove("acme", "primary-smtp")
    with pytest.raises(NotFound):
        client.accounts.show("acme", "primary-smtp")


def silent_mail_server() -> socket.socket:
    """Takes connections and never greets, so that messages stay in the queue."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []

    def accept() -> None:
        while True:
            try:
                kept.append(listener.accept())
            except OSError:
                for connection, _ in kept:
                    connection.close()
                return

    threading.Thread(target=accept, daemon=True).start()
    return listener


def test_a_message_is_sent_once_however_often_its_answer_is_lost(relay: Server) -> None:
    proxy, target = Proxy(relay.port), silent_mail_server()
    client = Client(proxy.url, token=TOKEN, timeout=PATIENCE)
    client.accounts.create(id="a", tenant_id="acme", host="127.0.0.1", port=target.getsockname()[1], tls="none")
    proxy.lose = 2
    id = client.messages.send(
        sender="Ada <ada@acme.example>",
        to=["bob@there.example"],
        subject="Hello",
        text="Hi",
        tenant="acme",
        headers={"Reply-To": "ada@acme.example"},
        attachments=[Attachment("a.txt", b"\0\1", "application/octet-stream")],
    )
    page = client.messages.list(tenant="acme")
    assert [message.id for message in page.messages] == [id] and page.next is None
    assert client.messages.show(id).status in ("queued", "retrying")
    client.messages.retry(id)
    with pytest.raises(NotFound):
        client.messages.show("0" * 32)
    proxy.close()
    target.close()


def test_a_denied_message_is_given_up_if_the_stated_time_is_too_long(relay: Server) -> None:
    client = Client(relay.url, token=TOKEN, timeout=PATIENCE)
    client.accounts.create(id="main", tenant_id="acme", host="127.0.0.1", port=1, tls="none")
    for _ in range(3):
        client.messages.send(sender="ada@acme.example", to="bob@there.example", text="Hi", tenant="acme")
    with pytest.raises(Denied) as caught:
        client.messages.send(sender="ada@acme.example", to="bob@there.example", text="Hi", tenant="acme")
    assert caught.value.decision.denied_by == "sender"
    assert caught.value.retry_after is not None and caught.value.retry_after > 3500


def test_mail_with_asyncio(relay: Server) -> None:
    async def scene() -> None:
        async with AsyncClient(relay.url, token=TOKEN, timeout=PATIENCE) as client:
            made = await client.accounts.create(id="a", tenant_id="acme", host="127.0.0.1", port=1, tls="none")
            assert (await client.accounts.show("acme", "a")).port == made.port == 1
            id = await client.messages.send(sender="ada@acme.example", to="bob@there.example", text="Hi", tenant="acme")
            assert (await client.messages.show(id)).id == id
            assert [one.id for one in (await client.messages.list()).messages] == [id]
            await client.messages.retry(id)

    asyncio.run(scene())
