"""Every call of the API as a value: what to send, how to read the answer, and whether it may be repeated.

A call may be repeated after its answer was lost only if the server executes it once: it reads, it sets, or it
carries an id (a hold's id, a receipt, a ticket, an idempotency key). ``check``, ``acquire`` and ``begin`` charge each
time, so they are never repeated once they may have been sent.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, Callable, Dict, Generic, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote, urlencode

from . import errors
from ._http import Response
from .answers import Account, AccountPage, Decision, GuardAttempt, Message, MessagePage

T = TypeVar("T")
#: The value of a field.
Value = Union[str, int, bool]
#: One address, or several.
Addresses = Union[str, Sequence[str]]

#: The longest wait at the server, in seconds.
LONGEST_WAIT = 60.0


class Call(Generic[T]):
    """One call."""

    __slots__ = ("method", "target", "body", "headers", "read", "repeatable", "again", "waits")

    def __init__(
        self,
        method: str,
        target: str,
        read: Callable[[Response], T],
        body: Optional[Mapping[str, Any]] = None,
        repeatable: bool = False,
        headers: Optional[Dict[str, str]] = None,
        again: Tuple[int, ...] = (503,),
        waits: float = 0.0,
    ) -> None:
        self.method = method
        self.target = target
        self.read = read
        self.body = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        self.repeatable = repeatable
        self.headers = headers or {}
        #: The statuses after which it is repeated at the time that the server states, if it may be repeated at all.
        self.again = again
        #: How long the server may take on purpose, in seconds.
        self.waits = waits


class Attachment(NamedTuple):
    """A file of a message."""

    filename: str
    content: bytes
    content_type: Optional[str] = None
    #: The name by which HTML refers to an image.
    content_id: Optional[str] = None


def check(
    policy: str, cost: int, fields: Mapping[str, Value], id: Optional[str] = None, dry_run: bool = False
) -> Call[Decision]:
    body = _attempt(policy, cost, fields, id)
    if dry_run:
        body["dry_run"] = True
    return Call("POST", "/api/v1/check", _decision, body, repeatable=dry_run or cost == 0, again=())


def acquire(
    policy: str, cost: int, fields: Mapping[str, Value], wait: Optional[float], priority: int
) -> Call[Decision]:
    body = _attempt(policy, cost, fields, None)
    if wait is not None:
        milliseconds = int(min(wait, LONGEST_WAIT) * 1000)
        body["max_wait"] = f"{milliseconds}ms" if milliseconds > 0 else "0s"
    if priority:
        body["priority"] = priority
    waits = LONGEST_WAIT if wait is None else min(wait, LONGEST_WAIT)
    return Call("POST", "/api/v1/acquire", _decision, body, again=(), waits=waits)


def refund(receipt: str, amount: Optional[int], counts: Optional[Mapping[str, int]]) -> Call[str]:
    body: Dict[str, Any] = {"receipt": receipt}
    if amount is not None:
        body["amount"] = amount
    if counts is not None:
        body["counts"] = dict(counts)
    return Call("POST", "/api/v1/refund", lambda response: str(_json(response)["refunded"]), body, repeatable=True)


def hold(policy: str, cost: int, fields: Mapping[str, Value], id: str) -> Call[Decision]:
    return Call("POST", "/api/v1/holds", _decision, _attempt(policy, cost, fields, id), repeatable=True, again=())


def renew(rule: str, key: str, id: str) -> Call[None]:
    return Call("POST", f"{_hold_path(rule, key)}/{_part(id)}/renew", _nothing, repeatable=True)


def release(rule: str, key: str, id: str) -> Call[bool]:
    target = f"{_hold_path(rule, key)}/{_part(id)}"
    return Call("DELETE", target, lambda response: _json(response).get("released") is True, repeatable=True)


def replace_holds(rule: str, key: str, ids: Sequence[str]) -> Call[None]:
    return Call("PUT", _hold_path(rule, key), _nothing, {"ids": list(ids)}, repeatable=True)


def pause(policy: str, retry_after: Union[int, str], fields: Mapping[str, Value]) -> Call[None]:
    body: Dict[str, Any] = {"retry_after": retry_after}
    if fields:
        body["fields"] = dict(fields)
    return Call("POST", f"/api/v1/paced/{_part(policy)}/retry-after", _nothing, body, repeatable=True)


def begin(guard: str, fields: Mapping[str, Value]) -> Call[GuardAttempt]:
    def read(response: Response) -> GuardAttempt:
        return GuardAttempt(response.status, response.headers, _decided(response))

    return Call("POST", f"/api/v1/guards/{_part(guard)}/begin", read, {"fields": dict(fields)})


def finish(ticket: str, outcome: str) -> Call[str]:
    body = {"ticket": ticket, "outcome": outcome}
    return Call("POST", "/api/v1/guards/finish", lambda response: str(_json(response)["finished"]), body, repeatable=True)


def create_account(members: Mapping[str, Any]) -> Call[Account]:
    body = {name: value for name, value in members.items() if value is not None}
    return Call("POST", "/api/v1/accounts", _account, body)


def list_accounts(tenant: Optional[str], limit: Optional[int], after: Optional[str]) -> Call[AccountPage]:
    def read(response: Response) -> AccountPage:
        body = _json(response)
        return AccountPage(tuple(map(Account, body["accounts"])), body.get("next"))

    return Call("GET", "/api/v1/accounts" + _query(tenant=tenant, limit=limit, after=after), read, repeatable=True)


def show_account(tenant: str, id: str) -> Call[Account]:
    return Call("GET", f"/api/v1/accounts/{_part(tenant)}/{_part(id)}", _account, repeatable=True)


def remove_account(tenant: str, id: str) -> Call[None]:
    return Call("DELETE", f"/api/v1/accounts/{_part(tenant)}/{_part(id)}", _nothing)


def message(
    sender: str,
    to: Addresses,
    cc: Addresses,
    bcc: Addresses,
    subject: Optional[str],
    text: Optional[str],
    html: Optional[str],
    headers: Optional[Mapping[str, str]],
    account: Optional[str],
    tenant: Optional[str],
    priority: Optional[str],
) -> Dict[str, Any]:
    """The members of a message."""
    lists = {"to": to, "cc": cc, "bcc": bcc}
    members: Dict[str, Any] = {name: one if isinstance(one, str) else list(one) for name, one in lists.items() if one}
    return {
        "from": sender, **members, "subject": subject, "text": text, "html": html,
        "headers": None if headers is None else dict(headers), "account": account, "tenant": tenant, "priority": priority,
    }  # fmt: skip


def send_message(members: Mapping[str, Any], attachments: Sequence[Attachment], key: Optional[str]) -> Call[str]:
    body = {name: value for name, value in members.items() if value is not None}
    if attachments:
        body["attachments"] = [_attached(one) for one in attachments]

    def read(response: Response) -> str:
        if response.status == 429:
            raise errors.Denied(Decision(response.status, response.headers, _object(response)))
        return str(_json(response)["id"])

    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    return Call("POST", "/api/v1/messages", read, body, repeatable=True, headers=headers, again=(429, 503))


def list_messages(**filters: Union[str, int, None]) -> Call[MessagePage]:
    def read(response: Response) -> MessagePage:
        body = _json(response)
        return MessagePage(tuple(map(Message, body["messages"])), body.get("next"))

    return Call("GET", "/api/v1/messages" + _query(**filters), read, repeatable=True)


def show_message(id: str) -> Call[Message]:
    return Call("GET", f"/api/v1/messages/{_part(id)}", lambda response: Message(_json(response)), repeatable=True)


def retry_message(id: str) -> Call[None]:
    return Call("POST", f"/api/v1/messages/{_part(id)}/retry", _nothing)


def merged(fields: Optional[Mapping[str, Value]], more: Mapping[str, Value]) -> Mapping[str, Value]:
    """The fields of an attempt: those of a mapping, and those by name."""
    return {**fields, **more} if fields else more


def held(decision: Decision) -> List[Tuple[str, str, Optional[float]]]:
    """The rules at which an attempt took a hold, each with its key and its lease."""
    found = []
    for rule in decision.rules:
        for reading in rule.limits:
            if reading.holds:
                found.append((rule.rule, rule.key, reading.lease))
    return found


def _attempt(policy: str, cost: int, fields: Mapping[str, Value], id: Optional[str]) -> Dict[str, Any]:
    body: Dict[str, Any] = {"policy": policy, "fields": fields}
    if cost != 1:
        body["cost"] = cost
    if id is not None:
        body["id"] = id
    return body


def _decision(response: Response) -> Decision:
    return Decision(response.status, response.headers, _decided(response))


def _decided(response: Response) -> Dict[str, Any]:
    """The answer to an attempt. A refusal has ``verdict``; other problems are errors."""
    body = _object(response)
    if response.status != 200 and "verdict" not in body:
        raise errors.of_status(response.status, body)
    return body


def _json(response: Response) -> Dict[str, Any]:
    body = _object(response)
    if response.status >= 300:
        raise errors.of_status(response.status, body)
    return body


def _object(response: Response) -> Dict[str, Any]:
    try:
        body = json.loads(response.body)
    except (ValueError, RecursionError):
        # No JSON, or nested more deeply than any answer of tollgate.
        body = None
    if isinstance(body, dict):
        return body
    # Another server, or a proxy between.
    problem = {"detail": "the answer is not that of tollgate: check the address"}
    raise errors.ApiError(response.status, problem)


def _nothing(response: Response) -> None:
    _json(response)


def _account(response: Response) -> Account:
    return Account(_json(response))


def _attached(one: Attachment) -> Dict[str, str]:
    members = {"filename": one.filename, "content": base64.b64encode(one.content).decode("ascii")}
    if one.content_type is not None:
        members["content_type"] = one.content_type
    if one.content_id is not None:
        members["content_id"] = one.content_id
    return members


def _hold_path(rule: str, key: str) -> str:
    return f"/api/v1/holds/{_part(rule)}/{_part(key)}"


def _part(text: str) -> str:
    return quote(text, safe="")


def _query(**members: Union[str, int, None]) -> str:
    given = {name: value for name, value in members.items() if value is not None}
    return "?" + urlencode(given) if given else ""
