"""ALTER STREAM | TABLE ... ADD, DROP, RENAME COLUMN and ALTER COLUMN TYPE: history stays.

The log, and the rows of a table, keep the columns as they were written, under names that never
change; see :class:`headrace.types.Column`.

What changes of the columns of streams and tables are: checked, and not made yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import pyarrow as pa
from pyspark.sql.types import ByteType, DecimalType, FloatType, IntegerType, LongType, ShortType

from headrace.errors import Code, HeadraceError, Span
from headrace.interfaces.statements.defining.columns import (
    UNIQUE,
    ColumnChange,
    own_users,
    renamed,
    require_free_name,
    retyped,
    stored_as,
    with_columns,
    without_columns,
)
from headrace.interfaces.statements.describing.descriptions import column_of
from headrace.io.connectors import CONNECTOR, SinkOptions
from headrace.io.connectors.options import restored_options
from headrace.lifecycle.definitions.renamed import RenamedDefinitions
from headrace.planning.catalog import Sink, Stream, Table, View
from headrace.planning.catalog.naming import shown_name
from headrace.planning.sql import AddColumns, DropColumns, RenameColumn, RetypeColumn
from headrace.planning.sql.rewritten import as_name
from headrace.types import Schema
from headrace.types.earlier import encoded
from headrace.types.schema import widens, wider_than

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.feeds import Feeds
    from headrace.interfaces.statements.defining.relations import RelationDefinitions
    from headrace.lifecycle.definitions.reshaping import Reshaping
    from headrace.lifecycle.facts.lineage import Lineages
    from headrace.lifecycle.inputs.feeding import Feeding
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Defined, Relation
    from headrace.planning.sql import ColumnDefinition, Name
    from headrace.planning.sql.alter import ColumnName
    from headrace.types import Column, DataType


AlteringColumns: TypeAlias = AddColumns | DropColumns | RenameColumn | RetypeColumn
"""The statements that change the columns of a stream or table."""

_INTEGERS: Final = (ByteType(), ShortType(), IntegerType(), LongType())
_OF_MESSAGES: Final = frozenset({"kafka", "kinesis", "filesystem"})
"""The connectors whose values have fields by name, in a format that ignores unknown ones."""


@dataclass(frozen=True, slots=True)
class ColumnPlans:
    """Finds what statements change the columns of existing streams and tables to."""

    reader: Reader
    lineages: Lineages
    feeding: Feeding
    engine: Engine
    relations: RelationDefinitions
    log: Log

    def of(self, statement: AlteringColumns) -> ColumnChange:
        """Return the change that a statement makes, as far as its own relation allows it.

        Raises:
            HeadraceError: ``invalid`` if a column or type does not exist; ``conflict`` if a name is
                taken, or the relation itself uses a column that is dropped; ``unsupported`` for
                other relations, for columns that need a value in earlier rows, for types that do
                not hold all values, and for names that a source uses.
        """
        match statement:
            case AddColumns():
                return self._added(statement)
            case DropColumns():
                return self._dropped(statement)
            case RenameColumn():
                return self._renamed(statement)
            case RetypeColumn():
                return self._retyped(statement)
            case _:
                assert_never(statement)

    def _added(self, statement: AddColumns) -> ColumnChange:
        relation = self._relation(statement.name, "adding")
        self._require_uncopied(relation, statement.name)
        known = {column.lower() for column in relation.schema.names}
        if statement.if_not_exists:
            new_ones = tuple(c for c in statement.columns if c.name.lower() not in known)
            if not new_ones:
                has = f"{_title(relation)} has {_quoted([c.name for c in statement.columns])}"
                return ColumnChange(relation, relation, has, statement.name.span)
            statement = replace(statement, columns=new_ones)
        for definition in statement.columns:
            if definition.name.lower() in known:
                raise _exists(relation, definition.name, definition.span)
            _require_plain(definition)
        new: list[Column] = []
        for each in statement.columns:
            whole = Schema((*relation.schema.columns, *new))
            new.append(stored_as(replace(relation, schema=whole), self.relations.column(each)))
        defaults = (
            (each.name, each.default.text) for each in statement.columns if each.default is not None
        )
        altered = self._filled(with_columns(relation, new, defaults, statement.span), new)
        if isinstance(altered, Table) and altered.declaration.source:
            try:
                self.feeding.check(altered)
            except HeadraceError as error:
                raise error.at(statement.span) from error
        done = f"added {_quoted([c.name for c in new])} to {_title(relation)}"
        columns = ", ".join(map(as_name, relation.schema.names))
        return ColumnChange(
            relation,
            altered,
            f"{done}: {_in_earlier_rows(statement)}",
            statement.name.span,
            (_unchanged, RenamedDefinitions.reading(relation, columns, self.engine.planner).over),
            refused="would have other columns",
        )

    def _filled(self, altered: Stream | Table, new: Sequence[Column]) -> Stream | Table:
        """Return a relation whose earlier rows have the present defaults of new columns."""
        defaults = dict(altered.declaration.defaults)
        given = tuple(column for column in new if column.name in defaults)
        if not given:
            return altered
        other = altered.schema.columns[0]
        alone = replace(altered, schema=Schema((other, *given)))
        row = pa.table({other.name: pa.nulls(1, alone.schema.arrow.field(0).type)})
        values = self.log.with_defaults(alone, row)
        earlier = {c.name: encoded(values[c.name].combine_chunks()) for c in given}
        columns = (
            replace(c, earlier=earlier.get(c.name, c.earlier)) for c in altered.schema.columns
        )
        return replace(altered, schema=Schema(tuple(columns)))

    def _dropped(self, statement: DropColumns) -> ColumnChange:
        relation = self._relation(statement.name, "dropping")
        self._require_uncopied(relation, statement.name)
        names: list[str] = []
        errors: list[HeadraceError] = []
        writers: dict[Sink, None] = {}
        for each in statement.dropped:
            known = {name.lower() for name in relation.schema.names}
            if statement.if_exists and each.text.lower() not in known:
                continue
            name = column_of(relation, each.text, each.span)
            self._require_own_use(relation, name, each.span)
            errors += self._used(relation, name, each.span)
            writers |= dict.fromkeys(self._writers(relation, name))
            names.append(name)
        if relation.declaration.source and _format(relation) == "csv":
            raise HeadraceError(
                Code.CONFLICT,
                f"the columns of {_shown(relation)} are the fields of its source, in order",
                hint="Read it through a view without the column.",
                span=statement.span,
            )
        place = statement.name.span
        if not names:
            return ColumnChange(relation, relation, f"{_title(relation)} has no such column", place)
        if len(names) == len(relation.schema.names):
            raise HeadraceError(
                Code.CONFLICT,
                f"{_shown(relation)} would have no columns",
                hint=f"DROP {relation.kind.upper()} {relation.name} drops it.",
                span=statement.span,
            )
        altered = without_columns(relation, names, statement.span)
        done = f"dropped {_quoted(names)} of {_title(relation)}"
        used = errors[0] if errors else None
        return ColumnChange(relation, altered, done, place, writers=(*writers,), used=used)

    def _renamed(self, statement: RenameColumn) -> ColumnChange:
        relation = self._relation(statement.name, "renaming")
        name = column_of(relation, statement.column.text, statement.column.span)
        to = statement.to.text
        require_free_name(to, statement.to.span)
        _require_free(relation, name, statement.to)
        self._require_renameable(relation, name, statement.column.span)
        self._require_unnamed(relation, name, statement.column.span)
        try:
            altered = renamed(relation, name, to, statement.span, self.engine)
        except HeadraceError as error:
            raise error.at(statement.column.span) from error
        planner = self.engine.planner
        follow = RenamedDefinitions.of_column(relation, name, to, planner)
        done = f'renamed column "{name}" of {_title(relation)} to "{to}"'
        over = [each.over for each in follow]
        return ColumnChange(relation, altered, done, statement.name.span, over)

    def _retyped(self, statement: RetypeColumn) -> ColumnChange:
        relation = self._relation(statement.name, "altering")
        self._require_uncopied(relation, statement.name)
        name = column_of(relation, statement.column.text, statement.column.span)
        (column,) = (c for c in relation.schema.columns if c.name == name)
        span, place = statement.type.span, statement.name.span
        with self.engine.planning:
            type_ = self.engine.planner.parse_type(span, statement.type.text)
        said = f'column "{name}" of {_title(relation)} is'
        if type_ == column.type:
            return ColumnChange(relation, relation, f"{said} {column.sql.upper()}", place)
        stored = isinstance(relation, Table)
        if not widens(column.type, type_):
            allowed = wider_than(column.type, stored_alike=stored)
            raise _not_wider(column, type_.simpleString(), allowed, span)
        if stored and not _is_stored_alike(column.type, type_):
            raise _stored_otherwise(column, type_.simpleString(), span)
        users = [*own_users(relation, name, self.engine)]
        if name in relation.declaration.unique and {column.type, type_} <= {*_INTEGERS}:
            users.remove(UNIQUE)  # whose ids are the same text
        if users:
            raise HeadraceError(
                Code.CONFLICT,
                f'column "{name}" of {_shown(relation)} is used by {", ".join(users)}',
                "What they have computed has the present type.",
                "ADD COLUMN of the wider type, and write both.",
                statement.column.span,
            )
        altered = retyped(relation, name, type_, statement.span)
        done = f"{said} {type_.simpleString().upper()} now"
        readers = tuple(self._readers(relation, name))
        integers = {column.type, type_} <= {*_INTEGERS}
        return ColumnChange(relation, altered, done, place, readers=readers, widened=integers)

    # -- what refuses a change -----------------------------------------------------------------

    def _relation(self, name: Name, doing: str) -> Stream | Table:
        """Return the stream or table whose columns are changed."""
        catalog = self.reader.catalog
        relation = catalog.resolve(name.dotted, name.span)
        if not isinstance(relation, Stream | Table):
            raise _not_altered(relation, name, doing)
        if isinstance(relation, Table):
            self._require_alterable(relation, name)
        return relation

    def _require_alterable(self, table: Table, name: Name) -> None:
        """Refuse a table that has its columns from others."""
        joint = table.declaration.shared_source
        if joint is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'{_shown(table)} has the columns of a table of source "{joint}"',
                hint=f"DROP it and CREATE it again FROM SOURCE {joint} with other columns; or read"
                " it through a view.",
                span=name.span,
            )

    def _require_uncopied(self, relation: Stream | Table, name: Name) -> None:
        """Refuse a relation whose indexes and sinks have all its columns as they are."""
        catalog = self.reader.catalog
        indexes = [v.index.name for v in catalog.indexes(relation.id) if v.index]
        if indexes:
            raise HeadraceError(
                Code.CONFLICT,
                f"{_quoted(indexes, 'index')} has all columns of {_shown(relation)}",
                hint=f"DROP INDEX {indexes[0]} first, and create it again afterwards.",
                span=name.span,
            )
        sinks = [each.name for each in self._sinks(relation)]
        if sinks:
            raise HeadraceError(
                Code.CONFLICT,
                f"{_quoted(sinks, 'sink')} writes all columns of {_shown(relation)}",
                hint="DROP it first, and create it again afterwards; or have it read a view, whose"
                " columns stay.",
                span=name.span,
            )

    def _require_unnamed(self, relation: Stream | Table, name: str, span: Span) -> None:
        """Refuse a column whose name sinks write elsewhere, or have in their options."""
        for sink in self._sinks(relation):
            if sink.target is None:
                why = f'its destination has "{name}"'
            elif name in _given_key(sink):
                why = "its option key has it"
            else:
                continue
            raise HeadraceError(
                Code.CONFLICT,
                f'sink "{sink.name}" has the names of the columns of {_shown(relation)}: {why}',
                hint="DROP it first, and create it again afterwards; or have it read a view, whose"
                " columns stay.",
                span=span,
            )

    def _sinks(self, relation: Stream | Table) -> Iterator[Sink]:
        """Yield the sinks that read a relation itself."""
        for each in self.reader.catalog:
            if isinstance(each, Sink) and each.source == relation.id:
                yield each

    def _require_renameable(self, relation: Stream | Table, name: str, span: Span) -> None:
        """Refuse a column that is named by what cannot be rewritten."""
        declaration = relation.declaration
        (column,) = (c for c in relation.schema.columns if c.name == name)
        why = None
        if name in declaration.message_key:
            why = "it is in the key of its messages"
        elif declaration.source and (isinstance(relation, Table) or not _accepts_former(relation)):
            why = "its source knows no other name of it"
        elif declaration.source and not column.nullable:
            why = "it is NOT NULL, and messages may have either name"
        writers = self._writers(relation, name)
        if writers:
            named = (_named(each, self.reader.catalog) for each in writers)
            why = f"{', '.join(named)} writes into it"
        if why is not None:
            raise HeadraceError(
                Code.CONFLICT,
                f'column "{name}" of {_shown(relation)} cannot be renamed: {why}',
                hint="ADD COLUMN with the new name; or read it through a view that renames it.",
                span=span,
            )

    def _require_own_use(self, relation: Stream | Table, name: str, span: Span) -> None:
        """Refuse a column that the relation itself uses."""
        users = [*own_users(relation, name, self.engine)]
        if users:
            hint = "CREATE one without it, and INSERT INTO it SELECT the rows of this one"
            raise HeadraceError(
                Code.CONFLICT,
                f'column "{name}" of {_shown(relation)} is used by {", ".join(users)}',
                hint=f"{hint}; or read it through a view without the column.",
                span=span,
            )

    def _used(self, relation: Stream | Table, name: str, span: Span) -> Iterator[HeadraceError]:
        """Yield an error if something else uses a column."""
        users = [*self._readers(relation, name)]
        if users:
            yield HeadraceError(
                Code.CONFLICT,
                f'column "{name}" of {_shown(relation)} is used by {", ".join(users)}',
                hint="DROP these first, or CREATE OR REPLACE them without the column."
                f" SHOW LINEAGE OF {relation.name}.{name} DOWNSTREAM lists all that depends on it.",
                span=span,
            )

    def _readers(self, relation: Stream | Table, name: str) -> Iterator[str]:
        """Yield what reads a column directly, and what writes into it."""
        catalog = self.reader.catalog
        found: dict[str, None] = {}
        for each in self.lineages.downstream(catalog, relation.id):
            if each.distance == 1 and each.input.column == name:
                found[_named(catalog.by_id[each.relation], catalog)] = None
        found |= dict.fromkeys(_named(s, catalog) for s in self._writers(relation, name))
        yield from found

    def _writers(self, relation: Stream | Table, name: str) -> list[Sink]:
        """Return the sinks that write into a column."""
        sinks = (each for each in self.reader.catalog if isinstance(each, Sink))
        return [s for s in sinks if s.target == relation.id and name in s.columns]


def _given_key(sink: Sink) -> tuple[str, ...]:
    """Return the columns that the option ``key`` of a sink names, if it has one."""
    given = restored_options(SinkOptions, sink.delivery, "a sink").columns
    return sink.key if given else ()


def _is_stored_alike(former: DataType, present: DataType) -> bool:
    """Whether stored values of a type can be read as those of a wider one.

    Large runs store numbers in fewer bytes, so the type that they had is not known from them.
    """
    if isinstance(former, DecimalType) and isinstance(present, DecimalType):
        return bool(former.scale == present.scale)
    return (former in _INTEGERS and present in _INTEGERS) or isinstance(former, FloatType)


def _stored_otherwise(column: Column, given: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        f'column "{column.name}" of type {column.sql.upper()} of a table cannot become'
        f" {given.upper()}",
        "The stored rows of a table have its values in another form. An integer type can become a"
        " wider one, FLOAT can become DOUBLE, and a DECIMAL can have more digits before the point.",
        "ADD COLUMN of the wider type, and write both; or compute it in a view.",
        span,
    )


def _not_altered(relation: Relation, name: Name, doing: str) -> HeadraceError:
    hint = f"Read {name} through a view with the columns that you need."
    if isinstance(relation, View):
        hint = f"ALTER MATERIALIZED VIEW {name} AS, with a query that has these columns."
    return HeadraceError(
        Code.UNSUPPORTED,
        f'{doing} a column of {relation.kind} "{relation.name}" is not supported',
        "The columns of streams and tables can be altered.",
        hint,
        name.span,
    )


def _not_wider(column: Column, given: str, allowed: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        f'column "{column.name}" of type {column.sql.upper()} cannot become {given.upper()}',
        "Only a type that holds all values of the present one as they are is possible.",
        f"Its type can become {allowed}. Otherwise compute it in a view."
        if allowed
        else "Compute the other type in a view; or ADD COLUMN, and write both.",
        span,
    )


def _unchanged(defined: Defined) -> Defined:
    return defined


def _in_earlier_rows(statement: AddColumns) -> str:
    """Return what rows that exist have in added columns."""
    with_default = [each.default is not None for each in statement.columns]
    if not any(with_default):
        return "NULL in rows that it has"
    return "rows that it has have the default" + ("" if all(with_default) else ", or NULL")


def _require_plain(definition: ColumnDefinition) -> None:
    """Raise if a column needs a value in earlier rows."""
    what = (
        "NOT NULL"
        if definition.not_null
        else "computed"
        if definition.computed is not None
        else "METADATA"
        if definition.metadata is not None
        else None
    )
    if what is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'column "{definition.name}" is {what}, which earlier rows are not',
            hint="Add it without that; compute it in a view.",
            span=definition.span,
        )


def _require_free(relation: Stream | Table, name: str, to: ColumnName) -> None:
    """Refuse a new name of a column that another column has."""
    taken = {other.lower() for other in relation.schema.names if other != name}
    if to.text.lower() in taken:
        raise _exists(relation, to.text, to.span)


def _exists(relation: Stream | Table, name: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        f'column "{name}" of {_shown(relation)} exists already',
        hint="Choose another name.",
        span=span,
    )


def _format(relation: Stream | Table) -> str:
    declared = relation.declaration.option("format", "value.format", "value_format")
    return (declared or "json").lower()


def _accepts_former(stream: Stream | Table) -> bool:
    """Whether the values of a stream's source may name a column as it was called before."""
    connector = dict(stream.declaration.source)[CONNECTOR]
    return _format(stream) == "json" and connector in _OF_MESSAGES


def _named(relation: Relation, catalog: Catalog) -> str:
    shown = shown_name(relation, catalog)
    return shown if shown != relation.name else f'{relation.kind} "{relation.name}"'


def _shown(relation: Stream | Table) -> str:
    return f'{relation.kind} "{relation.name}"'


def _title(relation: Stream | Table) -> str:
    return f"{relation.kind} {relation.name}"


def _quoted(names: list[str], kind: str = "") -> str:
    return ", ".join(f'{kind} "{name}"'.lstrip() for name in names)


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """Changes the columns of existing streams and tables."""

    reshaping: Reshaping
    feeds: Feeds
    feeding: Feeding
    column_plans: ColumnPlans

    def alter(self, statement: AlteringColumns) -> str:
        """Change the columns of a stream or table; its source continues with it.

        Raises:
            HeadraceError: as :meth:`ColumnPlans.of`; and ``conflict`` if something uses a column
                that is dropped, or cannot go on, with the names of what does.
        """
        change = self.column_plans.of(statement)
        if change.used is not None:
            raise change.used
        if change.altered != change.relation:
            self._make(change)
        return change.done

    def _make(self, change: ColumnChange) -> None:
        relation, altered = change.relation, change.altered
        self.feeds.forget(relation.id)
        try:
            self.reshaping.alter([relation], [altered], change.moved, change.follow, change.refused)
        except HeadraceError as error:
            self.feeding.begin(relation)
            raise _explained(error, change) from error
        present = self.reshaping.loop.catalog.by_id[relation.id]
        self.feeding.begin(present if isinstance(present, Stream | Table) else altered)


def _explained(error: HeadraceError, change: ColumnChange) -> HeadraceError:
    """Return why a change is refused, with what reads the column whose type it changes."""
    if not change.readers or error.code is not Code.CONFLICT:
        return error.at(change.place)
    return HeadraceError(
        Code.CONFLICT,
        error.primary,
        f"The column is read by {', '.join(change.readers)}.",
        "DROP what computes with the present type first, and create it again afterwards:"
        " what it has stored has that type. Or ADD COLUMN of the wider type.",
        change.place,
    )
