"""REPAIR: rebuilds damaged relations and stopped views; recomputes dirty slices.

Rows in quarantine are retried by filling another build of their view.

Names the relation that owns a damaged file, in its error.

The part of REPAIR beside epochs: retries quarantined rows, recomputes dirty slices.

The part of REPAIR that holds connected sets: rebuilds damaged relations and stopped views.

INVALIDATE: marks a slice of a view that a user reports as wrong.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError, masked
from headrace.execution.runtime.builds import fill_again, rebuild_filled
from headrace.execution.runtime.dirty import awaiting_refresh, repairable
from headrace.execution.runtime.fill import Fill
from headrace.execution.runtime.published import STOPPED, WAITING
from headrace.execution.runtime.replay import Damage, TableRebuild
from headrace.interfaces.statements.results import Listed, Progress
from headrace.lifecycle.states.quarantined import quarantined_count
from headrace.lifecycle.states.stopped import mark_stopped, stopped_above, stopped_after
from headrace.planning.catalog import PlainView, Sink, Table, View
from headrace.planning.catalog.naming import HIDDEN, shown_name
from headrace.planning.catalyst.fence import REGISTER
from headrace.storage.ledger import NO_EPOCH, Dirty, RepairedView, RepairPath, Slice
from headrace.storage.log import forget_segments
from headrace.types import quarantine_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from headrace.algebra.spine import RunFile
    from headrace.execution.runtime.epoch import EpochLoop
    from headrace.execution.runtime.fill import Progress as FillProgress
    from headrace.execution.runtime.pump import Pump
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.definitions.waiting import WaitingViews
    from headrace.lifecycle.history.changes import ChangeClassifier
    from headrace.lifecycle.history.repairing import Repairing
    from headrace.lifecycle.history.slices import Marking, Slices
    from headrace.lifecycle.states.access import Principal
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.sql import Invalidate, Name, Repair
    from headrace.storage.ledger import Ledger
    from headrace.types import Epoch, RelationId


_RUN = re.compile(r'run file "(?P<name>run-[^"]+)"(?! of )')


def with_owner(ledger: Ledger, catalog: Catalog, error: HeadraceError) -> HeadraceError:
    """Return the error of a damaged run with the name of the relation that owns the run."""
    run = _RUN.search(error.primary) if error.code is Code.CORRUPT else None
    if run is None:
        return error
    by_id = catalog.by_id
    records = [record for record in ledger.spines.arrangements() if record.owner in by_id]
    spines = ledger.spines.of([record.id for record in records])
    for record in records:
        if any(known.file.name == run["name"] for known in spines[record.id]):
            owner = by_id[record.owner]
            of = f'{run[0]} of {owner.kind} "{owner.name}"'
            return HeadraceError(
                error.code,
                error.primary.replace(run[0], of),
                error.detail,
                f"REPAIR {owner.name} rebuilds the rows of the file."
                if not owner.name.startswith(HIDDEN)
                else "REPAIR rebuilds the rows of the file.",
                error.span,
            )
    return error


@dataclass(frozen=True, slots=True)
class Retries:
    """Repairs views while their present rows stay readable."""

    reader: Reader
    ledger: Ledger
    definer: Definer
    repairing: Repairing
    report: Callable[[Progress], None]

    def retry(self, scope: Iterable[Table | View]) -> list[Row]:
        """Fill another build of each view with rows in quarantine, and swap it in."""
        rows = []
        for view in (each for each in scope if isinstance(each, View)):
            before = self._quarantined(view)
            if not before:
                continue
            another = replace(view, replacement=self.definer.new_build())
            try:
                progress = self._progress(f"filling {view.name}")
                epoch = self.definer.replace_view(view, self.definer.planned(another), progress)
                left = self._quarantined(another) or 0
                done = f"tried again in epoch {epoch}: {left:,} still in quarantine"
            except HeadraceError as error:
                if error.code not in (Code.INVALID, Code.CONFLICT, Code.UNSUPPORTED):
                    raise
                done = f"not tried again: {error.primary}"
            rows.append((shown_name(view, self.reader.catalog), f"{before:,} in quarantine", done))
        return rows

    def _quarantined(self, view: View) -> int | None:
        reader = self.reader
        return quarantined_count(self.ledger, reader.directory, reader.published, view)

    def recompute(self, scope: Collection[RelationId]) -> list[Row]:
        """Recompute the dirty slices of views, and list views that wait for a refresh."""
        by_id = self.reader.catalog.by_id
        wanted = [e.id for e in self.ledger.head.dirty if e.view in scope and e.id is not None]
        done = self.repairing.repair(
            wanted, lambda entry: self._progress(f"recomputing {by_id[entry.view].name}")
        )
        rows = []
        for each in done:
            name, found = by_id[each.entry.view].name, _problem(each.entry)
            if isinstance(each.done, HeadraceError):
                did = f"still dirty: {each.done.primary}"
            else:
                read, changed = each.done.read, each.done.changed
                did = (
                    f"recomputed from {read:,} rows in epoch {each.done.epoch}: {changed:,} changes"
                )
            rows.append((name, found, did))
        for entry, late in awaiting_refresh(self.ledger.head.dirty, self.reader.catalog):
            if entry.view in scope:
                names = ", ".join(view.name for view in late)
                did = f"still dirty: REFRESH {names} reads what was repaired below"
                rows.append((by_id[entry.view].name, _problem(entry), did))
        return rows

    def _progress(self, what: str) -> FillProgress:
        return lambda done, total: self.report(Progress(what, done, total, "rows"))


def _problem(entry: Dirty) -> str:
    where = f", {entry.slice.where}" if entry.slice.where else ""
    return f"dirty: {entry.cause}{where}"


_COPIED_BYTES: Final = 1 << 20
"""How many bytes of a damaged run are copied at a time."""
_DAMAGED_SINCE: Final = "One of its files was damaged after it stopped."

Row: TypeAlias = tuple[str, str, str]
"""A relation, its problem, and the action."""


def restarted_note(rows: Iterable[Row]) -> str:
    """Return the note on the views above that were started again after a replacement."""
    return "".join(f"; {name}: {done}" for name, _, done in rows)


class Rebuilt(NamedTuple):
    """The relations of a REPAIR, each after its inputs; the stopped ones; the result rows."""

    scope: list[Table | View]
    stopped: frozenset[RelationId]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Rebuilds:
    """Rebuilds relations. Epochs of their sets, and compaction, wait meanwhile."""

    reader: Reader
    ledger: Ledger
    loop: EpochLoop
    pump: Pump
    waiting: WaitingViews
    report: Callable[[Progress], None]

    def rebuild(self, name: Name | None) -> Rebuilt:
        """Rebuild damaged and stopped relations: the named one with its inputs, or all."""
        forget_runs()
        forget_segments()
        scope = self._scope(name)
        damaged, stopped = self.reader.damaged(scope), self.loop.stopped()
        wrong = {each.id for each in scope if each.id in damaged or each.id in stopped}
        if not wrong:
            return Rebuilt(scope, stopped, [])
        with self._held(wrong):
            scope = self._scope(name)
            stopped = self.loop.stopped()
            among = [each for each in scope if each.id in wrong]
            rows = self._rebuild_damaged(among)
            stopped |= self.loop.stopped()
            rows += self._restart(among)
        return Rebuilt(scope, stopped, rows)

    @contextmanager
    def _held(self, views: Collection[RelationId]) -> Iterator[None]:
        """Hold the sets of some relations, and have nothing refreshed or compacted."""
        with (
            self.loop.refreshing,
            self.loop.holding(views, "the repair of what is stored"),
            self.pump.compaction.busy,
        ):
            yield

    def restart(self, above: Iterable[RelationId]) -> list[Row]:
        """Fill the stopped views above some that were replaced; list what becomes of each."""
        above = list(above)
        if not stopped_above(self.reader.published, above):
            return []
        self.waiting.resume()
        with self._held(above):
            wanted = {*stopped_above(self.loop.published.current, above)}
            return self._restart([v for v in self.loop.catalog.views_in_order() if v.id in wanted])

    def _scope(self, name: Name | None) -> list[Table | View]:
        """Return tables, then views with their candidates, each after its inputs."""
        catalog = self.reader.catalog
        tables = [r for r in catalog if isinstance(r, Table)]
        in_order: list[Table | View] = [*tables, *catalog.views_in_order()]
        if name is None:
            return in_order
        relation = catalog.resolve(name.dotted, name.span)
        if isinstance(relation, Sink):
            relation = catalog.by_id[relation.source]
        wanted, pending = set(), [relation.id]
        while pending:
            id_ = pending.pop()
            if id_ not in wanted:
                wanted.add(id_)
                below = catalog.by_id[id_]
                pending += below.inputs if isinstance(below, View | PlainView) else ()
                pending += below.depends_on if isinstance(below, View | PlainView) else ()
                pending += [each.id for each in [catalog.candidate(id_)] if each is not None]
        return [r for r in in_order if r.id in wanted]

    def _rebuild_damaged(self, scope: list[Table | View]) -> list[Row]:
        found, rows = self.reader.damaged(scope), []
        for relation in scope:
            for_it = found.get(relation.id)
            if for_it is None:
                continue
            wrong = "; ".join(each.reason for each in for_it)
            try:
                done = self._rebuilt(relation, for_it)
                done += self._set_aside(relation, for_it)
            except HeadraceError as error:
                if error.code is Code.UNAVAILABLE:
                    raise
                named = with_owner(self.ledger, self.reader.catalog, error)
                detail = f": {named.detail}" if named.detail else ""
                done = f"not rebuilt: {named.primary}{detail}"
            rows.append((self._shown(relation), wrong, done))
        return rows

    def _rebuilt(self, relation: Table | View, found: list[Damage]) -> str:
        progress = self._progress(f"rebuilding {relation.name}")
        if isinstance(relation, Table):
            layout = self.reader.published.layout(relation)
            epoch, changes = TableRebuild(self.loop, relation, layout, progress).run()
            return f"rebuilt from {changes:,} changes of its log in epoch {epoch}"
        kept = {quarantine_of(relation.build, id_) for id_ in relation.depends_on}
        lost = any(each.arrangement in kept for each in found)
        if lost or relation.id in self.loop.stopped():
            if self._marked(relation, WAITING):
                raise HeadraceError(Code.CONFLICT, "it waits for a function")
            # The contents of a stopped view are old: it is rebuilt when it restarts. Without its
            # quarantine, a view may have to leave out other rows.
            why = "A file of its quarantine was damaged." if lost else _DAMAGED_SINCE
            mark_stopped(
                self.ledger,
                relation,
                stopped_after(self.ledger, self.reader.catalog, relation),
                why,
            )
            return "to be rebuilt, since it stopped: see below"
        if repairable(self.ledger.head.dirty, relation.id):
            # Its readers depend on its former rows, which are no longer readable.
            mark_stopped(self.ledger, relation, NO_EPOCH, "Its rows were dirty, and are damaged.")
            return "to be rebuilt with what reads it, since it was dirty: see below"
        epoch = rebuild_filled(Fill(self.loop, relation, progress, keeps=True))
        return f"rebuilt from its inputs in epoch {epoch}"

    def _set_aside(self, relation: Table | View, found: list[Damage]) -> str:
        copied = [name for each in found if (name := self._copied(each.run)) is not None]
        note = f"; set aside: {', '.join(copied)}" if copied else ""
        last, contents = self.ledger.head.epoch, rows_of(relation.id)
        if all(each.arrangement != contents for each in found):
            return note
        behind = [
            r.name
            for r in self.reader.catalog
            if isinstance(r, Sink)
            and r.source == relation.id
            and self.loop.held.get(r.id, last) < last - 1
        ]
        if behind:
            note += f"; sinks have not read some changes, which are lost: {', '.join(behind)}"
        return note

    def _copied(self, run: RunFile) -> str | None:
        """Copy what is left of a run, since its pack may have others; return where the copy is."""
        folder = self.loop.directory / "quarantine"
        try:
            with (self.loop.runs / run.pack).open("rb") as pack:
                folder.mkdir(exist_ok=True)
                pack.seek(run.position)
                with (folder / run.name).open("wb") as copy:
                    left = run.bytes
                    while data := pack.read(min(left, _COPIED_BYTES)):
                        left -= copy.write(data)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"not {run.name}, by the error: {error.strerror}"
        return f"quarantine/{run.name}"

    def _restart(self, scope: list[Table | View]) -> list[Row]:
        """Rebuild stopped views and their readers, if their queries run."""
        catalog = self.reader.catalog
        failed = [v for v in scope if isinstance(v, View) and self._marked(v, STOPPED)]
        if not failed:
            return []
        try:
            self.pump.settle_held()
        except HeadraceError as error:
            if error.code is not Code.CORRUPT:
                raise
            why = with_owner(self.ledger, catalog, error).primary
            return [(self._shown(view), "stopped", f"still stopped: {why}") for view in failed]
        after = {view.id: stopped_after(self.ledger, self.reader.catalog, view) for view in failed}
        ids = {view.id for view in failed}
        for view in failed:
            for above in catalog.dependants(view.id):
                if isinstance(above, View) and above.id not in ids:
                    # Before its input runs again, since this view's contents are equally old.
                    after[above.id] = stopped_after(self.ledger, self.reader.catalog, above)
                    why = f'It reads view "{view.name}", which stopped.'
                    mark_stopped(self.ledger, above, after[above.id], why)
                    ids.add(above.id)
        failing: set[RelationId] = set()
        ordered = [view for view in catalog.views_in_order() if view.id in ids]
        return [self._filled(view, after[view.id], failing) for view in ordered]

    def _filled(self, view: View, after: Epoch, failing: set[RelationId]) -> Row:
        name = self._shown(view)
        below = [self.reader.catalog.by_id[i] for i in view.depends_on]
        behind = next((r.name for r in below if r.id in failing), None)
        held_up = behind is not None or self._marked(view, WAITING)
        if held_up:
            failing.add(view.id)
            why = "it waits for a function" if behind is None else f'view "{behind}" is stopped'
            return (name, "stopped", f"still stopped: {why}")
        progress = self._progress(f"filling {name}")
        try:
            damaged = self.reader.damaged([view])
            fill, right = Fill(self.loop, view, progress), RepairedView(view.id, STOPPED, after)
            epoch = rebuild_filled(fill, right) if damaged else fill_again(fill, right)
        except HeadraceError as error:
            if error.code not in (Code.INVALID, Code.CONFLICT):
                raise
            failing.add(view.id)
            self.ledger.dirty.clear(view.id, STOPPED)
            self.ledger.dirty.mark(Dirty(view.id, STOPPED, time.time(), str(error), after))
            return (name, "stopped", f"still stopped: {error.primary}")
        return (name, "stopped", f"rebuilt in epoch {epoch}, and running")

    def _shown(self, relation: Table | View) -> str:
        return shown_name(relation, self.reader.catalog)

    def _marked(self, view: View, cause: str) -> bool:
        return is_marked(self.ledger, view, cause)

    def _progress(self, what: str) -> FillProgress:
        return lambda done, total: self.report(Progress(what, done, total, "rows"))


def is_marked(ledger: Ledger, view: View, cause: str) -> bool:
    """Whether a view has a dirty entry with a cause."""
    return any((each.view, each.cause) == (view.id, cause) for each in ledger.head.dirty)


INVALIDATED = "invalidated"
"""The cause of a dirty entry written by INVALIDATE."""


@dataclass(frozen=True, slots=True)
class Invalidations:
    """Marks slices of views dirty at a user's request."""

    reader: Reader
    loop: EpochLoop
    slices: Slices
    marking: Marking
    changes: ChangeClassifier
    principal: Principal

    def invalidate(self, statement: Invalidate) -> str:
        """Mark a slice of a view, and the affected slices of views above; return a message."""
        view = invalidated(self.reader.catalog, statement)
        slice_ = self.slices.read(view, statement.slice)
        if not statement.reason.strip():
            raise HeadraceError(
                Code.INVALID, "the reason is empty", hint="Say what is wrong.", span=statement.span
            )
        plan = self.changes.replays.plan(view, slice_)
        self.changes.replays.require_possible(view, slice_)  # or it would stay dirty
        origin = {
            "statement": masked(statement.span.source),
            "reason": statement.reason,
            **({} if self.principal.name is None else {"by": self.principal.name}),
        }
        with self.loop.between():
            catalog = self.reader.catalog
            if invalidated(catalog, statement) is not view:
                raise HeadraceError(
                    Code.CONFLICT,
                    f'view "{view.name}" was replaced meanwhile',
                    hint="Run the statement again.",
                )
            entry = Dirty(
                view.id,
                INVALIDATED,
                time.time(),
                slice=slice_,
                repair=RepairPath.REPLAY,
                cost=plan.cost,
                whole=plan.whole,
            )
            marked = self.marking.mark(catalog, [entry], origin)
        self.changes.record(self.changes.of_slice(view, slice_), origin)
        above = [
            f"{catalog.by_id[e.view].name}{'' if e.slice == slice_ else ' (all rows)'}"
            for e in marked[1:]
        ]
        also = f"; so {'is' if len(above) == 1 else 'are'} {', '.join(above)}" if above else ""
        what = "all rows" if slice_ == Slice() else "a slice"
        return (
            f"{what} of view {view.name} {'are' if slice_ == Slice() else 'is'} dirty{also}: "
            f"to be recomputed from about {plan.cost:,} of {plan.whole:,} rows"
        )


def invalidated(catalog: Catalog, statement: Invalidate) -> View:
    """Return the view whose rows a statement invalidates."""
    found = catalog.resolve(statement.name.dotted, statement.name.span)
    if isinstance(found, View) and not found.name.startswith(HIDDEN):
        return found
    raise HeadraceError(
        Code.INVALID,
        f'"{found.name}" is a {found.kind}, not a materialized view',
        hint="Only the rows of materialized views are recomputed.",
        span=statement.name.span,
    )


@dataclass(frozen=True, slots=True)
class Repairs:
    """Repairs relations."""

    reader: Reader
    rebuilds: Rebuilds
    retries: Retries

    def repair(self, statement: Repair) -> str | Listed:
        """Repair a relation with its inputs, or all relations; list problems and actions."""
        scope, stopped, rows = self.rebuilds.rebuild(statement.name)
        rows += self.retries.retry([each for each in scope if each.id not in stopped])
        rows += self.retries.recompute({relation.id for relation in scope})
        rows += self._waiting(scope)
        if not rows:
            return "nothing is damaged or dirty, and no view has stopped"
        return Listed(("relation", "found", "done"), rows)

    def _waiting(self, scope: list[Table | View]) -> list[Row]:
        """List the views that wait for a function; only registering the function resumes them."""
        ledger = self.reader.ledger
        wait = {e.view: e.detail for e in ledger.head.dirty if e.cause == WAITING}
        return [
            (
                shown_name(view, self.reader.catalog),
                "stopped",
                f"still waiting: {wait[view.id]} {REGISTER}",
            )
            for view in scope
            if isinstance(view, View) and view.id in wait and not is_marked(ledger, view, STOPPED)
        ]
