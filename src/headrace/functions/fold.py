"""Folds: a row per key, made by a Python function over the key's events in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import Code, HeadraceError
from headrace.functions.function import Body, Folded, Function, Kind
from headrace.functions.states import NotPlainError, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql.types import StructType

_OF_STEP = 2
_OF_FINISH = 1


def fold(
    *,
    key: Sequence[str],
    order_by: Sequence[str],
    returns: str,
    start: Any = None,
    finish: Body | None = None,
    name: str | None = None,
) -> Callable[[Body], Function]:
    """Make a function of a state and an event a fold; a decorator.

    ``key`` and ``order_by`` are columns of the events, ``returns`` the further columns of the
    result as SQL writes them. ``start`` is the state before the first event, and ``finish``
    converts a state to its row, a dictionary or a tuple; without it, a state is its row. States are
    plain values: numbers, texts, dates, and lists, tuples and dictionaries of these. The function
    owns its state: it may change and return the one that it is given. An event has the columns as
    attributes; timestamps are in UTC and have no time zone.

    >>> @fold(key=["account"], order_by=["at"], returns="balance BIGINT", start=0,
    ...       finish=lambda state: {"balance": state})
    ... def balance(state, event):
    ...     return state + event.amount
    >>> balance.name, balance.folded.key
    ('balance', ('account',))

    Queries call it on the rows of a relation or a query::

        SELECT * FROM balance(TABLE payments)

    Events that are equal in ``order_by`` are ordered by all their columns, from left to right.

    Raises:
        HeadraceError: ``invalid`` if it cannot be a fold.
    """

    def of(step: Body) -> Function:
        if not callable(step):
            raise HeadraceError(Code.INVALID, f"{step!r} cannot be called")
        called = name or str(getattr(step, "__name__", "?"))
        keys, order = _columns(called, "key", key), _columns(called, "order_by", order_by)
        folded = Folded(keys, order, start, finish)
        found = Function(
            called, step, f"STRUCT<{returns}>", kind=Kind.FOLD, deterministic=True, folded=folded
        )
        _check_arity(called, "a state and an event", found.arity, _OF_STEP)
        if finish is not None:
            arity = Function(called, finish, "STRING").arity
            _check_arity(called, "a state, to finish it,", arity, _OF_FINISH)
        try:
            encoded(start)
        except NotPlainError as error:
            raise _refused(called, f"starts with a state that cannot be kept: {error}") from error
        return found

    return of


def check_result(function: Function, returns: StructType) -> None:
    """Raise ``invalid`` for a column of the result that has the name of a key."""
    folded = function.folded
    names = [] if folded is None else [*folded.key, *returns.names]
    for place, each in enumerate(names):
        if each.lower() in (other.lower() for other in names[:place]):
            raise _refused(
                function.name,
                f'has the column "{each}" twice',
                "It returns the columns of its key.",
            )


def _columns(name: str, what: str, given: Sequence[str]) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given)
    if not found or not all(isinstance(each, str) and each for each in found):
        raise _refused(name, f"needs names of columns as {what}", f'Such as {what}=["id"].')
    return found


def _check_arity(name: str, takes: str, arity: tuple[int, int | None], wanted: int) -> None:
    least, most = arity
    if least > wanted or (most is not None and most < wanted):
        raise _refused(name, f"does not take {takes} as its only arguments")


def _refused(name: str, why: str, hint: str | None = None) -> HeadraceError:
    return HeadraceError(Code.INVALID, f'fold "{name}" {why}', hint=hint)
