"""Expressions that are evaluated over Arrow columns, without the JVM.

A vector yields exactly the values that Spark would, or raises :class:`DoubtError`: an expression
that fails on a row, a number that overflows, or a value for which equality is not proved. Whoever
evaluates it then has Spark evaluate the expression, with its own value or its own error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.zset.equality import Ints

Value: TypeAlias = "pa.Array | pa.Scalar"
"""A value for each row, or one for all of them."""

HIGHEST: Final = 150
"""The greatest height of a vector that is evaluated: each level is three calls on Python's stack,
which has room for a thousand."""


class DoubtError(Exception):
    """Spark's value is not known here for some row; perhaps it is an error."""


@dataclass(slots=True, eq=False)
class InputRows:
    """The rows that vectors are evaluated over; each vector is evaluated once.

    They are all ``count`` rows of some columns, or those at some ``positions``.
    """

    columns: Sequence[pa.Array | pa.ChunkedArray]
    count: int
    positions: pa.Array | None = None
    found: dict[Vector, Value | DoubtError] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: pa.Table) -> InputRows:
        """Return the rows of a table."""
        return cls(rows.columns, rows.num_rows)

    def column(self, index: int) -> pa.Array:
        """Return one of the columns."""
        found = self.columns[index]
        if isinstance(found, pa.ChunkedArray):
            found = found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()
        return found if self.positions is None else found.take(self.positions)

    def at(self, positions: Ints) -> InputRows:
        """Return the rows at some positions."""
        taken = pa.array(positions)
        if self.positions is not None:
            taken = self.positions.take(taken)
        return InputRows(self.columns, len(taken), taken)


@dataclass(frozen=True, slots=True, eq=False)
class Vector(ABC):
    """An expression over columns; ``type`` is the type of its values."""

    type: pa.DataType

    def over(self, rows: InputRows) -> Value:
        """Return the values for rows.

        Raises:
            DoubtError: a value may differ from Spark's.
        """
        found = rows.found.get(self)
        if found is None:
            try:
                found = self.computed(rows)
            except DoubtError as doubt:
                rows.found[self] = doubt
                raise
            except (pa.ArrowException, ArithmeticError) as error:
                rows.found[self] = DoubtError()
                raise DoubtError from error
            rows.found[self] = found
        elif isinstance(found, DoubtError):
            raise found
        return found

    @abstractmethod
    def computed(self, rows: InputRows) -> Value:
        """Compute the values; an error of Arrow, or an overflow, is a doubt. See :meth:`over`."""

    def column(self, rows: InputRows) -> pa.Array:
        """Return the values for rows as a column of the vector's type; see :meth:`over`."""
        found = self.over(rows)
        if isinstance(found, pa.Scalar):
            if not found.is_valid:
                return pa.nulls(rows.count, self.type)
            found = pa.repeat(found, rows.count)
        return found if found.type == self.type else found.cast(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class InputColumn(Vector):
    """The column at a position."""

    position: int

    def computed(self, rows: InputRows) -> Value:
        """Return the column."""
        found = rows.column(self.position)
        return found if found.type == self.type else found.cast(self.type)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Vector):
    """One value for all rows."""

    value: pa.Scalar

    def computed(self, _rows: InputRows) -> Value:
        """Return the constant."""
        return self.value


@dataclass(frozen=True, slots=True, eq=False)
class Call(Vector):
    """A function of other vectors, called with their values and with ``parameters`` by name.

    At least one of the values is a column.
    """

    function: Callable[..., Value]
    given: tuple[Vector, ...]
    parameters: tuple[tuple[str, Any], ...] = ()

    def computed(self, rows: InputRows) -> Value:
        """Return what the function returns."""
        values = [each.over(rows) for each in self.given]
        if all(isinstance(value, pa.Scalar) for value in values):
            values = [each.column(rows) for each in self.given]
        if not self.parameters:
            return self.function(*values)
        return self.function(*values, **dict(self.parameters))


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Vector):
    """The value of ``then`` where a condition is true, elsewhere that of ``otherwise``.

    Neither is in doubt because of a row for which the other is chosen.
    """

    when: Vector
    then: Vector
    otherwise: Vector

    def computed(self, rows: InputRows) -> Value:
        """Evaluate both alternatives, if rows of both are chosen."""
        when = self.when.column(rows)
        chosen = when.true_count
        if chosen == rows.count:
            return self.then.column(rows)
        if chosen == 0:
            return self.otherwise.column(rows)
        try:
            then, otherwise = self.then.column(rows), self.otherwise.column(rows)
        except DoubtError:
            return self._by_row(when, rows)
        return pc.if_else(pc.fill_null(when, fill_value=False), then, otherwise)

    def _by_row(self, when: pa.Array, rows: InputRows) -> Value:
        """Evaluate each alternative over the rows that it is chosen for, and no others."""
        true = pc.fill_null(when, fill_value=False).to_numpy(zero_copy_only=False)
        chosen, others = np.flatnonzero(true), np.flatnonzero(~true)
        found = [self.then.column(rows.at(chosen)), self.otherwise.column(rows.at(others))]
        order = np.empty(rows.count, np.int64)
        order[np.concatenate([chosen, others])] = np.arange(rows.count)
        return pa.concat_arrays(found).take(pa.array(order))


@dataclass(frozen=True, slots=True, eq=False)
class Connective(Vector):
    """AND or OR, whose result is ``decided`` if the left condition has that value.

    The right condition is not in doubt because of a row for which the left one decides.
    """

    left: Vector
    right: Vector
    decided: bool

    def computed(self, rows: InputRows) -> Value:
        """Evaluate both conditions, if rows need both."""
        left = self.left.column(rows)
        connect = pc.or_kleene if self.decided else pc.and_kleene
        try:
            return connect(left, self.right.over(rows))
        except DoubtError:
            decided = pc.fill_null(pc.equal(left, self.decided), fill_value=False)
            if not decided.true_count:
                raise
        needed = np.flatnonzero(~decided.to_numpy(zero_copy_only=False))
        places = np.full(rows.count, -1, np.int64)
        places[needed] = np.arange(len(needed))
        right = self.right.column(rows.at(needed))
        return connect(left, right.take(pa.array(places, mask=places < 0)))


@dataclass(frozen=True, slots=True, eq=False)
class Failure(Vector):
    """An expression that fails on every row."""

    def computed(self, rows: InputRows) -> Value:
        """Raise, if there are rows."""
        if rows.count:
            raise DoubtError
        return pa.array([], self.type)


def height(vector: Vector) -> int:
    """Return how many levels of vectors a vector is made of, itself included."""
    heights: dict[Vector, int] = {}
    waiting = [vector]
    while waiting:
        parts = tuple(_parts(waiting[-1]))
        unknown = [each for each in parts if each not in heights]
        if unknown:
            waiting += unknown
        else:
            heights[waiting.pop()] = 1 + max((heights[each] for each in parts), default=0)
    return heights[vector]


def _parts(vector: Vector) -> Iterator[Vector]:
    for each in fields(vector):
        value = getattr(vector, each.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Vector):
                yield part
