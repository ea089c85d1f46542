"""When a call is repeated: one path for both clients.

A flow is a generator. It yields a call to be sent, or a number of seconds to sleep, and returns the result. Clients
send the response back, or throw what went wrong.
"""

from __future__ import annotations

from typing import Generator, Mapping, NamedTuple, Optional, TypeVar, Union

from . import _calls, errors
from ._calls import Call, Value
from ._http import Response
from .answers import Decision

T = TypeVar("T")
Flow = Generator[Union["Call[T]", float], Optional[Response], T]

_FIRST_PAUSE = 0.05


class Retrying(NamedTuple):
    """How often and how long calls are repeated."""

    #: How many times a call is repeated.
    times: int
    #: The longest sum of the pauses in between, in seconds.
    longest: float


def perform(call: Call[T], retrying: Retrying) -> Flow[T]:
    """One call. It is repeated if that is safe, at the time that the server states or after a growing pause."""
    slept = 0.0
    for repetition in range(retrying.times + 1):
        pause: Optional[float]
        try:
            response = yield call
        except errors.ConnectionFailed:
            # Nothing was sent.
            pause = _FIRST_PAUSE * 2**repetition
            if repetition == retrying.times or slept + pause > retrying.longest:
                raise
        except errors.ConnectionLost:
            pause = _FIRST_PAUSE * 2**repetition
            if not call.repeatable or repetition == retrying.times or slept + pause > retrying.longest:
                raise
        else:
            assert response is not None
            pause = _stated(response) if call.repeatable and response.status in call.again else None
            if pause is None or repetition == retrying.times or slept + pause > retrying.longest:
                return call.read(response)
        slept += pause
        yield pause
    raise AssertionError("the last repetition returns or raises")


def acquire(
    policy: str, cost: int, fields: Mapping[str, Value], wait: Optional[float], priority: int, retrying: Retrying
) -> Flow[Decision]:
    """Waits for a turn: at the server, and between calls if the turn comes later than the server waits."""
    left = wait
    while True:
        decision = yield from perform(_calls.acquire(policy, cost, fields, left, priority), retrying)
        if decision.allowed:
            return decision
        pause = decision.retry_after
        if left is None or pause is None or pause > left:
            raise errors.of_refusal(decision)
        # Never in a tight loop, whatever the server states.
        pause = max(pause, 0.001)
        left -= pause + decision.waited
        yield pause
        left = max(left, 0.0)


def _stated(response: Response) -> Optional[float]:
    """The pause that the server asks for, in seconds."""
    stated = response.headers.get("retry-after", "")
    return float(stated) if stated.isascii() and stated.isdigit() else None
