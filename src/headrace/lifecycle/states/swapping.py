"""What views and their candidates are after they have changed places."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span
from headrace.execution.runtime.builds import ChangedPlaces
from headrace.planning.catalog import PlainView, Sink, View
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.circuit.circuit import moved
from headrace.planning.circuit.digest import digest
from headrace.planning.dialects import macros_of
from headrace.planning.sql import CreateView, parse, select_all

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from headrace.execution.engine.engine import Engine
    from headrace.execution.runtime.published import Published
    from headrace.lifecycle.states.declarations import Declarations
    from headrace.planning.catalog import Catalog, Index
    from headrace.planning.circuit import Circuit
    from headrace.storage.ledger import Dirty
    from headrace.types import RelationId


class IncompleteSwapError(HeadraceError):
    """A view reads one that gets other columns, and has no candidate that reads the new one."""


def same_contents(state: Published, view: View, other: View) -> bool:
    """Return whether two views have the same columns and keys, and are stored alike."""
    return (
        view.schema == other.schema
        and view.key == other.key
        and state.layout(view) == state.layout(other)
    )


@dataclass(frozen=True, slots=True)
class SwappedDefinitions:
    """The definitions of views and their candidates after a swap. The lock of planning is held.

    A view that has stopped because its query cannot be planned has no circuit, neither before nor
    afterwards.

    ``pairs`` are views and their candidates, inputs first. What then has served is kept until a
    time in Unix seconds, or until it is dropped.
    """

    declarations: Declarations
    state: Published
    pairs: Sequence[tuple[View, View]]
    kept_until: float | None = None

    def places(self) -> list[ChangedPlaces]:
        """Return each view and its candidate with what they are afterwards."""
        serving, former = self._serving(), self._former()
        names = {candidate.id: view.name for view, candidate in self.pairs}
        hidden = {view.id: f"{HIDDEN}{former.get(view.id, view.id)}" for view, _ in self.pairs}
        others = {view.name: hidden[view.id] for view, _ in self.pairs}
        found = []
        for view, candidate in self.pairs:
            ids = serving.get(candidate.id, candidate.id), former.get(view.id, view.id)
            serves = replace(
                candidate,
                id=ids[0],
                name=f"{HIDDEN}{ids[0]}" if view.name.startswith(HIDDEN) else view.name,
                replacement=candidate.build,
                candidate_of=None,
                has_served=False,
                temporary=False,
                own_query=False,
                kept_until=None,
                depends_on=_moved(candidate.depends_on, serving),
                circuit=self._digest(candidate, serving),
            )
            replaced = replace(
                view,
                id=ids[1],
                name=f"{HIDDEN}{ids[1]}",
                replacement=view.build,
                candidate_of=ids[0],
                has_served=not candidate.has_served,
                temporary=candidate.temporary,
                own_query=candidate.own_query,
                kept_until=None if candidate.has_served else self.kept_until,
                depends_on=_moved(view.depends_on, former),
                circuit=self._digest(view, former),
            )
            if candidate.index is not None and view.index is not None:
                serves = _index(serves, candidate.index, serving, names)
                replaced = _index(replaced, view.index, former, hidden)
            else:
                serves = self._by_name(serves)
                replaced = self._reading(replaced, others)
            after = {ids[0]: serves, ids[1]: replaced}
            found.append(ChangedPlaces(view, candidate, after))
        return found

    def circuits(self, places: Iterable[ChangedPlaces]) -> dict[RelationId, Circuit]:
        """Return the circuits of views and candidates in their places, by their ids there.

        They are those that they have now: no query is planned.
        """
        found, serving, former = {}, self._serving(), self._former()
        for pair in places:
            for view, after, ids in (
                (pair.candidate, pair.serves, serving),
                (pair.view, pair.former, former),
            ):
                planned = self.declarations.circuit(view)
                if planned is None:
                    continue
                circuit = moved(planned, after.id, ids)
                if digest(circuit) != after.circuit:
                    raise HeadraceError(
                        Code.INTERNAL, f'view "{after.name}" would have another circuit'
                    )
                found[after.id] = circuit
        return found

    def _alike(self) -> list[tuple[View, View]]:
        """Return the pairs that keep their ids and exchange their builds."""
        return [pair for pair in self.pairs if same_contents(self.state, *pair)]

    def _serving(self) -> dict[RelationId, RelationId]:
        return {candidate.id: view.id for view, candidate in self._alike()}

    def _former(self) -> dict[RelationId, RelationId]:
        return {view.id: candidate.id for view, candidate in self._alike()}

    def _by_name(self, view: View) -> View:
        """Return a view whose query names views instead of candidates."""
        if not view.by_name:
            return view
        planner, span = self.declarations.engine.planner, Span.whole(view.by_name)
        relations, named = planner.relations, planner.named(span, lambda _name: True)
        plain = [each for name in named if isinstance(each := relations.get(name), PlainView)]
        through = {id_ for each in plain for id_ in (each.id, *each.through)}
        through.update(macros_of(span, relations))
        return replace(view, query=view.by_name, by_name="", through=tuple(sorted(through)))

    def _reading(self, view: View, names: Mapping[str, str]) -> View:
        """Return a view that reads others in place of those that its query names."""
        planner = self.declarations.engine.planner
        text = planner.substituted(Span.whole(view.query), names)
        if text is None:
            return view
        return replace(view, query=text, by_name=view.query, through=())

    def _digest(self, view: View, ids: Mapping[RelationId, RelationId]) -> str:
        """Return the digest of a view's circuit over the relations that it will read, if known."""
        circuit = self.declarations.circuit(view)
        return "" if circuit is None else digest(circuit, ids)


def declared_in_order(
    catalog: Catalog, places: Iterable[ChangedPlaces]
) -> tuple[list[View | PlainView], list[View | PlainView]]:
    """Return what a swap declares again, as it is before and as it is after, inputs first.

    These are the pairs, and the plain views that read views which are others then; their columns
    are found when what they read is declared.
    """
    moved = {pair.view.id: pair.candidate.id for pair in places if pair.by_name}
    members = {each.id for pair in places for each in pair.both}
    before = [
        each
        for each in catalog.defined_in_order()
        if each.id in members
        or (isinstance(each, PlainView) and not moved.keys().isdisjoint(each.depends_on))
    ]
    after: dict[RelationId, View | PlainView] = {}
    for pair in places:
        after |= pair.after
    after |= {each.id: each for each in before if isinstance(each, PlainView)}
    reads = {
        id_: {moved.get(i, i) if isinstance(each, PlainView) else i for i in each.inputs}
        for id_, each in after.items()
    }
    order = TopologicalSorter({id_: ids & after.keys() for id_, ids in reads.items()})
    return before, [after[id_] for id_ in order.static_order()]


def is_outdated(view: View, candidate: View, pairs: Iterable[tuple[View, View]]) -> bool:
    """Return whether a candidate is not what it would be if it was made now.

    Its view has another query since, or one of the ``pairs`` has a candidate since, which it does
    not read.
    """
    members = {member.id for member, _ in pairs}
    other = not candidate.own_query and candidate.created_sql != view.created_sql
    return other or not members.isdisjoint(candidate.depends_on)


def root_of(catalog: Catalog, view: View, among: Container[RelationId] = ()) -> View:
    """Return the view with whose candidate that of a view changes places, maybe itself.

    It is the lowest, or one of those ``among``.
    """
    candidate = catalog.candidate(view.id)
    for id_ in () if candidate is None else candidate.depends_on:
        each = catalog.by_id[id_]
        of = each.candidate_of if isinstance(each, View) else None
        below = None if of is None or of in among else catalog.by_id[of]
        if isinstance(below, View):
            return root_of(catalog, below, among)
    return view


def swapping(catalog: Catalog, root: View) -> str:
    """Return the statement that lets the candidate of a view serve."""
    candidate = catalog.candidate(root.id)
    back = candidate is not None and candidate.has_served
    return f"{'ROLLBACK' if back else 'SWAP'} VIEW {root.name}"


def missing(
    catalog: Catalog,
    state: Published,
    pairs: Sequence[tuple[View, View]],
    *,
    everything: bool = False,
    without: Container[str] = (),
) -> View | None:
    """Return the first view that needs a candidate for a swap and has none, or an outdated one.

    These are the views that read one with other columns; with ``everything``, all that have names
    and read one of the pairs. Those called by the names ``without`` are left out.
    """
    moved = {view.id for view, other in pairs if not same_contents(state, view, other)}
    members = {view.id: candidate for view, candidate in pairs}
    for each in catalog.views_in_order():
        if each.candidate_of is not None or shown_name(each, catalog) in without:
            continue
        if each.id in members:
            if is_outdated(each, members[each.id], pairs):
                return each
            continue
        all_ = everything and not each.name.startswith(HIDDEN)
        if not (members.keys() if all_ else moved).isdisjoint(each.depends_on):
            return each
    return None


def require_complete(
    catalog: Catalog, state: Published, pairs: Sequence[tuple[View, View]]
) -> None:
    """Raise unless all that reads a view with other columns is among pairs to be swapped.

    Raises:
        IncompleteSwapError: for a view.
        HeadraceError: ``conflict`` for a sink, which cannot be.
    """
    moved = {view.id for view, other in pairs if not same_contents(state, view, other)}
    for each in catalog:
        if isinstance(each, Sink) and each.source in moved:
            raise HeadraceError(
                Code.CONFLICT,
                f'sink "{each.name}" writes the rows of a view that would get other columns',
                hint=f"DROP SINK {each.name} first, and create it again afterwards. A sink"
                " created AS SELECT of its columns goes on, as long as these stay.",
            )
    view = missing(catalog, state, pairs)
    if view is not None:
        raise IncompleteSwapError(
            Code.CONFLICT,
            f'view "{view.name}" was created or changed meanwhile',
            hint="Run the statement again.",
        )


def require_right(dirty: Iterable[Dirty], candidates: Iterable[View]) -> None:
    """Raise if some rows of candidates are being repaired."""
    among = {each.id for each in candidates}
    if any(entry.view in among for entry in dirty):
        raise HeadraceError(
            Code.CONFLICT,
            "rows of a candidate are not right and not repaired yet",
            hint="Run the statement again when SHOW DIRTY does not list it, or make the candidate"
            " again.",
        )


def analysed_again(engine: Engine, view: PlainView) -> PlainView:
    """Return a plain view with the columns that its query has now."""
    created, *_ = parse(view.created_sql)
    named = created.columns if isinstance(created, CreateView) else ()
    analysed = engine.planner.analyse(Span.whole(view.query))
    schema = analysed.schema.renamed(tuple(named)) if named else analysed.schema
    return replace(view, schema=schema, depends_on=analysed.names, through=analysed.through)


def _moved(
    ids: Iterable[RelationId], places: Mapping[RelationId, RelationId]
) -> tuple[RelationId, ...]:
    return tuple(sorted(places.get(id_, id_) for id_ in ids))


def _index(
    view: View,
    index: Index,
    places: Mapping[RelationId, RelationId],
    names: Mapping[RelationId, str],
) -> View:
    """Return the view of an index over a relation whose id and name are another now."""
    query = select_all(view.schema.names, names[index.of])
    return replace(view, index=replace(index, of=places.get(index.of, index.of)), query=query)
