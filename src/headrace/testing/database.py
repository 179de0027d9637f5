"""A database for one test: rows in, the rows or the changes of views out.

A project's definitions for a test, without the systems that they name.

A stream or table that reads from another system becomes a plain one with the same columns, key,
watermark and clauses, to which the test writes rows; its METADATA columns become plain ones. Sinks
to other systems, connections, secrets, schemas and indexes are left out, and so is every statement
that defines nothing, such as INSERT.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.execution.serving import Change, Follower
from headrace.execution.serving.values import python_rows
from headrace.interfaces.statements.results import last_of
from headrace.lifecycle.inputs.rows import weighted
from headrace.planning.catalog import Stream, Table, View, key_of, title
from headrace.planning.sql import (
    CreateConnection,
    CreateIndex,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    Name,
    Option,
    Query,
    Verify,
    parse,
    quote_dotted,
)
from headrace.planning.sql.definitions import DEFINING, Definitions
from headrace.testing.clock import BEGINNING, ControlledClock, instant_of, with_clock
from headrace.testing.comparing import (
    SIGN,
    Changes,
    RowDifference,
    Rows,
    TextRows,
    columns_named,
    columns_of,
    difference,
    expected_changes,
    expected_rows,
    rows_of,
    signed,
    summed,
    table_of_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from headrace.interfaces.database import Database
    from headrace.interfaces.session import Session
    from headrace.interfaces.statements.results import Result
    from headrace.planning.catalog import Relation
    from headrace.planning.functions import Function
    from headrace.planning.sql import Statement
    from headrace.planning.sql.definitions import Definition, Named
    from headrace.planning.sql.parameters import Parameters
    from headrace.testing.prepared import PreparedDatabases, Template
    from headrace.types import Column, Epoch


_LEFT_OUT: Final = (CreateConnection, CreateIndex, CreateSchema, CreateSecret)
TESTED: Final = tuple(each for each in DEFINING if each not in _LEFT_OUT)
"""The statements before the tests of a file that define what all of its tests need."""
_KEPT_OPTIONS: Final = frozenset({
    "effective_from", "retention", "timestamp", "description", "friendly_name", "topic",
    "kafka_topic",
})  # fmt: skip
"""Options of streams and tables that do not name another system, or say what their rows mean."""


def definitions_of(paths: Iterable[Path], text: str = "", file: str | None = None) -> Definitions:
    """Return the definitions in files and directories, and in a text that replaces some.

    Raises:
        HeadraceError: as :meth:`headrace.planning.sql.definitions.Definitions.of`.
    """
    return Definitions.of(paths, text, file, adapted)


def adapted(statement: Named) -> Named | None:
    """Return a definition without the systems that it names; None if nothing of it is left."""
    match statement:
        case CreateTable() if statement.captured and not statement.columns:
            return None
        case CreateSource() | CreateConnection() | CreateIndex() | CreateSchema() | CreateSecret():
            return None
        case CreateSink() if not isinstance(statement.into, Name):
            return None
        case CreateStream() | CreateTable():
            return without_systems(statement)
        case _:
            return statement


def without_systems(statement: CreateStream | CreateTable) -> CreateStream | CreateTable:
    """Return the statement for a plain stream or table, to which a test writes rows."""
    options = tuple(each for each in statement.options if each.key.lower() in _KEPT_OPTIONS)
    given = {each.key.lower() for each in statement.options}
    if "value_format" in given and "kafka_topic" not in given:  # a relation of ksqlDB
        options = (*options, Option("kafka_topic", statement.name.dotted, statement.name.span))
    columns = tuple(replace(each, metadata=None) for each in statement.columns)
    taken = replace(statement.taken, stops=False)
    if isinstance(statement, CreateTable):
        return replace(statement, columns=columns, options=options, taken=taken, captured=None)
    return replace(statement, columns=columns, options=options, taken=taken)


class TestDatabase:
    """A database with the definitions of a project, and a clock that the test moves.

    Nothing is read from other systems and nothing is written to them. Epochs are made when a test
    reads, moves the clock or calls :meth:`epoch`: what it writes in between is in one epoch.
    """

    __test__ = False  # pytest: it is not a test itself

    def __init__(self, prepared: PreparedDatabases, directory: Path) -> None:
        """Make a database without definitions; relative paths are below ``directory``."""
        self._prepared = prepared
        self._directory = directory
        self._opened: _Opened | None = None
        self.clock = ControlledClock(ends_epoch=self._end_epoch)
        """The clock of ``now()`` in views, and of the time at which rows arrive."""

    # -- definitions -----------------------------------------------------------------------

    def load(
        self,
        *paths: str | Path,
        define: str = "",
        only: str | Sequence[str] = (),
        alone: str | Sequence[str] = (),
        functions: Sequence[Function] = (),
        at: str | datetime = BEGINNING,
    ) -> Self:
        """Define what files and directories of SQL define, without the systems that they name.

        Args:
            paths: files, and directories, whose files ``*.sql`` are all read except tests.
            define: statements that define more, or replace definitions of the same names.
            only: views that are defined, with all that they read; by default, everything is.
            alone: views that are tested without their upstream: views that they read become tables
                with the same columns, to which the test writes rows.
            functions: Python functions that queries call; see :func:`headrace.function`.
            at: the time at which the test begins.

        Raises:
            HeadraceError: as the statements, with their places; ``invalid`` for a path without
                definitions, and for names that are not defined.
        """
        found = definitions_of([self._directory / path for path in paths], define)
        return self.define(found, _names(only), _names(alone), functions, at)

    def define(
        self,
        definitions: Definitions,
        only: Sequence[str] = (),
        alone: Sequence[str] = (),
        functions: Sequence[Function] = (),
        at: str | datetime = BEGINNING,
    ) -> Self:
        """Define what some definitions say; see :meth:`load`."""
        if self._opened is not None:
            raise HeadraceError(
                Code.INVALID,
                "the definitions of this test are loaded already",
                hint="Give all paths to one load; CREATE more with sql.",
            )
        if alone:
            statements = self._alone(definitions, alone, functions)
        else:
            needed = definitions.below(only) if only else definitions.every()
            statements = _statements(needed)
        template = self._prepared.template(statements, functions)
        self.clock.now = instant_of(at)
        database = self._prepared.open(template, self.clock.micros, functions)
        self._opened = _Opened(template, database, database.session(), database.last_epoch())
        self._end_epoch()  # views with a schedule are refreshed now, and due from now on
        self._opened = replace(self._opened, beginning=database.last_epoch())
        return self

    def _alone(
        self, definitions: Definitions, alone: Sequence[str], functions: Sequence[Function]
    ) -> list[Statement]:
        """Return the definitions of views, with tables in place of the views that they read."""
        targets = [definitions.named(name) for name in alone]
        names = {each.name for each in targets}
        reads = {name for each in targets for name in each.reads} - names
        inputs = [each for name, each in definitions.by_name.items() if name in reads]
        views = [each for each in inputs if each.is_view]
        given: list[Statement] = []
        if views:
            upstream = definitions.below(each.name for each in views)
            shapes = self._prepared.template(_statements(upstream), functions).shapes
            for each in views:
                given += parse(shapes[each.name].statement(each))
        others = [each for each in inputs if not each.is_view]
        below = definitions.below(each.name for each in others) if others else []
        plain = [each for each in below if not each.is_view and each.fills is None]
        in_order = [each for each in definitions.below(names) if each.name in names]
        return [*given, *_statements(plain), *_statements(in_order)]

    # -- writing ---------------------------------------------------------------------------

    def sql(self, text: str, parameters: Parameters | None = None) -> Result:
        """Run statements; return the last one's result. ``now()`` in them is the test's clock.

        Raises:
            HeadraceError: as the statements.
        """
        __tracebackhide__ = True
        clocked = with_clock(text, self.clock.now)
        if parameters is not None:
            return self._open.session.sql(clocked, parameters)
        return last_of((self.run(statement) for statement in parse(clocked)), clocked)

    def run(self, statement: Statement) -> Result:
        """Run a parsed statement.

        Raises:
            AssertionError: if it is VERIFY, and a view differs from its query.
            HeadraceError: as the statement.
        """
        __tracebackhide__ = True
        found = last_of([self._open.session.run(statement)], statement.span.text)
        if isinstance(statement, Verify):
            wrong = [row for row in found.to_pylist() if row["differences"]]
            assert not wrong, f"views differ from their queries: {wrong}"  # noqa: S101
        return found

    def insert(self, name: str, rows: Rows) -> None:
        """Write rows to a stream or table; columns that they lack have their default, or NULL.

        A row replaces the one with its primary key, if there is a key.

        Raises:
            HeadraceError: ``invalid`` for a row that is refused.
        """
        if isinstance(rows, str):
            rows = TextRows.of(rows.splitlines())
        if isinstance(rows, TextRows):
            relation = self._relation(name)
            columns = columns_named(rows.header, relation.schema.columns, title(relation))
            rows = table_of_text(rows, columns)
        self._open.session.insert(name, rows)

    def delete(self, name: str, rows: Rows) -> None:
        """Delete the rows of a table that equal one of some rows in all columns that these have.

        So a row is deleted by its key, or by any other columns. ``DELETE`` needs Spark, this does
        not.

        Raises:
            HeadraceError: ``invalid`` for a row that equals none of the table, and for a stream.
        """
        self._end_epoch()
        relation, parts = self._relation(name), self._open.database.parts
        if not isinstance(relation, Table):
            raise HeadraceError(
                Code.INVALID,
                f"rows of {title(relation)} cannot be deleted",
                hint="Only those of a table can.",
            )
        wanted = expected_rows(rows, relation.schema.columns, title(relation))
        contents = parts.reader.contents(parts.reader.published, relation)
        for at in range(wanted.num_rows):
            row = wanted.slice(at, 1)
            found = contents.alike(row)
            if not found.num_rows:
                raise HeadraceError(
                    Code.INVALID, f"{title(relation)} has no row {row.to_pylist()[0]}"
                )
            parts.log.append(relation, weighted(found, -1))

    def epoch(self) -> Epoch:
        """Make an epoch of what was written, and refresh the views that are due; return it."""
        self._end_epoch()
        return self._open.database.last_epoch()

    def _end_epoch(self) -> None:
        """Make the epochs that are due now, also without a change, so that views see the clock."""
        if self._opened is None:
            return
        database = self._opened.database
        database.flush()
        refreshes = database.parts.pump.refreshes
        while refreshes.run_due() is not None:
            database.flush()

    # -- reading ---------------------------------------------------------------------------

    def rows(self, view: str) -> list[dict[str, Any]]:
        """Return the rows of a view, table, stream or query, as dicts by column, in no order.

        Raises:
            HeadraceError: as the query; ``invalid`` for a view that has stopped at an error.
        """
        return python_rows(self._table(view)[0])

    def changes(self, view: str) -> list[Change]:
        """Return the changes of a view or table since the last call, or since the test began.

        Raises:
            HeadraceError: ``invalid`` for a stream, a query, and a view that has stopped.
        """
        opened, relation = self._open, self._relation(view)
        if not isinstance(relation, View | Table):
            raise HeadraceError(
                Code.INVALID,
                f"{title(relation)} has no changelog",
                hint="A stream is append-only: compare its rows. Only a materialized view or a"
                " table has changes.",
            )
        self._end_epoch()
        reader = opened.database.parts.reader
        reader.require_running(relation)
        follower = opened.followers.get(relation.name)
        if follower is None:
            history = reader.history(reader.published, relation.id)
            follower = Follower(
                history, key_of(relation), opened.database.last_epoch, opened.beginning
            )
            opened.followers[relation.name] = follower
        return follower.poll() or []

    def rejects(self, name: str) -> list[dict[str, Any]]:
        """Return the rows that a stream has rejected, such as late ones, the oldest first.

        Each has the columns ``reason`` and ``row``, a dict of its values as JSON.
        """
        found = self._open.session.sql(f"SHOW REJECTS FOR {quote_dotted(name)}")
        return [
            {"reason": each["reason"], "row": json.loads(each["raw"])}
            for each in reversed(found.to_pylist())
        ]

    def late(self, name: str) -> int:
        """Return how many rows of a stream were late, whether rejected or not."""
        return int(self._source(name)["late"] or 0)

    def duplicates(self, name: str) -> int:
        """Return how many rows of a stream were left out as duplicates."""
        return int(self._source(name)["duplicates"] or 0)

    def watermark(self, name: str) -> datetime | None:
        """Return the watermark of a stream; None if no row has arrived, or it has none."""
        micros = self._open.database.parts.log.admission.watermark(self._relation(name))
        if micros is None:
            return None
        found: datetime = pa.scalar(micros, pa.timestamp("us", "UTC")).as_py()
        return found

    def quarantined(self, view: str) -> list[dict[str, Any]]:
        """Return the rows on which a view's query failed, each with ``relation`` and ``error``.

        For a view without ``on_error = 'quarantine'``, this is the error at which it stopped.
        """
        self._end_epoch()
        found = self._open.session.sql(f"SHOW ERRORS FOR {quote_dotted(view.strip())}")
        return [
            {
                "relation": each["relation"],
                "row": None if each["row"] is None else json.loads(each["row"]),
                "copies": each["copies"],
                "error": each["error"],
            }
            for each in found.to_pylist()
        ]

    def _source(self, name: str) -> dict[str, Any]:
        relation = self._relation(name)
        if not isinstance(relation, Stream):
            raise HeadraceError(
                Code.INVALID,
                f"{title(relation)} counts no rows that it leaves out",
                hint="Only a stream does.",
            )
        found = self._open.session.sql("SHOW SOURCES").to_pylist()
        return next(each for each in found if each["name"] == relation.name)

    # -- comparing -------------------------------------------------------------------------

    def expect(self, view: str, rows: Rows, *, tolerance: float = 0.0) -> None:
        """Fail unless a view, table, stream or query has exactly some rows, in any order.

        Only the columns that the rows have are compared. Floats within ``tolerance``, relative or
        absolute, are equal. An empty list, or a header without rows, stands for no rows.

        Raises:
            AssertionError: with the rows that differ.
            HeadraceError: as the query; ``invalid`` for a column that does not exist, and for a
                value that is not of its column's type.
        """
        __tracebackhide__ = True
        table, columns, key = self._table(view)
        what = f"rows of {view.strip()}" if _is_name(view) else "rows of the query"
        self.expect_table(table, columns, what, rows, tolerance=tolerance, key=key)

    def expect_table(
        self,
        table: pa.Table,
        columns: Sequence[Column],
        what: str,
        rows: Rows,
        *,
        tolerance: float = 0.0,
        key: Sequence[str] = (),
    ) -> None:
        """Fail unless a table has exactly some rows; see :meth:`expect`."""
        __tracebackhide__ = True
        expected = expected_rows(rows, columns, what)
        found = difference(
            expected.column_names,
            rows_of(expected),
            rows_of(table.select(expected.column_names)),
            key=key if set(key) <= set(expected.column_names) else (),
            tolerance=tolerance,
        )
        self._fail(what, found)

    def expect_changes(self, view: str, changes: Changes, *, tolerance: float = 0.0) -> None:
        """Fail unless a view or table has had exactly some changes since :meth:`changes`.

        In text, the first column ``+/-`` has ``+`` for a row that was inserted and ``-`` for one
        that was deleted, or a weight such as ``+2``; the new and the old row of an update are one
        of each. Rules separate epochs: without one, the changes of all epochs are compared. Within
        an epoch, they have no order.

        Raises:
            AssertionError: with the changes that differ.
            HeadraceError: as :meth:`expect`.
        """
        __tracebackhide__ = True
        relation = self._relation(view)
        found = self.changes(view)
        epochs, signs, rows = expected_changes(changes)
        expected = expected_rows(rows, relation.schema.columns, title(relation))
        names = expected.column_names
        wanted = [
            (number, weight, *row)
            for number, weight, row in zip(epochs, signs, rows_of(expected), strict=True)
        ]
        numbers = {epoch: at for at, epoch in enumerate(dict.fromkeys(c.epoch for c in found), 1)}
        separates = max(epochs, default=1) > 1
        table = relation.schema.arrow.empty_table()
        if found:
            table = pa.Table.from_pylist([c.row for c in found], relation.schema.arrow)
        actual = [
            (numbers[change.epoch] if separates else 1, change.weight, *row)
            for change, row in zip(found, rows_of(table.select(names)), strict=True)
        ]
        columns = ("epoch", SIGN, *names)
        compared = difference(columns, summed(wanted), summed(actual), fixed=2, tolerance=tolerance)
        self._fail(f"changes of {title(relation)}", signed(compared, separates=separates))

    def _fail(self, what: str, found: RowDifference) -> None:
        __tracebackhide__ = True
        if found:
            time = self.clock.now.replace(tzinfo=None).isoformat(" ")
            epoch = self._open.database.last_epoch()
            raise AssertionError(f"{what} differ at {time} (epoch {epoch}): {found}")

    def _table(self, view: str) -> tuple[pa.Table, Sequence[Column], tuple[str, ...]]:
        """Return the rows of a relation or query, its columns, and its key."""
        database = self._open.database
        relation = database.parts.reader.catalog.find(view.strip()) if _is_name(view) else None
        if isinstance(relation, View | Table):
            self._end_epoch()
            reader = database.parts.reader
            reader.require_running(relation)
            rows = reader.contents(reader.published, relation).whole()
            return rows, relation.schema.columns, key_of(relation)
        text = view
        if _is_name(view):
            self._relation(view)
            text = f"SELECT * FROM {quote_dotted(view.strip())}"
        (statement,) = parse(with_clock(text, self.clock.now))
        rows = self.queried(statement)
        return rows, columns_of(rows), ()

    def queried(self, statement: Statement) -> pa.Table:
        """Return the rows of a parsed query."""
        if not isinstance(statement, Query):
            raise HeadraceError(
                Code.INVALID, f"{statement.span.source!r} is not a query", span=statement.span
            )
        self._end_epoch()
        return self.run(statement).to_arrow()

    # -- the database ----------------------------------------------------------------------

    @property
    def database(self) -> Database:
        """The open database, for all that this class lacks."""
        return self._open.database

    def close(self) -> None:
        """Close the database and remove it."""
        if self._opened is not None:
            self._prepared.end(self._opened.database, self._opened.template)
            self._opened = None

    def relation(self, name: str) -> Relation:
        """Return a relation as the catalog has it.

        Raises:
            HeadraceError: ``invalid`` if there is none of the name.
        """
        return self._relation(name)

    def _relation(self, name: str) -> Relation:
        return self._open.database.parts.reader.catalog.resolve(name.strip())

    @property
    def _open(self) -> _Opened:
        if self._opened is None:
            raise HeadraceError(
                Code.INVALID,
                "no definitions are loaded",
                hint='Begin the test with load("views"), or load(define="CREATE TABLE ...").',
            )
        return self._opened


@dataclass(frozen=True, slots=True)
class _Opened:
    """The open copy of a template, and the last epoch of the template."""

    template: Template
    database: Database
    session: Session
    beginning: Epoch
    followers: dict[str, Follower] = field(default_factory=dict)


def _names(given: str | Sequence[str]) -> Sequence[str]:
    return given.split() if isinstance(given, str) else given


def _statements(definitions: Iterable[Definition]) -> list[Statement]:
    return [statement for each in definitions for statement in each.statements]


def _is_name(view: str) -> bool:
    """Whether a text is the name of a relation, and not a query."""
    return len(view.split()) == 1
