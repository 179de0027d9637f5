"""CREATE FUNCTION and DROP FUNCTION of functions whose body is an expression.

Such a function is a hidden plain view (:data:`headrace.planning.catalog.FUNCTION_VIEW`), so that
views that call it depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import FUNCTION_VIEW, PlainView, title
from headrace.planning.catalog.naming import HIDDEN
from headrace.planning.sql import quote
from headrace.planning.sql.rewritten import called_with

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.execution.engine.engine import Engine
    from headrace.interfaces.statements.functions import FunctionChanges
    from headrace.lifecycle.definitions.definer import Definer
    from headrace.lifecycle.states.reader import Reader
    from headrace.planning.catalog import Catalog, Defined
    from headrace.planning.catalyst.analysed import Analysed
    from headrace.planning.sql import CreateFunction, DropFunction


@dataclass(frozen=True, slots=True)
class SqlFunctions:
    """Creates functions whose body is an expression, and drops functions."""

    reader: Reader
    engine: Engine
    definer: Definer
    function_changes: FunctionChanges

    def create(self, statement: CreateFunction) -> str:
        """Create a function, or replace one that no view calls.

        Raises:
            HeadraceError: ``invalid`` or ``unsupported`` if its body cannot be evaluated,
                ``conflict`` if the name is taken, or the function to replace is used.
        """
        name, span, catalog = statement.name.dotted, statement.name.span, self.reader.catalog
        if "." in name:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "a function in a schema is not supported",
                hint="Choose a name without a schema: functions are of the whole database.",
                span=span,
            )
        if name in self.engine.declared.remembered:
            raise HeadraceError(
                Code.CONFLICT,
                f'function "{name}" is a Python function',
                hint=f"Choose another name, or DROP FUNCTION {name} first.",
                span=span,
            )
        former = find_function(catalog, name)
        if former is not None and statement.if_not_exists:
            return f'function "{name}" exists already'
        if former is not None and not statement.or_replace:
            raise HeadraceError(
                Code.CONFLICT,
                f'function "{name}" exists already',
                hint="Use CREATE OR REPLACE, or IF NOT EXISTS.",
                span=span,
            )
        if former is not None:
            _require_unused(catalog, former, span, "DROP these, and create them again afterwards.")
        view = self._view(statement)
        self.definer.create(view, () if former is None else (former.id,))
        done = "created" if former is None else "replaced"
        return f"{done} function {statement.signature}"

    def drop(self, statement: DropFunction) -> str:
        """Drop a function, of SQL or Python; with CASCADE, also the views that call it."""
        catalog, name = self.reader.catalog, statement.name.dotted
        function = find_function(catalog, name)
        if function is None:
            return self.function_changes.drop(statement)
        above = catalog.dependants(function.id)
        if not statement.cascade:
            hint = f"Use DROP FUNCTION {name} CASCADE to drop these too."
            _require_unused(catalog, function, statement.name.span, hint)
        self.definer.drop([function.id, *(each.id for each in above)])
        also = f" and {_listed(above)}" if above else ""
        return f"dropped function {name}{also}"

    def _view(self, statement: CreateFunction) -> PlainView:
        span = statement.body.span
        names = [quote(name) for name, _ in statement.parameters]
        call = called_with(statement, names)
        nulls = [
            f"CAST(NULL AS {type_}) AS {name}"
            for name, (_, type_) in zip(names, statement.parameters, strict=True)
        ]
        rows = f" FROM (SELECT {', '.join(nulls)})" if nulls else ""
        query = f"SELECT {call} AS result{rows}"
        with self.engine.planning:
            if find_function(self.reader.catalog, statement.name.dotted) is None:
                self.engine.planner.require_own_name(statement.name.dotted)
            analysed = self._analysed(query, span)
            self._require_one_row(call, nulls, span)
        return PlainView(
            self.definer.new_relation(),
            f"{FUNCTION_VIEW}{statement.name.dotted}",
            analysed.schema,
            query,
            analysed.names,
            analysed.through,
            statement.span.source,
            tuple(sorted(analysed.calls)),
        )

    def _analysed(self, text: str, span: Span) -> Analysed:
        """Analyse a query with the body; the place of errors is the body in the statement."""
        try:
            return self.engine.planner.analyse(Span.whole(text))
        except HeadraceError as error:
            raise HeadraceError(
                error.code, error.primary, error.detail, error.hint, span
            ) from error

    def _require_one_row(self, call: str, nulls: list[str], span: Span) -> None:
        """Raise for an aggregate: Spark rejects a column beside one in a query without GROUP BY."""
        row = ", ".join([*nulls, "1 AS __row"])
        try:
            self.engine.planner.analyse(Span.whole(f"SELECT {call}, __row FROM (SELECT {row})"))
        except HeadraceError as error:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "an aggregate function in the body of a function is not supported",
                hint="Aggregate in the query, and call the function with the result.",
                span=span,
            ) from error


def find_function(catalog: Catalog, name: str) -> PlainView | None:
    """Return the hidden plain view of the named SQL function, or None."""
    found = catalog.find(f"{FUNCTION_VIEW}{name.lower()}")
    return found if isinstance(found, PlainView) else None


def _require_unused(catalog: Catalog, function: Defined, span: Span, hint: str) -> None:
    above = catalog.dependants(function.id)
    if above:
        name = function.name.removeprefix(FUNCTION_VIEW)
        raise HeadraceError(
            Code.CONFLICT, f'function "{name}" is used by {_listed(above)}', hint=hint, span=span
        )


def _listed(relations: Iterable[Defined]) -> str:
    """Return the names of relations for messages, without hidden ones except functions."""
    names = [
        f'function "{each.name.removeprefix(FUNCTION_VIEW)}"'
        if each.name.startswith(FUNCTION_VIEW)
        else title(each)
        for each in relations
        if each.name.startswith(FUNCTION_VIEW) or not each.name.startswith(HIDDEN)
    ]
    return ", ".join(names) or "the rows that somebody follows"
