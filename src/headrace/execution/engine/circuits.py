"""The circuits of the declared views: each is planned when it is first needed.

Planning a view takes a hundred times as long as declaring it, and most views of a database that was
just opened are only read.

Circuits of views outside of epochs: planned, being filled, or found for a stored state.

The program of a fill that takes over state of views: which shares restore which inputs.

The programs that fill a build of a view, or a slice of one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from itertools import count
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.engine.lowering.assembly import StateShare
from headrace.execution.engine.lowering.programs import table_layout
from headrace.execution.engine.narrow.parts import StepPart, Variant, node_in, part_over
from headrace.execution.engine.narrow.reach import reach_of
from headrace.execution.engine.narrow.reading import interpreted
from headrace.execution.runtime.fill_parts import Takeover
from headrace.planning.catalog import Stream, Table, View, key_of
from headrace.planning.catalyst.numbered import PlanNumbers
from headrace.planning.catalyst.select import LATEST, Edition
from headrace.planning.circuit import GivenKey, InferredKey, StoredLayout, differentiate
from headrace.planning.circuit.digest import digest
from headrace.planning.circuit.keys import is_unique, unique_columns
from headrace.planning.circuit.reuse import restored
from headrace.types import BuildId, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.execution.engine.declared import DeclaredRelations
    from headrace.execution.engine.lowering.assembly import Program
    from headrace.execution.engine.narrow.nodes import RowsNode
    from headrace.execution.engine.running import Jobs
    from headrace.execution.runtime.fill_parts import Sizes
    from headrace.planning.catalog import PlainView, Relation
    from headrace.planning.catalyst.analysed import Analysed
    from headrace.planning.catalyst.plan import Plan
    from headrace.planning.catalyst.scala import Scala
    from headrace.planning.circuit import Circuit, Node, Sliced
    from headrace.planning.circuit.reuse import Input


@dataclass(frozen=True, slots=True)
class Planned:
    """A build of a view and its circuit, as planned when the engine counted ``changes``."""

    view: View
    circuit: Circuit
    changes: int


@dataclass(frozen=True, slots=True)
class RunningFill:
    """A circuit, or a slice of it, that is being filled, and the relations at the start.

    A relation that is dropped meanwhile can still be read until the fill ends.
    """

    circuit: Circuit
    relations: Mapping[RelationId, Relation]
    sliced: Sliced | None = None
    watch: Mapping[Node, str] = field(default_factory=dict)
    restoring: Restoring | None = None
    """What it takes over of other builds, while it reads that."""

    @property
    def inputs(self) -> Mapping[Input, tuple[StateShare, ...]]:
        """The inputs that are restored now, with their shares."""
        return {} if self.restoring is None else self.restoring.inputs


def as_stored(
    view: View,
    made: Callable[[GivenKey, Edition], Circuit],
    fits: Callable[[Circuit], bool] | None = None,
) -> Circuit:
    """Return the circuit that fits the stored state of a view, by default by its stored digest.

    Editions of the planner choose different operators, and older versions inferred fewer keys. The
    latest edition is used for a view without a digest, and if no edition fits.
    """

    def is_stored(found: Circuit) -> bool:
        return not view.circuit or view.circuit == digest(found)

    fits = is_stored if fits is None else fits
    if view.key or view.single:
        keys = [GivenKey(view.key)]
    else:
        keys = [GivenKey(None)] if view.single is not None else [GivenKey(None), GivenKey(())]
    for edition in sorted(Edition, reverse=True):
        for key in keys:
            found = made(key, edition)
            if fits(found):
                return found
    return made(keys[0], LATEST)


MOST_PLANNED = 4
"""How many views are planned to see what they keep: planning takes as long as reading many rows."""
_SHARES = -(1 << 33)
"""Names of shares with state are below this one: they are ids of no relation."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """What a fill takes over, and the shares of each input that is restored."""

    takeover: Takeover
    inputs: Mapping[Input, tuple[StateShare, ...]]


def restoring(
    circuit: Circuit, kept: Mapping[RelationId, Circuit], scala: Scala, rows: Sizes
) -> Restoring | None:
    """Return what a circuit takes over of views that are kept; None if it is not worth it."""
    found = restored(circuit, kept.values(), PlanNumbers(scala), rows)
    if not found.inputs:
        return None
    names = count(_SHARES, -1)
    shares = {
        at: tuple(StateShare(RelationId(next(names)), each) for each in stored)
        for at, stored in found.inputs.items()
    }
    groups = tuple({share.name: share.kept for share in of_input} for of_input in shares.values())
    taken = {each.arrangement for stored in found.inputs.values() for each in stored}
    views = tuple(id_ for id_, each in kept.items() if not taken.isdisjoint(each.arrangements()))
    return Restoring(Takeover(groups, found.copied, found.unread, views), shares)


def fill_program(
    jobs: Jobs, filled: RunningFill, partitions: int, *, looping: bool, ticks: bool, here: bool
) -> Program:
    """Return the program of steps of a fill; see :meth:`StepRunner.plan_fill`."""
    circuit, lowering = filled.circuit, jobs.lowering(partitions, filled.relations)
    if looping:
        none: frozenset[RelationId] = frozenset()
        again = lowering.live((circuit,), none, frozenset({circuit.view}), none)
        return jobs.staged(lowering, again)
    program = lowering.stored(
        circuit, ticks=ticks, sliced=filled.sliced, watch=filled.watch, restored=filled.inputs
    )
    if here:
        node = node_in(lowering, circuit.view)
        return replace(program, here=node, reach=reach_of(node))
    if filled.sliced is None or partitions > 1:
        return jobs.staged(lowering, program)
    return replace(program, interpreted=interpreted(lowering.transplant, program.jobs))


def part_here(node: RowsNode, program: Program, filled: RunningFill, *, ticks: bool) -> StepPart:
    """Return the part that fills a view in this process."""
    circuit, needs = filled.circuit, program.needs([filled.circuit])
    read = {id_: filled.relations[id_] for id_ in circuit.reads}
    return part_over(node, circuit.view, Variant(ticks=ticks), circuit, read, needs)


_INFERRED = InferredKey()
OF_THE_VIEW = (Code.CORRUPT, Code.UNSUPPORTED, Code.INVALID)
"""The errors of planning that are those of the view: others may pass."""


@dataclass(slots=True)
class ViewCircuits:
    """The declared views, inputs first, and their circuits.

    Any thread may read what is known; only one at a time may plan or declare.

    ``check`` raises if the stored state of a view belongs to another circuit than the one planned.
    """

    declared: DeclaredRelations
    check: Callable[[View, Circuit], None] = field(default=lambda _view, _circuit: None)
    _views: OrderedDict[RelationId, View] = field(default_factory=OrderedDict)
    _planned: dict[RelationId, Circuit] = field(default_factory=dict)
    _readers: Counter[RelationId] = field(default_factory=Counter)
    """How many of the views read each relation."""

    def declare(self, view: View, circuit: Circuit | None) -> None:
        """Declare a view, or another build of it; without a ``circuit``, it is planned later."""
        former = self._views.get(view.id)
        self._count(former, -1)
        self._count(view, 1)
        self._views[view.id] = view
        self._planned.pop(view.id, None)
        if circuit is not None:
            self._planned[view.id] = circuit
        # It may read views that were declared later, or be read by views declared before.
        if former is not None or self._readers[view.id]:
            self._order()

    def _count(self, view: View | None, change: int) -> None:
        """Count a view as a reader of its inputs, or no longer."""
        for id_ in () if view is None else view.depends_on:
            self._readers[id_] += change

    def _order(self) -> None:
        """Order the views so that each follows the views that it reads."""
        reads = {id_: self._views.keys() & {*v.depends_on} for id_, v in self._views.items()}
        for id_ in TopologicalSorter(reads).static_order():
            self._views.move_to_end(id_)

    def forget(self, id_: RelationId) -> None:
        """Remove a view."""
        self._count(self._views.pop(id_, None), -1)
        self._planned.pop(id_, None)

    def __contains__(self, id_: RelationId) -> bool:
        return id_ in self._views

    def has(self, view: View) -> bool:
        """Whether this build of a view is declared."""
        known = self._views.get(view.id)
        return known is not None and known.build == view.build

    def known(self, id_: RelationId) -> Circuit | None:
        """Return the circuit of a view if it has been planned."""
        return self._planned.get(id_)

    def of(self, id_: RelationId) -> Circuit:
        """Return the circuit of a declared view.

        Raises:
            HeadraceError: if its query cannot be planned, or its stored state belongs to another
                circuit.
        """
        circuit = self._planned.get(id_)
        if circuit is None:
            view = self._views[id_]
            circuit = self.plan(view)
            self.check(view, circuit)
            self._planned[id_] = circuit
        return circuit

    def of_those(self, ids: Iterable[RelationId], most: int) -> dict[RelationId, Circuit]:
        """Return the circuits of those declared views that have been planned.

        At most so many others are planned; those that cannot be run are left out.
        """
        declared = [id_ for id_ in ids if id_ in self._views]
        others = [id_ for id_ in declared if id_ not in self._planned]
        for id_ in others[:most]:
            with suppress(HeadraceError):
                self.of(id_)
        return {id_: self._planned[id_] for id_ in declared if id_ in self._planned}

    def of_build(self, build: BuildId) -> Circuit:
        """Return the circuit of a declared build."""
        return self.of(next(id_ for id_, view in self._views.items() if view.build == build))

    def above(
        self, changed: AbstractSet[RelationId], without: AbstractSet[RelationId]
    ) -> tuple[RelationId, ...]:
        """Return the views that changes can reach, inputs first: those among them, and above.

        Views in ``without`` are left out, and pass nothing on.
        """
        known, found = {*changed}, []
        for id_, view in tuple(self._views.items()):
            if id_ not in without and (id_ in changed or not known.isdisjoint(view.depends_on)):
                known.add(id_)
                found.append(id_)
        return tuple(found)

    def unfit(self, views: Iterable[RelationId]) -> dict[RelationId, HeadraceError]:
        """Plan some views, inputs first; return the errors of those that cannot be run.

        Views above these are not planned.
        """
        errors: dict[RelationId, HeadraceError] = {}
        for id_ in views:
            if errors.keys().isdisjoint(self._views[id_].depends_on):
                try:
                    self.of(id_)
                except HeadraceError as error:
                    if error.code not in OF_THE_VIEW:
                        raise
                    errors[id_] = error
        return errors

    # -- planning --------------------------------------------------------------------------

    def of_plain(self, view: PlainView) -> Circuit | None:
        """Plan the query of a plain view as if it were stored; None if it cannot be."""
        span = Span.whole(view.query)
        analysed = self.declared.planner.analyse(span)
        _require_columns(view, analysed)
        try:
            build, names = BuildId(view.id), view.schema.names
            return self.circuit_of(view.id, build, analysed, span, names)
        except HeadraceError as error:
            if error.code not in OF_THE_VIEW:
                raise
            return None

    def plan(self, view: View, fits: Callable[[Circuit], bool] | None = None) -> Circuit:
        """Plan the query of a view, with the operators that fit its stored state.

        See :func:`headrace.execution.engine.circuits.as_stored`.
        """
        span, names = Span(view.query, 0, len(view.query)), view.schema.names
        analysed = self.declared.planner.analyse(span)
        _require_columns(view, analysed)
        by = () if view.index is None else view.index.columns

        def made(key: GivenKey, edition: Edition) -> Circuit:
            return self.circuit_of(
                view.id,
                view.build,
                analysed,
                span,
                names,
                by,
                amendable=view.amendable,
                guarded=view.quarantines,
                key=key,
                edition=edition,
                stored=view.schema.stored_names,
            )

        return as_stored(view, made, fits)

    def circuit_of(
        self,
        id_: RelationId,
        build: BuildId,
        analysed: Analysed,
        query: Span,
        names: tuple[str, ...],
        by: tuple[str, ...] = (),
        amendable: tuple[RelationId, ...] = (),
        *,
        guarded: bool = False,
        key: InferredKey | GivenKey = _INFERRED,
        edition: Edition = LATEST,
        stored: tuple[str, ...] = (),
    ) -> Circuit:
        """Return the circuit of an analysed query whose columns are named ``names``.

        The contents are arranged ``by`` these columns, if any; they are ``stored`` under other
        names if those are given. The circuit accepts corrections of
        the streams ``amendable`` and of streams that have been corrected before. If it is
        ``guarded``, rows on which the query fails go to quarantine.
        """

        def only_grows(relation: RelationId) -> bool:
            return self._only_grows(relation) and relation not in amendable

        with self.declared.lock:
            plan = self.declared.planner.plan(analysed, edition)
            try:
                schema = analysed.schema.renamed(names, stored)
                unique = self._unique(plan, key, schema.names)
                return differentiate(
                    id_,
                    build,
                    plan,
                    schema,
                    unique,
                    only_grows,
                    self._stored_as,
                    by=by,
                    guarded=guarded,
                    names_in_files=lambda read: self.declared.by_id[read].schema.stored_names,
                )
            except HeadraceError as error:
                raise error.at(query) from error

    def _only_grows(self, id_: RelationId) -> bool:
        relation = self.declared.by_id[id_]
        return isinstance(relation, Stream) and not relation.corrected

    def has_unique(self, circuit: Circuit, positions: Iterable[int]) -> bool:
        """Whether the columns at some positions are a unique key of a view."""
        with self.declared.lock:
            return is_unique(circuit.output.child.plan, self._key_of, positions)

    def _unique(
        self, plan: Plan, key: InferredKey | GivenKey, names: Sequence[str]
    ) -> tuple[int, ...] | None:
        match key:
            case InferredKey():
                return unique_columns(plan, self._key_of, tuple(map(names.index, key.preferred)))
            case GivenKey():
                return None if key.columns is None else tuple(map(names.index, key.columns))

    def _key_of(self, id_: RelationId) -> tuple[int, ...] | None:
        relation = self.declared.by_id[id_]
        key = key_of(relation)
        if not key and not (isinstance(relation, View) and relation.single):
            return None
        return tuple(relation.schema.names.index(name) for name in key)

    def _stored_as(self, id_: RelationId) -> StoredLayout | None:
        unique = bool(self._key_of(id_))
        match self.declared.by_id[id_]:
            case Table() as table:
                return StoredLayout(table_layout(table), unique)
            case View() if id_ in self:
                return StoredLayout(self.of(id_).output.operator.layout, unique)
            case _:
                return None


def _require_columns(view: View | PlainView, analysed: Analysed) -> None:
    """Raise ``corrupt`` unless a view's query has as many columns as the view."""
    names, found = view.schema.names, len(analysed.schema.columns)
    if found != len(names):
        raise HeadraceError(
            Code.CORRUPT,
            f'view "{view.name}" has {len(names)} columns, but its query has {found}',
        )
