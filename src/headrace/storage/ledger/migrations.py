"""Steps between formats: a ledger of an earlier format is migrated when it is opened for writing.

All steps run in one transaction, so a ledger has one format or the other and never something in
between. A copy of a SQLite ledger is made first, beside it: ``ledger.db.format-4``. The version
that wrote it can open the copy in its place, until files that the copy names are deleted.

Whoever changes the tables raises ``schema.FORMAT`` and adds the step to :data:`STEPS`. A step must
not use ``headrace.storage.ledger.schema``, which has the tables of today: a later change of them
would change the step.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger import schema

if TYPE_CHECKING:
    from collections.abc import Callable


_log: Final = logging.getLogger(__name__)

_FORMAT: Final = schema.meta.c.key == schema.FORMAT_KEY


@dataclass(frozen=True, slots=True)
class Migration:
    """The step from one format to a later one: ``run`` changes the tables, in a transaction."""

    before: int
    after: int
    run: Callable[[sa.Connection], None]


def _pack_runs(connection: sa.Connection) -> None:
    """Name runs by pack and position: each file of a run becomes a pack with one run."""
    for statement in _PACK_RUNS:
        connection.execute(sa.text(statement))


_PACK_RUNS: Final = (
    """
    CREATE TABLE packed_runs (
        pack TEXT NOT NULL, position BIGINT NOT NULL,
        arrangement TEXT NOT NULL REFERENCES arrangements (id),
        rows BIGINT NOT NULL, bytes BIGINT NOT NULL, checksum TEXT NOT NULL,
        low BIGINT NOT NULL, high BIGINT NOT NULL,
        added BIGINT NOT NULL, removed BIGINT NOT NULL, kind TEXT NOT NULL,
        PRIMARY KEY (pack, position)
    )
    """,
    """
    INSERT INTO packed_runs
    SELECT name, 0, arrangement, rows, bytes, checksum, low, high, added, removed, kind FROM runs
    """,
    "DROP TABLE runs",
    "ALTER TABLE packed_runs RENAME TO runs",
    "CREATE INDEX runs_by_removal ON runs (arrangement, removed)",
    "CREATE INDEX runs_by_addition ON runs (arrangement, added)",
)


def _store_narrow(_connection: sa.Connection) -> None:
    """Change nothing: large runs are stored in narrower types, which earlier versions cannot read.

    This version reads both.
    """


def _keep_small_files(connection: sa.Connection) -> None:
    """Add the table of the small files that an object store does not have yet."""
    table = sa.Table(
        "small_files",
        sa.MetaData(),
        sa.Column("folder", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    table.create(connection)


def _keep_spans(connection: sa.Connection) -> None:
    """Add the spans of how the database did, and what is acknowledged of rejected rows."""
    real = sa.Double().compile(connection.dialect)
    for statement in (
        f"ALTER TABLE rejects ADD COLUMN acknowledged_at {real}",
        "ALTER TABLE logs ADD COLUMN acknowledged BIGINT NOT NULL DEFAULT 0",
    ):
        connection.execute(sa.text(statement))
    table = sa.Table(
        "spans",
        sa.MetaData(),
        sa.Column("seconds", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("figures", sa.JSON, nullable=False),
    )
    table.create(connection)


def _merge_segments(connection: sa.Connection) -> None:
    """Add what is known of segments that were merged, and the files that they replace."""
    real = sa.Double().compile(connection.dialect)
    for statement in (
        "ALTER TABLE segments ADD COLUMN footer TEXT",
        f"ALTER TABLE segments ADD COLUMN begun_at {real}",
        "CREATE TABLE replaced_files (file TEXT NOT NULL PRIMARY KEY)",
    ):
        connection.execute(sa.text(statement))


STEPS: tuple[Migration, ...] = (
    Migration(4, 5, _pack_runs),
    Migration(5, 6, _store_narrow),
    Migration(6, 7, _keep_small_files),
    Migration(7, 8, _keep_spans),
    Migration(8, 9, _merge_segments),
)
"""The steps that this version knows; format 4 is the first that is migrated."""


def format_of(connection: sa.Connection) -> int | None:
    """Return the format of a ledger; None if it says none."""
    found = connection.execute(sa.select(schema.meta.c.value).where(_FORMAT)).scalar()
    return found if isinstance(found, int) else None


def steps_from(found: int, place: str) -> tuple[Migration, ...]:
    """Return the steps from a format to that of this version, in order.

    Raises:
        HeadraceError: UNSUPPORTED for a newer format, and for one from which no steps lead here.
    """
    steps: list[Migration] = []
    by_format, at = {step.before: step for step in STEPS}, found
    while at < schema.FORMAT and at in by_format:
        steps.append(by_format[at])
        at = steps[-1].after
    if at == schema.FORMAT:
        return tuple(steps)
    newer = found > schema.FORMAT
    oldest = min([schema.FORMAT, *by_format])
    reads = f"formats {oldest} to {schema.FORMAT}" if by_format else f"format {schema.FORMAT}"
    raise HeadraceError(
        Code.UNSUPPORTED,
        f'ledger "{place}" has format {found}, {"newer" if newer else "older"} than this version'
        " reads",
        f"This version reads {reads}.",
        "Open it with the version of Headrace that wrote it"
        + (", or a newer one." if newer else "; load its data into a new database."),
    )


def migrate(connection: sa.Connection, place: str, back_up: Callable[[str], None]) -> None:
    """Bring a ledger to the format of this version, in a write transaction.

    ``back_up`` copies the ledger as it was before the transaction, under its name with a suffix.
    Writers that have the ledger open lose the fence.

    Raises:
        HeadraceError: as :func:`steps_from`, as ``back_up``, or as a step; nothing is changed then.
    """
    token = schema.fence.c.token
    connection.execute(schema.fence.update().values(token=token + 1))
    found = format_of(connection)
    steps = () if found is None else steps_from(found, place)  # another process may have been first
    if not steps:
        return
    back_up(f"format-{found}")
    for number, step in enumerate(steps, 1):
        _log.warning(
            'migrating ledger "%s" from format %s to %s: step %s of %s',
            place,
            step.before,
            step.after,
            number,
            len(steps),
        )
        step.run(connection)
        connection.execute(schema.meta.update().where(_FORMAT).values(value=step.after))
