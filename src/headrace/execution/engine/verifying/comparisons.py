"""The queries of ``VERIFY``: they compare a view's stored rows with its query, in Spark SQL.

Rows are compared as bags, exactly. If a view sums floats, its sums and Spark's may differ in the
last digits, since they are added in another order. For such a view, the rows that differ are
compared again. Among rows that are equal in all other columns, the stored and the computed rows are
sorted by their floats and compared pairwise. Two floats agree if they are equal, if both are NaN or
NULL, or if they differ by at most the tolerance of their type times the greater magnitude, or by at
most the tolerance itself if both magnitudes are below 1.

Canonical history: the contents of streams and tables by their logs, in Spark SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DataType as PysparkSqlTypesDataType
from pyspark.sql.types import DoubleType, FloatType, MapType, VariantType

from headrace.algebra.zset import WEIGHT
from headrace.planning.catalog import Relation, Stream, Table, View
from headrace.planning.dialects import OFFSET
from headrace.planning.sql import quote
from headrace.types import DataType, RelationId, Schema, holds, is_collated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


APART: Final = "__apart"
"""The name of the rows in quarantine while the other rows of a relation are declared."""
_BITS: Final = 31
"""The bits of a relation's id in the id of a share."""


def _identity(column: str, type_: DataType) -> tuple[str, ...]:
    """Return the expressions to group by so that different values are different groups.

    Spark's grouping treats -0.0 as 0.0 and sorts the entries of maps, so it would return values
    that were never written. Equal values have equal texts, whatever the names of their columns.
    """
    if holds(type_, (MapType, VariantType)):
        return (f"to_json(struct({column} AS v))",)
    if holds(type_, (FloatType, DoubleType)):
        return (column, f"to_json(struct({column} AS v))")
    return (column,)


def as_stored(id_: RelationId) -> RelationId:
    """Return the id of the share with the stored rows of a relation; its log has another one."""
    return RelationId(~id_)


def stored_name(relation: Relation) -> str:
    """Return the name of a relation's stored rows."""
    return f"__stored_{relation.id}"


def computed_name(relation: Relation) -> str:
    """Return the name of a relation's contents by canonical history."""
    lags = isinstance(relation, View) and relation.refresh.lags
    return f"__query_{relation.id}" if lags else relation.name


def raw_name(relation: Relation) -> str:
    """Return the name of the changes in a relation's log."""
    return f"__raw_{relation.id}"


def quarantine_share(view: RelationId, relation: RelationId) -> RelationId:
    """Return the id of the share with the rows of a relation that a view has in quarantine."""
    return RelationId(~(view << _BITS | relation))


def without(rows: str, kept: str, columns: Schema, names: Sequence[str]) -> str:
    """Return a query of some columns of a relation's rows, without some copies, in Spark SQL.

    ``kept`` names the copies to leave out: the columns of the given schema as ``c0``, ..., and the
    number of copies as the weight. Rows that agree in these columns are interchangeable.
    """
    known = list(enumerate(columns.columns))
    parts = [part for _, c in known for part in _identity(quote(c.name), c.type)]
    mine = [part for i, c in known for part in _identity(f"c{i}", c.type)]
    numbered = [f"{part} AS __k{i}" for i, part in enumerate(mine)]
    shown = ", ".join(map(quote, names))
    grouped = f" GROUP BY {', '.join(mine)}" if mine else ""
    total = f"sum({WEIGHT})"
    counted = ", ".join([*numbered, f"{total} AS __copies"])
    copies = f"SELECT {counted} FROM {kept}{grouped} HAVING {total} > 0"
    met = " AND ".join(f"{part} <=> __k{i}" for i, part in enumerate(parts)) or "true"
    by = f"PARTITION BY {', '.join(parts)} " if parts else ""
    nth = f"row_number() OVER ({by}ORDER BY 0) AS __nth"
    found = f"SELECT *, {nth} FROM {rows} JOIN ({copies}) ON {met}"
    return (
        f"SELECT {shown} FROM {rows} LEFT ANTI JOIN ({copies}) ON {met} "
        f"UNION ALL SELECT {shown} FROM ({found}) WHERE __nth > __copies"
    )


def canonical_sql(relation: Stream | Table) -> str:
    """Return the contents of a stream or table as a query over its log, in Spark SQL."""
    names = relation.schema.names
    renamed = ", ".join(f"c{i} AS {quote(name)}" for i, name in enumerate(names))
    raw = quote(raw_name(relation))
    if isinstance(relation, Stream):
        return f"SELECT {renamed} FROM {raw}"
    if not relation.primary_key:
        columns = ", ".join(f"c{i}" for i in range(len(names)))
        identity = ", ".join(
            part
            for i, c in enumerate(relation.schema.columns)
            for part in _identity(f"c{i}", c.type)
        )
        kept = (
            f"SELECT first(struct({columns})) AS kept, sum({WEIGHT}) AS n FROM {raw} "
            f"GROUP BY {identity}"
        )
        copies = f"SELECT kept.*, explode(sequence(1L, n)) FROM ({kept}) WHERE n > 0"
        return f"SELECT {renamed} FROM ({copies})"
    key = ", ".join(f"c{names.index(name)}" for name in relation.primary_key)
    last = (
        f"SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {OFFSET} DESC) AS nth FROM {raw}"
    )
    return f"SELECT {renamed} FROM ({last}) WHERE nth = 1 AND {WEIGHT} > 0"


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


def _close(a: str, b: str, type_: PysparkSqlTypesDataType) -> str:
    """Return the condition that two values agree; in Spark, NaN equals NaN and is the greatest."""
    name = type_.simpleString().upper()
    apart, infinite = f"abs({a} - {b})", f"{name}('Infinity')"
    most = f"{TOLERANCE[type(type_)]} * greatest(1, abs({a}), abs({b}))"
    return f"({a} <=> {b} OR coalesce({apart} < {infinite} AND {apart} <= {most}, false))"
