"""A copy of a ledger as that of another database, which begins at an epoch of the first one.

What an epoch changes is recorded with the epoch, so it can be taken back: relations, builds, runs,
positions in logs. The state of operators is kept for the last epoch only, so views with any cannot
go on from an earlier one: they are to be filled again. What is not recorded by epoch, such as how
an altered definition was before, is refused.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import builds, commit, dirty, schema, soundness
from headrace.storage.ledger.commit import committed
from headrace.storage.ledger.log_merges import segment_of
from headrace.storage.ledger.records import LIVE, REDEFINED, Dirty
from headrace.types import Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from headrace.storage.ledger.records import Segment


AppendedBy: TypeAlias = "Callable[[Segment, float], int]"
_ALTERED: Final = "alter-"
"""The attempt of an epoch that changes a definition is this, followed by the relation's id.

Of epochs that earlier versions have made, only that and :data:`_SWAPPED` say it.
"""
_SWAPPED: Final = "swapped"
_RECOMPUTED: Final = ("filled", "repaired", "replayed", _SWAPPED)
"""The counters of an epoch that name a relation whose rows it has replaced."""
_SINK: Final = "sink"
_TABLE: Final = "table"


@dataclass(slots=True)
class LedgerCopy:
    """A copy of a ledger in a SQLite file, which no process has open as a ledger."""

    file: Path

    @contextmanager
    def changing(self) -> Iterator[CopyChange]:
        """Change it in one transaction; the file is durable when the block ends."""
        engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(self.file))
        try:
            with engine.begin() as connection:
                yield CopyChange(connection)
        finally:
            engine.dispose()
        with self.file.open("rb") as written:
            os.fsync(written.fileno())


@dataclass(slots=True)
class CopyChange:
    """The changes of a copy, in one transaction."""

    _connection: sa.Connection

    @property
    def epoch(self) -> Epoch:
        """The last epoch."""
        return commit.last_epoch(self._connection)

    def definitions(self) -> dict[RelationId, dict[str, Any]]:
        """Return the definitions of the relations that exist."""
        objects = schema.objects.c
        query = sa.select(objects.relation, objects.definition).where(
            objects.dropped_epoch.is_(None)
        )
        return {RelationId(row.relation): row.definition for row in self._connection.execute(query)}

    def define(self, definitions: Mapping[RelationId, Mapping[str, Any]]) -> None:
        """Replace definitions of streams and tables."""
        for relation, definition in definitions.items():
            its = schema.objects.c.relation == relation
            self._connection.execute(
                schema.objects.update().where(its).values(definition=dict(definition))
            )

    def drop(self, relations: Collection[RelationId]) -> None:
        """Drop relations at the last epoch, so that only earlier ones have them."""
        if not relations:
            return
        commit.drop(self._connection, tuple(relations), self.epoch)
        table = schema.deliveries
        self._connection.execute(table.delete().where(table.c.sink.in_(relations)))

    def set(self, values: Mapping[str, Any]) -> None:
        """Set settings; one that is None is removed."""
        meta = schema.meta
        for key, value in values.items():
            self._connection.execute(meta.delete().where(meta.c.key == key))
            if value is not None:
                self._connection.execute(meta.insert(), {"key": key, "value": value})

    def renew(self) -> None:
        """Give the copy an identity of its own."""
        self.set({schema.IDENTITY_KEY: uuid.uuid4().hex})

    def mark(self, view: RelationId, cause: str, detail: str, origin: Mapping[str, Any]) -> None:
        """Mark a view as dirty, which has been right up to the last epoch."""
        since = committed(self._connection, self.epoch)[0]
        entry = Dirty(view, cause, since, detail, self.epoch, origin=dict(origin))
        dirty.mark(self._connection, entry)

    def rewind(self, epoch: Epoch, appended_by: AppendedBy) -> frozenset[RelationId]:
        """Take back what was done after an epoch; return the views that are to be filled again.

        ``appended_by`` returns how many changes of a segment had been appended by a time.

        Changes that had arrived and were read by no epoch yet are left out. So is what is recorded
        of a log that is cut, but not by epoch: loads, producers, and the newest event times.

        Raises:
            HeadraceError: INVALID if there is no such epoch, or if what was done since cannot be
                taken back.
        """
        return _Rewinding.to(self._connection, epoch, appended_by).run()


@dataclass(slots=True)
class _Rewinding:
    """The way back to an epoch. ``names`` and ``kinds`` are those of the relations that it had."""

    connection: sa.Connection
    epoch: Epoch
    committed_at: float
    appended_by: AppendedBy
    names: dict[RelationId, str] = field(default_factory=dict)
    kinds: dict[RelationId, str] = field(default_factory=dict)
    refilled: set[RelationId] = field(default_factory=set)

    @classmethod
    def to(cls, connection: sa.Connection, epoch: Epoch, appended_by: AppendedBy) -> _Rewinding:
        last = commit.last_epoch(connection)
        if not 0 <= epoch <= last:
            raise HeadraceError(
                Code.INVALID, f"epoch {epoch} does not exist yet", f"The last epoch is {last}."
            )
        recorded = commit.first_epoch(connection)
        if epoch < recorded:
            raise HeadraceError(
                Code.INVALID,
                f"a branch cannot begin at epoch {epoch}",
                f"The oldest epoch that is still recorded is {recorded}.",
                "Begin at a newer epoch.",
            )
        found = cls(connection, epoch, committed(connection, epoch)[0], appended_by)
        objects = schema.objects.c
        rows = connection.execute(
            sa.select(objects.relation, objects.name, objects.kind).where(
                objects.created_epoch <= epoch,
                objects.dropped_epoch.is_(None) | (objects.dropped_epoch > epoch),
            )
        )
        for row in rows:
            found.names[RelationId(row.relation)] = row.name
            found.kinds[RelationId(row.relation)] = row.kind
        return found

    def run(self) -> frozenset[RelationId]:
        self._require_recorded()
        self._require_readable()
        self._require_frontiers()
        self._forget_later()
        self._builds()
        self._spines()
        self._logs()
        self._epochs()
        broken = soundness.violations(self.connection)
        if broken:
            raise self._refused(
                f"What was done since cannot be taken back: {next(iter(broken.values()))}."
            )
        return frozenset(self.refilled)

    # -- what is refused -------------------------------------------------------------------

    def _refused(self, detail: str, hint: str = "Begin at a newer epoch.") -> HeadraceError:
        return HeadraceError(
            Code.INVALID, f"a branch cannot begin at epoch {self.epoch}", detail, hint
        )

    def _require_recorded(self) -> None:
        """Refuse what changed definitions since; find the views whose rows were replaced since."""
        table = schema.epochs.c
        later = sa.select(table.epoch, table.attempt, table.counters).where(
            table.epoch > self.epoch
        )
        by_name = {name: id_ for id_, name in self.names.items()}
        for row in self.connection.execute(later.order_by(table.epoch)):
            for id_ in row.counters.get(REDEFINED, ()):
                self._require_unaltered(RelationId(id_), row.epoch)
            number = row.attempt.removeprefix(_ALTERED)
            if row.attempt.startswith(_ALTERED) and number.isdecimal():
                self._require_unaltered(RelationId(int(number)), row.epoch)
            for verb in _RECOMPUTED:
                id_ = by_name.get(row.counters.get(verb))
                if id_ is None:
                    continue
                if verb == _SWAPPED:
                    self._require_unaltered(id_, row.epoch)
                if self.kinds[id_] == _TABLE:
                    raise self._refused(
                        f'Rows of table "{self.names[id_]}" were repaired in epoch {row.epoch}.'
                    )
                self.refilled.add(id_)

    def _require_unaltered(self, id_: RelationId, epoch: int) -> None:
        if self.kinds.get(id_, _SINK) != _SINK:
            raise self._refused(
                f'{self.kinds[id_].capitalize()} "{self.names[id_]}" was altered in epoch {epoch},'
                " and how it was before is not recorded.",
                f"Begin at epoch {epoch}, or a newer one.",
            )

    def _require_readable(self) -> None:
        """Refuse an epoch at which the contents of a relation can no longer be read."""
        table = schema.arrangements.c
        late = self.connection.execute(
            sa.select(table.owner, table.since).where(
                table.build.is_(None), table.owner.in_(self.names), table.since > self.epoch
            )
        )
        for owner, since in late:
            raise self._refused(
                f'{self.kinds[owner].capitalize()} "{self.names[owner]}" can be read from epoch'
                f" {since} on.",
                "Begin at a newer epoch. The setting history_epochs is how many are kept.",
            )

    def _require_frontiers(self) -> None:
        """Refuse a view that was refreshed apart since: where it stood is not recorded."""
        builds_, frontiers = schema.builds.c, schema.frontiers.c
        moved = self.connection.execute(
            sa.select(builds_.view, frontiers.epoch)
            .join(schema.frontiers, frontiers.id == builds_.frontier)
            .where(
                frontiers.epoch > self.epoch,
                builds_.created_epoch <= self.epoch,
                builds_.retired_epoch.is_(None) | (builds_.retired_epoch > self.epoch),
            )
        )
        for view, epoch in moved:
            raise self._refused(
                f'View "{self.names.get(view, view)}" was refreshed in epoch {epoch}, and where it'
                " stood before is not recorded.",
                f"Begin at epoch {epoch}, or a newer one.",
            )

    # -- what is taken back ----------------------------------------------------------------

    def _delete(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> None:
        self.connection.execute(table.delete().where(*conditions))

    def _forget_later(self) -> None:
        """Delete the relations and builds that were created since, and what belongs to them."""
        objects, arrangements, made = schema.objects, schema.arrangements, schema.builds
        relations = sa.select(objects.c.relation).where(objects.c.created_epoch > self.epoch)
        later = sa.select(made.c.id).where(
            (made.c.created_epoch > self.epoch) | made.c.view.in_(relations)
        )
        gone = list(self.connection.execute(later).scalars())
        kept = arrangements.c.owner.in_(relations) | arrangements.c.build.in_(gone)
        self._delete(
            schema.runs, schema.runs.c.arrangement.in_(sa.select(arrangements.c.id).where(kept))
        )
        self._delete(arrangements, kept)
        self._delete(
            schema.serving, schema.serving.c.build.in_(gone) | (schema.serving.c.epoch > self.epoch)
        )
        self._delete(made, made.c.id.in_(gone))
        ids = list(self.connection.execute(relations).scalars())
        for table in reversed(schema.metadata.sorted_tables):
            for key in table.foreign_keys:
                if key.column.table is objects:
                    self._delete(table, key.parent.in_(ids))
        self._delete(objects, objects.c.relation.in_(ids))
        again = objects.update().where(objects.c.dropped_epoch > self.epoch)
        self.connection.execute(again.values(dropped_epoch=None))

    def _builds(self) -> None:
        """Let the builds serve that did, with their definitions and what views depend on."""
        made, needs = schema.builds, schema.dependencies
        retired = made.update().where(made.c.retired_epoch > self.epoch)
        self.connection.execute(retired.values(retired_epoch=None))
        live = sa.select(made.c.view, made.c.inputs).where(made.c.retired_epoch.is_(None))
        inputs: dict[int, set[int]] = {}
        for view, used in self.connection.execute(live):
            inputs.setdefault(view, set()).update(used)
        self._delete(needs, needs.c.relation.in_(list(inputs)))
        rows = [{"relation": view, "input": used} for view, all_ in inputs.items() for used in all_]
        if rows:
            self.connection.execute(needs.insert(), rows)
        objects = schema.objects
        for view, definition in builds.definitions(self.connection, None).items():
            its = objects.update().where(objects.c.relation == view)
            self.connection.execute(its.values(definition=definition))

    def _spines(self) -> None:
        """Take back runs that were added and removed since, and find the state that is gone."""
        runs, arrangements, made = schema.runs, schema.arrangements, schema.builds
        again = arrangements.update().where(arrangements.c.dropped_epoch > self.epoch)
        self.connection.execute(again.values(dropped_epoch=None))
        live = sa.select(made.c.id).where(made.c.retired_epoch.is_(None))
        lost = arrangements.c.build.in_(live) & (arrangements.c.since > self.epoch)
        owners = self.connection.execute(sa.select(arrangements.c.owner).where(lost)).scalars()
        self.refilled |= {RelationId(id_) for id_ in owners}
        self._delete(runs, runs.c.arrangement.in_(sa.select(arrangements.c.id).where(lost)))
        self.connection.execute(arrangements.update().where(lost).values(since=self.epoch))
        self._delete(runs, runs.c.added > self.epoch)
        restored = runs.update().where(runs.c.removed > self.epoch)
        self.connection.execute(restored.values(removed=schema.NEVER))

    def _logs(self) -> None:
        """Cut each log where it had been read, and the frontier of epochs with it."""
        reads, positions, logs = schema.reads, schema.positions, schema.logs
        read = self._read_by_then()
        self._delete(reads, reads.c.epoch > self.epoch)
        later = schema.frontiers.c.epoch > self.epoch
        unused = list(
            self.connection.execute(sa.select(schema.frontiers.c.id).where(later)).scalars()
        )
        for table in (reads, positions):
            self._delete(table, table.c.frontier.in_(unused))
        self._delete(schema.frontiers, later)
        apart = self.connection.execute(
            sa.select(positions.c.relation, sa.func.max(positions.c.consumed))
            .where(positions.c.frontier != LIVE)
            .group_by(positions.c.relation)
        )
        least: dict[int, int] = dict(apart.all())
        followed = self._followed()
        for row in self.connection.execute(sa.select(logs)).all():
            if row.relation not in self.names:
                continue
            at = max(read.get(row.relation, 0), least.get(row.relation, 0))
            cut = self._cut(row.relation, at, arrived=row.relation not in followed)
            if cut < row.log_end:
                self._cut_log(RelationId(row.relation), Offset(cut), row.since)
            live = (positions.c.frontier == LIVE) & (positions.c.relation == row.relation)
            consumed = read.get(row.relation, 0)
            self.connection.execute(positions.update().where(live).values(consumed=consumed))

    def _read_by_then(self) -> dict[int, int]:
        """Return how far epochs had read each log, although earlier reads may be forgotten.

        A read begins where the one before has ended.
        """
        reads, positions = schema.reads, schema.positions.c
        later = (
            sa.select(reads.c.relation, sa.func.min(reads.c.from_offset))
            .where(reads.c.frontier == LIVE, reads.c.epoch > self.epoch)
            .group_by(reads.c.relation)
        )
        now = sa.select(positions.relation, positions.consumed).where(positions.frontier == LIVE)
        found: dict[int, int] = dict(self.connection.execute(now).all())
        return found | dict(self.connection.execute(later).all())

    def _followed(self) -> frozenset[int]:
        """Return the relations whose logs epochs had read: tables, and what their builds read."""
        made = schema.builds.c
        query = sa.select(made.inputs).where(made.retired_epoch.is_(None), made.frontier == LIVE)
        used = {id_ for inputs in self.connection.execute(query).scalars() for id_ in inputs}
        return frozenset(used | {id_ for id_, kind in self.kinds.items() if kind == _TABLE})

    def _cut(self, relation: int, at: int, *, arrived: bool) -> int:
        """Return where a log ended: at ``at``, or after the small segment that it is in.

        ``arrived``: no epoch read it, so it had what had arrived by then.
        """
        table, of = schema.segments.c, schema.segments.c.relation == relation
        small = table.first_offset < at
        large = small
        if arrived:
            small |= table.appended_at <= self.committed_at
            large |= table.begun_at <= self.committed_at
        query = sa.select(sa.func.max(table.first_offset + table.rows))
        ended = self.connection.execute(query.where(of, small, table.footer.is_(None))).scalar()
        cut = max(at, ended or 0)
        last = sa.select(schema.segments).where(of, large, table.footer.is_not(None))
        row = self.connection.execute(last.order_by(table.first_offset.desc()).limit(1)).first()
        if row is not None and arrived:
            cut = max(cut, row.first_offset + self.appended_by(segment_of(row), self.committed_at))
        return cut

    def _cut_log(self, relation: RelationId, cut: Offset, since: int) -> None:
        if cut < since:
            raise self._refused(
                f'{self.kinds[relation].capitalize()} "{self.names[relation]}" no longer keeps'
                " events from that time."
            )
        logs, rejects = schema.logs, schema.rejects
        for table in (schema.segments, schema.corrections):
            self._delete(table, table.c.relation == relation, table.c.first_offset >= cut)
        segments = schema.segments.c
        within = (segments.relation == relation) & (segments.first_offset + segments.rows > cut)
        self.connection.execute(
            schema.segments.update().where(within).values(rows=cut - segments.first_offset)
        )
        for table in (schema.newest_times, schema.loads, schema.producers):
            self._delete(table, table.c.relation == relation)
        late = (rejects.c.relation == relation) & (rejects.c.at > self.committed_at)
        count = sa.select(sa.func.count()).select_from(rejects).where(late)
        fewer = self.connection.execute(count).scalar_one()
        self._delete(rejects, late)
        acknowledged = sa.select(sa.func.count()).where(
            rejects.c.relation == relation, rejects.c.acknowledged_at.is_not(None)
        )
        self.connection.execute(
            logs.update()
            .where(logs.c.relation == relation)
            .values(
                log_end=cut,
                rejected=logs.c.rejected - fewer,
                acknowledged=acknowledged.scalar_subquery(),
            )
        )

    def _epochs(self) -> None:
        """Forget later epochs, and what was not known yet; find the views that were not right."""
        gaps, entries, evidence = schema.gaps.c, schema.dirty.c, schema.evidence.c
        wrong = sa.select(gaps.view).where(gaps.after < self.epoch, gaps.until > self.epoch)
        self.refilled |= {RelationId(id_) for id_ in self.connection.execute(wrong).scalars()}
        self.refilled &= self.names.keys()
        self._delete(schema.gaps, gaps.until > self.epoch)
        self._delete(schema.dirty, entries.after >= self.epoch)
        self._delete(schema.evidence, evidence.epoch > self.epoch)
        self._delete(schema.changes, schema.changes.c.at > self.committed_at)
        self._delete(schema.reconciled)
        self._delete(schema.epochs, schema.epochs.c.epoch > self.epoch)
