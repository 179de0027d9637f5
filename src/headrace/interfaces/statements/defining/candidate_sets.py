"""Candidates of views, with those of the views that read them: filled, completed and swapped."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.errors import Code, EvaluationError, HeadraceError, Span, masked
from headrace.interfaces.statements.checking.repairs import restarted_note
from headrace.interfaces.statements.defining.on_error import on_error, quarantines
from headrace.interfaces.statements.defining.options import begins_earliest, require_known
from headrace.interfaces.statements.defining.stream_options import AUTO_SWAP, REUSE, is_on
from headrace.interfaces.statements.defining.view_builds import AboveChanges, declared, materialized
from headrace.interfaces.statements.defining.view_options import (
    history_of,
    refresh_of,
    without_swap,
)
from headrace.lifecycle.states.swapping import IncompleteSwapError, missing, root_of, swapping
from headrace.planning.catalog import CONTINUOUS, View
from headrace.planning.catalog.naming import shown_name
from headrace.planning.circuit.explain import counted
from headrace.planning.sql import CreateMaterializedView, Query, select_all

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.statements.checking.repairs import Rebuilds, Row
    from headrace.interfaces.statements.defining.view_builds import ViewBuilds
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Index
    from headrace.planning.sql import CreateTableAs, RebuildView
    from headrace.types import Epoch, RelationId


Pairs: TypeAlias = "Sequence[tuple[View, View]]"
"""Views and their candidates, inputs first."""

_ATTEMPTS: Final = 8
"""How often a swap is tried while other statements create views that read what it changes."""


@dataclass(frozen=True, slots=True)
class Swapped:
    """A swap: its epoch, how many rows of the views it has changed, and what ran again above."""

    epoch: Epoch
    changes: int
    restarted: Sequence[Row]

    @property
    def changed(self) -> str:
        """How many rows have changed."""
        return f"{counted(self.changes, 'row')} changed"

    @property
    def note(self) -> str:
        """What became of the views above that had stopped."""
        return restarted_note(self.restarted)


@dataclass(frozen=True, slots=True)
class CandidateSets:
    """Fills candidates of views.

    A candidate with other columns or another key is another relation under its view's name, so the
    views that read that have candidates as well, which read it: they change places together.
    Other views above follow the difference.
    """

    reader: Reader
    engine: Engine
    definer: Definer
    builds: ViewBuilds
    rebuilds: Rebuilds

    def create(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> str:
        """Fill a hidden view with a new query, which SWAP VIEW lets serve.

        Names in the query mean the candidates of views that wait to serve. Views above that cannot
        follow to other columns are named, and wait for candidates with queries of their own.
        """
        total, pairs, refused = self._filled(former, statement, query, temporary=False)
        said = self._waits(pairs, total)
        waits = [f'; "{name}" cannot follow yet: {why}' for name, why in refused.items()]
        return said + "".join(waits)

    def replace(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> str:
        """Fill a view with other columns, and those that read it; let all serve in one epoch."""
        total, pairs, _ = self._filled(former, statement, query, temporary=True)
        with self._undone([candidate.id for _, candidate in pairs]):
            done = self.swap(pairs[:1], statement.name.span)
        names = self._names(pairs[1:])
        again = f"; computed {names} again" if names else ""
        return (
            f"replaced materialized view {former.name} from {counted(total, 'change')}{again},"
            f" all in epoch {done.epoch}{done.note}"
        )

    def rebuild(self, statement: RebuildView) -> str:
        """Compute a view again beside the one that serves; with dependants, all views above too."""
        view, span = self.rebuildable(statement), statement.name.span
        swaps = is_on(statement.options, AUTO_SWAP)
        made: list[RelationId] = []
        with self._undone(made):
            candidate, total = self._fill_member(view, [], span, temporary=swaps, reuse=False)
            made.append(candidate.id)
            pairs = self._completed(
                [(view, candidate)],
                span,
                everything=statement.dependants,
                temporary=swaps,
                made=made,
                reuse=False,
            )
        if not swaps:
            return self._waits(pairs, total)
        names = self._names(pairs)
        with self._undone([candidate.id for _, candidate in pairs]):
            done = self.swap(pairs[:1], span, everything=statement.dependants)
        read = counted(total, "change")
        return f"rebuilt {names} from {read}: {done.changed} in epoch {done.epoch}{done.note}"

    def rebuildable(self, statement: RebuildView) -> View:
        """Return the view of REBUILD VIEW; raise if it cannot be computed beside itself."""
        view, span = materialized(self.reader.catalog, statement.name), statement.name.span
        require_known(statement.options, AUTO_SWAP)
        self._require_alone(view, span)
        self._require_supported(view, span)
        return view

    def swap(
        self,
        pairs: Pairs,
        span: Span,
        *,
        everything: bool = False,
        kept_until: float | None = None,
    ) -> Swapped:
        """Exchange views and their candidates, and those that must be at the same time.

        What is missing is filled first. What temporary candidates have replaced is dropped; what
        others have replaced is kept until a time in Unix seconds, or until it is dropped. A view
        may have stopped: what is above it is then filled again, as far as its own query runs.
        """
        temporary = all(candidate.temporary for _, candidate in pairs)
        made: list[RelationId] = []
        for _ in range(_ATTEMPTS):
            with self._undone(made):
                all_ = self._completed(
                    pairs, span, everything=everything, temporary=temporary, made=made
                )
                for _, candidate in all_:
                    self.reader.require_running(candidate)
                try:
                    done = self.definer.swap(all_, kept_until)
                except IncompleteSwapError:
                    continue
            if temporary:
                self.drop([view.name for view, _ in pairs])
            serving = [self.reader.catalog.resolve(view.name).id for view, _ in pairs]
            return Swapped(done.epoch, done.changes, self.rebuilds.restart(serving))
        raise HeadraceError(
            Code.CONFLICT,
            f'views over "{pairs[0][0].name}" are created all the time',
            hint="Run the statement again.",
            span=span,
        )

    def drop(self, names: Iterable[str]) -> None:
        """Drop what is in the place of candidates of views and of those above, if anything is."""
        found: dict[RelationId, None] = {}
        for view in map(self.reader.catalog.find, names):
            if isinstance(view, View):
                found |= {candidate.id: None for _, candidate in self.of(view)}
        if found:
            self.definer.drop(list(found))

    def of(self, view: View) -> Pairs:
        """Return a view and its candidate, and those that change places with them; or none."""
        candidate = self.reader.catalog.candidate(view.id)
        return [] if candidate is None else self.over([(view, candidate)])

    def over(self, roots: Pairs) -> Pairs:
        """Return views and their candidates with the candidates that read these, inputs first."""
        catalog = self.reader.catalog
        given = {candidate.id: (view, candidate) for view, candidate in roots}
        found: dict[RelationId, tuple[View, View]] = {}
        for each in catalog.views_in_order():
            of = None if each.candidate_of is None else catalog.by_id[each.candidate_of]
            if each.id in given:
                found[each.id] = given[each.id]
            elif isinstance(of, View) and not found.keys().isdisjoint(each.depends_on):
                found[each.id] = of, each
        return list(found.values())

    def require_root(self, view: View, span: Span, among: Container[RelationId] = ()) -> None:
        """Raise if a candidate reads that of another view, which is not ``among`` the views."""
        catalog = self.reader.catalog
        root = root_of(catalog, view, among)
        if root is not view:
            of = root.name
            raise HeadraceError(
                Code.CONFLICT,
                f'the candidate of "{shown_name(view, catalog)}" belongs to that of "{of}", which'
                " it reads",
                hint=f"{swapping(catalog, root)} lets both serve; DROP CANDIDATE OF {of} drops"
                " both.",
                span=span,
            )

    # -- filling -----------------------------------------------------------------------------

    def _filled(
        self,
        former: View,
        statement: CreateMaterializedView | CreateTableAs,
        query: Query,
        *,
        temporary: bool,
    ) -> tuple[int, Pairs, dict[str, str]]:
        """Fill the candidate of a statement, and those that it needs.

        Returns the rows read, the pairs, and why views above cannot follow, by name.
        """
        span = statement.name.span
        policy = refresh_of(statement.options) or CONTINUOUS
        self._require_supported(former, span, lags=policy.lags)
        text = None if temporary else self._over_candidates(former, query.span)
        waits = self.reader.catalog.candidate(former.id)
        if text is None and waits is not None and not waits.has_served:
            self.require_root(former, span)
        kept = quarantines(on_error(statement.options))
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        created = masked(without_swap(statement.span, statement.options))
        given = query if text is None else Query(text, Span.whole(text))
        planned = self.builds.planned(
            "", given, columns, created, guarded=kept, key=statement.key, like=former
        )
        view = replace(
            planned.view,
            candidate_of=former.id,
            temporary=temporary,
            own_query=True,
            history=history_of(statement.options),
            by_name="" if text is None else query.span.source,
        )
        self.reader.catalog.with_(replace(view, id=former.id, name=former.name), span)
        refused: dict[str, str] = {}
        if view.schema != former.schema:
            refused = AboveChanges(self.reader, self.engine).refused(former, view.schema)
        if temporary and refused:
            raise _refusal(former, refused, span)
        gone = tuple(candidate.id for _, candidate in self.of(former))
        made: list[RelationId] = []
        with self._undone(made):
            try:
                total = self.builds.fill(
                    replace(planned, view=view),
                    None,
                    gone,
                    earliest=begins_earliest(statement.options),
                    reuse=is_on(statement.options, REUSE),
                )
            except EvaluationError as error:
                raise error.within(statement.query.span) from error
            made.append(view.id)
            pairs = self._completed(
                [(former, view)],
                span,
                everything=False,
                temporary=temporary,
                made=made,
                without=refused,
            )
        return total, pairs, refused

    def _over_candidates(self, former: View, query: Span) -> str | None:
        """Return a query that reads the candidates that wait in place of their views.

        None if it names no view that has one.
        """
        catalog = self.reader.catalog
        names = {
            catalog.by_id[each.candidate_of].name: each.name
            for each in catalog.views_in_order()
            if each.candidate_of not in (None, former.id)
            and not (each.has_served or each.temporary)
            and each.index is None
        }
        if not names:
            return None
        with self.engine.planning:
            return self.engine.planner.substituted(query, names)

    def _completed(
        self,
        roots: Pairs,
        span: Span,
        *,
        everything: bool,
        temporary: bool,
        made: list[RelationId],
        without: Container[str] = (),
        reuse: bool = True,
    ) -> Pairs:
        """Fill the candidates that are missing; return all that change places. Adds to ``made``.

        With ``everything``, all views above are among them; those ``without`` are left out.
        """
        while True:
            pairs, catalog, state = self.over(roots), self.reader.catalog, self.reader.published
            view = missing(catalog, state, pairs, everything=everything, without=without)
            if view is None:
                return pairs
            members = {member.id for member, _ in pairs}
            if view.id not in members and temporary:
                self._require_alone(view, span)
            below = [each for each in pairs if each[0].id != view.id]
            candidate, _ = self._fill_member(view, below, span, temporary=temporary, reuse=reuse)
            made.append(candidate.id)

    def _fill_member(
        self, view: View, below: Pairs, span: Span, *, temporary: bool, reuse: bool
    ) -> tuple[View, int]:
        """Fill a candidate of a view by its own query, which reads the candidates ``below``.

        Returns it and the number of rows read.
        """
        self._require_supported(view, span)
        catalog = self.reader.catalog
        former = catalog.candidate(view.id)
        ids = {each.id: candidate.id for each, candidate in below}
        served = former is not None and former.has_served
        if former is not None and served and {*ids.values()}.isdisjoint(former.depends_on):
            self._require_alone(view, span)
        waits = former is not None and former.own_query and not former.has_served
        source = former if former is not None and waits else view
        by_name = source.by_name or source.query
        try:
            index = view.index and replace(view.index, of=ids.get(view.index.of, view.index.of))
            text = self._text(by_name, below) if index is None else self._all_of(index)
            columns, key = declared(source)
            given = by_name if text is None else text
            planned = self.builds.planned(
                "",
                Query(given, Span.whole(given)),
                columns,
                source.created_sql,
                index=index,
                guarded=source.quarantines,
                key=key,
                like=view,
            )
            candidate = replace(
                planned.view,
                candidate_of=view.id,
                temporary=temporary,
                ksqldb=source.ksqldb,
                own_query=source.own_query,
                history=source.history,
                by_name="" if text is None or index is not None else by_name,
            )
            gone = () if former is None else tuple(c.id for _, c in self.over([(view, former)]))
            planned = replace(planned, view=candidate)
            total = self.builds.fill(planned, None, gone, earliest=False, reuse=reuse)
        except HeadraceError as error:
            raise HeadraceError(
                error.code,
                f'"{shown_name(view, catalog)}" cannot be computed again: {error.primary}',
                error.detail,
                error.hint,
                span,
            ) from error
        return candidate, total

    def _text(self, query: str, below: Pairs) -> str | None:
        """Return a query that reads the candidates ``below`` in place of their views; or None."""
        names = {each.name: candidate.name for each, candidate in below}
        with self.engine.planning:
            return self.engine.planner.substituted(Span.whole(query), names)

    def _all_of(self, index: Index) -> str:
        relation = self.reader.catalog.by_id[index.of]
        return select_all(relation.schema.names, relation.name)

    def _require_supported(self, view: View, span: Span, *, lags: bool = False) -> None:
        """Raise unless a view can be filled beside itself, to change together with others."""
        name = shown_name(view, self.reader.catalog)
        if view.into is not None:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'"{name}" would have to be filled beside itself, and accepts INSERT',
                "The rows inserted into it would not be in the new build.",
                f"DROP {name} first, and create it again afterwards.",
                span,
            )
        if view.refresh.lags or lags:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'"{name}" would have to be filled beside itself, and is refreshed apart',
                "What changes together is maintained in every epoch.",
                f"ALTER MATERIALIZED VIEW {name} SET (refresh = 'continuous') first."
                if view.refresh.lags
                else "Leave refresh out, and set it afterwards.",
                span,
            )

    def _require_alone(self, view: View, span: Span) -> None:
        """Raise if a view has a candidate already."""
        catalog = self.reader.catalog
        if catalog.candidate(view.id) is not None:
            root = root_of(catalog, view)
            raise HeadraceError(
                Code.CONFLICT,
                f'view "{shown_name(view, catalog)}" has a candidate already',
                hint=f"{swapping(catalog, root)}, or DROP CANDIDATE OF {root.name}, first.",
                span=span,
            )

    @contextmanager
    def _undone(self, made: list[RelationId]) -> Iterator[None]:
        """Drop the candidates in ``made`` if a block fails."""
        try:
            yield
        except BaseException:
            catalog = self.reader.catalog
            there = [id_ for id_ in made if isinstance(catalog.by_id.get(id_), View)]
            there += [v.id for id_ in there for v in catalog.dependants(id_)]
            if there:
                self.definer.drop(list(dict.fromkeys(there)))
            raise

    # -- texts -------------------------------------------------------------------------------

    def _waits(self, pairs: Pairs, total: int) -> str:
        name, others = pairs[0][0].name, self._names(pairs[1:])
        also = f" and of {others}, which read it," if others else ""
        return (
            f"filled a candidate of materialized view {name}{also} from {counted(total, 'change')}:"
            f" SWAP VIEW {name} lets {'them' if others else 'it'} serve"
        )

    def _names(self, pairs: Pairs) -> str:
        names = [shown_name(view, self.reader.catalog) for view, _ in pairs]
        *first, last = names or [""]
        return f"{', '.join(first)} and {last}" if first else last


def _refusal(view: View, refused: dict[str, str], span: Span) -> HeadraceError:
    """Return the error of a view that gets other columns, which something above cannot follow."""
    name, why = next(iter(refused.items()))
    return HeadraceError(
        Code.CONFLICT,
        f'"{name}" reads view "{view.name}", and cannot follow it to other columns: {why}',
        hint=f'Keep what "{name}" uses, or change or DROP it first.',
        span=span,
    )
