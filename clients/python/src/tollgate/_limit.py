"""Functions whose calls are attempts."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Tuple, Type, TypeVar, Union, cast

from ._calls import Value
from .errors import TollgateError, of_refusal

if TYPE_CHECKING:
    from ._async import AsyncClient
    from ._sync import Client

F = TypeVar("F", bound=Callable[..., Any])
#: A field: its value, or a function of the call's arguments.
Source = Union[Value, Callable[..., Value]]


def of_function(
    client: Client, policy: str, cost: int, fields: Mapping[str, Source], refund_on: Tuple[Type[BaseException], ...]
) -> Callable[[F], F]:
    """The decorator of functions."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def limited(*arguments: Any, **named: Any) -> Any:
            decision = client.check(policy, cost, fields=_values(fields, arguments, named))
            if not decision.allowed:
                raise of_refusal(decision)
            try:
                return function(*arguments, **named)
            except refund_on:
                try:
                    client.refund(decision)
                except TollgateError:
                    # The caller wants to know why the function failed.
                    pass
                raise

        return cast(F, limited)

    return decorate


def of_coroutine(
    client: AsyncClient, policy: str, cost: int, fields: Mapping[str, Source], refund_on: Tuple[Type[BaseException], ...]
) -> Callable[[F], F]:
    """The decorator of coroutine functions."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        async def limited(*arguments: Any, **named: Any) -> Any:
            decision = await client.check(policy, cost, fields=_values(fields, arguments, named))
            if not decision.allowed:
                raise of_refusal(decision)
            try:
                return await function(*arguments, **named)
            except refund_on:
                try:
                    await client.refund(decision)
                except TollgateError:
                    # The caller wants to know why the function failed.
                    pass
                raise

        return cast(F, limited)

    return decorate


def _values(fields: Mapping[str, Source], arguments: Tuple[Any, ...], named: Mapping[str, Any]) -> Dict[str, Value]:
    return {name: one(*arguments, **named) if callable(one) else one for name, one in fields.items()}
