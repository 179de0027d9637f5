"""Ensures that no two sinks write to the same topic, table, or directory tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.catalog import Sink
from headrace.connectors import CONNECTOR, sink_connector
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalog import Catalog
    from headrace.connectors import SinkContext
    from headrace.errors import Span
    from headrace.sql import Option
    from headrace.statements.sinks.destination import Destination


def require_own_place(
    catalog: Catalog,
    into: Destination,
    context: SinkContext,
    options: Iterable[Option],
    span: Span,
) -> None:
    """Raise if another sink writes to the destination, or has written files there.

    Rows of other databases' sinks are searched in the target itself when it is checked. ``context``
    is not of an existing sink; ``options`` belong to the statement at ``span``.

    Raises:
        HeadraceError: ``conflict``.
    """
    place, target = into.place(context), into.connector.target_of(into.options)
    written = next((each for each in options if each.key.lower() == "path"), None)
    path = str(getattr(into.options, "path", ""))
    shared = False
    for sink in catalog:
        if not isinstance(sink, Sink) or not sink.options:
            continue
        connector = sink_connector(dict(sink.options)[CONNECTOR])
        other = connector.restored(sink.options)
        if target is not None and connector.target_of(other) == target:
            raise HeadraceError(
                Code.CONFLICT,
                f'sink "{sink.name}" writes there already',
                "Two changelogs are never written to the same place.",
                "Write into another place.",
                span,
            )
        theirs = None if place is None else connector.place(other, context)
        if place is None or theirs is None:
            continue
        if theirs == place and into.connector.shares and connector.name == into.connector.name:
            shared = True
        elif place.is_relative_to(theirs) or theirs.is_relative_to(place):
            has = "has" if theirs == place else "and another, one in the other, have"
            what = f"directory '{path}' {has} the changelog of sink \"{sink.name}\""
            raise _taken(what, span if written is None else written.span)
    if shared or not isinstance(place, Path):  # a store is searched when the sink is checked
        return
    roots = [each.resolve() for each in (context.directory / "sinks", *context.roots)]
    above = [
        each
        for each in place.parents
        if any(each != root and each.is_relative_to(root) for root in roots)
    ]
    if any(map(_has_changes, above)) or (_has_any(place) and not into.connector.shares):
        what = f"directory '{path}' has the changelog of a sink that was dropped"
        raise _taken(what, span if written is None else written.span)


def _has_any(place: Path) -> bool:
    return place.is_dir() and any(place.iterdir())


def _has_changes(place: Path) -> bool:
    """Whether a directory has files, or subdirectories such as a sink creates."""
    return place.is_dir() and any(
        each.is_file() or "=" in each.name or each.name.startswith("_") for each in place.iterdir()
    )


def _taken(what: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.CONFLICT,
        what,
        "A directory holds one changelog, whose sum is the view.",
        "Choose another path, or remove the directory.",
        span,
    )
