"""Makes the changes of a plan: views are filled as candidates, and served by one swap.

What the views of a swap become is one change of the database; other statements are each one of
their own. If one fails, those before it stay, and the candidates that wait are dropped. A second
plan then has only what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.deploying.changes import Action
from headrace.deploying.texts import in_its_file
from headrace.errors import HeadraceError
from headrace.sql import quote_dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.connecting import AnyDatabase
    from headrace.deploying.changes import PlannedChange
    from headrace.session import Progress


@dataclass(frozen=True, slots=True)
class Round:
    """Changes that are made, and then those of them that wait for SWAP VIEW.

    ``rest`` come after the swap.
    """

    changes: tuple[PlannedChange, ...]
    rest: tuple[PlannedChange, ...]

    @property
    def candidates(self) -> tuple[PlannedChange, ...]:
        """The changes that fill candidates."""
        return tuple(each for each in self.changes if each.candidate is not None)


def next_round(changes: Sequence[PlannedChange]) -> Round:
    """Return the changes up to a swap: those that need it wait, and what needs what waits.

    What is created over a view that is replaced needs it, also through others; so do drops and
    replacements without a candidate that come after one, and drops of columns that one still uses.
    """
    now: list[PlannedChange] = []
    rest: list[PlannedChange] = []
    filled: set[str] = set()
    for each in changes:
        late = {other.name for other in rest}
        waits = False
        if each.candidate is None:
            late |= filled
            waits = bool(filled) and each.action in (Action.REPLACE, Action.DROP)
        if waits or late & each.after:
            rest.append(each)
            continue
        now.append(each)
        if each.candidate is not None:
            filled.add(each.name)
    return Round(tuple(now), tuple(rest))


def together(candidates: Sequence[PlannedChange]) -> list[list[PlannedChange]]:
    """Return the sets of candidates that need each other, directly or through others."""
    sets: list[list[PlannedChange]] = []
    for each in candidates:
        near = [
            found
            for found in sets
            if any(each.name in other.after or other.name in each.after for other in found)
        ]
        sets = [found for found in sets if found not in near]
        sets.append([member for found in near for member in found] + [each])
    return sets


def make(
    database: AnyDatabase,
    change: PlannedChange,
    progress: Callable[[Progress], None],
) -> Iterator[str]:
    """Make one change, or fill its candidate; yield the message of each statement when it is done.

    Raises:
        HeadraceError: as the statement that failed, with its place in its file.
    """
    statements = change.statements
    if change.candidate is not None:
        statements = (*statements[:-1], change.candidate)
    for text in statements:
        try:
            yield database.sql(text, file=change.file, progress=progress).message
        except HeadraceError as error:
            if change.place is None:
                raise
            written = text.lstrip().startswith("CREATE") and text is statements[0]
            placed = in_its_file(error, text, change.place) if written else error
            raise placed.at(change.place) from error


def difference(database: AnyDatabase, change: PlannedChange) -> Any:
    """Return what the swap of a view with its candidate would change, as an Arrow table."""
    return database.sql(f"SHOW DIFF {quote_dotted(change.target)}").to_arrow()


def summary(found: Any) -> str:
    """Return such a difference in a line."""
    rows = found.to_pylist()
    columns = [f"{row['change']} {row['column']}" for row in rows if row["rows"] is None]
    counts = [
        f"{row['rows']:,} {row['change']}"
        for row in rows
        if row["rows"] is not None and row["column"] is None
    ]
    return ", ".join([*columns, *counts])


def verdict(database: AnyDatabase, change: PlannedChange) -> str | None:
    """Compare a candidate with plain Spark batch; return what differs, if anything does."""
    (row,) = database.sql(f"VALIDATE VIEW {quote_dotted(change.target)}").to_pylist()
    return row["verdict"] if row["differences"] else None


def swap(database: AnyDatabase, changes: Sequence[PlannedChange]) -> str:
    """Let candidates serve, in one epoch; return the message."""
    return _of_all(database, "SWAP VIEW", changes)


def drop_candidates(database: AnyDatabase, changes: Sequence[PlannedChange]) -> str:
    """Drop candidates, or what served before; return the message."""
    return _of_all(database, "DROP CANDIDATE OF", changes)


def _of_all(database: AnyDatabase, what: str, changes: Sequence[PlannedChange]) -> str:
    names = ", ".join(quote_dotted(each.target) for each in changes)
    return database.sql(f"{what} {names}").message
