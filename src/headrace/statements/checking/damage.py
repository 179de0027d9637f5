"""Names the relation that owns a damaged file, in its error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.parts.naming import HIDDEN

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.ledger import Ledger

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
