"""Makes the changes of a plan, one after another.

Each statement is one change of the database, all of them are not: if one fails, those before it
stay. A second plan then has only what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.deploying.plan import Action
from headrace.deploying.stored import result_of
from headrace.deploying.texts import in_its_file
from headrace.errors import HeadraceError
from headrace.sql import quote_dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.connecting import AnyDatabase
    from headrace.deploying.plan import PlannedChange
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
    """Return the first changes up to one that must wait for the swap of those before it."""
    filled = False
    for at, each in enumerate(changes):
        if filled and each.candidate is None and each.action in (Action.REPLACE, Action.DROP):
            return Round(tuple(changes[:at]), tuple(changes[at:]))
        filled = filled or each.candidate is not None
    return Round(tuple(changes), ())


def make(
    database: AnyDatabase,
    change: PlannedChange,
    progress: Callable[[Progress], None],
    *,
    as_candidate: bool = False,
) -> Iterator[str]:
    """Make one change; yield the message of each statement when it is done.

    Raises:
        HeadraceError: as the statement that failed, with its place in its file.
    """
    statements = change.statements
    if as_candidate and change.candidate is not None:
        statements = (*statements[:-1], change.candidate)
    for text in statements:
        try:
            for answer in database.script(text, file=change.file, progress=progress):
                yield result_of(answer).message or ""
        except HeadraceError as error:
            if change.place is None:
                raise
            written = text.lstrip().startswith("CREATE") and text is statements[0]
            placed = in_its_file(error, text, change.place) if written else error
            raise placed.at(change.place) from error


def difference(database: AnyDatabase, change: PlannedChange) -> Any:
    """Return what the swap of a view with its candidate would change, as an Arrow table."""
    answer = database.sql(f"SHOW DIFF {quote_dotted(change.name)}")
    return result_of(answer).to_arrow()


def swap(database: AnyDatabase, change: PlannedChange) -> str:
    """Let the candidate of a view serve; return the message."""
    answer = database.sql(f"SWAP VIEW {quote_dotted(change.name)}")
    return result_of(answer).message or ""
