"""The destination that a CREATE SINK names in its options.

Casts the columns of a continuous query to the types of its target table.

The query runs as rows arrive, so types that might not fit are refused when the query is created:
only casts that are exact, or that fail for values that do not fit, are added.

The relation that a sink follows: a view or table, or a query as a hidden view.

Ensures that no two sinks write to the same topic, table, or directory tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from headrace.errors import Code, HeadraceError, Span
from headrace.interfaces.statements.reading.keyed import simple_select
from headrace.io.connectors import CONNECTOR, Given, SinkConnector, SinkOptions, sink_connector
from headrace.io.connectors.options import keys_of, read_options
from headrace.io.formats.values import type_name
from headrace.lifecycle.states.swapping import root_of, same_contents, swapping
from headrace.planning.catalog import Sink, Stream, Table, View
from headrace.planning.sql import Query, quote

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import PurePath

    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.statements.defining.views import Views
    from headrace.io.connectors import NamedConnection, SinkContext
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.sql import Insert, Option
    from headrace.types import DataType, Schema


_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_TIMES = (t.TimestampType, t.TimestampNTZType)


def with_types_of(query: Query, given: Schema, wanted: Schema) -> Query:
    """Return the query with casts to the wanted types, where they differ.

    Raises:
        HeadraceError: ``invalid`` if a cast could change a value without an error.
    """
    casts: list[str] = []
    for i, (column, to) in enumerate(zip(given.columns, wanted.columns, strict=True)):
        if column.type == to.type:
            casts.append(f"`c{i}` AS {quote(to.name)}")
            continue
        if not is_exact_cast(column.type, to.type):
            raise HeadraceError(
                Code.INVALID,
                f'column "{to.name}" is {type_name(to.type)}, but the query has'
                f" {type_name(column.type)} for it",
                detail="Values are converted exactly, or not at all.",
                hint=f"Write CAST(... AS {type_name(to.type)}) in the query, if what it does is"
                " meant.",
                span=query.span,
            )
        casts.append(f"CAST(`c{i}` AS {to.type.simpleString()}) AS {quote(to.name)}")
    aliases = ", ".join(f"`c{i}`" for i in range(len(given.columns)))
    text = f"SELECT {', '.join(casts)} FROM ({query.text}\n) AS `__given`({aliases})"
    return Query(text, Span.whole(text))


def is_exact_cast(found: DataType, wanted: DataType) -> bool:
    """Return whether Spark's cast keeps every value, or fails if it cannot."""
    if found == wanted or isinstance(found, t.NullType):
        return True
    match wanted:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return isinstance(found, _INTEGERS)
        case t.DecimalType():
            if isinstance(found, t.DecimalType):
                return bool(found.scale <= wanted.scale)
            return isinstance(found, _INTEGERS)
        case t.DoubleType():
            return isinstance(found, t.NumericType)
        case t.TimestampType() | t.TimestampNTZType():
            return isinstance(found, (*_TIMES, t.DateType))
        case t.TimeType():
            return isinstance(found, t.TimeType) and found.precision <= wanted.precision
        case t.ArrayType() if isinstance(found, t.ArrayType):
            return is_exact_cast(found.elementType, wanted.elementType)
        case t.StringType():
            return isinstance(found, t.StringType)
    return False


@dataclass(frozen=True, slots=True)
class Destination:
    """The connector, its options, and the delivery options of a CREATE SINK."""

    connector: SinkConnector[Any]
    options: Any
    delivery: SinkOptions
    connection: str | None = None

    @classmethod
    def over(
        cls, connection: NamedConnection, options: tuple[Option, ...], span: Span
    ) -> Destination:
        """Read the options of a statement that writes over a connection.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the option or connection.
        """
        delivery, own = delivery_options(options)
        connector = _connector_over(connection, own, span)
        try:
            read = connector.read([*connection.given, *own])
        except HeadraceError as error:
            raise error.at(span) from error
        return cls(connector, read, delivery, connection.name)

    @classmethod
    def of(cls, options: tuple[Option, ...]) -> Destination:
        """Read the options of a statement.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported``, at the wrong option.
        """
        delivery, given = delivery_options(options)
        named = next((each for each in given if each.key.lower() == CONNECTOR), None)
        name, span = ("file", None) if named is None else (named.value, named.span)
        connector = sink_connector(name, span)
        try:
            return cls(connector, connector.read(given), delivery)
        except HeadraceError as error:
            place = given[0].span if given else None
            raise error.at(place) if place is not None else error from error

    def place(self, context: SinkContext) -> PurePath | None:
        """Return the path of the destination, if only one sink may write there."""
        return self.connector.place(self.options, context)

    def check(self, context: SinkContext, span: Span) -> None:
        """Raise if the destination cannot hold the rows; offline, only a directory is asked."""
        if context.offline and self.place(context) is None:
            return
        try:
            self.connector.check(self.options, context)
        except HeadraceError as error:
            raise error.at(span) from error


def _connector_over(
    connection: NamedConnection, given: list[Given], span: Span
) -> SinkConnector[Any]:
    """Return the connector that writes over a connection: the given one, or the only one.

    Raises:
        HeadraceError: ``invalid``, at its place, if it is of another system, or ambiguous.
    """
    listed = " or ".join(f"CONNECTOR {each}" for each in connection.connectors)
    named = next((each for each in given if each.key.lower() == CONNECTOR), None)
    if named is None:
        if len(connection.connectors) > 1:
            raise HeadraceError(
                Code.INVALID,
                f'a sink over connection "{connection.name}" needs the name of its connector',
                hint=f"Add {listed} to its options.",
                span=span,
            )
        return sink_connector(connection.connectors[0], span)
    found = sink_connector(named.value, named.span)
    if found.name not in connection.connectors:
        raise HeadraceError(
            Code.INVALID,
            f'connector "{named.value}" does not write over connection "{connection.name}" of kind'
            f" {connection.kind}",
            hint=f"Use {listed}.",
            span=named.span or span,
        )
    return found


def delivery_options(options: tuple[Option, ...]) -> tuple[SinkOptions, list[Given]]:
    """Return the options common to all sinks, and the other given options."""
    every = keys_of(SinkOptions)
    mine = [each for each in Given.of(options) if each.key.lower() in every]
    rest = [each for each in Given.of(options) if each.key.lower() not in every]
    return read_options(SinkOptions, mine, "a sink"), rest


@dataclass(frozen=True, slots=True)
class SinkSources:
    """Finds or creates the relation whose changes a sink delivers."""

    reader: Reader
    engine: Engine
    views: Views

    def is_continuous(self, statement: Insert, target: Stream | Table) -> bool:
        """Whether INSERT ... SELECT runs continuously: the target has a connector."""
        if target.declaration.connector is None:
            return False
        text = statement.query.text.lstrip("( \n\t")
        if text[:6].upper() == "VALUES":
            return False
        with self.engine.planning:
            found = self.engine.planner.analyse(statement.query.span, once=True)
        if found.names and (statement.on_conflict is not None or statement.replace):
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a conflict clause in an INSERT ... SELECT that runs continuously is not supported",
                detail=f'Table "{target.name}" has a connector.',
                hint="Leave it out: a row replaces the existing row of its primary key.",
                span=statement.span,
            )
        return bool(found.names)

    def followed(self, query: Query, wanted: Schema | None) -> tuple[View | Table, bool]:
        """Return the view or table to follow, and whether it was created for this sink."""
        simple = simple_select(query.text)
        found = None if simple is None else self.reader.catalog.find(simple.relation)
        if (
            simple is not None
            and not simple.equal
            and not simple.columns
            and isinstance(found, View | Table)
            and (wanted is None or _types(found.schema) == _types(wanted))
        ):
            self.reader.require_running(found)
            self._require_kept(found, query.span)
            return found, False
        if wanted is None:
            return self.views.create_hidden(query), True
        with self.engine.planning:
            given = self.engine.planner.analyse(query.span).schema
        if len(given.columns) != len(wanted.columns):
            raise HeadraceError(
                Code.INVALID,
                f"{len(wanted.columns)} columns are to be filled,"
                f" but the query has {len(given.columns)}",
                detail=f"Columns: {', '.join(wanted.names)}.",
                span=query.span,
            )
        if _types(given) != _types(wanted):
            query = with_types_of(query, given, wanted)
        return self.views.create_hidden(query, wanted.names), True

    def _require_kept(self, relation: View | Table, span: Span) -> None:
        """Raise if a view has a candidate with other columns, which a sink could not follow."""
        catalog = self.reader.catalog
        candidate = catalog.candidate(relation.id)
        if not isinstance(relation, View) or candidate is None or candidate.has_served:
            return
        if not same_contents(self.reader.published, relation, candidate):
            root = root_of(catalog, relation)
            raise HeadraceError(
                Code.CONFLICT,
                f'view "{relation.name}" is to get other columns, which a sink cannot follow',
                "Its candidate has them.",
                f"{swapping(catalog, root)}, or DROP CANDIDATE OF {root.name}, first.",
                span,
            )


def _types(schema: Schema) -> list[str]:
    return [column.type.simpleString() for column in schema.columns]


def require_own_place(
    catalog: Catalog,
    into: Destination,
    context: SinkContext,
    options: Iterable[Option],
    span: Span,
) -> None:
    """Raise if another sink writes to the destination, or has written files there.

    Rows of other databases' sinks are searched in the target itself when it is checked. ``context``
    is not of an existing sink; ``options`` belong to the statement at ``span``.

    Raises:
        HeadraceError: ``conflict``.
    """
    place, target = into.place(context), into.connector.target_of(into.options)
    written = next((each for each in options if each.key.lower() == "path"), None)
    path = str(getattr(into.options, "path", ""))
    shared = False
    for sink in catalog:
        if not isinstance(sink, Sink) or not sink.options:
            continue
        connector = sink_connector(dict(sink.options)[CONNECTOR])
        other = connector.restored(sink.options)
        if target is not None and connector.target_of(other) == target:
            raise HeadraceError(
                Code.CONFLICT,
                f'sink "{sink.name}" writes there already',
                "Two changelogs are never written to the same place.",
                "Write into another place.",
                span,
            )
        theirs = None if place is None else connector.place(other, context)
        if place is None or theirs is None:
            continue
        if theirs == place and into.connector.shares and connector.name == into.connector.name:
            shared = True
        elif place.is_relative_to(theirs) or theirs.is_relative_to(place):
            has = "has" if theirs == place else "and another, one in the other, have"
            what = f"directory '{path}' {has} the changelog of sink \"{sink.name}\""
            raise _taken(what, span if written is None else written.span)
    if shared or not isinstance(place, Path):  # a store is searched when the sink is checked
        return
    roots = [each.resolve() for each in (context.directory / "sinks", *context.roots)]
    above = [
        each
        for each in place.parents
        if any(each != root and each.is_relative_to(root) for root in roots)
    ]
    if any(map(_has_changes, above)) or (_has_any(place) and not into.connector.shares):
        what = f"directory '{path}' has the changelog of a sink that was dropped"
        raise _taken(what, span if written is None else written.span)


def _has_any(place: Path) -> bool:
    return place.is_dir() and any(place.iterdir())


def _has_changes(place: Path) -> bool:
    """Whether a directory has files, or subdirectories such as a sink creates."""
    return place.is_dir() and any(
        each.is_file() or "=" in each.name or each.name.startswith("_") for each in place.iterdir()
    )


def _taken(what: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        what,
        "A directory holds one changelog, whose sum is the view.",
        "Choose another path, or remove the directory.",
        span,
    )
