"""What both middlewares have in common: the answer to a request that may not pass."""

from __future__ import annotations

import json
import logging
from typing import Dict, List, Optional, Tuple, Union

from .answers import Decision
from .errors import ApiError, ConnectionFailed, ConnectionLost, TollgateError, Unavailable

#: Status, header lines and body.
Refusal = Tuple[int, List[Tuple[str, str]], bytes]

log = logging.getLogger("tollgate")

#: What to do with a request while tollgate cannot be asked.
ON_OUTAGE = ("allow", "deny")


def check_on_outage(on_outage: str) -> str:
    if on_outage not in ON_OUTAGE:
        raise ValueError(f"`on_outage` must be `allow` or `deny`, not {on_outage!r}")
    return on_outage


def refusal(decision: Decision) -> Refusal:
    """The server's own problem document, without the members that concern only the operator."""
    kept = ("type", "title", "status", "detail", "code", "retry_after", "retryAfter", "correlationId")
    problem = {name: decision.body[name] for name in kept if name in decision.body}
    return _answer(decision.status, problem, decision.headers)


def without_decision(error: TollgateError, on_outage: str) -> Optional[Refusal]:
    """What happens to a request that could not be decided: None lets it pass. A mistake in the program is raised."""
    if isinstance(error, ApiError) and not isinstance(error, Unavailable):
        raise error
    if not isinstance(error, (ApiError, ConnectionFailed, ConnectionLost)):
        raise error
    log.warning("tollgate cannot be asked, so the request is %s: %s", "allowed" if on_outage == "allow" else "denied", error)
    if on_outage == "allow":
        return None
    problem: Dict[str, Union[str, int]] = {
        "type": "/problems/store-unavailable", "title": "Limits cannot be checked", "status": 503,
        "detail": "the request could not be checked against its limits; retry in a moment",
    }  # fmt: skip
    return _answer(503, problem, {"retry-after": "1"})


def _answer(status: int, problem: Dict[str, Union[str, int]], headers: Dict[str, str]) -> Refusal:
    body = json.dumps(problem).encode()
    lines = [("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    return status, [*lines, *headers.items()], body
