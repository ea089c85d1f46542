"""The client of the tollgate rate limiter: small, typed, for threads and for asyncio.

    from tollgate import Client

    client = Client("http://127.0.0.1:8080")
    decision = client.check("api", ip="192.0.2.7")
"""

from ._async import AsyncClient
from ._calls import Attachment
from ._hold import AsyncHold, Hold
from ._sync import Client
from ._version import VERSION as __version__
from .answers import Account, AccountPage, Decision, GuardAttempt, Message, MessagePage, Reading, Rule
from .errors import (
    ApiError,
    BadRequest,
    Conflict,
    ConnectionFailed,
    ConnectionLost,
    Denied,
    Forbidden,
    HoldLost,
    NotFound,
    TimedOut,
    TollgateError,
    Unauthorized,
    Unavailable,
)

__all__ = [
    "Account", "AccountPage", "ApiError", "AsyncClient", "AsyncHold", "Attachment", "BadRequest", "Client", "Conflict",
    "ConnectionFailed", "ConnectionLost", "Decision", "Denied", "Forbidden", "GuardAttempt", "Hold", "HoldLost", "Message",
    "MessagePage", "NotFound", "Reading", "Rule", "TimedOut", "TollgateError", "Unauthorized", "Unavailable", "__version__",
]  # fmt: skip
