"""Holds: places at ``at once`` limits, renewed while they are used."""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType
from typing import Any, Awaitable, Callable, Generator, List, Optional, Tuple, Type

from . import _calls, errors
from .answers import Decision

#: The first character of a pseudonym, which stands for a secret key.
_PSEUDONYM = "#"


class Held:
    """What both kinds of holds know: the decision, and the calls that renew and end it."""

    def __init__(self, decision: Decision, id: str) -> None:
        self.decision = decision
        self.id = id
        #: Whether the hold ended while it was in use.
        self.lost = False
        self._ended = False
        self._places: List[Tuple[str, str, Optional[float]]] = _calls.held(decision)
        leases = [lease for _, key, lease in self._places if lease is not None and not _is_secret(key)]
        #: Seconds between two renewals; None if nothing is renewed.
        self._every = min(leases) / 3 if leases else None
        secret = [lease for _, key, lease in self._places if lease is not None and _is_secret(key)]
        #: When the hold ends by itself. A renewal names the key, and a secret key is not known here.
        self._ends = time.monotonic() + min(secret) if secret else None

    def _renewals(self) -> List[_calls.Call[None]]:
        leased = (place for place in self._places if place[2] is not None and not _is_secret(place[1]))
        return [_calls.renew(rule, key, self.id) for rule, key, _ in leased]

    def _endings(self) -> List[_calls.Call[Any]]:
        """The calls that end it. A secret key is not known here: then a refund of the whole attempt ends its hold."""
        receipt = self.decision.receipt
        if receipt is not None and any(_is_secret(key) for _, key, _ in self._places):
            return [_calls.refund(receipt, None, None)]
        return [_calls.release(rule, key, self.id) for rule, key, _ in self._places]

    def _refunds(self) -> List[_calls.Call[Any]]:
        """The calls that undo it. A repeated attempt charged nothing, so only its holds end."""
        receipt = self.decision.receipt
        return self._endings() if receipt is None else [_calls.refund(receipt, None, None)]

    def _note_end(self) -> None:
        if self._ends is not None and time.monotonic() >= self._ends:
            self.lost = True

    def _raise_if_lost(self, kind: Optional[Type[BaseException]]) -> None:
        if self.lost and kind is None:
            raise errors.HoldLost(f"the hold {self.id} ended while it was in use: its place may be taken")


class Hold(Held):
    """A hold. As a context manager it is renewed in a thread, and released at the end of the block.

    The end of the block raises ``HoldLost`` if the hold ended earlier. Without a block, call ``release``.
    """

    def __init__(self, call: Callable[[_calls.Call[Any]], Any], decision: Decision, id: str) -> None:
        super().__init__(decision, id)
        self._call = call
        self._done = threading.Event()
        self._renewer: Optional[threading.Thread] = None

    def release(self) -> None:
        """Ends the hold. What was counted elsewhere stays counted."""
        self._end(self._endings())

    def refund(self) -> None:
        """Ends the hold and refunds all charges of the attempt."""
        self._end(self._refunds())

    def renew(self) -> None:
        """Renews the hold once. Raises ``NotFound`` if it has ended."""
        for call in self._renewals():
            self._call(call)

    def __enter__(self) -> Hold:
        if self._every is not None:
            self._renewer = threading.Thread(target=self._keep_renewing, name="tollgate hold", daemon=True)
            self._renewer.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._note_end()
        self.release()
        self._raise_if_lost(kind)

    def _keep_renewing(self) -> None:
        assert self._every is not None
        renewed = time.monotonic()
        while not self._done.wait(self._every):
            began = time.monotonic()
            try:
                self.renew()
                renewed = began
            except errors.NotFound:
                self.lost = not self._done.is_set()
                return
            except errors.TollgateError:
                # The next renewal may succeed; after three intervals the server has let it go.
                if time.monotonic() - renewed > 3 * self._every:
                    self.lost = not self._done.is_set()
                    return

    def _end(self, calls: List[_calls.Call[Any]]) -> None:
        self._done.set()
        if self._renewer is not None:
            self._renewer.join()
            self._renewer = None
        if not self._ended:
            self._ended = True
            for call in calls:
                self._call(call)


class AsyncHold(Held):
    """A hold of asyncio, as ``Hold``."""

    def __init__(self, call: Callable[[_calls.Call[Any]], Awaitable[Any]], decision: Decision, id: str) -> None:
        super().__init__(decision, id)
        self._call = call
        self._renewer: Optional[asyncio.Task[None]] = None

    async def release(self) -> None:
        """Ends the hold. What was counted elsewhere stays counted."""
        await self._end(self._endings())

    async def refund(self) -> None:
        """Ends the hold and refunds all charges of the attempt."""
        await self._end(self._refunds())

    async def renew(self) -> None:
        """Renews the hold once. Raises ``NotFound`` if it has ended."""
        for call in self._renewals():
            await self._call(call)

    def _start_renewing(self) -> None:
        if self._every is not None:
            self._renewer = asyncio.ensure_future(self._keep_renewing())

    async def _keep_renewing(self) -> None:
        assert self._every is not None
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self._every)
            began = time.monotonic()
            try:
                await self.renew()
                renewed = began
            except errors.NotFound:
                self.lost = True
                return
            except errors.TollgateError:
                if time.monotonic() - renewed > 3 * self._every:
                    self.lost = True
                    return

    async def _end(self, calls: List[_calls.Call[Any]]) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
            self._renewer = None
        if not self._ended:
            self._ended = True
            for call in calls:
                await self._call(call)


class TakingHold:
    """A hold of asyncio that is not taken yet: ``await`` it, or use it with ``async with``."""

    def __init__(self, take: Callable[[], Awaitable[AsyncHold]]) -> None:
        self._start = take
        self._hold: Optional[AsyncHold] = None

    def __await__(self) -> Generator[Any, None, AsyncHold]:
        return self._take().__await__()

    async def __aenter__(self) -> AsyncHold:
        self._hold = await self._take()
        self._hold._start_renewing()
        return self._hold

    async def _take(self) -> AsyncHold:
        taking = asyncio.ensure_future(self._start())
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The server may have given the place already: it goes back when the answer is here.
            await asyncio.shield(_give_back(taking))
            raise

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        hold, self._hold = self._hold, None
        assert hold is not None
        hold._note_end()
        # A cancelled block must still give its place back.
        await asyncio.shield(hold.release())
        hold._raise_if_lost(kind)


def _is_secret(key: str) -> bool:
    return key.startswith(_PSEUDONYM)


async def _give_back(taking: Awaitable[AsyncHold]) -> None:
    try:
        hold = await taking
        await hold.refund()
    except errors.TollgateError:
        # There is no hold, or no server to refund it.
        pass
