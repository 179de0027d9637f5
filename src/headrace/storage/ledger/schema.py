"""The ledger's tables, and the version of their format.

Portable SQL only: SQLite and PostgreSQL have the same tables.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

FORMAT: Final = 9
"""The format of this version; ``storage/ledger/migrations.py`` has the steps from earlier ones."""

FORMAT_KEY: Final = "format"
IDENTITY_KEY: Final = "identity"
"""The keys in ``meta`` under which a ledger's format and its permanent id are stored."""

WRITER_KEY: Final = "writer"
WRITTEN_KEY: Final = "written"
DIRECTORY_KEY: Final = "directory"
"""Those of a ledger in PostgreSQL: the process that has acquired it, the number of its last write,
and the data directory that the ledger belongs to."""

NEVER: Final = 2**63 - 1
"""The value of ``runs.removed`` while a run is live, so that one range condition finds a spine."""

REJECT_BYTES: Final = 4096
"""The number of bytes of a rejected row's text that are stored."""

metadata = sa.MetaData()

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_relation = "objects.relation"

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.JSON, nullable=False),
)

fence = sa.Table(
    "fence",
    metadata,
    sa.Column("one", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("next_id", sa.BigInteger, nullable=False),
    sa.CheckConstraint("one = 1", name="one_fence"),
)
"""One row. A writer locks it first, which serializes writers in PostgreSQL too.

``next_id`` is the next id of a relation, a build, a frontier, a dirty entry or evidence: they share
one sequence.
"""

objects = sa.Table(
    "objects",
    metadata,
    sa.Column("relation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("created_epoch", sa.BigInteger, nullable=False),
    sa.Column("dropped_epoch", sa.BigInteger),
)

dependencies = sa.Table(
    "dependencies",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("input", sa.ForeignKey(_relation), primary_key=True, index=True),
)

logs = sa.Table(
    "logs",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True, autoincrement=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("log_end", sa.BigInteger, nullable=False),
    sa.Column("rejected", sa.BigInteger, nullable=False),
    sa.Column("acknowledged", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)
"""Per relation: the oldest offset of its log that can be read, its end, the number of rejects, and
of those that were acknowledged."""

retired = sa.Table(
    "retired",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("bounds", sa.JSON, nullable=False),
    sa.Column("appended_at", sa.Double, nullable=False),
)
"""Per relation: what is known of the changes before ``logs.since``, which are no longer kept.

``bounds`` are those of all of them, as in ``segments``; ``appended_at`` is when the last was
appended.
"""

left_out = sa.Table(
    "left_out",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("reason", sa.Text, primary_key=True),
    sa.Column("rows", sa.BigInteger, nullable=False),
)
"""Per relation: how many rows its log has not taken, by reason, besides rejects."""

newest_times = sa.Table(
    "newest_times",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("time", sa.BigInteger, nullable=False),
)
"""Per partition of a source: the newest event time that was appended, in microseconds."""

frontiers = sa.Table(
    "frontiers",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("at", sa.Double),
)
"""How far builds have read stored tables and views: as of ``epoch``; NULL is the last epoch.

``at`` is the commit time of that epoch, in Unix seconds.

Frontier 0 is that of the live builds, which every epoch moves.
"""

positions = sa.Table(
    "positions",
    metadata,
    sa.Column("frontier", sa.ForeignKey("frontiers.id"), primary_key=True, autoincrement=False),
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True, autoincrement=False),
    sa.Column("consumed", sa.BigInteger, nullable=False),
)
"""How far each frontier has read each log."""

builds = sa.Table(
    "builds",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("view", sa.ForeignKey(_relation), nullable=False, index=True),
    sa.Column("frontier", sa.ForeignKey("frontiers.id"), nullable=False),
    sa.Column("definition", sa.JSON, nullable=False),
    sa.Column("inputs", sa.JSON, nullable=False),
    sa.Column("begins", sa.JSON, nullable=False),
    sa.Column("created_epoch", sa.BigInteger, nullable=False),
    sa.Column("joined_epoch", sa.BigInteger, nullable=False),
    sa.Column("retired_epoch", sa.BigInteger),
)
"""The programs of a view, each with the state of its operators. Contents belong to the view.

They joined their frontier at an epoch, which is later than that of their creation if the view was
altered to be refreshed apart, or to be maintained.

``begins`` has the offsets from which on a build needs logs, where that is not from their first
change on: they had been cut before, or what is before has left all that it keeps.
"""

serving = sa.Table(
    "serving",
    metadata,
    sa.Column("view", sa.ForeignKey(_relation), primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("build", sa.ForeignKey("builds.id"), nullable=False),
)
"""The build that computes a view's contents from an epoch on."""

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("first_offset", sa.BigInteger, primary_key=True),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("file", sa.Text, nullable=False, index=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("appended_at", sa.Double, nullable=False),
    sa.Column("bounds", sa.JSON),
    sa.Column("footer", sa.Text),
    sa.Column("begun_at", sa.Double),
)
"""``bounds`` are the least and the greatest value of columns: see ``headrace.storage.log.share``.

A segment that others were merged into has the checksum of its ``footer``. Its last change was
appended at ``appended_at``, its first one at ``begun_at``.
"""

replaced_files = sa.Table(
    "replaced_files",
    metadata,
    sa.Column("file", sa.Text, primary_key=True),
)
"""The files of the log whose segments were merged into others: garbage, unless readers hold them.

One to which a segment was appended later is in ``segments`` again.
"""

loads = sa.Table(
    "loads",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("progress", sa.JSON, nullable=False),
    sa.Column("finished", sa.Boolean, nullable=False),
)

producers = sa.Table(
    "producers",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("producer", sa.Text, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)

rejects = sa.Table(
    "rejects",
    metadata,
    sa.Column("id", _serial, primary_key=True),
    sa.Column("relation", sa.ForeignKey(_relation), nullable=False, index=True),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("line", sa.BigInteger, nullable=False),
    sa.Column("column", sa.Text),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("raw", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("acknowledged_at", sa.Double),
)
"""``acknowledged_at`` is NULL until somebody has said that a row needs no attention any more."""

epochs = sa.Table(
    "epochs",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("committed_at", sa.Double, nullable=False, index=True),
    sa.Column("attempt", sa.Text, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("counters", sa.JSON, nullable=False),
)
"""Epoch 0, the empty database, exists from the start."""

reads = sa.Table(
    "reads",
    metadata,
    sa.Column("frontier", sa.ForeignKey("frontiers.id"), primary_key=True, autoincrement=False),
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("epoch", sa.ForeignKey("epochs.epoch"), primary_key=True, index=True),
    sa.Column("from_offset", sa.BigInteger, nullable=False),
    sa.Column("to_offset", sa.BigInteger, nullable=False),
)
"""Lineage: the offsets by which each epoch moved each frontier."""

arrangements = sa.Table(
    "arrangements",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("owner", sa.ForeignKey(_relation), nullable=False, index=True),
    sa.Column("build", sa.ForeignKey("builds.id"), index=True),
    sa.Column("layout", sa.JSON, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("dropped_epoch", sa.BigInteger),
)
"""Contents belong to a relation (``build`` is NULL), the state of operators to a build of it."""

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("pack", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("arrangement", sa.ForeignKey("arrangements.id"), nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("checksum", sa.Text, nullable=False),
    sa.Column("low", sa.BigInteger, nullable=False),
    sa.Column("high", sa.BigInteger, nullable=False),
    sa.Column("added", sa.BigInteger, nullable=False),
    sa.Column("removed", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Index("runs_by_removal", "arrangement", "removed"),
    sa.Index("runs_by_addition", "arrangement", "added"),
)
"""The runs of a spine at epoch ``e`` are those with ``added <= e < removed``.

A run is ``bytes`` of its pack, from ``position`` on.
"""

RUN_PLACE: Final = sa.tuple_(runs.c.pack, runs.c.position)
"""What identifies a run."""

dirty = sa.Table(
    "dirty",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("view", sa.ForeignKey(_relation), nullable=False, index=True),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("after", sa.BigInteger, nullable=False),
    sa.Column("slice_where", sa.Text, nullable=False),
    sa.Column("slice_since", sa.BigInteger),
    sa.Column("origin", sa.JSON, nullable=False),
    sa.Column("repair", sa.Text, nullable=False),
    sa.Column("cost", sa.BigInteger),
    sa.Column("whole", sa.BigInteger),
    sa.Column("state", sa.Text, nullable=False),
)
"""Slices of views that are, or may be, inconsistent with their inputs."""

reconciled = sa.Table(
    "reconciled",
    metadata,
    sa.Column("view", sa.ForeignKey(_relation), primary_key=True, autoincrement=False),
    sa.Column("progress", sa.JSON, nullable=False),
)
"""How far reconciliation has come with each view, which only reconciliation interprets."""

evidence = sa.Table(
    "evidence",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("view", sa.ForeignKey(_relation), nullable=False, index=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("slice_where", sa.Text, nullable=False),
    sa.Column("slice_since", sa.BigInteger),
    sa.Column("offsets", sa.JSON, nullable=False),
    sa.Column("circuit", sa.Text, nullable=False),
    sa.Column("expected", sa.JSON, nullable=False),
    sa.Column("found", sa.JSON, nullable=False),
    sa.Column("differences", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
)
"""Evidence of reconciliation: rows of views that are not the result of their queries."""

corrections = sa.Table(
    "corrections",
    metadata,
    sa.Column("relation", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("first_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("origin", sa.JSON, nullable=False),
)
"""The changes of streams' logs that amend earlier events."""

changes = sa.Table(
    "changes",
    metadata,
    sa.Column("id", _serial, primary_key=True),
    sa.Column("view", sa.ForeignKey(_relation), nullable=False, index=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("cost", sa.BigInteger),
    sa.Column("whole", sa.BigInteger),
    sa.Column("changed", sa.BigInteger),
    sa.Column("origin", sa.JSON, nullable=False),
)
"""The newest classified changes: how each reached each view."""

gaps = sa.Table(
    "gaps",
    metadata,
    sa.Column("view", sa.ForeignKey(_relation), primary_key=True),
    sa.Column("until", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("after", sa.BigInteger, nullable=False),
)
"""Between ``after`` and ``until``, exclusive, a view's contents are not those of its query."""

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("sink", sa.ForeignKey(_relation), primary_key=True, autoincrement=False),
    sa.Column("begins", sa.BigInteger, nullable=False),
    sa.Column("delivered", sa.BigInteger),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("why", sa.Text),
    sa.Column("clears", sa.Boolean, nullable=False),
    sa.Column("writing", sa.BigInteger),
    sa.Column("written", sa.BigInteger),
)
"""How far each sink has been given its changes: ``delivered`` is NULL until ``begins`` has been.

``why`` says why it has stopped. Before it ``begins``, what it has written is removed if it
``clears``. ``writing`` is the last of the epochs that are being written together,
``written`` the last that the target has acknowledged.
"""

spans = sa.Table(
    "spans",
    metadata,
    sa.Column("seconds", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("figures", sa.JSON, nullable=False),
)
"""How the database did in spans of time, each of so many ``seconds`` from ``at`` on (Unix seconds).

What ``figures`` are, only the server interprets.
"""

small_files = sa.Table(
    "small_files",
    metadata,
    sa.Column("folder", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)
"""The small files that the object store of the database does not have yet."""
