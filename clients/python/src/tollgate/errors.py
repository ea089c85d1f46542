"""What can go wrong, by whose fault it is and whether the call may have taken effect.

A denial by ``check`` is no error. Calls that promise an admission (``acquire``, ``hold``, ``limit``,
``messages.send``) raise ``Denied``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

if TYPE_CHECKING:
    from .answers import Decision

__all__ = [
    "TollgateError", "Denied", "ConnectionFailed", "ConnectionLost", "TimedOut", "ApiError", "BadRequest", "Unauthorized",
    "Forbidden", "NotFound", "Conflict", "Unavailable", "HoldLost",
]  # fmt: skip


class TollgateError(Exception):
    """Any error of this package."""


class Denied(TollgateError):
    """A limit does not allow the attempt. Nothing was charged."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.detail)
        self.decision = decision

    @property
    def retry_after(self) -> Optional[float]:
        """Seconds after which the same attempt may pass; None if waiting does not help."""
        return self.decision.retry_after


class ConnectionFailed(TollgateError):
    """The server could not be reached. The call was not sent."""


class ConnectionLost(TollgateError):
    """The answer did not arrive. The server may have executed the call."""


class TimedOut(ConnectionLost):
    """The answer did not arrive in time. The server may have executed the call."""


class ApiError(TollgateError):
    """The server refused the call with a problem document. Nothing was charged."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail') or problem.get('error') or 'no explanation'}")
        self.status = status
        self.problem = problem

    @property
    def correlation_id(self) -> Optional[str]:
        """The id under which the server's log and journal have this call."""
        found = self.problem.get("correlationId")
        return found if isinstance(found, str) else None


class BadRequest(ApiError):
    """The caller's mistake: an unknown policy or field, an invalid value."""


class Unauthorized(ApiError):
    """The token is missing or wrong."""


class Forbidden(ApiError):
    """The token's role does not allow the call."""


class NotFound(ApiError):
    """There is no such rule, message, account, guard or hold."""


class Conflict(ApiError):
    """A name is taken, a maximum is reached, or another change came first."""


class Unavailable(ApiError):
    """The server cannot answer now: its store is down, or it is shutting down. No limit was reached."""


class HoldLost(TollgateError):
    """A hold ended while it was in use: it expired or was released elsewhere. Its place may be taken."""


def of_refusal(decision: Decision) -> TollgateError:
    """The error for an attempt that may not pass. In an outage of the store no limit was reached."""
    return Unavailable(503, decision.body) if decision.status == 503 else Denied(decision)


def of_status(status: int, problem: Mapping[str, Any]) -> ApiError:
    """The error for a status."""
    kinds = {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 503: Unavailable}
    kind = kinds.get(status, BadRequest if 400 <= status < 500 else ApiError)
    return kind(status, problem)
