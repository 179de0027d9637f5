"""Distinct types for numbers and strings that must not be mixed up."""

from __future__ import annotations

from typing import NewType

Epoch = NewType("Epoch", int)
"""The number of a committed step of the whole database; 0 is the empty database."""

Offset = NewType("Offset", int)
"""A position in a relation's log: the number of changes before it."""

RelationId = NewType("RelationId", int)
"""The id of a stream, table or view: never reused, even after a drop."""

ArrangementId = NewType("ArrangementId", str)
"""The id of an arrangement: ``"<relation id>/<node>"``."""

BuildId = NewType("BuildId", int)
"""The id of one program of a view and its state; from the same sequence as relations' ids."""

DirtyId = NewType("DirtyId", int)
"""The id of an entry of the dirty ledger; from the same sequence as relations' ids."""

EvidenceId = NewType("EvidenceId", int)
"""The id of evidence that reconciliation has found; from the same sequence as relations' ids."""

FrontierId = NewType("FrontierId", int)
"""The id of a frontier: how far the builds that move together have read their inputs."""


def rows_of(relation: RelationId) -> ArrangementId:
    """Return the id of the arrangement with a table's or a view's contents."""
    return ArrangementId(f"{relation}/rows")


def quarantine_of(build: BuildId, relation: RelationId) -> ArrangementId:
    """Return the name of the arrangement with the rows that a build has in quarantine."""
    return ArrangementId(f"{build}/quarantine.{relation}")
