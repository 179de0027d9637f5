"""SHOW ERRORS FOR name: what the query of a view has failed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.catalog import Relation, Stream, Table, View, title
from headrace.errors import Code, HeadraceError
from headrace.runtime.published import STOPPED
from headrace.statements.results import Result, shown_time

if TYPE_CHECKING:
    from headrace.parts.reader import Reader
    from headrace.sql import Show

_COLUMNS = ("relation", "row", "copies", "error", "since")
_TYPES = {"copies": pa.int64()}


@dataclass(frozen=True, slots=True)
class Errors:
    """Lists errors by the kind of what has them."""

    reader: Reader

    def show(self, statement: Show) -> Result:
        """Return the rows that failed, each with its relation, its copies, the error and the time.

        The error with which a view has stopped has neither a relation nor a row.

        Raises:
            HeadraceError: ``invalid`` for what keeps no errors.
        """
        name = statement.relation
        if name is None:
            raise HeadraceError(Code.INTERNAL, "SHOW ERRORS names nothing", span=statement.span)
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        match relation:
            case View():
                return self._of_view(relation)
            case _:
                raise HeadraceError(
                    Code.INVALID,
                    f"{title(relation)} keeps no errors",
                    hint=_hint(relation),
                    span=name.span,
                )

    def _of_view(self, view: View) -> Result:
        rows = [
            (None, None, None, entry.detail, shown_time(entry.since))
            for entry in self.reader.ledger.dirty()
            if (entry.view, entry.cause) == (view.id, STOPPED)
        ]
        return Result.of(_COLUMNS, rows, self.reader.published.epoch, _TYPES)


def _hint(relation: Relation) -> str:
    if isinstance(relation, Stream | Table):
        return f"SHOW REJECTS FOR {relation.name} lists the rows that it has not taken."
    return "Name a materialized view."
