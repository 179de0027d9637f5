"""Alters relations that others depend on: columns and names, in one epoch with all definitions.

What depends on them goes on with its stored rows and state: each definition is planned over the
altered relations and must compute what it did (:mod:`headrace.planning.circuit.reuse`). If one does
not, or cannot be planned, nothing is altered.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.lowering.programs import table_layout
from headrace.lifecycle.definitions.filling import live
from headrace.planning.catalog import PlainView, Sink, Stream, Table, View, title
from headrace.planning.catalog.naming import shown_name
from headrace.planning.circuit.digest import digest
from headrace.planning.circuit.reuse import resembles
from headrace.storage.ledger import EpochCommit
from headrace.types import Epoch, Schema, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headrace.algebra.zset import Layout
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.lifecycle.states.declarations import Declarations
    from headrace.planning.catalog import Catalog, Defined, Relation
    from headrace.planning.circuit import Circuit
    from headrace.planning.circuit.reuse import AlteredColumns
    from headrace.storage.ledger import Ledger
    from headrace.types import ArrangementId, RelationId


Follow: TypeAlias = "Callable[[Defined], Defined]"
"""Returns the definition of what depends on altered relations over these."""


@dataclass(frozen=True, slots=True)
class Reshaping:
    """Alters relations together with the definitions of what depends on them."""

    ledger: Ledger
    loop: EpochLoop
    declarations: Declarations

    def alter(
        self,
        former: Sequence[Relation],
        present: Sequence[Relation],
        columns: AlteredColumns,
        follow: Sequence[Follow] = (),
        refused: str = "could not go on as it is",
    ) -> Epoch:
        """Replace ``former`` relations by ``present`` ones with the same ids, in order.

        ``follow`` return the definition of a dependant over the present relations, which are
        declared when they are called, and so are the dependants before it. They are tried in order;
        without any, definitions stay as they are. ``refused`` says of one that could not go on,
        after its name, why the relations are not altered.

        Raises:
            HeadraceError: ``conflict`` if a dependant could not go on as it is, names the first.
        """
        with self._changing(former, present, columns, refused) as (change, over):
            for each in over:
                change.follow(each, follow)
            before, arranged = change.before, change.arranged
            catalog, altered = before.replaced(change.after.values()), change.altered()
            epoch = self.ledger.commit(
                EpochCommit(
                    self.ledger.head.epoch,
                    f"alter-{former[0].id}",
                    redefined={each.id: each.to_json() for each in altered},
                    renamed={
                        each.id: each.name
                        for each in altered
                        if each.name != before.by_id[each.id].name
                    },
                    arranged={id_: layout.to_json() for id_, layout in arranged.items()},
                )
            )
            change.committed = True
            layouts = self.loop.published.current.layouts
            self.loop.published.publish(catalog, {**layouts, **arranged} if arranged else layouts)
        return epoch

    def tried(
        self,
        former: Sequence[Relation],
        present: Sequence[Relation],
        columns: AlteredColumns,
        follow: Sequence[Follow],
        refused: str,
    ) -> list[AlteredDependant]:
        """Return what depends on relations as :meth:`alter` would leave it, and alter nothing.

        What depends on something that could not go on is left out. It plans what :meth:`alter` does
        under the same locks.
        """
        found: list[AlteredDependant] = []
        gone: set[RelationId] = set()
        with self._changing(former, present, columns, refused) as (change, over):
            for each in over:
                if not gone.isdisjoint(each.inputs):
                    gone.add(each.id)
                    continue
                try:
                    change.follow(each, follow)
                except HeadraceError as error:
                    if error.code is not Code.CONFLICT:
                        raise
                    gone.add(each.id)
                    found.append(AlteredDependant(each, None, error))
                else:
                    found.append(AlteredDependant(each, change.after[each.id]))
        return found

    @contextmanager
    def _changing(
        self,
        former: Sequence[Relation],
        present: Sequence[Relation],
        columns: AlteredColumns,
        refused: str,
    ) -> Iterator[tuple[_Change, list[Defined]]]:
        """Declare relations as they are to be, and yield what depends on them, inputs first.

        They are declared as they were again unless the block commits the change.
        """
        arranged = _arranged(former, present)
        # A refresh that was planned before reads the rows of tables as they were arranged then.
        refreshing = self.loop.refreshing if arranged else nullcontext()
        ids = [each.id for each in former]
        with refreshing, self.loop.exclusive(ids), self.declarations.planning:
            before = self.loop.catalog
            live(before, ids, {each.id: each for each in former})
            over = _defined(before, ids)
            self._require_still([*ids, *(each.id for each in over)])
            _refuse_sets(before, [*ids, *(each.id for each in over)])
            epoch = Epoch(self.ledger.head.epoch + 1)
            pairs = zip(former, present, strict=True)
            given = {new.id: _dated(old, new, epoch) for old, new in pairs}
            circuits = self._circuits(over)
            change = _Change(self.declarations, before, columns, circuits, refused, given, arranged)
            with change.made(), self.declarations.arranging(arranged):
                for old in former:
                    change.replace(old, given[old.id])
                yield change, over

    def _require_still(self, ids: Sequence[RelationId]) -> None:
        """Refuse while a view over the relations is filled, or a slice of one is recomputed."""
        if self.declarations.engine.is_filling(ids):
            raise HeadraceError(
                Code.CONFLICT,
                "a view over it was being filled, or a part of one recomputed",
                hint="Run the statement again when that is done.",
            )

    def _circuits(self, relations: Iterable[Relation]) -> dict[RelationId, Circuit | None]:
        """Return the present circuits of views; None for a plain view that cannot be maintained."""
        engine = self.declarations.engine
        found: dict[RelationId, Circuit | None] = {}
        for each in relations:
            if isinstance(each, View | PlainView) and not self.declarations.is_planned(each):
                raise HeadraceError(
                    Code.CONFLICT,
                    f"{title(each)} waits for a function that is not registered",
                    hint="Register the function first.",
                )
            if isinstance(each, View):
                found[each.id] = engine.circuit(each)
            elif isinstance(each, PlainView):
                found[each.id] = engine.circuits.of_plain(each)
        return found


@dataclass(frozen=True, slots=True)
class AlteredDependant:
    """What becomes of what depends on altered relations.

    ``present`` is its definition then; None if it could not go on, for the reason that the
    ``error`` says.
    """

    former: Defined
    present: Relation | None
    error: HeadraceError | None = None


@dataclass(slots=True)
class _Change:
    """A change of the declarations, undone if it is not ``committed``.

    ``circuits`` are those before the change, ``given`` the present definitions of what is altered.
    ``arranged`` are the layouts of contents that get others: columns with other names.
    """

    declarations: Declarations
    before: Catalog
    columns: AlteredColumns
    circuits: Mapping[RelationId, Circuit | None]
    refused: str
    given: Mapping[RelationId, Relation]
    arranged: dict[ArrangementId, Layout]
    committed: bool = False
    after: dict[RelationId, Relation] = field(default_factory=dict)
    ways: dict[RelationId, int] = field(default_factory=dict)
    """Which of several ways each dependant has followed."""

    @contextmanager
    def made(self) -> Iterator[None]:
        """Restore the former declarations unless the block commits the change."""
        try:
            yield
        finally:
            if not self.committed:
                self._undo()

    def replace(self, old: Relation, new: Relation) -> None:
        """Declare a stream or table in place of its former definition."""
        if isinstance(new, Stream | Table):
            self.after[new.id] = new
            if old.name != new.name:
                self.declarations.withdraw([old], self.before)
            self.declarations.announce(new)

    def follow(self, old: Defined, follow: Sequence[Follow]) -> None:
        """Declare a view or sink with its definition over the altered relations."""
        given = self.given.get(old.id)
        present = given if isinstance(given, View | PlainView | Sink) else old
        first: HeadraceError | None = None
        # A sink's statement has the query of the hidden view that it writes.
        from_way = self.ways.get(old.source, 0) if isinstance(old, Sink) else 0
        for way, each in enumerate(follow or (_unchanged,)):
            if way < from_way:
                continue
            try:
                self._made_as(old, each(present))
            except HeadraceError as error:
                if error.code in (Code.CANCELLED, Code.UNAVAILABLE):
                    raise
                first = first or error
            else:
                self.ways[old.id] = way
                return
        raise HeadraceError(
            Code.CONFLICT,
            f"{_shown(old, self.before)} {self.refused}",
            None if first is None else _sentences(first),
            "DROP it first, and create it again afterwards.",
        ) from first

    def _made_as(self, old: Defined, new: Defined) -> None:
        if isinstance(new, Sink):
            self.after[new.id] = new
        else:
            self._plan(old, new)

    def altered(self) -> list[Relation]:
        """Return the relations whose definitions have changed."""
        return [each for id_, each in self.after.items() if each != self.before.by_id[id_]]

    def _plan(self, old: Relation, new: View | PlainView) -> None:
        """Declare a view, whose query must compute over what is declared what it did before."""
        former, circuits = self.circuits[old.id], self.declarations.engine.circuits
        self.declarations.withdraw([old], self.before)
        self.after[new.id] = new
        if isinstance(new, PlainView):
            found = circuits.of_plain(new)
            same = isinstance(old, PlainView) and old.query == new.query
            if former is None or found is None:
                same = same and former is found
            else:
                same = resembles(former, found, self.columns)
            if not same:
                raise _other(new)
            self.declarations.announce(new)
            return
        if former is None:
            raise HeadraceError(Code.INTERNAL, f"{title(new)} has no circuit")
        made = circuits.plan(new, lambda each: resembles(former, each, self.columns))
        if not resembles(former, made, self.columns):
            raise _other(new)
        was = former.arrangements()
        renamed = {
            id_: each
            for id_, each in made.arrangements().items()
            if id_ in was and each != was[id_] and each.in_files == was[id_].in_files
        }
        self.arranged |= renamed
        self.declarations.arrange(renamed)
        if new.circuit:
            new = self.after[new.id] = replace(new, circuit=digest(made))
        self.declarations.plan_again(new)

    def _undo(self) -> None:
        """Declare everything as it was, inputs first."""
        for each in reversed(list(self.after.values())):
            self.declarations.withdraw([each], self.before)
        for id_ in self.after:
            each = self.before.by_id[id_]
            if isinstance(each, Stream | Table):
                self.declarations.announce(each)
        for id_ in self.circuits:  # all of them, so that each view follows those that it reads
            view = self.before.by_id[id_]
            if isinstance(view, View | PlainView):
                self.declarations.plan_again(view)


def _arranged(
    former: Sequence[Relation], present: Sequence[Relation]
) -> dict[ArrangementId, Layout]:
    """Return the layouts of the contents of tables that have others than before."""
    given = {each.id: each for each in present}
    return {
        rows_of(old.id): table_layout(new)
        for old in former
        if isinstance(old, Table)
        and isinstance(new := given[old.id], Table)
        and table_layout(old) != table_layout(new)
    }


def _dated(old: Relation, new: Relation, epoch: Epoch) -> Relation:
    """Return a relation whose columns that are added have the epoch in which they are."""
    if not isinstance(new, Stream | Table):
        return new
    known = {*old.schema.stored_names}
    columns = tuple(
        c if c.stored_name in known else replace(c, since=epoch) for c in new.schema.columns
    )
    return new if columns == new.schema.columns else replace(new, schema=Schema(columns))


def _defined(catalog: Catalog, ids: Sequence[RelationId]) -> list[Defined]:
    """Return the views and sinks among relations, and what depends on these; inputs first."""
    over = {*ids, *(each.id for id_ in ids for each in catalog.dependants(id_))}
    views: list[Defined] = [v for v in catalog.defined_in_order() if v.id in over]
    return [*views, *(s for s in catalog if isinstance(s, Sink) and s.id in over)]


def _unchanged(defined: Defined) -> Defined:
    return defined


def _other(view: View | PlainView) -> HeadraceError:
    return HeadraceError(Code.CONFLICT, f"the query of {title(view)} would compute something else")


def _sentences(error: HeadraceError) -> str:
    first = f"{error.primary[:1].upper()}{error.primary[1:]}."
    return first if error.detail is None else f"{first} {error.detail}"


def _shown(relation: Relation, catalog: Catalog) -> str:
    shown = shown_name(relation, catalog)
    return title(relation) if shown == relation.name else shown


def _refuse_sets(catalog: Catalog, ids: Iterable[RelationId]) -> None:
    """Refuse while views among these have candidates whose queries read other candidates.

    Once they serve, their queries are others, which nothing plans before.
    """
    for candidate in (catalog.candidate(id_) for id_ in ids):
        if candidate is not None and candidate.by_name:
            raise HeadraceError(
                Code.CONFLICT,
                f"{shown_name(candidate, catalog)} reads other candidates",
                hint="SWAP or DROP the candidates first: information_schema.candidates lists them.",
            )
