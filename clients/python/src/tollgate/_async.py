"""The client of asyncio. It has the methods of ``Client``, as coroutines."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from types import TracebackType
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import _calls, _flow, _limit
from ._calls import Addresses, Attachment, Call, Value
from ._hold import AsyncHold, TakingHold
from ._http import Address, Head
from ._streams import Streams
from ._version import AGENT
from .answers import Account, AccountPage, Decision, GuardAttempt, Message, MessagePage
from .errors import of_refusal

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncClient:
    """A client of a tollgate server for asyncio. It can be shared by tasks, and used in several event loops in turn.

    Defaults: a call has 5 seconds for each try (``acquire`` adds its wait), is repeated twice if that is safe, and
    sleeps for at most 10 seconds in between. Ten idle connections are kept.
    """

    def __init__(
        self,
        url: str,
        token: Optional[str] = None,
        *,
        timeout: float = 5.0,
        retries: int = 2,
        max_retry_wait: float = 10.0,
        pool_size: int = 10,
        ssl_context: Optional[ssl.SSLContext] = None,
    ) -> None:
        address = Address.parse(url)
        self._head = Head(address, token, AGENT)
        context = (ssl_context or ssl.create_default_context()) if address.secure else None
        self._streams = Streams(address, context, pool_size)
        self._timeout = timeout
        self._retrying = _flow.Retrying(retries, max_retry_wait)

    async def check(
        self,
        policy: str,
        cost: int = 1,
        *,
        id: Optional[str] = None,
        dry_run: bool = False,
        fields: Optional[Mapping[str, Value]] = None,
        **more: Value,
    ) -> Decision:
        """Decides an attempt. A denial is an answer, not an error. ``fields`` is for names that are arguments here."""
        return await self._call(_calls.check(policy, cost, _calls.merged(fields, more), id, dry_run))

    async def acquire(
        self,
        policy: str,
        cost: int = 1,
        *,
        max_wait: Optional[float] = None,
        priority: int = 0,
        fields: Optional[Mapping[str, Value]] = None,
        **more: Value,
    ) -> Decision:
        """Waits for a turn, for at most ``max_wait`` seconds; by default as long as the rules allow, up to a minute.

        Raises ``Denied`` if the turn comes too late.
        """
        merged = _calls.merged(fields, more)
        return await self._run(_flow.acquire(policy, cost, merged, max_wait, priority, self._retrying))

    async def refund(
        self,
        receipt: Union[str, Decision],
        amount: Optional[int] = None,
        counts: Optional[Mapping[str, int]] = None,
    ) -> str:
        """Refunds an allowed attempt once, or a part of it.

        Returns ``back``, ``already`` or ``too_old``, and ``nothing`` for a decision that charged nothing.
        """
        text = receipt.receipt if isinstance(receipt, Decision) else receipt
        return "nothing" if text is None else await self._call(_calls.refund(text, amount, counts))

    def hold(
        self,
        policy: str,
        cost: int = 1,
        *,
        id: Optional[str] = None,
        fields: Optional[Mapping[str, Value]] = None,
        **more: Value,
    ) -> TakingHold:
        """Takes a place at each ``at once`` limit of a policy, under an id. Raises ``Denied`` if there is none.

        ``await`` takes it. ``async with`` also renews it while the block runs, and releases it at its end.
        """
        chosen = id or uuid.uuid4().hex
        call = _calls.hold(policy, cost, _calls.merged(fields, more), chosen)

        async def take() -> AsyncHold:
            decision = await self._call(call)
            if not decision.allowed:
                raise of_refusal(decision)
            return AsyncHold(self._call, decision, chosen)

        return TakingHold(take)

    async def release(self, rule: str, key: str, id: str) -> bool:
        """Releases a hold. Returns whether the id was held."""
        return await self._call(_calls.release(rule, key, id))

    async def replace_holds(self, rule: str, key: str, ids: Sequence[str]) -> None:
        """Makes exactly these ids held."""
        await self._call(_calls.replace_holds(rule, key, ids))

    async def pause(self, policy: str, retry_after: Union[int, str], **fields: Value) -> None:
        """Reports that an upstream asked for a pause: seconds, or the value of its ``Retry-After``."""
        await self._call(_calls.pause(policy, retry_after, fields))

    @property
    def guards(self) -> AsyncGuards:
        """Logins."""
        return AsyncGuards(self)

    @property
    def accounts(self) -> AsyncAccounts:
        """Accounts of the mail relay."""
        return AsyncAccounts(self)

    @property
    def messages(self) -> AsyncMessages:
        """Messages of the mail relay."""
        return AsyncMessages(self)

    def limit(
        self,
        policy: str,
        cost: int = 1,
        *,
        refund_on: Tuple[Type[BaseException], ...] = (),
        fields: Optional[Mapping[str, _limit.Source]] = None,
        **more: _limit.Source,
    ) -> Callable[[F], F]:
        """Decorates a coroutine function: each call is an attempt, and raises ``Denied`` instead of running if it is denied.

        A field is a value, or a function that gets the arguments of the call. An exception of ``refund_on`` refunds the
        attempt.
        """
        return _limit.of_coroutine(self, policy, cost, {**(fields or {}), **more}, refund_on)

    async def close(self) -> None:
        """Closes idle connections. The client opens new ones if it is used again."""
        await self._streams.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def _call(self, call: Call[T]) -> T:
        return await self._run(_flow.perform(call, self._retrying))

    async def _run(self, flow: _flow.Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, Call):
                    request = self._head.encode(step.method, step.target, step.body, step.headers)
                    try:
                        response = await self._streams.send(request, self._timeout + step.waits)
                    except Exception as error:
                        step = flow.throw(error)
                    else:
                        step = flow.send(response)
                else:
                    await asyncio.sleep(step)
                    step = flow.send(None)
        except StopIteration as done:
            result: T = done.value
            return result


class AsyncGuards:
    """Logins: begin before the password is checked, finish afterwards."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def begin(self, guard: str, *, fields: Optional[Mapping[str, Value]] = None, **more: Value) -> GuardAttempt:
        """Begins a login. It counts as a failure until it is finished."""
        return await self._client._call(_calls.begin(guard, _calls.merged(fields, more)))

    async def finish(self, attempt: Union[str, GuardAttempt], outcome: str) -> str:
        """Reports ``success``, ``failure`` or ``abandoned``, once. Returns ``now``, ``already`` or ``too_old``.

        Returns ``nothing`` for an attempt without a ticket.
        """
        ticket = attempt.ticket if isinstance(attempt, GuardAttempt) else attempt
        return "nothing" if ticket is None else await self._client._call(_calls.finish(ticket, outcome))


class AsyncAccounts:
    """The accounts that mail is sent through."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(
        self,
        *,
        host: str,
        id: Optional[str] = None,
        tenant: Optional[str] = None,
        tenant_id: Optional[str] = None,
        port: Optional[int] = None,
        user: Optional[str] = None,
        password: Optional[str] = None,
        tls: Optional[str] = None,
        use_tls: Optional[bool] = None,
        limits: Union[str, Sequence[str], None] = None,
        limit_per_minute: Optional[int] = None,
        limit_per_hour: Optional[int] = None,
        limit_per_day: Optional[int] = None,
        on_limit: Optional[str] = None,
        priority: Optional[int] = None,
    ) -> Account:
        """Adds an account. Raises ``Conflict`` if the tenant has one of this id."""
        members = {name: value for name, value in locals().items() if name != "self"}
        return await self._client._call(_calls.create_account(members))

    async def list(
        self, *, tenant: Optional[str] = None, limit: Optional[int] = None, after: Optional[str] = None
    ) -> AccountPage:
        """A page of accounts."""
        return await self._client._call(_calls.list_accounts(tenant, limit, after))

    async def show(self, tenant: str, id: str) -> Account:
        """One account, without its password."""
        return await self._client._call(_calls.show_account(tenant, id))

    async def remove(self, tenant: str, id: str) -> None:
        """Removes an account that was added over the API."""
        await self._client._call(_calls.remove_account(tenant, id))


class AsyncMessages:
    """Mail through the relay."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def send(
        self,
        *,
        sender: str,
        to: Addresses = (),
        cc: Addresses = (),
        bcc: Addresses = (),
        subject: Optional[str] = None,
        text: Optional[str] = None,
        html: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        attachments: Sequence[Attachment] = (),
        account: Optional[str] = None,
        tenant: Optional[str] = None,
        priority: Optional[str] = None,
        idempotency_key: Optional[str] = None,
    ) -> str:
        """Submits a message and returns its id. It is accepted once, however often the call is repeated.

        Raises ``Denied`` if a limit refuses it for longer than the client's ``max_retry_wait``.
        """
        members = _calls.message(sender, to, cc, bcc, subject, text, html, headers, account, tenant, priority)
        return await self._client._call(_calls.send_message(members, attachments, idempotency_key))

    async def list(
        self,
        *,
        tenant: Optional[str] = None,
        status: Optional[str] = None,
        recipient: Optional[str] = None,
        message_id: Optional[str] = None,
        limit: Optional[int] = None,
        after: Optional[str] = None,
    ) -> MessagePage:
        """A page of messages, oldest first."""
        filters = {name: value for name, value in locals().items() if name != "self"}
        return await self._client._call(_calls.list_messages(**filters))

    async def show(self, id: str) -> Message:
        """A message with its recipients and its timeline."""
        return await self._client._call(_calls.show_message(id))

    async def retry(self, id: str) -> None:
        """Tries a message now."""
        await self._client._call(_calls.retry_message(id))
