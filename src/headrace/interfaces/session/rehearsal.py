"""EXPLAIN SCRIPT: what each statement of a script would do after those before it, or why not.

The statements are run as they always are, by the same classes, over parts that keep nothing: a
catalog, a planner and settings that begin as those of the database and are forgotten afterwards.
No row is read, no view is filled, and nothing is created in other systems; these are asked whether
they would answer, unless the script is explained offline.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.interfaces.session.client import Injector
from headrace.interfaces.session.tried_parts import (
    NoFeeds,
    Nothing,
    TriedCaptures,
    TriedCapturing,
    TriedDefiner,
    TriedDestinations,
    TriedFeeding,
    TriedLedger,
    TriedLoop,
    TriedPublisher,
    TriedSets,
    UncheckedError,
    UnreachedConnections,
    engine_apart,
)
from headrace.interfaces.statements.describing.effects import (
    CREATE,
    DEFINED,
    DEFINITIONS,
    UNCHECKED,
    WRONG,
    DefinitionChanges,
)
from headrace.interfaces.statements.results import Listed
from headrace.interfaces.statements.sinks.creations import SinkCreations
from headrace.io.connectors import Connections, Secrets
from headrace.lifecycle.definitions.filling import FILL_RATE
from headrace.lifecycle.definitions.reshaping import Reshaping
from headrace.lifecycle.facts.lineage import Lineages
from headrace.lifecycle.states.declarations import Declarations, Schemas
from headrace.planning.catalog import PlainView, Sink, View
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.sql import (
    AddColumns,
    CreateConnection,
    CreateFunction,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    Drop,
    DropColumns,
    DropFunction,
    DropIndex,
    Insert,
    Name,
    RenameColumn,
    RetypeColumn,
    parse,
)
from headrace.planning.sql.definitions import names_in
from headrace.storage.ledger import RepairPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.interfaces.session.parts import DatabaseParts
    from headrace.planning.catalog import Catalog, Relation
    from headrace.planning.sql import Statement


COLUMNS: Final = (
    "statement", "view", "path", "rule", "rebuild_rows", "seconds", "definition", "error",
)  # fmt: skip
_TYPES: Final = {
    "statement": pa.int64(),
    **dict.fromkeys(("view", "path", "rule", "definition", "error"), pa.string()),
    "rebuild_rows": pa.int64(),
    "seconds": pa.float64(),
}
_REHEARSED: Final = (
    CreateStream, CreateTable, CreateTableAs, CreateMaterializedView, CreateView, CreateIndex,
    CreateFunction, CreateSchema, CreateSecret, CreateConnection, CreateSource, CreateSink,
    AddColumns, DropColumns, RenameColumn, RetypeColumn, Drop, DropIndex, DropFunction,
)  # fmt: skip
"""The statements that are run; what others would do is only said."""


class Rehearsal:
    """A database on which statements can be tried one after another, and that is then forgotten."""

    def __init__(
        self,
        parts: DatabaseParts,
        of_client: Mapping[str, Any],
        composed: Mapping[str, type[Any]],
        *,
        offline: bool,
    ) -> None:
        ledger: Any = TriedLedger(parts.ledger)
        publisher = TriedPublisher(parts.reader.published)
        loop: Any = TriedLoop(publisher)
        nothing: Any = Nothing()
        reader = replace(parts.reader, ledger=ledger, publisher=publisher)  # type: ignore[arg-type]
        engine = engine_apart(parts.engine)
        declarations = Declarations(
            engine, nothing, nothing, ledger, set(parts.declarations.unplanned)
        )
        engine.circuits.check = lambda _view, _circuit: None
        secrets = Secrets(ledger, parts.secrets.variable)
        reach = UnreachedConnections if offline else Connections
        connections = reach(ledger, secrets)
        feeds: Any = NoFeeds()
        self.reader, self.engine = reader, engine
        self._changes = replace(parts.changes, reader=reader, engine=engine)
        given = {each.name: getattr(parts, each.name) for each in fields(parts)} | {**of_client}
        given |= {
            "ledger": ledger,
            "loop": loop,
            "reader": reader,
            "engine": engine,
            "declarations": declarations,
            "definer": TriedDefiner(ledger, loop, declarations, nothing, nothing, feeds, nothing),
            "reshaping": Reshaping(ledger, loop, declarations),
            "lineages": Lineages(reader, engine),
            "changes": self._changes,
            "secrets": secrets,
            "connections": connections,
            "captures": TriedCaptures(ledger, connections, offline),
            "schemas": Schemas(ledger),
            "feeds": feeds,
            "feeding": TriedFeeding(
                reader, ledger, parts.log, parts.queries, secrets, feeds, offline
            ),
            "capturing": TriedCapturing(reader, feeds),
            "destinations": TriedDestinations(
                parts.destinations.directory,
                secrets,
                reader,
                parts.log,
                parts.queries,
                parts.destinations.roots,
                offline,
            ),
            "sinks": nothing,
            "deliveries": nothing,
            "openlineage": nothing,
            "reused": nothing,
            "report": lambda _progress: None,
        }
        self._injector = Injector(given, composed)
        given["sets"] = self._injector.of(TriedSets)

    @property
    def catalog(self) -> Catalog:
        """The relations as the statements so far have made them."""
        return self.reader.catalog

    def rows_below(self, view: View) -> int:
        """Return the number of stored rows of a view's inputs, which its fill reads."""
        return self._changes.rows_below(view)

    def effects(self, statement: Any) -> Iterator[tuple[Relation, str, str, int | None]]:
        """Yield the effect of a statement on existing views."""
        return self._injector.of(DefinitionChanges).of(statement)

    def run(self, by: type[Any], run: Callable[[Any, Any], object], statement: Statement) -> None:
        """Run a statement by a class and its method.

        Raises:
            HeadraceError: as the statement.
        """
        run(self._injector.of(by), statement)

    def start(self, statement: Insert) -> None:
        """Start the job of an INSERT that would run continuously; others change no definition.

        Raises:
            HeadraceError: as the statement.
        """
        creations = self._injector.of(SinkCreations)
        if creations.is_job(statement):
            creations.start_job(statement)


@dataclass(slots=True)
class ScriptExplanation:
    """Says what each statement of a script would do, in an order in which all of them are run.

    What names something that could not be made is not said to be wrong itself.
    """

    rehearsal: Rehearsal
    table: Mapping[type[Statement], Any]
    require: Callable[[Statement], object]
    sees: Callable[[str], bool]
    _missing: dict[str, str] = field(default_factory=dict)
    """What could not be made, by name: what that needs first of all, and why it fails."""

    def of(self, script: str) -> Listed:
        """Return the rows of EXPLAIN SCRIPT.

        Raises:
            HeadraceError: as parsing; ``cancelled``, or ``unavailable`` if Spark is.
        """
        rows = [
            (number, *row)
            for number, statement in enumerate(parse(script), 1)
            for row in self._of(statement)
        ]
        return Listed(COLUMNS, rows, _TYPES)

    def _of(self, statement: Statement) -> Iterator[tuple[Any, ...]]:
        before = self.rehearsal.catalog
        try:
            self.require(statement)
            effects: list[tuple[Any, ...]] = []
            if isinstance(statement, DEFINITIONS):
                effects = [
                    (
                        shown_name(relation, before),
                        path,
                        rule,
                        rows,
                        self._seconds(path, rows),
                        None,
                        None,
                    )
                    for relation, path, rule, rows in self.rehearsal.effects(statement)
                    if self.sees(relation.name)
                ]
            if isinstance(statement, Insert):
                self.rehearsal.start(statement)
            elif isinstance(statement, _REHEARSED):
                entry = self.table[type(statement)]
                self.rehearsal.run(entry.by, entry.run, statement)
        except HeadraceError as error:
            if error.code is Code.CANCELLED:
                raise
            yield self._failed(statement, error)
            return
        yield from effects
        if isinstance(statement, AddColumns | DropColumns | RenameColumn | RetypeColumn):
            yield from self._defined(before)
        elif isinstance(statement, CreateMaterializedView | CreateTableAs):
            made = self.rehearsal.catalog.find(statement.name.dotted)
            if isinstance(made, View) and before.find(made.name) is None:
                rows = self.rehearsal.rows_below(made)
                seconds = self._seconds(CREATE, rows)
                yield made.name, CREATE, "filled from its inputs", rows, seconds, None, None

    def _seconds(self, path: str, rows: int | None) -> float | None:
        """Return about how long a fill takes that reads some rows; None if none was timed."""
        rate = self.rehearsal.reader.ledger.settings.get(FILL_RATE)
        if rate is None or rows is None or path not in (CREATE, RepairPath.REBUILD):
            return None
        return rows / float(rate)

    def _defined(self, before: Catalog) -> Iterator[tuple[Any, ...]]:
        """Yield the definitions of what reads a relation whose columns have changed."""
        for each in self.rehearsal.catalog:
            former = before.by_id.get(each.id)
            if isinstance(each, View | PlainView | Sink) and isinstance(
                former, View | PlainView | Sink
            ):
                changed = each.created_sql != former.created_sql
                if changed and not each.name.startswith(HIDDEN) and self.sees(each.name):
                    yield each.name, DEFINED, None, None, None, each.created_sql, None

    def _failed(self, statement: Statement, error: HeadraceError) -> tuple[Any, ...]:
        """Return the row of a statement that would fail, or whose effect is not known."""
        below = next((n for n, _ in names_in(statement.span, self._missing)), None)
        made = [*_made_by(statement)]
        unreached = isinstance(error, UncheckedError) or isinstance(error.__cause__, UncheckedError)
        why = f"it needs {made[0]}: {error.primary}" if made else error.primary
        if below is not None:
            why = self._missing[below]
        self._missing |= dict.fromkeys(made, why)
        if unreached or below is not None:
            return (None, UNCHECKED, error.primary if unreached else why, None, None, None, None)
        return (None, WRONG, error.primary, None, None, None, json.dumps(error.to_json()))


def _made_by(statement: Statement) -> Iterator[str]:
    """Yield the names of what a statement makes or changes."""
    name = getattr(statement, "name", None)
    if isinstance(name, Name):
        yield name.dotted
    if isinstance(statement, CreateSource):
        for each in statement.tables:
            yield (each.name or Name(each.reference.parts[-1:], each.reference.span)).dotted
