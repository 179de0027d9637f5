"""Asks the database what each change of a plan will do to views; nothing is changed.

The queries of new and replaced views are planned for that, so that a wrong one is found before the
first change. A query over what does not exist yet is checked when its turn comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headrace.deploying.plan import Action, Effect
from headrace.deploying.texts import as_written, dropping, in_its_file, replacing
from headrace.errors import Code, HeadraceError
from headrace.sql import CreateMaterializedView, CreateTableAs, CreateView
from headrace.statements.describing.alteration_effects import REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.connecting import AnyDatabase
    from headrace.deploying.plan import DeploymentPlan, PlannedChange
    from headrace.deploying.stored import StoredDefinitions
    from headrace.errors import Span

_LATER: Final = "checked once what it reads exists"
_CHANGE: Final = "EXPLAIN CHANGE "
_RELATIONS: Final = frozenset({"stream", "table", "materialized view", "view"})


def explain(
    plan: DeploymentPlan,
    stored: StoredDefinitions,
    database: AnyDatabase,
    says: Callable[[str], None] = lambda _: None,
) -> None:
    """Add to a plan the effects of its changes, and what is wrong with their queries.

    ``says`` is called with the title of each change before it is asked about.
    """
    explained: list[PlannedChange] = []
    named = {each.name: each for each in plan.changes}
    for change in plan.changes:
        says(change.title)
        try:
            explained.append(_explained(change, named, stored, database))
        except HeadraceError as error:
            if error.code is Code.UNAVAILABLE:
                raise
            refused = error.code is Code.CONFLICT
            if not refused and _reads_a_change(change, named):
                effects = _effects_as_it_is(change, stored, database)
                explained.append(replace(change, effects=effects, note=_LATER))
            else:
                plan.problems.append(error)
                explained.append(change)
    plan.changes = explained


def _explained(
    change: PlannedChange,
    named: dict[str, PlannedChange],
    stored: StoredDefinitions,
    database: AnyDatabase,
) -> PlannedChange:
    """Return a change with its effects.

    Raises:
        HeadraceError: as its statement would; ``conflict`` if views that stay prevent it.
    """
    created = None if change.definition is None else change.definition.created
    match change.action:
        case Action.CREATE if isinstance(created, CreateMaterializedView | CreateTableAs):
            _rows(database, as_written(created, "EXPLAIN CIRCUIT "), created.span)
            return replace(change, note="filled from its inputs")
        case Action.CREATE | Action.REPLACE if isinstance(created, CreateView):
            query = created.query
            _rows(database, as_written(query, "EXPLAIN CIRCUIT "), query.span)
            return change
        case Action.REPLACE if isinstance(created, CreateMaterializedView | CreateTableAs):
            effects = _effects(_rows(database, replacing(created, _CHANGE), created.span))
        case Action.ALTER:
            lists = [_altering(database, each, change.place) for each in change.statements]
            every = dict.fromkeys(effect for found in lists for effect in found)
            # A view that one of the statements refuses does not go on.
            refuse = {each.view for each in every if each.path == REFUSED}
            effects = tuple(e for e in every if e.path == REFUSED or e.view not in refuse)
            if change.after and all(each in named for each in refuse):
                kept = tuple(each for each in effects if each.path != REFUSED)
                return replace(change, effects=kept)  # these are changed before
        case Action.DROP if change.kind in _RELATIONS:
            drop = dropping(change.kind, change.name)
            effects = _effects(_rows(database, f"{_CHANGE}{drop}"))
            gone = Effect(change.name, "drop", "its rows are deleted", None)
            return replace(change, effects=(gone,) if effects and change.kind != "view" else ())
        case _:
            return change
    refused = [each for each in effects if each.path == REFUSED]
    if refused and change.candidate is not None and all(_waits(e.view, named) for e in refused):
        others = ", ".join(each.view for each in refused)
        kept = tuple(each for each in effects if each not in refused)
        return replace(change, effects=kept, note=f"together with {others}")
    if refused and not _clears(change, named, stored):
        raise HeadraceError(
            Code.CONFLICT,
            f"{change.title} cannot be changed: {refused[0].view}: {refused[0].rule}",
            hint="Keep what the others use; or define a view with another name, and let them read"
            " that.",
            span=change.place,
        )
    if refused:
        return replace(change, note="filled again, after what reads it is dropped")
    return replace(change, effects=effects)


def _altering(database: AnyDatabase, text: str, place: Span | None) -> tuple[Effect, ...]:
    """Return the effects of an ALTER that no file has; errors are placed at the definition."""
    try:
        return _effects(_rows(database, f"{_CHANGE}{text}"))
    except HeadraceError as error:
        raise HeadraceError(error.code, error.primary, error.detail, error.hint, place) from error


def _effects_as_it_is(
    change: PlannedChange, stored: StoredDefinitions, database: AnyDatabase
) -> tuple[Effect, ...]:
    """Return the effects of the replacement of a view whose query cannot be planned yet.

    They are those of replacing it by itself: they hold if its columns stay.
    """
    former = stored.by_name.get(change.name)
    created = former.statements[0] if former is not None and former.statements else None
    if not isinstance(created, CreateMaterializedView | CreateTableAs):
        return ()
    return _effects(_rows(database, replacing(created, _CHANGE)))


def _waits(view: str, named: dict[str, PlannedChange]) -> bool:
    """Whether a view gets another query by a candidate, in the same swap."""
    return view in named and named[view].candidate is not None


def _clears(
    change: PlannedChange, named: dict[str, PlannedChange], stored: StoredDefinitions
) -> bool:
    """Whether all that reads what a change replaces is dropped before it."""
    readers = stored.read_by.get(change.name, set())
    gone = {name for name, each in named.items() if each.action is Action.DROP}
    return bool(readers) and readers <= gone


def _reads_a_change(change: PlannedChange, named: dict[str, PlannedChange]) -> bool:
    """Whether a change reads what another one creates or changes."""
    reads = frozenset() if change.definition is None else change.definition.reads
    return any(
        name in reads and each.action is not Action.DROP
        for name, each in named.items()
        if name != change.name
    )


def _effects(rows: list[dict[str, Any]]) -> tuple[Effect, ...]:
    return tuple(Effect(row["view"], row["path"], row["rule"], row["rebuild_rows"]) for row in rows)


def _rows(database: AnyDatabase, text: str, span: Span | None = None) -> list[dict[str, Any]]:
    """Return the rows of a statement; errors are placed in the file of the span that it has."""
    try:
        return database.sql(text, file=None if span is None else span.file).to_pylist()
    except HeadraceError as error:
        raise error if span is None else in_its_file(error, text, span) from error
