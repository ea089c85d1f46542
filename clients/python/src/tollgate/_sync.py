"""The client of threads."""

from __future__ import annotations

import ssl
import time
import uuid
from types import TracebackType
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import _calls, _flow, _limit
from ._calls import Addresses, Attachment, Call, Value
from ._hold import Hold
from ._http import Address, Head
from ._pool import Pool
from ._version import AGENT
from .answers import Account, AccountPage, Decision, GuardAttempt, Message, MessagePage
from .errors import of_refusal

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Client:
    """A client of a tollgate server. It can be shared by threads, and used again after a fork.

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
        self._pool = Pool(address, context, pool_size)
        self._timeout = timeout
        self._retrying = _flow.Retrying(retries, max_retry_wait)

    def check(
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
        return self._call(_calls.check(policy, cost, _calls.merged(fields, more), id, dry_run))

    def acquire(
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
        return self._run(_flow.acquire(policy, cost, merged, max_wait, priority, self._retrying))

    def refund(
        self,
        receipt: Union[str, Decision],
        amount: Optional[int] = None,
        counts: Optional[Mapping[str, int]] = None,
    ) -> str:
        """Refunds an allowed attempt once, or a part of it.

        Returns ``back``, ``already`` or ``too_old``, and ``nothing`` for a decision that charged nothing.
        """
        text = receipt.receipt if isinstance(receipt, Decision) else receipt
        return "nothing" if text is None else self._call(_calls.refund(text, amount, counts))

    def hold(
        self,
        policy: str,
        cost: int = 1,
        *,
        id: Optional[str] = None,
        fields: Optional[Mapping[str, Value]] = None,
        **more: Value,
    ) -> Hold:
        """Takes a place at each ``at once`` limit of a policy, under an id. Raises ``Denied`` if there is none.

        In a ``with`` block the hold is renewed while the block runs, and released at its end.
        """
        chosen = id or uuid.uuid4().hex
        decision = self._call(_calls.hold(policy, cost, _calls.merged(fields, more), chosen))
        if not decision.allowed:
            raise of_refusal(decision)
        return Hold(self._call, decision, chosen)

    def release(self, rule: str, key: str, id: str) -> bool:
        """Releases a hold. Returns whether the id was held."""
        return self._call(_calls.release(rule, key, id))

    def replace_holds(self, rule: str, key: str, ids: Sequence[str]) -> None:
        """Makes exactly these ids held."""
        self._call(_calls.replace_holds(rule, key, ids))

    def pause(self, policy: str, retry_after: Union[int, str], **fields: Value) -> None:
        """Reports that an upstream asked for a pause: seconds, or the value of its ``Retry-After``."""
        self._call(_calls.pause(policy, retry_after, fields))

    @property
    def guards(self) -> Guards:
        """Logins."""
        return Guards(self)

    @property
    def accounts(self) -> Accounts:
        """Accounts of the mail relay."""
        return Accounts(self)

    @property
    def messages(self) -> Messages:
        """Messages of the mail relay."""
        return Messages(self)

    def limit(
        self,
        policy: str,
        cost: int = 1,
        *,
        refund_on: Tuple[Type[BaseException], ...] = (),
        fields: Optional[Mapping[str, _limit.Source]] = None,
        **more: _limit.Source,
    ) -> Callable[[F], F]:
        """Decorates a function: each call is an attempt, and raises ``Denied`` instead of running if it is denied.

        A field is a value, or a function that gets the arguments of the call. An exception of ``refund_on`` refunds the
        attempt.
        """
        return _limit.of_function(self, policy, cost, {**(fields or {}), **more}, refund_on)

    def close(self) -> None:
        """Closes idle connections. The client opens new ones if it is used again."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _call(self, call: Call[T]) -> T:
        return self._run(_flow.perform(call, self._retrying))

    def _run(self, flow: _flow.Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, Call):
                    request = self._head.encode(step.method, step.target, step.body, step.headers)
                    try:
                        response = self._pool.send(request, self._timeout + step.waits)
                    except Exception as error:
                        step = flow.throw(error)
                    else:
                        step = flow.send(response)
                else:
                    time.sleep(step)
                    step = flow.send(None)
        except StopIteration as done:
            result: T = done.value
            return result


class Guards:
    """Logins: begin before the password is checked, finish afterwards."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def begin(self, guard: str, *, fields: Optional[Mapping[str, Value]] = None, **more: Value) -> GuardAttempt:
        """Begins a login. It counts as a failure until it is finished."""
        return self._client._call(_calls.begin(guard, _calls.merged(fields, more)))

    def finish(self, attempt: Union[str, GuardAttempt], outcome: str) -> str:
        """Reports ``success``, ``failure`` or ``abandoned``, once. Returns ``now``, ``already`` or ``too_old``.

        Returns ``nothing`` for an attempt without a ticket.
        """
        ticket = attempt.ticket if isinstance(attempt, GuardAttempt) else attempt
        return "nothing" if ticket is None else self._client._call(_calls.finish(ticket, outcome))


class Accounts:
    """The accounts that mail is sent through."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(
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
        return self._client._call(_calls.create_account(members))

    def list(
        self, *, tenant: Optional[str] = None, limit: Optional[int] = None, after: Optional[str] = None
    ) -> AccountPage:
        """A page of accounts."""
        return self._client._call(_calls.list_accounts(tenant, limit, after))

    def show(self, tenant: str, id: str) -> Account:
        """One account, without its password."""
        return self._client._call(_calls.show_account(tenant, id))

    def remove(self, tenant: str, id: str) -> None:
        """Removes an account that was added over the API."""
        self._client._call(_calls.remove_account(tenant, id))


class Messages:
    """Mail through the relay."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def send(
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
        return self._client._call(_calls.send_message(members, attachments, idempotency_key))

    def list(
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
        return self._client._call(_calls.list_messages(**filters))

    def show(self, id: str) -> Message:
        """A message with its recipients and its timeline."""
        return self._client._call(_calls.show_message(id))

    def retry(self, id: str) -> None:
        """Tries a message now."""
        self._client._call(_calls.retry_message(id))
