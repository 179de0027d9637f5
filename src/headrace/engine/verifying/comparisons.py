"""The queries of ``VERIFY``: they compare a view's stored rows with its query, in Spark SQL.

Rows are compared as bags, exactly. If a view sums floats, its sums and Spark's may differ in the
last digits, since they are added in another order. For such a view, the rows that differ are
compared again. Among rows that are equal in all other columns, the stored and the computed rows are
sorted by their floats and compared pairwise. Two floats agree if they are equal, if both are NaN or
NULL, or if they differ by at most the tolerance of their type times the greater magnitude, or by at
most the tolerance itself if both magnitudes are below 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, DoubleType, FloatType, MapType, VariantType

from headrace.sql import quote
from headrace.types import holds, is_collated
from headrace.zset import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.catalog import Stream, Table, View
    from headrace.types import RelationId, Schema

TOLERANCE = {DoubleType: "1e-9", FloatType: "1e-6"}
"""The tolerance of each type: relative, and absolute for magnitudes below 1."""

_STORED, _COMPUTED = "__mine", "__theirs"


def counted(comparisons: Sequence[Comparison]) -> str:
    """Return a query with the columns of :class:`Count` and the ``number`` of each comparison.

    A comparison without any rows is missing in the result.
    """
    rows = " UNION ALL ".join(
        f"SELECT {number} AS number, stored, {WEIGHT}, {comparison.sample.unit} AS unit "
        f"FROM ({comparison.grouped()})"
        for number, comparison in enumerate(comparisons)
    )
    units = ("0L", "0L")
    if any(comparison.sample.columns for comparison in comparisons):
        units = ("count(DISTINCT unit)", f"count(DISTINCT unit) FILTER (WHERE {WEIGHT} <> 0)")
    return (
        f"SELECT number, sum(stored) AS stored, count_if({WEIGHT} <> 0) AS different, "
        f"{units[0]} AS units, {units[1]} AS wrong FROM ({rows}) GROUP BY number"
    )


@dataclass(frozen=True, slots=True)
class Count:
    """The number of rows that a comparison has found.

    ``stored`` counts stored rows, ``different`` the distinct rows whose numbers of copies differ.
    For a sample, ``units`` counts the distinct values of its columns on either side, and ``wrong``
    the units with a row that differs.
    """

    stored: int = 0
    different: int = 0
    units: int = 0
    wrong: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A part of the rows of a relation: those whose hash is in one of the chosen classes.

    The hash of the ``salt`` and ``columns`` divides the rows into ``slices`` classes; ``chosen``
    are the selected ones. Rows that agree in the columns are in one class and form a unit: if the
    columns are a key, a unit is a row. Without columns, all rows are one unit.
    """

    columns: tuple[str, ...] = ()
    salt: int = 0
    slices: int = 1
    chosen: tuple[int, ...] = (0,)

    @property
    def unit(self) -> str:
        """The expression of the hash of a row, in Spark SQL."""
        if not self.columns:
            return "0L"
        return f"xxhash64({self.salt}L, {', '.join(map(quote, self.columns))})"

    @property
    def where(self) -> str:
        """The condition of the rows, in Spark SQL; empty for all of them."""
        if len(self.chosen) >= self.slices:
            return ""
        return f"pmod({self.unit}, {self.slices}L) IN ({', '.join(map(str, self.chosen))})"


EVERY_ROW = Sample()


@dataclass(frozen=True, slots=True)
class InQuarantine:
    """The rows of a relation that a view has in quarantine, since its query fails on them.

    ``share`` is the id of the share with these rows; ``columns`` are the columns that the view
    reads.
    """

    view: View
    relation: Stream | Table
    columns: Schema
    share: RelationId


@dataclass(frozen=True, slots=True)
class StoredInputs:
    """The inputs of a comparison that are not canonical history.

    The stored rows are read for ``views`` below the compared relations, and rows in ``quarantine``
    are left out. ``above`` are the compared relations and the views that read these inputs, each
    after those that it reads.
    """

    views: tuple[View, ...] = ()
    above: tuple[View, ...] = ()
    quarantine: tuple[InQuarantine, ...] = ()


FROM_LOGS = StoredInputs()


def sampled_by(schema: Schema, key: Iterable[str]) -> tuple[str, ...]:
    """Return the columns by which a relation is sampled: its key, or all columns.

    Equal rows must have equal hashes on both sides, so some types are left out: floats may differ
    in the last digits, collated text in its letters, and maps have no hash.
    """
    unhashed = (DoubleType, FloatType, MapType, VariantType)
    usable = [
        column.name
        for column in schema.columns
        if not holds(column.type, unhashed) and not is_collated(column.type)
    ]
    of_key = set(key)
    return tuple(name for name in usable if name in of_key) or tuple(usable)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares the rows of two relations that have the columns of one schema, or a sample."""

    stored: str
    computed: str
    schema: Schema
    sample: Sample = EVERY_ROW

    def grouped(self) -> str:
        """Return the query of all distinct rows with their stored copies and their surplus.

        The first is ``stored``, the second ``__weight``. Variants, by which Spark does not group,
        are their JSON.
        """
        columns, where = self._columns, self.sample.where
        shown = ", ".join(
            f"to_json({quote(c.name)}) AS {quote(c.name)}"
            if isinstance(c.type, VariantType)
            else quote(c.name)
            for c in self.schema.columns
        )
        only = f" WHERE {where}" if where else ""
        return (
            f"SELECT {columns}, sum({WEIGHT}) AS {WEIGHT}, count_if({WEIGHT} > 0) AS stored FROM ("
            f"SELECT {shown}, 1L AS {WEIGHT} FROM {quote(self.stored)}{only} UNION ALL "
            f"SELECT {shown}, -1L AS {WEIGHT} FROM {quote(self.computed)}{only}) "
            f"GROUP BY {columns}"
        )

    def different(self, most: int) -> str:
        """Return the query of up to ``most`` rows that differ, with ``__weight``.

        The weight is the number of stored copies minus the number of correct copies.
        """
        return f"SELECT {self._columns}, {WEIGHT} FROM ({self._residual}) LIMIT {most}"

    def further_apart(self, most: int) -> str:
        """Return the query of up to ``most`` rows that differ by more than the tolerance.

        Each result includes all rows that differ only in their floats.
        """
        floats = {
            column.name: f"f{i}"
            for i, column in enumerate(self.schema.columns)
            if type(column.type) in TOLERANCE
        }
        exact = [quote(name) for name in self.schema.names if name not in floats]
        values = ", ".join(f"{quote(name)} AS {field}" for name, field in floats.items())
        copies = f"array_repeat(struct({values}), CAST(abs({WEIGHT}) AS INT))"
        lists = {
            name: f"collect_list({copies}) FILTER (WHERE {WEIGHT} {sign} 0)"
            for name, sign in ((_STORED, ">"), (_COMPUTED, "<"))
        }
        sides = ", ".join(
            f"array_sort(flatten({list_})) AS {name}" for name, list_ in lists.items()
        )
        by = f" GROUP BY {', '.join(exact)}" if exact else ""
        groups = f"SELECT {', '.join([*exact, sides])} FROM ({self._residual}){by}"
        close = " AND ".join(
            _close(f"x.{floats[column.name]}", f"y.{floats[column.name]}", column.type)
            for column in self.schema.columns
            if column.name in floats
        )
        agree = (
            f"size({_STORED}) = size({_COMPUTED}) AND "
            f"forall(zip_with({_STORED}, {_COMPUTED}, (x, y) -> {close}), each -> each)"
        )
        rows = (
            f"concat(transform({_STORED}, x -> struct(x AS x, 1L AS w)), "
            f"transform({_COMPUTED}, x -> struct(x AS x, -1L AS w)))"
        )
        columns = ", ".join(
            f"__each.x.{floats[name]} AS {quote(name)}" if name in floats else quote(name)
            for name in self.schema.names
        )
        return (
            f"SELECT {columns}, __each.w AS {WEIGHT} FROM (SELECT {', '.join([*exact, ''])}"
            f"explode({rows}) AS __each FROM ({groups}) WHERE NOT ({agree})) LIMIT {most}"
        )

    @property
    def _columns(self) -> str:
        return ", ".join(quote(name) for name in self.schema.names)

    @property
    def _residual(self) -> str:
        return f"SELECT {self._columns}, {WEIGHT} FROM ({self.grouped()}) WHERE {WEIGHT} <> 0"


def _close(a: str, b: str, type_: DataType) -> str:
    """Return the condition that two values agree; in Spark, NaN equals NaN and is the greatest."""
    name = type_.simpleString().upper()
    apart, infinite = f"abs({a} - {b})", f"{name}('Infinity')"
    most = f"{TOLERANCE[type(type_)]} * greatest(1, abs({a}), abs({b}))"
    return f"({a} <=> {b} OR coalesce({apart} < {infinite} AND {apart} <= {most}, false))"
