"""Makes the changes of a plan: views are filled as candidates, and served by one swap.

What the views of a swap become is one change of the database; other statements are each one of
their own. If one fails, those before it stay, and the candidates that wait are dropped. A second
plan then has only what is left.

Asks the database what the changes of a plan will do, one after another; nothing is changed.

All statements are tried in their order, so that what a later one needs is there, and what any of
them refuses is found before the first change.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError, Span
from headrace.interfaces.statements.describing.effects import CREATE, DEFINED, REFUSED, UNCHECKED
from headrace.planning.sql import CreateStream, CreateTable, RenameColumn, quote_dotted
from headrace.storage.ledger import RepairPath
from headrace.tools.deploying.changes import Action, Effect
from headrace.tools.deploying.forms import explained_script, in_its_file, statements_of
from headrace.tools.deploying.stored import column_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.interfaces.connecting import AnyDatabase
    from headrace.interfaces.session import Progress
    from headrace.planning.sql.definitions import Definition
    from headrace.tools.deploying.changes import PlannedChange
    from headrace.tools.deploying.plan import DeploymentPlan
    from headrace.tools.deploying.stored import StoredDefinitions


_READS: Final = frozenset({RepairPath.REBUILD.value, CREATE})
"""The paths by which rows of inputs are read."""


@dataclass(slots=True)
class _Told:
    """What the database says of a change: effects, rows to read, and why it would be refused."""

    effects: list[Effect] = field(default_factory=list)
    rows: int | None = None
    seconds: float | None = None
    unchecked: str | None = None
    error: HeadraceError | None = None


def explain(
    plan: DeploymentPlan, stored: StoredDefinitions, database: AnyDatabase, *, offline: bool = False
) -> None:
    """Add to a plan the effects of its changes and their costs, and what is wrong with them.

    With ``offline``, no other system is asked about what is created in it or reads it.
    """
    if not plan.changes:
        return
    told = _told(plan.changes, database, offline=offline)
    named = {each.name: each for each in plan.changes}
    explained: list[PlannedChange] = []
    for change, found in zip(plan.changes, told, strict=True):
        made = replace(
            change, effects=_effects(change, found.effects), rows=found.rows, seconds=found.seconds
        )
        if found.unchecked is not None:
            made = replace(made, note=", ".join(filter(None, (made.note, found.unchecked))))
        error = found.error or _refused(made, named, stored)
        if error is not None:
            made = replace(made, problem=error)
            plan.problems.append(error)
        explained.append(_without_refusals(made))
    plan.changes = explained


def follow_renames(
    definitions: Iterable[Definition], stored: StoredDefinitions, database: AnyDatabase
) -> None:
    """Let the stored definitions be what they are after the renames of columns in files.

    What reads a column goes on when it has another name, and its definition follows: it is only
    changed if its file says anything else.
    """
    renames = [text for each in definitions for text in _renames(each, stored)]
    if not renames:
        return
    for row in _rows(database, renames, offline=True):
        if row["path"] == DEFINED and row["view"] in stored.by_name:
            stored.redefined(row["view"], row["definition"])


def _renames(definition: Definition, stored: StoredDefinitions) -> Iterator[str]:
    former, created = stored.by_name.get(definition.name), definition.created
    if former is None or not isinstance(created, CreateStream | CreateTable):
        return
    if not former.statements or not isinstance(former.statements[0], CreateStream | CreateTable):
        return
    kind = "stream" if former.kind == "stream" else "table"
    try:
        steps = column_steps(kind, definition.name, former.statements, definition.statements)
    except HeadraceError:  # the plan says so
        return
    for text in steps.statements:
        if any(isinstance(each, RenameColumn) for each in statements_of(text)):
            yield text


def _told(changes: Iterable[PlannedChange], database: AnyDatabase, *, offline: bool) -> list[_Told]:
    """Return what the database says of each change."""
    texts: list[tuple[int, str, PlannedChange]] = [
        (at, text, change) for at, change in enumerate(changes) for text in change.statements
    ]
    found = [_Told() for _ in range(1 + max((at for at, *_ in texts), default=-1))]
    script = [text for _, text, _ in texts]
    for row in _rows(database, script, offline=offline):
        at, text, change = texts[row["statement"] - 1]
        told = found[at]
        if row["error"] is not None:
            error = HeadraceError.of_json(json.loads(row["error"]))
            told.error = told.error or _placed(error, script, row["statement"] - 1, text, change)
        elif row["path"] == UNCHECKED:
            told.unchecked = f"not checked: {row['rule']}"
        elif row["path"] != DEFINED:
            _add(told, row)
    return found


def _add(told: _Told, row: dict[str, Any]) -> None:
    effect = Effect(row["view"], row["path"], row["rule"], row["rebuild_rows"], row["seconds"])
    if effect.path != CREATE and effect not in told.effects:
        told.effects.append(effect)
    if effect.path in _READS and effect.rows is not None:
        told.rows = (told.rows or 0) + effect.rows
        if effect.seconds is not None:
            told.seconds = (told.seconds or 0.0) + effect.seconds


def _effects(change: PlannedChange, found: list[Effect]) -> tuple[Effect, ...]:
    """Return effects without those on views that one of the statements refuses to change.

    A plain view and a sink have no rows that are dropped.
    """
    if change.action is Action.DROP and change.kind not in {"stream", "table", "materialized view"}:
        found = [each for each in found if each.view != change.name]
    refuse = {each.view for each in found if each.path == REFUSED}
    return tuple(e for e in found if e.path == REFUSED or e.view not in refuse)


def _refused(
    change: PlannedChange, named: dict[str, PlannedChange], stored: StoredDefinitions
) -> HeadraceError | None:
    """Return the error that views which stay prevent a change; None if they do not."""
    refused = [each for each in change.effects if each.path == REFUSED]
    left = [each for each in refused if not _gets_another(each.view, change, named)]
    if not left or _clears(change, named, stored):
        return None
    return HeadraceError(
        Code.CONFLICT,
        f"{change.title} cannot be changed: {left[0].view}: {left[0].rule}",
        hint="Keep what the others use; or define a view with another name, and let them read"
        " that.",
        span=change.place,
    )


def _gets_another(view: str, change: PlannedChange, named: dict[str, PlannedChange]) -> bool:
    """Whether a view gets another query in the same swap, or is dropped or changed before."""
    other = named.get(view)
    if other is None:
        return False
    return (change.candidate is not None and other.candidate is not None) or view in change.after


def _clears(
    change: PlannedChange, named: dict[str, PlannedChange], stored: StoredDefinitions
) -> bool:
    """Whether all that reads what a change replaces is dropped before it."""
    readers = stored.read_by.get(change.name, set())
    gone = {name for name, each in named.items() if each.action is Action.DROP}
    return bool(readers) and readers <= gone


def _without_refusals(change: PlannedChange) -> PlannedChange:
    """Return a change without the refusals that other changes resolve, which are noted."""
    if change.problem is not None:
        return change
    refused = [each for each in change.effects if each.path == REFUSED]
    if not refused:
        return change
    kept = tuple(each for each in change.effects if each not in refused)
    note = f"together with {', '.join(each.view for each in refused)}"
    if change.candidate is None:
        note = "" if change.after else "filled again, after what reads it is dropped"
    return replace(change, effects=kept, note=", ".join(filter(None, (change.note, note))))


def _placed(
    error: HeadraceError, script: list[str], at: int, text: str, change: PlannedChange
) -> HeadraceError:
    """Return the error of a statement of a script with its place in the file.

    What is added to a statement is before its query, so places are counted from the end; a
    statement that no file has is placed at the definition that needs it.
    """
    place, found = change.place, error.span
    bare = HeadraceError(error.code, error.primary, error.detail, error.hint)
    if place is None:
        return bare
    if found is None or not text.lstrip().upper().startswith("CREATE"):
        return bare.at(place)
    if found.file is not None:  # in the text of a plain view
        return error
    offset = _offset(explained_script(script)[0], *found.position)
    begins = explained_script(script)[1]
    if bisect_right(begins, offset) - 1 != at:
        return bare.at(place)
    from_end = len(text.strip()) - (offset - begins[at])
    start = max(place.start, place.end - from_end)
    end = min(place.end, start + (found.end - found.start))
    return bare.at(Span(place.text, start, max(start, end), place.file))


def _offset(text: str, line: int, column: int) -> int:
    """Return the offset of a position, which is counted from 1."""
    begin = 0
    for _ in range(line - 1):
        begin = text.find("\n", begin) + 1
    return begin + column - 1


def _rows(database: AnyDatabase, script: list[str], *, offline: bool) -> list[dict[str, Any]]:
    text, _ = explained_script(script)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    how = "OFFLINE " if offline else ""
    answer = database.sql(f'EXPLAIN SCRIPT {how}"{escaped}"')
    return answer.to_pylist()


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
