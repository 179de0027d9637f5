"""Candidates of views, with those of the views that read them: filled, completed and swapped."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.catalog import CONTINUOUS, View
from headrace.errors import Code, EvaluationError, HeadraceError, Span, masked
from headrace.parts.naming import HIDDEN, shown_name
from headrace.parts.swapping import IncompleteSwapError, is_outdated, same_contents
from headrace.sql import CreateMaterializedView, Query, select_all
from headrace.statements.defining.above_changes import AboveChanges, declared
from headrace.statements.defining.auto_swap import swaps_by_itself, without_swap
from headrace.statements.defining.history import history_of
from headrace.statements.defining.on_error import on_error, quarantines
from headrace.statements.defining.options import begins_earliest
from headrace.statements.defining.refresh_options import refresh_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.catalog import Index
    from headrace.engine.engine import Engine
    from headrace.parts.definer import Definer
    from headrace.parts.reader import Reader
    from headrace.sql import CreateTableAs, RebuildView
    from headrace.statements.defining.view_builds import ViewBuilds
    from headrace.types import Epoch, RelationId

Pairs: TypeAlias = "Sequence[tuple[View, View]]"
"""Views and their candidates, inputs first."""

_ATTEMPTS: Final = 8
"""How often a swap is tried while other statements create views that read what it changes."""


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

    def create(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> str:
        """Fill a hidden view with a new query, which SWAP VIEW lets serve."""
        total, pairs = self._filled(former, statement, query, temporary=False)
        return self._waits(pairs, total)

    def replace(
        self, former: View, statement: CreateMaterializedView | CreateTableAs, query: Query
    ) -> str:
        """Fill a view with other columns, and those that read it; let all serve in one epoch."""
        total, pairs = self._filled(former, statement, query, temporary=True)
        with self._undone([candidate.id for _, candidate in pairs]):
            epoch = self.swap(pairs[0], statement.name.span)
        names = self._names(pairs[1:])
        again = f"; computed {names} again" if names else ""
        return (
            f"replaced materialized view {former.name} from {_changes(total)}{again},"
            f" all in epoch {epoch}"
        )

    def rebuild(self, statement: RebuildView) -> str:
        """Compute a view again beside the one that serves; with dependants, all views above too."""
        catalog, span = self.reader.catalog, statement.name.span
        view = catalog.resolve(statement.name.dotted, span)
        if not isinstance(view, View) or view.name.startswith(HIDDEN):
            raise HeadraceError(
                Code.INVALID, f'"{view.name}" is a {view.kind}, not a materialized view', span=span
            )
        swaps = swaps_by_itself(statement.options)
        made: list[RelationId] = []
        with self._undone(made):
            self._require_alone(view, span)
            candidate, total = self._fill_member(view, [], span, temporary=swaps)
            made.append(candidate.id)
            pairs = self._completed(
                (view, candidate), span, everything=statement.dependants, temporary=swaps, made=made
            )
        if not swaps:
            return self._waits(pairs, total)
        names = self._names(pairs)
        with self._undone([candidate.id for _, candidate in pairs]):
            epoch = self.swap(pairs[0], span, everything=statement.dependants)
        return f"rebuilt {names} from {_changes(total)}: {self.changed_in(epoch)} in epoch {epoch}"

    def swap(self, pair: tuple[View, View], span: Span, *, everything: bool = False) -> Epoch:
        """Let a view and its candidate change places, with those that must at the same time.

        What is missing is filled first. A temporary candidate's former view is dropped.
        """
        view, candidate = pair
        made: list[RelationId] = []
        for _ in range(_ATTEMPTS):
            with self._undone(made):
                pairs = self._completed(
                    pair, span, everything=everything, temporary=candidate.temporary, made=made
                )
                for member in (each for both in pairs for each in both):
                    self.reader.require_running(member)
                try:
                    epoch = self.definer.swap(pairs)
                except IncompleteSwapError:
                    continue
            if candidate.temporary:
                self.drop(view.name)
            return epoch
        raise HeadraceError(
            Code.CONFLICT,
            f'views over "{view.name}" are created all the time',
            hint="Run the statement again.",
            span=span,
        )

    def drop(self, name: str) -> None:
        """Drop what is in the place of candidates of a view and of those above, if anything is."""
        view = self.reader.catalog.find(name)
        pairs = self.of(view) if isinstance(view, View) else []
        if pairs:
            self.definer.drop([candidate.id for _, candidate in reversed(pairs)])

    def of(self, view: View) -> Pairs:
        """Return a view and its candidate, and those that change places with them; or none."""
        candidate = self.reader.catalog.candidate(view.id)
        return [] if candidate is None else self._over(view, candidate)

    def changed_in(self, epoch: Epoch) -> str:
        """Return how many rows of a view a swap has changed."""
        (record,) = self.reader.ledger.epochs.newest(1)
        changes = record.counters.get("changes", 0) if record.epoch == epoch else 0
        return "1 row changed" if changes == 1 else f"{changes:,} rows changed"

    def require_root(self, view: View, span: Span) -> None:
        """Raise if a view changes places only together with one that it reads."""
        catalog = self.reader.catalog
        candidate = catalog.candidate(view.id)
        below = () if candidate is None else (catalog.by_id[id_] for id_ in candidate.depends_on)
        for each in below:
            if isinstance(each, View) and each.candidate_of is not None:
                of = catalog.by_id[each.candidate_of].name
                raise HeadraceError(
                    Code.CONFLICT,
                    f'the candidate of "{view.name}" belongs to that of "{of}", which it reads',
                    hint=f"SWAP VIEW {of} lets both serve; DROP CANDIDATE OF {of} drops both.",
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
    ) -> tuple[int, Pairs]:
        """Fill the candidate of a statement, and those that it needs; return the rows read."""
        span = statement.name.span
        policy = refresh_of(statement.options) or CONTINUOUS
        self._require_supported(former, span, lags=policy.lags)
        self.require_root(former, span)
        kept = quarantines(on_error(statement.options))
        columns = statement.columns if isinstance(statement, CreateMaterializedView) else ()
        text = masked(without_swap(statement.span, statement.options))
        planned = self.builds.planned(
            "", query, columns, text, guarded=kept, key=statement.key, like=former
        )
        view = replace(
            planned.view,
            candidate_of=former.id,
            temporary=temporary,
            history=history_of(statement.options),
        )
        if view.schema != former.schema:
            above = AboveChanges(self.reader, self.engine)
            above.require_possible(former, view.schema, span)
        gone = tuple(candidate.id for _, candidate in self.of(former))
        made: list[RelationId] = []
        with self._undone(made):
            try:
                total = self.builds.fill(
                    replace(planned, view=view),
                    None,
                    gone,
                    earliest=begins_earliest(statement.options),
                )
            except EvaluationError as error:
                raise error.within(statement.query.span) from error
            made.append(view.id)
            pairs = self._completed(
                (former, view), span, everything=False, temporary=temporary, made=made
            )
        return total, pairs

    def _completed(
        self,
        pair: tuple[View, View],
        span: Span,
        *,
        everything: bool,
        temporary: bool,
        made: list[RelationId],
    ) -> Pairs:
        """Fill the candidates that are missing; return all that change places. Adds to ``made``.

        With ``everything``, all views above are among them.
        """
        while True:
            pairs = self._over(*pair)
            view = self._missing(pairs, everything=everything)
            if view is None:
                return pairs
            members = {member.id for member, _ in pairs}
            if view.id not in members:
                self._require_alone(view, span)
            below = [each for each in pairs if each[0].id != view.id]
            candidate, _ = self._fill_member(view, below, span, temporary=temporary)
            made.append(candidate.id)

    def _missing(self, pairs: Pairs, *, everything: bool) -> View | None:
        """Return the first view that needs a candidate and has none, or an outdated one."""
        catalog, state = self.reader.catalog, self.reader.published
        moved = {view.id for view, other in pairs if not same_contents(state, view, other)}
        members = {view.id: candidate for view, candidate in pairs}
        for each in catalog.dependants(pairs[0][0].id):
            if not isinstance(each, View) or each.candidate_of is not None:
                continue
            if each.id in members:
                if is_outdated(each, members[each.id], pairs):
                    return each
                continue
            all_ = everything and not each.name.startswith(HIDDEN)
            if not (members.keys() if all_ else moved).isdisjoint(each.depends_on):
                return each
        return None

    def _fill_member(
        self, view: View, below: Pairs, span: Span, *, temporary: bool
    ) -> tuple[View, int]:
        """Fill a candidate of a view by its own query, which reads the candidates ``below``.

        Returns it and the number of rows read.
        """
        self._require_supported(view, span)
        catalog = self.reader.catalog
        ids = {each.id: candidate.id for each, candidate in below}
        try:
            index = view.index and replace(view.index, of=ids.get(view.index.of, view.index.of))
            text = self._text(view, below) if index is None else self._all_of(index)
            columns, key = declared(view)
            planned = self.builds.planned(
                "",
                Query(text, Span.whole(text)),
                columns,
                view.created_sql,
                index=index,
                guarded=view.quarantines,
                key=key,
                like=view,
            )
            candidate = replace(
                planned.view,
                candidate_of=view.id,
                temporary=temporary,
                ksqldb=view.ksqldb,
                history=view.history,
            )
            former = catalog.candidate(view.id)
            gone = (
                ()
                if former is None
                else (former.id, *(v.id for v in catalog.dependants(former.id)))
            )
            total = self.builds.fill(replace(planned, view=candidate), None, gone, earliest=False)
        except HeadraceError as error:
            raise HeadraceError(
                error.code,
                f'"{shown_name(view, catalog)}" cannot be computed again: {error.primary}',
                error.detail,
                error.hint,
                span,
            ) from error
        return candidate, total

    def _text(self, view: View, below: Pairs) -> str:
        """Return the query of a view, reading the candidates ``below`` in place of their views."""
        names = {each.name: candidate.name for each, candidate in below}
        if {each.id for each, _ in below}.isdisjoint(view.depends_on):
            return view.query
        with self.engine.planning:
            return self.engine.planner.substituted(Span.whole(view.query), names)

    def _all_of(self, index: Index) -> str:
        relation = self.reader.catalog.by_id[index.of]
        return select_all(relation.schema.names, relation.name)

    def _over(self, view: View, candidate: View) -> Pairs:
        """Return a view and a candidate, and the candidates that read it with their views."""
        catalog = self.reader.catalog
        found = [(view, candidate)]
        for each in catalog.dependants(candidate.id):
            of = each.candidate_of if isinstance(each, View) else None
            member = None if of is None else catalog.by_id[of]
            if isinstance(each, View) and isinstance(member, View):
                found.append((member, each))
        return found

    def _require_supported(self, view: View, span: Span, *, lags: bool = False) -> None:
        self.reader.require_running(view)
        if view.into is not None or view.refresh.lags or lags:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'a candidate of view "{shown_name(view, self.reader.catalog)}" is not supported',
                "It accepts INSERT." if view.into is not None else "It is refreshed apart.",
                span=span,
            )

    def _require_alone(self, view: View, span: Span) -> None:
        """Raise if a view has a candidate already."""
        if self.reader.catalog.candidate(view.id) is not None:
            raise HeadraceError(
                Code.CONFLICT,
                f'view "{view.name}" has a candidate of its own',
                hint=f"SWAP VIEW {view.name}, or DROP CANDIDATE OF {view.name}, first.",
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
            f"filled a candidate of materialized view {name}{also} from {_changes(total)}:"
            f" SWAP VIEW {name} lets {'them' if others else 'it'} serve"
        )

    def _names(self, pairs: Pairs) -> str:
        names = [shown_name(view, self.reader.catalog) for view, _ in pairs]
        *first, last = names or [""]
        return f"{', '.join(first)} and {last}" if first else last


def _changes(total: int) -> str:
    return f"{total:,} {'change' if total == 1 else 'changes'}"
