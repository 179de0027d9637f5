"""ALTER MATERIALIZED VIEW ... AS: the statement that creates a view, with another query."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.catalog import CONTINUOUS, View
from headrace.errors import Code, HeadraceError, Span
from headrace.parts.naming import HIDDEN
from headrace.sql import CreateMaterializedView, Option, parse
from headrace.statements.defining.flags import AUTO_SWAP, REUSE
from headrace.statements.defining.history import HISTORY
from headrace.statements.defining.on_error import ON_ERROR
from headrace.statements.defining.options import check_view_options
from headrace.statements.defining.refresh_options import REFRESH_OPTIONS

if TYPE_CHECKING:
    from headrace.catalog import Catalog
    from headrace.sql import AlterViewQuery, Name

_OWN: Final = frozenset({*REFRESH_OPTIONS, HISTORY, ON_ERROR, AUTO_SWAP})
"""Options that ALTER may have changed since: they are those of the view."""
_FILLED: Final = frozenset({AUTO_SWAP, REUSE})
"""Options that say how the new query is filled, which ALTER may give."""


def redefined(catalog: Catalog, statement: AlterViewQuery) -> CreateMaterializedView:
    """Return the statement that replaces a view by one with another query and its own options.

    Its text is that of the view's definition with the new query.

    Raises:
        HeadraceError: ``invalid``, at the name, if there is no such view; ``unsupported`` if
            another statement made it, such as ``CREATE TABLE AS``, or at an option that says what
            the view is.
    """
    name, given = statement.name, {option.key.lower() for option in statement.options}
    check_view_options(statement.options)
    for option in statement.options:
        if option.key.lower() not in _FILLED:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'option "{option.key}" of ALTER MATERIALIZED VIEW ... AS is not supported',
                "It changes the query alone; other options stay as they are.",
                "ALTER MATERIALIZED VIEW ... SET changes refresh, on_error and history; CREATE OR"
                " REPLACE gives all options again.",
                option.span,
            )
    view = materialized(catalog, name)
    created, *_ = parse(view.created_sql)
    if not isinstance(created, CreateMaterializedView):
        raise HeadraceError(
            Code.UNSUPPORTED,
            f'another query of "{view.name}" is not supported by ALTER',
            hint="CREATE OR REPLACE it by the statement of SHOW CREATE, with the new query.",
            span=name.span,
        )
    text, query = created.span.text, created.query.span
    whole = text[: query.start] + statement.query.span.source + text[query.end :]
    own = [option for option in created.options if option.key.lower() not in _OWN]
    options = [option for option in own if option.key.lower() not in given]
    if view.refresh != CONTINUOUS:
        options.append(Option(REFRESH_OPTIONS[0], str(view.refresh), statement.span))
    if view.history is not None:
        options.append(Option(HISTORY, str(view.history), statement.span))
    if view.quarantines:
        options.append(Option(ON_ERROR, "quarantine", statement.span))
    return replace(
        created,
        name=name,
        query=statement.query,
        span=Span.whole(whole),
        options=(*options, *statement.options),
        or_replace=True,
        if_not_exists=False,
    )


def materialized(catalog: Catalog, name: Name) -> View:
    """Return the materialized view of a name; raise ``invalid``, at the name, for another kind."""
    found = catalog.resolve(name.dotted, name.span)
    if isinstance(found, View) and not found.name.startswith(HIDDEN):
        return found
    raise HeadraceError(
        Code.INVALID, f'"{found.name}" is a {found.kind}, not a materialized view', span=name.span
    )
