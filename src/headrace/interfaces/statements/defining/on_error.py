"""``on_error``: whether a view stops at rows on which its query fails, or quarantines them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import MapType, VariantType

from headrace.errors import Code, HeadraceError, masked, meant
from headrace.interfaces.statements.checking.repairs import restarted_note
from headrace.interfaces.statements.defining.view_options import HISTORY, history_of
from headrace.interfaces.statements.results import Progress
from headrace.lifecycle.states.quarantined import quarantined_rows
from headrace.planning.catalog import Stream, Table, View, title
from headrace.planning.circuit.digest import stamped
from headrace.types import holds, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.errors import Span
    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.statements.checking.repairs import Rebuilds
    from headrace.interfaces.statements.refreshing import Refreshing
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog
    from headrace.planning.circuit import Circuit
    from headrace.planning.sql import AlterView, Option


ON_ERROR: Final = "on_error"
_CHOICES: Final = {"stop": False, "quarantine": True}


def on_error(options: Iterable[Option]) -> Option | None:
    """Return the option ``on_error``, if given."""
    return next((option for option in options if option.key.lower() == ON_ERROR), None)


def quarantines(option: Option | None) -> bool:
    """Whether failing rows are quarantined; by default, the view stops.

    Raises:
        HeadraceError: ``invalid``, at its place, for another value.
    """
    if option is None:
        return False
    value = option.value.lower()
    if value not in _CHOICES:
        raise HeadraceError(
            Code.INVALID,
            f"'{option.value}' is not a value of on_error",
            hint=meant(value, _CHOICES, "Use 'stop' or 'quarantine'."),
            span=option.span,
        )
    return _CHOICES[value]


def require_quarantine(view: View, circuit: Circuit, catalog: Catalog, place: Span) -> None:
    """Raise if a view cannot quarantine rows.

    Raises:
        HeadraceError: ``unsupported``, at the option, unless the view is maintained in every epoch,
            and reads only streams and tables, whose rows must be comparable.
    """
    read = (catalog.by_id[id_] for id_ in view.depends_on)
    over = next((each for each in read if not isinstance(each, Stream | Table)), None)
    if over is not None:
        raise _unsupported(
            f"on_error = 'quarantine' of a view over {title(over)} is not supported",
            "Set it for the view below, or put the query of that one in place of its name.",
            place,
        )
    if view.refresh.lags:
        raise _unsupported(
            f"on_error = 'quarantine' of a view whose refresh is {view.refresh} is not supported",
            "Leave refresh out: the view is maintained in every epoch.",
            place,
        )
    for guard in circuit.guards().values():
        for name, type_ in zip(guard.operator.columns.names, guard.types, strict=True):
            if holds(type_, (MapType, VariantType)):
                raise _unsupported(
                    "on_error = 'quarantine' of a view that reads MAP or VARIANT is not supported",
                    f'Column "{name}" of {title(catalog.by_id[guard.relation])} is one.',
                    place,
                )


def _unsupported(primary: str, hint: str, place: Span) -> HeadraceError:
    return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=place)


def _require_alone(option: str, statement: AlterView) -> None:
    """Raise ``unsupported`` if a statement alters other options as well."""
    if len(statement.options) > 1:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{option} is altered alone",
            hint="Alter other options in a statement of their own.",
            span=statement.span,
        )


@dataclass(frozen=True, slots=True)
class ErrorPolicies:
    """ALTER MATERIALIZED VIEW: changes a view's ``on_error``, ``history`` or its refresh."""

    reader: Reader
    engine: Engine
    definer: Definer
    rebuilds: Rebuilds
    refreshing: Refreshing
    report: Callable[[Progress], None]

    def alter(self, statement: AlterView) -> str:
        """Change an option of a view."""
        option = on_error(statement.options)
        if option is not None:
            return self._set(statement, option)
        if any(each.key.lower() == HISTORY for each in statement.options):
            return self._keep(statement)
        return self.refreshing.alter(statement)

    def _keep(self, statement: AlterView) -> str:
        """Change how long former states of a view can be read, from now on."""
        _require_alone(HISTORY, statement)
        view = self._view(statement)
        kept = history_of(statement.options)
        written = f"{view.created_sql};\n{masked(statement.span.source)}"
        self.definer.regroup(view, replace(view, history=kept, created_sql=written))
        since, _ = self.reader.ledger.spines.oldest()[rows_of(view.id)]
        how = "as long as those of tables" if kept is None else f"for {kept}"
        return (
            f"altered view {view.name}: its former states are kept {how};"
            f" it can be read from epoch {since} on"
        )

    def _set(self, statement: AlterView, option: Option) -> str:
        """Make a view stop on errors or quarantine rows, by filling another build of it.

        A stopped view runs again with it, and so do the views above it.

        Raises:
            HeadraceError: the error of the query, if the view would stop and has rows in
                quarantine; nothing is changed then.
        """
        _require_alone(ON_ERROR, statement)
        view = self._view(statement)
        chosen = quarantines(option)
        if chosen == view.quarantines:
            return f"view {view.name} has on_error = '{option.value.lower()}' already"
        stopped = view.id in self.reader.published.stopped
        if not (stopped and chosen):
            self.reader.require_running(view)
        altered = replace(
            view,
            quarantines=chosen,
            replacement=self.definer.new_build(),
            created_sql=f"{view.created_sql};\n{masked(statement.span.source)}",
        )
        planned = self.engine.planned(altered)
        if chosen:
            require_quarantine(altered, planned.circuit, self.reader.catalog, option.span)
        what = f"rebuilding {view.name}"
        try:
            self.definer.replace_view(
                view,
                replace(planned, view=stamped(altered, planned.circuit)),
                lambda done, total: self.report(Progress(what, done, total, "rows")),
                stays=view.refresh.lags,
            )
        except HeadraceError as error:
            raise self._with_rows(view, error) from error
        note = restarted_note(self.rebuilds.restart([view.id])) if stopped else ""
        return f"altered view {view.name}: on an error it is to {option.value.lower()}{note}"

    def _with_rows(self, view: View, error: HeadraceError) -> HeadraceError:
        """Return the error of a rebuild, and where the rows that cause it are listed.

        It quotes no row, since reading rows needs more rights than altering the view.
        """
        reader = self.reader
        kept = quarantined_rows(reader.ledger, reader.directory, reader.published, view)
        if error.code is not Code.INVALID or next(kept, None) is None:
            return error
        hint = f"SHOW ERRORS FOR {view.name} lists the rows on which it fails: correct them first."
        return HeadraceError(error.code, error.primary, error.detail, hint, error.span)

    def _view(self, statement: AlterView) -> View:
        name = statement.name
        relation = self.reader.catalog.resolve(name.dotted, name.span)
        if isinstance(relation, View) and relation.into is None:
            return relation
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{title(relation)} is not a materialized view",
            hint="Name a materialized view.",
            span=name.span,
        )
