"""Parts of a database that keep nothing: what statements that only are tried change in them.

They begin as those of the database, and are forgotten afterwards.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.engine import Engine
from headrace.interfaces.statements.defining.candidate_sets import CandidateSets
from headrace.io.connectors import Captures, Connections, PostgresCapture
from headrace.lifecycle.definitions.definer import Definer
from headrace.lifecycle.inputs.feeding import Feeding
from headrace.lifecycle.inputs.sinks import Destinations
from headrace.planning.catalog import Table, View
from headrace.types import BuildId, RelationId, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from headrace.algebra.zset import Layout
    from headrace.errors import Span
    from headrace.execution.engine.circuits import Planned
    from headrace.execution.runtime.published import Published
    from headrace.io.connectors import Given, NamedConnection, Reference
    from headrace.io.connectors.postgres.tables import PgTable
    from headrace.planning.catalog import Catalog, Stream
    from headrace.planning.sql import CreateMaterializedView, CreateTableAs, Query
    from headrace.storage.ledger import EpochCommit, Ledger
    from headrace.types import ArrangementId, Epoch


_FIRST_ID: Final = 1 << 48
"""The first of the ids that relations get here; the ledger's are far below."""


def engine_apart(engine: Engine) -> Engine:
    """Return an engine with the same declarations; what is declared to one is not to the other.

    It plans in a session of its own.
    """
    made = Engine(engine.source, engine.partitions, engine.log)
    with engine.planning:
        known = engine.declared
        made.declared.remembered.update(known.remembered)
        for relation in known.by_id.values():
            made.declare(relation, planned=known.is_planned(relation))
        functions = tuple(known.functions.values())
    for function in functions:
        made.register(function)
    return made


class UncheckedError(HeadraceError):
    """What a statement would do is not known without reaching another system."""

    def __init__(self, primary: str) -> None:
        super().__init__(Code.UNAVAILABLE, primary)


class Nothing:
    """Does nothing, whatever it is asked to do."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_arguments, **_named: None


@dataclass(slots=True)
class TriedSettings:
    """The settings of a ledger, with those that are changed here."""

    stored: Any
    changed: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """The identity of the ledger."""
        return str(self.stored.identity)

    def get(self, key: str) -> Any:
        """Return a setting."""
        return self.changed[key] if key in self.changed else self.stored.get(key)

    def set(self, key: str, value: Any) -> None:
        """Keep a setting here."""
        self.changed[key] = value


@dataclass(slots=True)
class TriedIds:
    """Ids that no relation of the ledger has."""

    numbers: count[int] = field(default_factory=lambda: count(_FIRST_ID))

    def relation(self) -> RelationId:
        """Return an unused id for a relation."""
        return RelationId(next(self.numbers))

    def build(self) -> BuildId:
        """Return an unused id for a build."""
        return BuildId(next(self.numbers))


class TriedLedger:
    """What statements that define something read of a ledger; a commit changes nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self.settings, self.ids = TriedSettings(ledger.settings), TriedIds()
        self.dirty = self.loads = Nothing()
        self.head, self.log, self.spines = ledger.head, ledger.log, ledger.spines

    def commit(self, _commit: EpochCommit) -> Epoch:
        """Return the last epoch, and commit nothing."""
        return self.head.epoch


@dataclass(slots=True)
class TriedPublisher:
    """The state that statements see: that of the database, with the catalog that they make."""

    current: Published

    def publish(
        self,
        catalog: Catalog | None = None,
        layouts: Mapping[ArrangementId, Layout] | None = None,
    ) -> Published:
        """Let the statements that follow see another catalog."""
        state = self.current
        if catalog is not None:
            stored = (r for r in catalog if isinstance(r, Table | View))
            spines = {rows_of(each.id): () for each in stored} | dict(state.spines)
            state = replace(state, catalog=catalog, spines=spines)
        self.current = state if layouts is None else replace(state, layouts=layouts)
        return self.current


@dataclass(slots=True)
class TriedLoop:
    """What changes of the catalog ask of the loop of epochs, without any epoch."""

    published: TriedPublisher
    refreshing: RLock = field(default_factory=RLock)

    @property
    def catalog(self) -> Catalog:
        """The relations as the statements so far have made them."""
        return self.published.current.catalog

    def stopped(self) -> frozenset[RelationId]:
        """Return the views that have stopped."""
        return self.published.current.stopped

    @contextmanager
    def exclusive(self, among: Collection[RelationId] | None = None) -> Iterator[None]:  # noqa: ARG002
        """Run a block; there are no epochs here."""
        yield


class NoFeeds(Nothing):
    """The feeds of sources, which do not run."""

    by_relation: Final[Mapping[RelationId, Any]] = {}


@dataclass(frozen=True, slots=True)
class TriedDefiner(Definer):
    """Changes the catalog of a rehearsal; views are planned, and not filled."""

    def create_view(
        self,
        planned: Planned,
        progress: object,  # noqa: ARG002
        dropped: tuple[RelationId, ...] = (),
        **_how: bool,
    ) -> Epoch:
        """Create a view without filling it."""
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
        """Replace the query of a view without filling it."""
        return self._declared(planned, self.loop.catalog.with_(planned.view))

    def _declared(self, planned: Planned, catalog: Catalog) -> Epoch:
        self.declarations.announce(planned.view, planned.circuit)
        layouts = {rows_of(planned.view.id): planned.circuit.output.operator.layout}
        self._publish(catalog, layouts)
        return self.ledger.head.epoch


@dataclass(frozen=True, slots=True)
class TriedSets(CandidateSets):
    """Gives views other queries, as candidates that are swapped together do at the end.

    Views above keep what they are, until their own statements come.
    """

    def create(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> str:
        """Give a view another query."""
        planned = self.builds.of_statement(statement, query, former)
        self.definer.replace_view(former, planned, lambda *_: None)
        return ""

    replace = create


@dataclass(frozen=True, slots=True)
class TriedCaptures(Captures):
    """Sources whose slots are not created."""

    offline: bool

    def prepared(self, name: str, connection: str, given: Iterable[Given]) -> PostgresCapture:
        """Check the server and publication; offline, neither is known."""
        if not self.offline:
            return Captures.prepared(self, name, connection, given)
        self.connections.find(connection, "postgres")
        return PostgresCapture(name, connection, "", name, 0)

    def add(self, capture: PostgresCapture) -> None:
        """Remember a source without creating its slot."""
        self._kept.put(capture.name, asdict(capture))

    def drop_slot(self, capture: PostgresCapture) -> None:
        """Do nothing."""

    def described(self, capture: PostgresCapture, reference: Reference) -> PgTable:
        """Return the description of a table; offline, it is not known."""
        if self.offline:
            raise UncheckedError(f'the columns of "{reference}" in PostgreSQL are not asked for')
        return Captures.described(self, capture, reference)

    def published(self, capture: PostgresCapture) -> list[Reference]:
        """Return the published tables; offline, they are not known."""
        if self.offline:
            raise UncheckedError("the tables of the publication are not asked for")
        return Captures.published(self, capture)


@dataclass(frozen=True, slots=True)
class TriedFeeding(Feeding):
    """Checks sources, and starts none."""

    offline: bool

    def check(self, relation: Stream | Table) -> None:
        """Check a source, unless it is offline."""
        if not self.offline:
            Feeding.check(self, relation)

    def begin(self, relation: Stream | Table, *, rejecting: bool = False) -> None:
        """Do nothing."""

    def begin_new(self, relation: Stream | Table) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class TriedDestinations(Destinations):
    """Checks the targets of sinks, and creates nothing in them."""

    offline: bool = False

    def context(self, *given: Any) -> Any:
        """Return what a connector needs to try a sink."""
        return replace(Destinations.context(self, *given), tries=True, offline=self.offline)


@dataclass(frozen=True, slots=True)
class TriedCapturing:
    """Finds the tables of sources, which are not read."""

    reader: Any
    feeds: NoFeeds

    def begin(self, _capture: PostgresCapture) -> None:
        """Do nothing."""

    def tables(self, name: str) -> list[Table]:
        """Return the tables of a source."""
        return [
            each
            for each in self.reader.catalog
            if isinstance(each, Table) and each.declaration.shared_source == name
        ]


@dataclass(frozen=True, slots=True)
class UnreachedConnections(Connections):
    """Connections to systems that are not reached."""

    def add(
        self, name: str, kind: str, given: Iterable[Given], span: Span | None
    ) -> NamedConnection:
        """Remember a connection without reaching its system."""
        made = self.read(name, kind, given, span)
        self.put(made)
        return made
