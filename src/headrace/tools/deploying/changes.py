"""How one definition of a project changes what a database has of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.defining.view_options import refresh_of
from headrace.planning.sql import (
    CreateConnection,
    CreateFunction,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateSecret,
    CreateSink,
    CreateSource,
    CreateStream,
    CreateTable,
    CreateTableAs,
    CreateView,
    DropColumns,
    Insert,
    ObjectKind,
    RenameColumn,
    RetypeColumn,
    quote,
    quote_dotted,
)
from headrace.planning.sql.definitions import CREATED
from headrace.tools.deploying.forms import (
    FormDifference,
    FormPart,
    altering,
    as_candidate,
    as_written,
    dropping,
    form_of,
    replacing,
    statements_of,
)
from headrace.tools.deploying.stored import column_steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.errors import Span
    from headrace.planning.sql import Option, Statement
    from headrace.planning.sql.definitions import Definition
    from headrace.tools.deploying.forms import DefinitionForm
    from headrace.tools.deploying.stored import StoredDefinition, StoredDefinitions


_RETENTION: Final = FormDifference(FormPart.OPTION, "retention")
_ALTERED_OPTIONS: Final = frozenset(
    FormDifference(FormPart.OPTION, key) for key in ("history", "on_error", "refresh")
)


class Action(StrEnum):
    """What a change does."""

    CREATE = "create"
    REPLACE = "replace"
    ALTER = "alter"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a change on a view, as EXPLAIN CHANGE says it.

    A rebuild of it reads so many ``rows``, in about so many ``seconds``.
    """

    view: str
    path: str
    rule: str
    rows: int | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change of a database: the statements that make it, each to be run after the one before.

    ``place`` is that of the definition, None for a drop. ``candidate`` is the statement that fills
    a candidate in place of the last of ``statements``, for views that may have one. ``dropping``
    are statements that come after those of what reads it, and ``after`` the names of the changes
    that it needs: none of them is made later. ``rows`` are the stored rows that it reads, which
    takes about so many ``seconds``; None where that is not known. With a ``problem`` it cannot be
    made at present. ``relation`` is what it changes, if that is not its name.
    """

    action: Action
    kind: str
    name: str
    statements: tuple[str, ...]
    place: Span | None = None
    differs: tuple[FormDifference, ...] = ()
    definition: Definition | None = None
    candidate: str | None = None
    effects: tuple[Effect, ...] = ()
    note: str = ""
    dropping: tuple[str, ...] = ()
    after: frozenset[str] = frozenset()
    rows: int | None = None
    seconds: float | None = None
    problem: HeadraceError | None = None
    relation: str = ""

    @property
    def target(self) -> str:
        """The name of what it changes."""
        return self.relation or self.name

    @property
    def title(self) -> str:
        """The kind and the name."""
        return self.name if self.name.startswith(f"{self.kind} ") else f"{self.kind} {self.name}"

    @property
    def file(self) -> str | None:
        """The file of the definition."""
        return None if self.place is None else self.place.file

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write."""
        return {
            "action": str(self.action),
            "kind": self.kind,
            "name": self.name.removeprefix(f"{self.kind} "),
            "file": self.file,
            "line": None if self.place is None else self.place.position[0],
            "differs": list(map(str, self.differs)),
            "effects": [
                {
                    "view": e.view,
                    "path": e.path,
                    "rule": e.rule,
                    "rebuild_rows": e.rows,
                    "seconds": e.seconds,
                }
                for e in self.effects
            ],
            "rows": self.rows,
            "seconds": self.seconds,
            "note": self.note or None,
        }


def kind_of(created: Statement) -> str:
    """Return the kind of what a statement creates, for people."""
    match created:
        case CreateStream():
            return "table" if created.primary_key else "stream"
        case CreateTable():
            return "table"
        case CreateTableAs() if created.kind is ObjectKind.STREAM:
            return "stream"
        case CreateMaterializedView() | CreateTableAs():
            return "materialized view"
        case CreateView():
            return "view"
        case CreateSink():
            return "sink"
        case CreateFunction():
            return "function"
        case CreateIndex():
            return "index"
        case CreateSchema():
            return "schema"
        case CreateSecret():
            return "secret"
        case CreateConnection():
            return "connection"
        case CreateSource():
            return "source"
        case Insert():
            return "job"
        case _:
            raise HeadraceError(Code.INTERNAL, f"{type(created).__name__} creates nothing")


def existing(definition: Definition, stored: StoredDefinitions) -> StoredDefinition | None:
    """Return what the database has of the name; for an index without one, that of its columns."""
    created = definition.created
    if not isinstance(created, CreateIndex):
        return stored.by_name.get(definition.name)
    schema = created.relation.dotted.rpartition(".")[0]
    if created.name is not None:
        own = created.name.dotted.rpartition(".")[2]
        return stored.by_name.get(f"index {schema}.{own}" if schema else f"index {own}")
    form = form_of((created,))
    for each in stored.by_name.values():
        if each.kind == "index" and _same_index(form, each):
            return each
    return None


def jobs(
    wanted: Iterable[Definition], stored: StoredDefinitions
) -> dict[str, StoredDefinition | None]:
    """Return the jobs of a database that are those of definitions, which have no names.

    They are the same if they say the same. If one is left of a table's jobs on either side, it is
    the same one, with another query.
    """
    found: dict[str, StoredDefinition | None] = {}
    left = [each for each in stored.by_name.values() if each.kind == "job" and each.statements]
    others: dict[str, list[Definition]] = {}
    for each in wanted:
        if isinstance(each.created, Insert):
            form = form_of(each.statements)
            same = next((s for s in left if not form_of(s.statements).differences(form)), None)
            found[each.name] = same
            if same is None:
                others.setdefault(each.created.target.dotted, []).append(each)
            else:
                left.remove(same)
    for target, definitions in others.items():
        near = [s for s in left if form_of(s.statements).parts["target"] == target]
        if len(near) == len(definitions) == 1:
            found[definitions[0].name] = near[0]
    return found


def _same_index(form: DefinitionForm, stored: StoredDefinition) -> bool:
    other = form_of(stored.statements)
    same = form.parts["relation"] == other.parts["relation"]
    return same and form.columns == other.columns


def followed_through(wanted: Iterable[Definition], stored: StoredDefinitions) -> Iterable[str]:
    """Yield the tables of a database that a wanted source creates with it."""
    for each in wanted:
        if not isinstance(each.created, CreateSource):
            continue
        for name, table in stored.by_name.items():
            if _source_of(table) == each.created.name.dotted and (
                each.created.all_tables or name in _tables_of(each.created)
            ):
                yield name


def _tables_of(source: CreateSource) -> dict[str, str]:
    """Return the references of the tables that a statement creates with a source, by name."""
    return {
        (each.name or each.reference).dotted.rpartition(".")[2]
        if each.name is None
        else each.name.dotted: ".".join(map(quote, each.reference.parts))
        for each in source.tables
    }


def _source_of(table: StoredDefinition) -> str | None:
    """Return the source that a table of a database follows; None for another relation."""
    created = table.statements[0] if table.statements else None
    if isinstance(created, CreateTable) and created.captured is not None:
        return created.captured.source.dotted
    return None


def created_by(definition: Definition) -> PlannedChange:
    """Return the change that creates what a definition defines."""
    created = definition.created
    statements = tuple(as_written(each) for each in definition.statements)
    return PlannedChange(
        Action.CREATE,
        kind_of(created),
        definition.name,
        statements,
        created.span,
        definition=definition,
    )


def changed_by(
    definition: Definition, former: StoredDefinition, stored: StoredDefinitions
) -> PlannedChange | None:
    """Return the change of a definition that exists; None if it is the same.

    Raises:
        HeadraceError: ``unsupported`` if it cannot be changed.
    """
    created, kind = definition.created, kind_of(definition.created)
    if not former.statements and former.kind == "source":  # only its owners may see what it is
        return None
    if isinstance(created, CreateSource) and former.kind == "source":
        return _changed_source(definition, created, stored)
    if not former.statements:
        differs: tuple[FormDifference, ...] = (
            FormDifference(FormPart.KIND, "definition, which the database does not have"),
        )
    else:
        differs = form_of(former.statements).differences(form_of(definition.statements))
        if isinstance(created, CreateIndex):
            differs = tuple(each for each in differs if each.name != "name")
    if not differs:
        return None
    if former.statements and _group(former) != _group_of(created):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'{former.kind} "{definition.name}" would become a {kind}',
            hint=f"Give it another name, or DROP it first: {dropping(former.kind, former.name)}.",
            span=created.span,
        )
    change = PlannedChange(
        Action.REPLACE, kind, definition.name, (), created.span, differs, definition
    )
    later = tuple(as_written(each) for each in definition.statements[1:])
    match created:
        case CreateStream() | CreateTable() if former.statements:
            return _altered_columns(change, definition, former)
        case CreateMaterializedView() | CreateTableAs() if kind == "materialized view":
            if set(differs) <= _ALTERED_OPTIONS and (altered := _altered_view(change, definition)):
                return altered
            apart = lags(definition.statements) or lags(former.statements)
            candidate = None if later or apart else as_candidate(created)
            return replace(change, statements=(replacing(created), *later), candidate=candidate)
        case CreateView() | CreateFunction() | CreateSink() | CreateSecret() | CreateConnection():
            note = ""
            if isinstance(created, CreateSink):
                note = "delivers all rows of its view again, then the changes"
            return replace(change, statements=(replacing(created), *later), note=note)
        case CreateIndex() | Insert():
            drop = dropping(kind, former.name)
            return replace(change, statements=(drop, as_written(created)))
        case _:
            raise _unchangeable(change)


def _changed_source(
    definition: Definition, created: CreateSource, stored: StoredDefinitions
) -> PlannedChange | None:
    """Return the change of a source that exists: the tables that it does not have yet.

    Raises:
        HeadraceError: ``unsupported`` if it is of another publication, slot or connection.
    """
    former = stored.by_name[definition.name].statements
    before, after = form_of(former), form_of((created,))
    differs = [
        each
        for each in before.differences(after)
        if each.name not in {"tables", "all tables"}
        and (each != FormDifference(FormPart.OPTION, "slot") or "slot" in after.options)
    ]
    change = PlannedChange(
        Action.ALTER, "source", definition.name, (), created.span, tuple(differs), definition
    )
    if differs:
        raise _unchangeable(change)
    new = {n: place for n, place in _tables_of(created).items() if n not in stored.by_name}
    if not new:
        return None
    of = quote_dotted(created.name.dotted)
    return replace(
        change,
        statements=tuple(
            f"CREATE TABLE {quote_dotted(name)} FROM SOURCE {of} (REFERENCE {place})"
            for name, place in new.items()
        ),
        differs=(FormDifference(FormPart.CLAUSE, "tables", f"new {', '.join(new)}"),),
    )


def _group(former: StoredDefinition) -> str:
    """Return what a definition of a database may be replaced by."""
    created = former.statements[0]
    return _group_of(created) if isinstance(created, CREATED) else former.kind


def _group_of(created: Statement) -> str:
    """Return what may replace each other."""
    into = isinstance(created, CreateTableAs) and created.kind is ObjectKind.STREAM
    return "stream by a query" if into else kind_of(created)


def _altered_columns(
    change: PlannedChange, definition: Definition, former: StoredDefinition
) -> PlannedChange:
    """Return the change of a stream or table by other columns, or another retention."""
    wanted = definition.statements
    steps = column_steps(change.kind, change.name, former.statements, wanted)
    altered = [each for text in steps.every for each in statements_of(text)]
    left = set(form_of((*former.statements, *altered)).differences(form_of(wanted)))
    if not left <= ({_RETENTION} if change.kind == "stream" else set()):
        raise _unchangeable(change)
    statements = list(steps.statements)
    if _RETENTION in left:
        given = _option(wanted, "retention")
        statements.append(altering("STREAM", change.name, given, "retention"))
    return replace(
        change,
        action=Action.ALTER,
        statements=tuple(statements),
        note=note_on(steps.statements),
        dropping=steps.dropping,
    )


def note_on(statements: Iterable[str]) -> str:
    """Return what statements do to columns that exist."""
    found: list[str] = []
    for each in (parsed for text in statements for parsed in statements_of(text)):
        match each:
            case RetypeColumn():
                type_ = each.type.span.source
                found.append(f"ALTER COLUMN {quote(each.column.text)} TYPE {type_}")
            case RenameColumn():
                found.append(f"RENAME COLUMN {quote(each.column.text)} TO {quote(each.to.text)}")
            case DropColumns():
                found += [f"DROP COLUMN {quote(dropped.text)}" for dropped in each.dropped]
            case _:
                pass
    return ", ".join(found)


def _altered_view(change: PlannedChange, definition: Definition) -> PlannedChange | None:
    """Return the change of a view's options; None if one would have to be unset."""
    statements = []
    for each in change.differs:
        given = _option(definition.statements, each.name)
        if given is None:
            return None
        statements.append(altering("MATERIALIZED VIEW", change.name, given, each.name))
    return replace(change, action=Action.ALTER, statements=tuple(statements))


def lags(statements: Iterable[Statement]) -> bool:
    """Return whether a view is refreshed apart: such a view has no candidates."""
    given = _option(statements, "refresh")
    policy = None if given is None else refresh_of((given,))
    return policy is not None and policy.lags


def _option(statements: Iterable[Statement], key: str) -> Option | None:
    """Return the option that a CREATE and the ALTERs after it set last; None if it is unset."""
    found = None
    for each in statements:
        for option in getattr(each, "options", ()):
            if option.key.lower() == key:
                found = None if getattr(each, "resets", False) else option
    return found


def _unchangeable(change: PlannedChange) -> HeadraceError:
    what = ", ".join(map(str, change.differs))
    later = (
        "Columns can be added at the end, plain ones that may be NULL; they can be dropped, get"
        " another name (-- was name), or a wider type. "
    )
    return HeadraceError(
        Code.UNSUPPORTED,
        f'{change.kind} "{change.name}" cannot be changed to its definition',
        f"It differs from the database in: {what}.",
        (later if change.kind in {"stream", "table"} else "")
        + (
            "CREATE one with another name and INSERT INTO it SELECT the rows of this one; or DROP"
            " this one first, which deletes its rows."
            if change.kind in {"stream", "table"}
            else f"Give it another name, or {dropping(change.kind, change.name)} first."
        ),
        change.place,
    )
