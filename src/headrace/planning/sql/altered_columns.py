"""A CREATE of a stream or table with the columns that the ALTERs after it have left it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.planning.sql.alter import DropColumns, RenameColumn, RetypeColumn
from headrace.planning.sql.rewritten import with_column
from headrace.planning.sql.statements import AddColumns, CreateStream, CreateTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.planning.sql.parts import ColumnDefinition, Fragment, Statement


def with_altered_columns(created: Statement, altered: Iterable[Statement]) -> Statement:
    """Return the statement that creates a stream or table as it is after others.

    Any other statement is returned as it is.
    """
    if not isinstance(created, CreateStream | CreateTable):
        return created
    for each in altered:
        match each:
            case AddColumns():
                known = {column.name.lower() for column in created.columns}
                added = (c for c in each.columns if c.name.lower() not in known)
                created = replace(created, columns=(*created.columns, *added))
            case DropColumns():
                gone = {column.text.lower() for column in each.dropped}
                left = tuple(c for c in created.columns if c.name.lower() not in gone)
                created = replace(created, columns=left)
            case RenameColumn():
                created = _renamed(created, each.column.text, each.to.text)
            case RetypeColumn():
                name = each.column.text.lower()
                columns = (
                    replace(c, type=each.type) if c.name.lower() == name else c
                    for c in created.columns
                )
                created = replace(created, columns=tuple(columns))
            case _:
                pass
    return created


def _renamed(created: CreateStream | CreateTable, name: str, to: str) -> CreateStream | CreateTable:
    """Return a statement with another name of a column, wherever it names the column."""

    def named(given: str) -> str:
        return to if given.lower() == name.lower() else given

    def column(each: ColumnDefinition) -> ColumnDefinition:
        computed = None if each.computed is None else _over(each.computed, name, to)
        return replace(each, name=named(each.name), computed=computed)

    watermark = created.watermark
    if watermark is not None:
        expression = _over(watermark.expression, name, to)
        watermark = replace(watermark, column=named(watermark.column), expression=expression)
    altered = replace(
        created,
        columns=tuple(map(column, created.columns)),
        primary_key=tuple(map(named, created.primary_key)),
        watermark=watermark,
        taken=replace(created.taken, unique=tuple(map(named, created.taken.unique))),
    )
    if isinstance(altered, CreateStream):
        return replace(altered, message_key=tuple(map(named, altered.message_key)))
    return altered


def _over(given: Fragment, name: str, to: str) -> Fragment:
    return replace(given, text=with_column(given.text, name, to))
