"""What the server answers. Each answer keeps the JSON that it was read from in ``body``."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

_PASSED_ON = ("retry-after", "cache-control", "ratelimit", "ratelimit-policy")
_HOLD = re.compile(r"\d+ at once(?: for ((?:\d+[a-z]+)+))?")
_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


class Answer:
    """An answer in JSON."""

    __slots__ = ("body",)

    def __init__(self, body: Dict[str, Any]) -> None:
        #: The answer as it was sent, with every member.
        self.body = body

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.body!r})"

    def _text(self, name: str) -> Optional[str]:
        found = self.body.get(name)
        return found if isinstance(found, str) else None


class Reading(NamedTuple):
    """One limit of a rule. Times are in seconds."""

    limit: str
    capacity: int
    remaining: int
    reset_after: Optional[float]
    retry_after: Optional[float]

    @property
    def holds(self) -> bool:
        """Whether it is an ``at once`` limit."""
        return _HOLD.fullmatch(self.limit) is not None

    @property
    def lease(self) -> Optional[float]:
        """Seconds after which a hold expires unless it is renewed; None if it never does."""
        found = _HOLD.fullmatch(self.limit)
        if found is None or found[1] is None:
            return None
        return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([a-z]+)", found[1]))


class Rule(NamedTuple):
    """One rule that applied: the limit with the least room, and all of them."""

    rule: str
    key: str
    limit: str
    capacity: int
    remaining: int
    reset_after: Optional[float]
    exceeded: bool
    observed: bool
    limits: Tuple[Reading, ...]


class Decision(Answer):
    """The answer to an attempt."""

    __slots__ = ("status", "_headers")

    def __init__(self, status: int, headers: Mapping[str, str], body: Dict[str, Any]) -> None:
        super().__init__(body)
        #: 200, or the status of the refusal: 429, 503 in an outage, 403 for a blocked client.
        self.status = status
        self._headers = headers

    @property
    def allowed(self) -> bool:
        return self.body.get("allowed") is True

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def verdict(self) -> str:
        """``allow``, ``wait``, ``defer`` or ``deny``."""
        return self._text("verdict") or ("allow" if self.allowed else "deny")

    @property
    def origin(self) -> Optional[str]:
        """Who decided: ``store``, ``local``, ``outage``, ``fixed`` or ``blocked``."""
        return self._text("origin")

    @property
    def retry_after(self) -> Optional[float]:
        """Seconds after which the same attempt may pass; None if waiting does not help."""
        exact = _seconds(self.body.get("retry_after_ms"))
        if exact is None and isinstance(self.body.get("retry_after"), (int, float)):
            return float(self.body["retry_after"])
        return exact

    @property
    def rules(self) -> Tuple[Rule, ...]:
        """Every rule that applied."""
        return tuple(_rule(one) for one in self.body.get("rules", ()))

    @property
    def receipt(self) -> Optional[str]:
        """What ``refund`` takes; None if nothing was charged."""
        return self._text("receipt")

    @property
    def id(self) -> Optional[str]:
        """The id of the holds."""
        return self._text("id")

    @property
    def repeated(self) -> bool:
        """Whether the id was already held, so that nothing was charged."""
        return self.body.get("repeated") is True

    @property
    def waited(self) -> float:
        """How many seconds ``acquire`` waited at the server."""
        return _seconds(self.body.get("waited_ms")) or 0.0

    @property
    def denied_by(self) -> Optional[str]:
        """The rule that denied."""
        return self._text("denied_by")

    @property
    def denied_key(self) -> Optional[str]:
        """The key of that rule."""
        return self._text("denied_key")

    @property
    def code(self) -> Optional[str]:
        """The code of that rule."""
        return self._text("code")

    @property
    def limit(self) -> Optional[int]:
        """The number of the limit that denied, as it is written."""
        found = self.body.get("limit")
        return found if isinstance(found, int) else None

    @property
    def detail(self) -> str:
        """A sentence for people."""
        return self._text("detail") or self._text("error") or self.verdict

    @property
    def headers(self) -> Dict[str, str]:
        """The headers for the caller's own client: ``x-ratelimit-*``, ``retry-after`` and the like."""
        found = self._headers.items()
        return {name: value for name, value in found if name.startswith("x-ratelimit-") or name in _PASSED_ON}


class GuardAttempt(Decision):
    """A login that began at a guard. Do not check the password unless it is ``allowed``."""

    __slots__ = ()

    @property
    def ticket(self) -> Optional[str]:
        """What ``finish`` takes; None if the attempt was denied or nothing was counted."""
        return self._text("ticket")

    @property
    def captcha(self) -> bool:
        """Whether the attempt should come with a CAPTCHA."""
        return self.body.get("captcha") is True

    @property
    def delay(self) -> float:
        """Seconds to wait before the attempt may pass."""
        return _seconds(self.body.get("delay_ms")) or 0.0

    @property
    def locked_until(self) -> Optional[str]:
        """The end of the lock that denies it, in RFC 3339."""
        return self._text("locked_until")


class Account(Answer):
    """An account that mail is sent through."""

    __slots__ = ()

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def tenant(self) -> str:
        return str(self.body["tenant"])

    @property
    def host(self) -> str:
        return str(self.body["host"])

    @property
    def port(self) -> int:
        return int(self.body["port"])

    @property
    def limits(self) -> Tuple[str, ...]:
        """Its limits in the grammar."""
        return tuple(self.body.get("limits", ()))

    @property
    def usable(self) -> bool:
        return self.body.get("usable") is True


class Message(Answer):
    """A message in the relay's queue or history."""

    __slots__ = ()

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def status(self) -> str:
        """``queued``, ``deferred``, ``retrying``, ``sent``, ``bounced`` or ``cancelled``."""
        return str(self.body["status"])

    @property
    def deferred_until(self) -> Optional[str]:
        """When a deferred message can be sent, in RFC 3339."""
        return self._text("deferred_until")


class MessagePage(NamedTuple):
    """A part of a list of messages."""

    messages: Tuple[Message, ...]
    #: The value of ``after`` for the next page; None on the last one.
    next: Optional[str]


class AccountPage(NamedTuple):
    """A part of a list of accounts."""

    accounts: Tuple[Account, ...]
    #: The value of ``after`` for the next page; None on the last one.
    next: Optional[str]


def _seconds(milliseconds: object) -> Optional[float]:
    return milliseconds / 1000 if isinstance(milliseconds, (int, float)) else None


def _rule(one: Mapping[str, Any]) -> Rule:
    readings = tuple(
        Reading(
            read["limit"], read["capacity"], read["remaining"],
            _seconds(read.get("reset_after_ms")), _seconds(read.get("retry_after_ms")),
        )
        for read in one.get("limits", ())
    )  # fmt: skip
    return Rule(
        one["rule"], one["key"], one["limit"], one["capacity"], one["remaining"],
        _seconds(one.get("reset_after_ms")), one.get("exceeded") is True, one.get("observed") is True, readings,
    )  # fmt: skip
