"""Declares the catalog's relations to Spark, for views and for queries.

Maps the error of a generated query to its place in the statement.

The schemas of a database: created ones, and those that relations are in.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.engine.circuits import OF_THE_VIEW
from headrace.lifecycle.states.system_relations import system_relations
from headrace.planning.catalog import Sink, View
from headrace.planning.catalog.naming import SYSTEM_SCHEMA
from headrace.planning.circuit import shared
from headrace.planning.circuit.digest import changes_since, digest

if TYPE_CHECKING:
    import threading
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from headrace.algebra.zset import Layout
    from headrace.execution.engine.engine import Engine
    from headrace.execution.engine.reading.queries import Queries
    from headrace.execution.engine.verifying.history import CanonicalHistory
    from headrace.planning.catalog import Catalog, PlainView, Relation, Stream, Table
    from headrace.planning.circuit import Circuit
    from headrace.storage.ledger import Ledger
    from headrace.types import ArrangementId, BuildId, RelationId


def in_statement(error: HeadraceError, statement: Span) -> HeadraceError:
    """Return the error of a generated query, at its place in the statement."""
    place = error.span
    if place is not None:
        statement = place_of_text(place.text[place.start : place.end], statement)
    return HeadraceError(error.code, error.primary, error.detail, error.hint, statement)


def place_of_text(text: str, statement: Span) -> Span:
    """Return the place of a text in a statement; the whole statement if the text is not in it."""
    at = statement.text.lower().find(text.lower(), statement.start, statement.end)
    if at < 0 or not text:
        return statement
    return Span(statement.text, at, at + len(text), statement.file, statement.line)


_REBUILT: Final = (
    "DROP the view and create it again, which fills it; or open the database with the version that"
    " created it."
)


@dataclass(frozen=True, slots=True)
class Declarations:
    """Declares relations to Spark: names for the planner, circuits for epochs, texts for batch.

    A view is planned when its circuit is first needed, and its stored state compared with it. One
    that lacks a function is declared without a circuit; its stored rows stay readable. Nothing is
    stored: opening a database declares everything again.
    """

    engine: Engine
    queries: Queries
    canonical: CanonicalHistory
    ledger: Ledger
    _unplanned: set[RelationId] = field(default_factory=set)
    _arranged: dict[ArrangementId, dict[str, Any]] = field(default_factory=dict)
    """The layouts that an epoch which is being made gives to arrangements."""

    def __post_init__(self) -> None:
        """Compare the stored state of each view with its circuit."""
        self.engine.circuits.check = self._check_stored

    @property
    def planning(self) -> threading.RLock:
        """The lock of planning, held while Spark resolves names and while declarations change."""
        return self.engine.planning

    def announce_system(self) -> None:
        """Declare the information schema."""
        for relation in system_relations():
            self.engine.declare(relation)

    def announce(self, relation: Relation, circuit: Circuit | None = None) -> None:
        """Declare a relation, for views and for queries; a view maybe with its ``circuit``."""
        self.engine.declare(relation, circuit=circuit)
        self._declare_texts(relation)

    def announce_waiting(self, view: View | PlainView) -> None:
        """Declare a view whose query cannot be planned."""
        self._announce_unplanned(view)
        self._unplanned.add(view.id)

    def plan_again(self, view: View | PlainView) -> None:
        """Plan a view again over its present inputs; the caller then plans the views above it."""
        self.engine.forget(view)
        self.announce(view)
        self._unplanned.discard(view.id)
        if isinstance(view, View):
            self.engine.circuit(view)

    @contextmanager
    def redeclared(
        self,
        before: Sequence[View | PlainView],
        after: Iterable[View | PlainView],
        circuits: Mapping[RelationId, Circuit],
    ) -> Iterator[None]:
        """Declare views, inputs first, as what they are ``after`` a change, with these circuits.

        Each of ``after`` is taken when those that come first are declared. If one cannot be
        declared, or the block fails, all are what they were before.
        """
        declared: list[View | PlainView] = []
        former = {view.id: self.circuit(view) for view in before if isinstance(view, View)}
        lacking = {view.build for view in before if isinstance(view, View) and not former[view.id]}
        try:
            self._undeclare(before)
            for view in after:
                declared.append(view)
                self._announce_moved(view, circuits.get(view.id), lacking)
            yield
        except BaseException:
            self._undeclare([*before, *declared])
            for view in before:
                self._announce_moved(view, former.get(view.id), lacking)
            raise

    def _announce_moved(
        self, view: View | PlainView, circuit: Circuit | None, lacking: Container[BuildId]
    ) -> None:
        """Declare a view whose build may have been another's: one of those ``lacking`` a plan."""
        if isinstance(view, View) and view.build in lacking:
            self.announce_waiting(view)
        else:
            self._unplanned.discard(view.id)
            self.announce(view, circuit)

    def _undeclare(self, views: Sequence[View | PlainView]) -> None:
        for view in reversed(views):
            self.engine.forget(view)
            self.queries.forget(view)
            self.canonical.forget(view)

    def announce_replaced(self, view: View, catalog: Catalog) -> None:
        """Declare a view whose query was replaced, and the views above that name it."""
        self._unplanned.discard(view.id)
        self.announce(view)
        self.announce_texts_above(view, catalog)

    def announce_texts_above(self, view: View | PlainView, catalog: Catalog) -> None:
        """Declare the queries of the views above one that is another now."""
        for above in catalog.dependants(view.id):
            if not isinstance(above, Sink) and self.is_planned(above):
                self._declare_texts(above)

    def withdraw(self, relations: Iterable[Relation], catalog: Catalog) -> None:
        """Remove the declarations of relations of a catalog: views before their inputs."""
        order = {view.id: i for i, view in enumerate(catalog.defined_in_order())}
        for relation in sorted(relations, key=lambda r: -order.get(r.id, -1)):
            # A relation that replaced it may have the same name.
            self.engine.forget(relation)
            self.queries.forget(relation)
            self.canonical.forget(relation)

    @contextmanager
    def announced(
        self, relation: Stream | Table | PlainView, former: Iterable[Relation], catalog: Catalog
    ) -> Iterator[None]:
        """Declare a relation in place of others; restore the others if the block fails."""
        try:
            self.announce(relation)
            yield
        except BaseException:
            self.withdraw([relation], catalog)
            for each in former:
                if not self.is_planned(each):
                    self._announce_unplanned(each)
                elif not isinstance(each, Sink):
                    self.announce(each)
            raise

    # -- circuits ----------------------------------------------------------------------------

    def is_planned(self, relation: Relation) -> bool:
        """Whether a relation is planned: a view is not if a function of its query is missing."""
        return relation.id not in self._unplanned

    @property
    def unplanned(self) -> frozenset[RelationId]:
        """The views whose queries cannot be planned because a function is missing."""
        return frozenset(self._unplanned)

    def circuit(self, view: View) -> Circuit | None:
        """Return the circuit of a view; None if its query cannot be planned as it is stored."""
        if not self.is_planned(view):
            return None
        try:
            return self.engine.circuit(view)
        except HeadraceError as error:
            if error.code not in OF_THE_VIEW:
                raise
            return None

    @contextmanager
    def arranging(self, layouts: Mapping[ArrangementId, Layout]) -> Iterator[None]:
        """Plan views over contents that get other layouts, which the block commits."""
        self.arrange(layouts)
        try:
            yield
        finally:
            self._arranged.clear()

    def arrange(self, layouts: Mapping[ArrangementId, Layout]) -> None:
        """Plan views with further layouts until the block of :meth:`arranging` ends."""
        self._arranged.update({id_: layout.to_json() for id_, layout in layouts.items()})

    def _check_stored(self, view: View, circuit: Circuit) -> None:
        """Refuse a view whose stored state belongs to a circuit other than the planned one.

        One of another fingerprint is rebuilt or stopped before any epoch.
        """
        if changes_since(view):
            return
        stored = self.ledger.head.arrangements
        planned: dict[ArrangementId, object] = {
            id_: layout.to_json() for id_, layout in circuit.arrangements().items()
        }
        for node in circuit.stateful():
            planned |= {each.id: each.layout.to_json() for each in shared(node).values()}
        differs = [
            id_
            for id_, layout in planned.items()
            if id_ not in stored or (self._arranged.get(id_) or dict(stored[id_].layout)) != layout
        ]
        if not differs and view.circuit in ("", digest(circuit)):
            return
        raise HeadraceError(
            Code.CORRUPT,
            f'view "{view.name}" is stored in a different form than planned',
            detail=f"Arrangement {differs[0]} differs." if differs else "Its circuit differs.",
            hint=_REBUILT,
        )

    def _announce_unplanned(self, view: Relation) -> None:
        self.engine.declare(view, planned=False)
        self._declare_texts(view, planned=False)

    def _declare_texts(self, relation: Relation, *, planned: bool = True) -> None:
        self.queries.declare(relation, planned=planned)
        self.canonical.declare(relation, planned=planned)


_CREATED: Final = "schemas"
"""The ledger's setting that stores the names of created schemas."""


@dataclass(frozen=True, slots=True)
class Schemas:
    """Keeps the names of created schemas, which may be empty."""

    ledger: Ledger

    def names(self, catalog: Catalog) -> tuple[str, ...]:
        """Return the names of all schemas: those created, and those of relations of a catalog."""
        used = {relation.name.rpartition(".")[0] for relation in catalog} - {""}
        return tuple(sorted({*used, *self._created(), SYSTEM_SCHEMA}))

    def add(self, name: str) -> None:
        """Store a created schema."""
        self.ledger.settings.set(_CREATED, sorted({*self._created(), name}))

    def remove(self, name: str) -> None:
        """Remove a created schema; it remains as long as a relation is in it."""
        self.ledger.settings.set(_CREATED, [known for known in self._created() if known != name])

    def _created(self) -> list[str]:
        return self.ledger.settings.get(_CREATED) or []
