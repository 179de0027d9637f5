"""The part of REPAIR that holds connected sets: rebuilds damaged relations and stopped views."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headrace.catalog import PlainView, Sink, Table, View
from headrace.errors import Code, HeadraceError
from headrace.ledger import NO_EPOCH, Dirty, RepairedView
from headrace.log import forget_segments
from headrace.parts.naming import shown_name
from headrace.parts.stopped import mark_stopped, stopped_above, stopped_after
from headrace.runtime.builds import fill_again, rebuild_filled
from headrace.runtime.dirty import repairable
from headrace.runtime.fill import Fill
from headrace.runtime.published import STOPPED, WAITING
from headrace.runtime.rebuild import Damage, TableRebuild
from headrace.spine import forget_runs
from headrace.statements.checking.damage import with_owner
from headrace.statements.results import Progress
from headrace.types import quarantine_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from headrace.ledger import Ledger
    from headrace.parts.reader import Reader
    from headrace.parts.waiting import WaitingViews
    from headrace.runtime.epoch import EpochLoop
    from headrace.runtime.fill import Progress as FillProgress
    from headrace.runtime.pump import Pump
    from headrace.spine import RunFile
    from headrace.sql import Name
    from headrace.types import Epoch, RelationId

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
