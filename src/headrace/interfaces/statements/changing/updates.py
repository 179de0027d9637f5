"""UPDATE, DELETE and TRUNCATE: statements that change the rows they read.

The relation that a statement writes to, and the columns that it names.

The new values of columns in UPDATE: literals, and expressions that Spark evaluates.

``INSERT ... ON CONFLICT``: resolves new rows whose key exists in the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from headrace.errors import Code, HeadraceError, Span, meant
from headrace.execution.serving import key_values
from headrace.io.formats.fitting import fitted, not_fitting
from headrace.io.formats.literals import NoLiteral, is_default, literal, literal_converter
from headrace.io.formats.values import RejectedValueError
from headrace.lifecycle.inputs.log import Changed
from headrace.lifecycle.inputs.rows import given_time, require_present, weighted
from headrace.lifecycle.states.declarations import in_statement, place_of_text
from headrace.lifecycle.states.former_names import present_name
from headrace.planning.catalog import Catalog, Relation, Sink, Stream, Table, View
from headrace.planning.sql import Delete, Insert, OnConflict, Truncate, Update, quote
from headrace.planning.sql.lexer import tokens
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.inputs.log import Log
    from headrace.lifecycle.states.evaluating import Evaluator, Snapshots
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalyst.analysed import Shape
    from headrace.planning.sql import Name
    from headrace.types import Column, Offset, RelationId, Schema


_Written = TypeVar("_Written", Stream, Table)
_Result = TypeVar("_Result")


class WrittenRows(NamedTuple):
    """The result of a write: the relation, the number of rows, and the log's end after them.

    ``left_out`` is the number of rows that the relation did not accept.
    """

    relation: RelationId
    rows: int
    end: Offset
    left_out: int = 0


class AlteredMeanwhileError(HeadraceError):
    """The relation that a statement changes was altered while the statement read it."""


def as_defined(find: Callable[[], _Written], run: Callable[[_Written], _Result]) -> _Result:
    """Return what a statement does to a relation as defined; again if it is altered meanwhile.

    ``run`` writes nothing if it fails.
    """
    while True:
        relation = find()
        try:
            return run(relation)
        except AlteredMeanwhileError:
            continue
        except HeadraceError:
            if find() == relation:
                raise


def require_defined(relation: Stream | Table, state: Published) -> None:
    """Raise if a statement has read rows in a state in which the relation has another definition.

    Raises:
        AlteredMeanwhileError: for :func:`as_defined`.
    """
    if state.catalog.by_id.get(relation.id) != relation:
        raise AlteredMeanwhileError(Code.CONFLICT, f'{relation.kind} "{relation.name}" was altered')


def target_named(catalog: Catalog, name: Name) -> Stream | Table:
    """Return the stream or table that a statement writes to."""
    return writable(catalog, catalog.resolve(name.dotted, name.span), name.span)


def writable(catalog: Catalog, relation: Relation, span: Span | None = None) -> Stream | Table:
    """Return the relation whose log takes the writes to a relation; raise if none does.

    The stream behind a view by CREATE STREAM AS is returned with the view's name, for messages.
    """
    relation = taking(catalog, relation)
    if not isinstance(relation, Stream | Table):
        kind = "sink" if isinstance(relation, Sink) else "view"
        raise HeadraceError(
            Code.INVALID,
            f'{kind} "{relation.name}" cannot be written to',
            hint="Write to the streams and tables that it reads.",
            span=span,
        )
    if relation.declaration.source:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'{relation.kind} "{relation.name}" gets its rows from elsewhere',
            detail="Rows written here would not reach that system.",
            hint="Write to its topic, or to the table that it follows: the rows arrive here.",
            span=span,
        )
    return relation


def taking(catalog: Catalog, relation: Relation) -> Relation:
    """Return the stream behind a view by CREATE STREAM AS, under its name; others unchanged."""
    if not isinstance(relation, View) or relation.into is None:
        return relation
    stream = catalog.by_id[relation.into]
    return replace(stream, name=relation.name)


def table_named(catalog: Catalog, name: Name) -> Table:
    """Return the table whose rows a statement changes."""
    relation = target_named(catalog, name)
    if isinstance(relation, Stream):
        raise HeadraceError(
            Code.INVALID,
            f'stream "{relation.name}" is append-only',
            hint="Use a TABLE for rows that change.",
            span=name.span,
        )
    return relation


def chosen(relation: Stream | Table, names: tuple[str, ...], span: Span) -> tuple[Column, ...]:
    """Return the named columns; without names, all columns but generated ones."""
    generated = relation.declaration.generated
    if not names:
        return tuple(c for c in relation.schema.columns if c.name not in generated)
    by_name = relation.schema.by_lower_name
    time = given_time(relation)
    if time is not None:
        by_name = {**by_name, time.name.lower(): time}
    for name in names:
        _require_column(relation, name, by_name, span)
        if generated and by_name[name.lower()].name in generated:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" is generated, so it cannot be written',
                hint="Leave it out: it is computed, or is the origin of the row.",
                span=place_of_text(name, span),
            )
    return tuple(by_name[name.lower()] for name in names)


def _require_column(
    relation: Stream | Table, name: str, by_name: Mapping[str, Column], span: Span
) -> None:
    if name.lower() in by_name:
        return
    known = relation.schema.names
    present = present_name(relation, name)
    raise HeadraceError(
        Code.INVALID,
        f'column "{name}" does not exist in {relation.kind} "{relation.name}"',
        hint=meant(name, known, f"There are: {', '.join(known)}.")
        if present is None
        else f'It was renamed to "{present}".',
        span=place_of_text(name, span),
    )


Assigned: TypeAlias = "tuple[Column, Span]"
"""A column, and the place of its expression."""


def split_assignments(
    assigned: Sequence[Assigned], defaults: Mapping[str, str]
) -> tuple[dict[str, pa.Scalar], list[Assigned]]:
    """Return the values of literal assignments by column, and the other assignments.

    Raises:
        HeadraceError: ``invalid`` for a literal that its column cannot hold.
    """
    constants: dict[str, Any] = {}
    computed: list[Assigned] = []
    for column, span in assigned:
        found = list(tokens(span.text, span.start, span.end, span.file))
        if is_default(found):
            text = defaults.get(column.name, "NULL")
            found, span = list(tokens(text)), Span.whole(text)  # noqa: PLW2901
        try:
            value = literal(found)
        except NoLiteral:
            computed.append((column, span))
            continue
        if value is not None:
            try:
                value = literal_converter(column)(value)
            except RejectedValueError as reason:
                raise not_fitting(f'column "{column.name}"', reason, span) from reason
        constants[column.name] = pa.array([value], to_arrow(column.type))[0]
    return constants, computed


def updated(
    schema: Schema,
    old: pa.Table,
    constants: dict[str, pa.Scalar],
    computed: Sequence[Assigned],
    values: Sequence[pa.ChunkedArray],
) -> pa.Table:
    """Return rows with new values: the constants, and the values of the expressions.

    Raises:
        HeadraceError: ``invalid`` for a value that its column cannot hold.
    """
    new: dict[str, Any] = {}
    for (column, span), found in zip(computed, values, strict=True):
        made = fitted(found, column.type, first=True)
        if made.refused:
            raise not_fitting(f'column "{column.name}"', next(iter(made.refused.values())), span)
        new[column.name] = made.values
    new |= {name: pa.repeat(value, old.num_rows) for name, value in constants.items()}
    arrays = [new.get(field.name, old[field.name]) for field in schema.arrow]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


@dataclass(frozen=True, slots=True)
class Updates:
    """Changes the rows of tables; durable when a method returns."""

    reader: Reader
    snapshots: Snapshots
    log: Log

    def update(self, statement: Update) -> WrittenRows:
        """Replace the matching rows; all are read before this statement's changes."""
        return as_defined(
            lambda: table_named(self.reader.catalog, statement.target),
            lambda table: self._update(table, statement),
        )

    def _update(self, table: Table, statement: Update) -> WrittenRows:
        names = table.schema.names
        for assignment in statement.assignments:
            chosen(table, (assignment.column,), assignment.span)
        columns = {column.name.lower(): column for column in table.schema.columns}
        assigned = [(columns[a.column.lower()], a.expression.span) for a in statement.assignments]
        constants, computed = split_assignments(assigned, dict(table.declaration.defaults))
        text = ", ".join(
            [quote(name) for name in names]
            + [f"({span.source}) AS `__new{i}`" for i, (_, span) in enumerate(computed)]
        )
        names_of = [statement.target.span, *(a.span for a in statement.assignments)]

        def changed() -> Changed:
            found, state = self._matching(table, text, statement.where, statement.span, names_of)
            old = found.select(range(len(names)))
            values = found.columns[len(names) :]
            new = updated(table.schema, old, constants, computed, values)
            require_present(table, new, statement.span)
            if not table.primary_key:
                changes = [weighted(old, -1), weighted(new, 1)]
            else:
                moved = not {a.column.lower() for a in statement.assignments}.isdisjoint(
                    name.lower() for name in table.primary_key
                )
                if moved:
                    _require_distinct(table, new, statement.span)
                    self._require_free(table, old, new, statement.span, state)
                changes = [*([weighted(old, -1)] if moved else []), weighted(new, 1)]
            return Changed(state, old.num_rows, tuple(changes))

        return WrittenRows(table.id, *self.log.change(table, changed))

    def delete(self, statement: Delete) -> WrittenRows:
        """Delete the matching rows; all are read before this statement's changes."""
        return as_defined(
            lambda: table_named(self.reader.catalog, statement.target),
            lambda table: self._delete(table, statement),
        )

    def _delete(self, table: Table, statement: Delete) -> WrittenRows:
        text = ", ".join(quote(name) for name in table.schema.names)

        def changed() -> Changed:
            places = [statement.target.span]
            old, state = self._matching(table, text, statement.where, statement.span, places)
            return Changed(state, old.num_rows, (weighted(old, -1),))

        return WrittenRows(table.id, *self.log.change(table, changed))

    def truncate(self, statement: Truncate) -> WrittenRows:
        """Delete all rows of a table."""
        return self.delete(Delete(statement.target, statement.span))

    # -- evaluation ------------------------------------------------------------------------

    def _require_free(
        self, table: Table, old: pa.Table, new: pa.Table, span: Span, state: Published
    ) -> None:
        """Raise if an update would give a row the key of another remaining row."""
        key = list(table.primary_key)
        moving = set(key_values(old, key))
        moved = [place for place, found in enumerate(key_values(new, key)) if found not in moving]
        keys = new.select(key).take(pa.array(moved, pa.int64()))
        there = self.reader.contents(state, table).with_keys(keys)
        if not there.num_rows:
            return
        shown = ", ".join(f"{name} = {there[name][0]}" for name in key)
        raise HeadraceError(
            Code.CONFLICT,
            f'table "{table.name}" has another row with {shown}',
            detail="The update would replace it. Nothing was changed.",
            hint="Choose a key that is free, or DELETE the other row first.",
            span=span,
        )

    def _matching(
        self, table: Table, columns: str, where: Any, span: Span, names: Iterable[Span]
    ) -> tuple[pa.Table, Published]:
        # Doubled parentheses: `FROM t WHERE (x)` can also mean a table alias "where" with a column.
        condition = "" if where is None else f" WHERE (({where.text}))"
        # If the statement has double-quoted names, the generated query has them, too.
        doubled = any(name.source.startswith('"') for name in names)
        name = f'"{table.name}"' if doubled and '"' not in table.name else quote(table.name)
        text = f"SELECT {columns} FROM {name}{condition}"

        def state(shape: Shape) -> Published:
            return self.reader.settled((*shape.reads, table.id))

        whole, also = Span.whole(text), (table.id,)
        try:
            rows, read = self.snapshots.rows(whole, state, lambda _: text, also)
        except HeadraceError as error:
            raise in_statement(error, span) from error
        require_defined(table, read)
        return rows, read


def _require_distinct(table: Table, rows: pa.Table, span: Span) -> None:
    keys = rows.select(list(table.primary_key))
    if keys.group_by(list(table.primary_key)).aggregate([]).num_rows < rows.num_rows:
        raise HeadraceError(
            Code.INVALID,
            f'the update would give two rows of table "{table.name}" the same primary key',
            span=span,
        )


EXCLUDED = "excluded"
"""The name of the new row in assignments, as in PostgreSQL."""


def require_key(table: Stream | Table, statement: Insert) -> None:
    """Raise if a conflict clause can never apply.

    Raises:
        HeadraceError: ``invalid`` without a primary key, or for other columns than the key's.
    """
    chosen = statement.on_conflict
    if not isinstance(table, Table) or not table.primary_key:
        what = "OR REPLACE" if chosen is None else "ON CONFLICT"
        raise HeadraceError(
            Code.INVALID,
            f'{what} on {table.kind} "{table.name}", which has no PRIMARY KEY',
            hint="Leave it out: without a key, all rows are kept.",
            span=statement.span if chosen is None else chosen.span,
        )
    key = {name.lower() for name in table.primary_key}
    if chosen is None:
        return
    if chosen.columns and {name.lower() for name in chosen.columns} != key:
        raise HeadraceError(
            Code.INVALID,
            f"ON CONFLICT ({', '.join(chosen.columns)}) does not name the primary key",
            hint=f"Rows are unique by ({', '.join(table.primary_key)}) only.",
            span=chosen.span,
        )
    for assignment in chosen.assignments:
        if assignment.column.lower() in key:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'DO UPDATE of "{assignment.column}", part of the primary key, is not supported',
                hint="Use UPDATE to give a row another key.",
                span=assignment.span,
            )


@dataclass(frozen=True, slots=True)
class Resolved:
    """The rows that an INSERT with a conflict clause writes: new rows and updated existing ones."""

    inserted: pa.Table
    updated: pa.Table


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Resolves conflicts between new rows and the rows of a table."""

    evaluator: Evaluator
    table: Table
    clause: OnConflict

    def resolved(self, rows: pa.Table, existing: pa.Table) -> Resolved:
        """Return the rows to write; ``existing`` has the existing rows of the same keys.

        Raises:
            HeadraceError: ``conflict`` if two new rows would update one.
        """
        key = self.table.primary_key
        places = {found: place for place, found in enumerate(key_values(existing, key))}
        fresh: list[int] = []
        pairs: list[tuple[int, int]] = []
        seen: set[object] = set()
        for row, found in enumerate(key_values(rows, key)):
            twice = found in seen
            seen.add(found)
            if twice and self.clause.assignments:
                raise self._twice(rows, row)
            if found in places:
                pairs.append((places[found], row))
            elif not twice:
                fresh.append(row)
        inserted = rows.take(pa.array(fresh, pa.int64()))
        if not self.clause.assignments or not pairs:
            return Resolved(inserted, existing.slice(0, 0))
        old = existing.take(pa.array([place for place, _ in pairs], pa.int64()))
        new = rows.take(pa.array([row for _, row in pairs], pa.int64()))
        return Resolved(inserted, self._updated(old, new))

    def _updated(self, old: pa.Table, excluded: pa.Table) -> pa.Table:
        table, clause = self.table, self.clause
        columns = {column.name.lower(): column for column in table.schema.columns}
        constants, computed = split_assignments(
            [(columns[a.column.lower()], a.expression.span) for a in clause.assignments],
            dict(table.declaration.defaults),
        )
        expressions = [f"({span.source}) AS `__new{i}`" for i, (_, span) in enumerate(computed)]
        if clause.where is not None:
            expressions.append(f"({clause.where.text}) AS `__where`")
        values: list[Any] = []
        if expressions:
            found = self._evaluated(old, excluded, expressions)
            values = [found[f"__new{i}"] for i in range(len(computed))]
            if clause.where is not None:
                chosen_rows = found["__where"]
                old = old.filter(chosen_rows)
                values = [column.filter(chosen_rows) for column in values]
        return updated(table.schema, old, constants, computed, values)

    def _evaluated(self, old: pa.Table, excluded: pa.Table, expressions: list[str]) -> pa.Table:
        """Evaluate expressions with Spark over pairs of an existing row and a new row."""
        table, span = self.table, self.clause.span
        columns = table.schema.columns
        doubled = any(a.span.source.startswith('"') for a in self.clause.assignments)
        name = table.name.rsplit(".", 1)[-1]
        alias = f'"{name}"' if doubled and '"' not in name else quote(name)

        def given(value: Any) -> str:
            own = [f"{value('o', i, c)} AS {quote(c.name)}" for i, c in enumerate(columns)]
            other = [f"{value('e', i, c)} AS {quote(c.name)}" for i, c in enumerate(columns)]
            return ", ".join([*own, f"struct({', '.join(other)}) AS `{EXCLUDED}`"])

        nothing = given(lambda _side, _i, c: f"CAST(NULL AS {c.type.simpleString()})")
        text = f"SELECT {', '.join(expressions)} FROM (SELECT {nothing}) AS {alias}"
        try:
            planned = self.evaluator.planned(Span.whole(text))
            self._require_own(planned.shape.names)
            pairs = pa.table(
                [*old.select(table.schema.names).columns, *excluded.columns],
                names=[f"{side}{i}" for side in "oe" for i in range(len(columns))],
            )
            columns_given = given(lambda side, i, _c: f"`{side}{i}`")
            source = f"(SELECT __place, {columns_given} FROM __rows) AS {alias}"
            return self.evaluator.computed(pairs, expressions, source)
        except HeadraceError as error:
            raise in_statement(error, span) from error

    def _require_own(self, names: tuple[RelationId, ...]) -> None:
        """Raise if an expression reads other relations."""
        if names:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "ON CONFLICT that reads other relations is not supported",
                hint="Use INSERT ... SELECT with a join.",
            )

    def _twice(self, rows: pa.Table, row: int) -> HeadraceError:
        shown = ", ".join(f"{name} = {rows[name][row]}" for name in self.table.primary_key)
        return HeadraceError(
            Code.CONFLICT,
            f'ON CONFLICT DO UPDATE would change a row of table "{self.table.name}" twice',
            detail=f"Several rows to be inserted have {shown}. Nothing was changed.",
            hint="Insert one row per key.",
            span=self.clause.span,
        )
