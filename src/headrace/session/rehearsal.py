"""EXPLAIN SCRIPT: what each statement of a script would do after those before it, or why not.

The statements are run as they always are, by the same classes, over parts that keep nothing: a
catalog, a planner and settings that begin as those of the database and are forgotten afterwards.
No row is read, no view is filled, and nothing is created in other systems; these are asked whether
they would answer, unless the script is explained offline.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headrace.catalog import PlainView, Sink, Stream, Table, View
from headrace.connectors import Captures, Connections, PostgresCapture, Secrets
from headrace.errors import Code, HeadraceError
from headrace.ledger import RepairPath
from headrace.parts.declarations import Declarations
from headrace.parts.definer import Definer
from headrace.parts.destinations import Destinations
from headrace.parts.feeding import Feeding
from headrace.parts.filling import FILL_RATE
from headrace.parts.lineage import Lineages
from headrace.parts.naming import HIDDEN, shown_name
from headrace.parts.reshaping import Reshaping
from headrace.parts.schemas import Schemas
from headrace.session.injection import Injector
from headrace.sql import (
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
from headrace.sql.definitions import names_in
from headrace.statements.describing.changes import CREATE, DEFINED, UNCHECKED, WRONG
from headrace.statements.describing.definitions import DEFINITIONS, DefinitionChanges
from headrace.statements.results import Listed
from headrace.statements.sinks.creations import SinkCreations
from headrace.types import BuildId, Epoch, RelationId, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headrace.catalog import Catalog, Relation
    from headrace.connectors import Given, NamedConnection, Reference
    from headrace.connectors.postgres.tables import PgTable
    from headrace.engine.planned import Planned
    from headrace.errors import Span
    from headrace.ledger import EpochCommit, Ledger
    from headrace.runtime.published import Published
    from headrace.session.parts import DatabaseParts
    from headrace.sql import Query, Statement
    from headrace.statements.defining.view_builds import ViewBuilds
    from headrace.types import ArrangementId
    from headrace.zset import Layout

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
_FIRST_ID: Final = 1 << 48
"""The first of the ids that relations get here; the ledger's are far below."""


class UncheckedError(HeadraceError):
    """What a statement would do is not known without reaching another system."""

    def __init__(self, primary: str) -> None:
        super().__init__(Code.UNAVAILABLE, primary)


class _Nothing:
    """Does nothing, whatever it is asked to do."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_arguments, **_named: None


@dataclass(slots=True)
class _Settings:
    """The settings of a ledger, with those that are changed here."""

    stored: Any
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return str(self.stored.identity)

    def get(self, key: str) -> Any:
        return self.changed[key] if key in self.changed else self.stored.get(key)

    def set(self, key: str, value: Any) -> None:
        self.changed[key] = value


@dataclass(slots=True)
class _Ids:
    """Ids that no relation of the ledger has."""

    numbers: count[int] = field(default_factory=lambda: count(_FIRST_ID))

    def relation(self) -> RelationId:
        return RelationId(next(self.numbers))

    def build(self) -> BuildId:
        return BuildId(next(self.numbers))


class _Ledger:
    """What statements that define something read of a ledger; a commit changes nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self.settings, self.ids = _Settings(ledger.settings), _Ids()
        self.dirty = self.loads = _Nothing()
        self.head, self.log, self.spines = ledger.head, ledger.log, ledger.spines

    def commit(self, _commit: EpochCommit) -> Epoch:
        return self.head.epoch


@dataclass(slots=True)
class _Publisher:
    """The state that statements see: that of the database, with the catalog that they make."""

    current: Published

    def publish(
        self,
        catalog: Catalog | None = None,
        layouts: Mapping[ArrangementId, Layout] | None = None,
    ) -> Published:
        state = self.current
        if catalog is not None:
            stored = (r for r in catalog if isinstance(r, Table | View))
            spines = {rows_of(each.id): () for each in stored} | dict(state.spines)
            state = replace(state, catalog=catalog, spines=spines)
        self.current = state if layouts is None else replace(state, layouts=layouts)
        return self.current


@dataclass(slots=True)
class _Loop:
    """What changes of the catalog ask of the loop of epochs, without any epoch."""

    published: _Publisher
    refreshing: RLock = field(default_factory=RLock)

    @property
    def catalog(self) -> Catalog:
        return self.published.current.catalog

    def stopped(self) -> frozenset[RelationId]:
        return self.published.current.stopped

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        yield


class _Feeds(_Nothing):
    by_relation: Final[Mapping[RelationId, Any]] = {}


@dataclass(frozen=True, slots=True)
class _Definer(Definer):
    """Changes the catalog of a rehearsal; views are planned, and not filled."""

    def create_view(
        self,
        planned: Planned,
        progress: object,  # noqa: ARG002
        dropped: tuple[RelationId, ...] = (),
        **_how: bool,
    ) -> Epoch:
        gone = [each for each in self.loop.catalog if each.id in dropped]
        catalog = self.loop.catalog.without(dropped).with_(planned.view)
        self.declarations.withdraw(gone, self.loop.catalog)
        return self._declared(planned, catalog)

    def replace_view(
        self,
        former: View,  # noqa: ARG002
        planned: Planned,
        progress: object,  # noqa: ARG002
        **_how: bool,
    ) -> Epoch:
        return self._declared(planned, self.loop.catalog.with_(planned.view))

    def _declared(self, planned: Planned, catalog: Catalog) -> Epoch:
        self.declarations.announce(planned.view, planned.circuit)
        layouts = {rows_of(planned.view.id): planned.circuit.output.operator.layout}
        self._publish(catalog, layouts)
        return self.ledger.head.epoch


@dataclass(frozen=True, slots=True)
class _Sets:
    """Gives views other queries, as candidates that are swapped together do at the end.

    Views above keep what they are, until their own statements come.
    """

    builds: ViewBuilds

    def create(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> str:
        planned = self.builds.of_statement(statement, query, former)
        self.builds.definer.replace_view(former, planned, lambda *_: None)
        return ""

    replace = create


@dataclass(frozen=True, slots=True)
class _Captures(Captures):
    """Sources whose slots are not created."""

    offline: bool

    def prepared(self, name: str, connection: str, given: Iterable[Given]) -> PostgresCapture:
        if not self.offline:
            return Captures.prepared(self, name, connection, given)
        self.connections.find(connection, "postgres")
        return PostgresCapture(name, connection, "", name, 0)

    def add(self, capture: PostgresCapture) -> None:
        self._kept.put(capture.name, asdict(capture))

    def drop_slot(self, capture: PostgresCapture) -> None:
        """Do nothing."""

    def described(self, capture: PostgresCapture, reference: Reference) -> PgTable:
        if self.offline:
            raise UncheckedError(
                f'the columns of table "{reference}" of PostgreSQL are not asked for'
            )
        return Captures.described(self, capture, reference)

    def published(self, capture: PostgresCapture) -> list[Reference]:
        if self.offline:
            raise UncheckedError("the tables of the publication are not asked for")
        return Captures.published(self, capture)


@dataclass(frozen=True, slots=True)
class _Feeding(Feeding):
    """Checks sources, and starts none."""

    offline: bool

    def check(self, relation: Stream | Table) -> None:
        if not self.offline:
            Feeding.check(self, relation)

    def begin(self, relation: Stream | Table, *, rejecting: bool = False) -> None:
        """Do nothing."""

    def begin_new(self, relation: Stream | Table) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class _Destinations(Destinations):
    """Checks the targets of sinks, and creates nothing in them."""

    offline: bool = False

    def context(self, *given: Any) -> Any:
        return replace(Destinations.context(self, *given), tries=True, offline=self.offline)


@dataclass(frozen=True, slots=True)
class _Capturing:
    """Finds the tables of sources, which are not read."""

    reader: Any
    feeds: _Feeds

    def begin(self, _capture: PostgresCapture) -> None:
        """Do nothing."""

    def tables(self, name: str) -> list[Table]:
        return [
            each
            for each in self.reader.catalog
            if isinstance(each, Table) and each.declaration.shared_source == name
        ]


@dataclass(frozen=True, slots=True)
class _Unreached(Connections):
    """Connections to systems that are not reached."""

    def add(
        self, name: str, kind: str, given: Iterable[Given], span: Span | None
    ) -> NamedConnection:
        made = self.read(name, kind, given, span)
        self.put(made)
        return made


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
        ledger: Any = _Ledger(parts.ledger)
        publisher = _Publisher(parts.reader.published)
        loop: Any = _Loop(publisher)
        nothing: Any = _Nothing()
        reader = replace(parts.reader, ledger=ledger, publisher=publisher)  # type: ignore[arg-type]
        engine = parts.engine.apart()
        declarations = Declarations(
            engine, nothing, nothing, ledger, set(parts.declarations.unplanned)
        )
        engine.circuits.check = lambda _view, _circuit: None
        secrets = Secrets(ledger, parts.secrets.variable)
        reach = _Unreached if offline else Connections
        connections = reach(ledger, secrets)
        feeds: Any = _Feeds()
        self.reader, self.engine = reader, engine
        self._changes = replace(parts.changes, reader=reader, engine=engine)
        given = {each.name: getattr(parts, each.name) for each in fields(parts)} | {**of_client}
        given |= {
            "ledger": ledger,
            "loop": loop,
            "reader": reader,
            "engine": engine,
            "declarations": declarations,
            "definer": _Definer(ledger, loop, declarations, nothing, nothing, feeds, nothing),
            "reshaping": Reshaping(ledger, loop, declarations),
            "lineages": Lineages(reader, engine),
            "changes": self._changes,
            "secrets": secrets,
            "connections": connections,
            "captures": _Captures(ledger, connections, offline),
            "schemas": Schemas(ledger),
            "feeds": feeds,
            "feeding": _Feeding(reader, ledger, parts.log, parts.queries, secrets, feeds, offline),
            "capturing": _Capturing(reader, feeds),
            "destinations": _Destinations(
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
        given["sets"] = _Sets(self._injector.of(composed["builds"]))

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
    """What could not be made, by name, and why."""

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
        below = [name for name, _ in names_in(statement.span, self._missing)]
        for name in _made_by(statement):
            self._missing[name] = error.primary
        if isinstance(error, UncheckedError):
            return (None, UNCHECKED, error.primary, None, None, None, None)
        if below:
            why = f"{below[0]}: {self._missing[below[0]]}"
            return (None, UNCHECKED, why, None, None, None, None)
        return (None, WRONG, error.primary, None, None, None, json.dumps(error.to_json()))


def _made_by(statement: Statement) -> Iterator[str]:
    """Yield the names of what a statement makes or changes."""
    name = getattr(statement, "name", None)
    if isinstance(name, Name):
        yield name.dotted
    if isinstance(statement, CreateSource):
        for each in statement.tables:
            yield (each.name or Name(each.reference.parts[-1:], each.reference.span)).dotted
