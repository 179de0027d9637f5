"""SQL functions that views call get another body: the views are swapped, twice.

A function cannot be replaced while a view calls it. So the views are first swapped with candidates
that call a function with the new body under another name, all in one epoch, with all other views
of the plan; then the function is replaced, and candidates with the views' own texts, whose rows are
the same, take their places.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from headrace.planning.sql import CreateMaterializedView, CreateTableAs, ObjectKind
from headrace.planning.sql.lexer import tokens
from headrace.tools.deploying.changes import Action, PlannedChange, lags
from headrace.tools.deploying.forms import (
    FormDifference,
    FormPart,
    as_candidate,
    dropping,
    replacing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.planning.sql.definitions import Definition
    from headrace.tools.deploying.stored import StoredDefinitions


_NEXT: Final = "__next"
"""The end of the name under which a function has its new body for a while."""


def with_callers_swapped(
    changes: Mapping[str, PlannedChange],
    wanted: Mapping[str, Definition],
    stored: StoredDefinitions,
) -> dict[str, PlannedChange]:
    """Return changes with those by which what calls a replaced function is swapped.

    A function that anything else calls than materialized views of the files stays as it is.
    """
    found = dict(changes)
    for name, change in changes.items():
        if change.kind != "function" or change.action is not Action.REPLACE:
            continue
        callers = [
            each
            for each in sorted(stored.read_by.get(name, ()))
            if each not in changes or changes[each].action is not Action.DROP
        ]
        swapped = [_calling(each, name, found, wanted, stored) for each in callers]
        made = [each for each in swapped if each is not None]
        if not made or len(made) < len(swapped):
            continue
        found |= {each.name: each for each in made}
        found |= _around(change, made, found)
    return found


def _calling(
    caller: str,
    function: str,
    changes: Mapping[str, PlannedChange],
    wanted: Mapping[str, Definition],
    stored: StoredDefinitions,
) -> PlannedChange | None:
    """Return the change of a view that then calls a function under its name for a while.

    None for what can have no candidate.
    """
    definition, former = wanted.get(caller), stored.by_name.get(caller)
    if definition is None or former is None or former.kind != "materialized view":
        return None
    created = definition.created
    if not isinstance(created, CreateMaterializedView | CreateTableAs):
        return None
    if isinstance(created, CreateTableAs) and created.kind is ObjectKind.STREAM:
        return None
    if len(definition.statements) > 1 or lags(definition.statements) or lags(former.statements):
        return None
    change = changes.get(caller) or PlannedChange(
        Action.REPLACE,
        former.kind,
        caller,
        (replacing(created),),
        created.span,
        (FormDifference(FormPart.CLAUSE, f"function {function}"),),
        definition,
        as_candidate(created),
    )
    if change.candidate is None:
        return None
    read = change.definition or definition
    return replace(
        change,
        statements=tuple(_under_next_name(each, function) for each in change.statements),
        candidate=_under_next_name(change.candidate, function),
        definition=replace(read, reads=read.reads - {function}, surely=read.surely - {function}),
        after=change.after | {f"{function}{_NEXT}"},
    )


def _around(
    change: PlannedChange, callers: list[PlannedChange], changes: Mapping[str, PlannedChange]
) -> dict[str, PlannedChange]:
    """Return the changes of functions before and after the swap of what calls one, and a second."""
    name, following = change.name, f"{change.name}{_NEXT}"
    made = {
        following: PlannedChange(
            Action.CREATE,
            change.kind,
            following,
            tuple(_under_next_name(each, name) for each in change.statements),
            change.place,
            note=f"stands in for {name} while what calls it is swapped",
        ),
        name: replace(change, after=change.after | {each.name for each in callers}),
    }
    for each in callers:
        definition = each.definition
        again = f"{each.name} (with its functions)"
        former = changes.get(again)
        if definition is None or not isinstance(
            definition.created, CreateMaterializedView | CreateTableAs
        ):
            continue
        made[again] = PlannedChange(
            Action.REPLACE,
            each.kind,
            again,
            (replacing(definition.created),),
            each.place,
            candidate=as_candidate(definition.created),
            note="the same rows, by its own text",
            relation=each.name,
            after=frozenset({name}) | (former.after if former is not None else frozenset()),
        )
    made[f"{following} (dropped)"] = PlannedChange(
        Action.DROP,
        change.kind,
        f"{following} (dropped)",
        (dropping("function", following),),
        relation=following,
        after=frozenset(f"{each.name} (with its functions)" for each in callers),
    )
    return made


def _under_next_name(text: str, function: str) -> str:
    """Return a statement that names a function, or calls it, by its name for a while."""
    found = [*tokens(text)]
    for each, following in reversed([*pairwise(found)]):
        if each.text.strip("`").lower() == function and following.text == "(":
            text = f"{text[: each.start]}{function}{_NEXT}{text[each.end :]}"
    return text
