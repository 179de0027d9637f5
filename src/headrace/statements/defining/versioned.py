"""``WITH (effective_from = 'column')``: tables whose rows are versions of their key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from headrace.errors import Code, HeadraceError, meant

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql import CreateStream, CreateTable, Option
    from headrace.types import Schema

EFFECTIVE_FROM = "effective_from"
"""The option that names the column."""


def effective_column(statement: CreateStream | CreateTable, schema: Schema) -> str | None:
    """Return the effective column as spelled in the schema; None without the option.

    Raises:
        HeadraceError: ``invalid``, at the option or at the column's type, if there is no primary
            key, no such column, or the column is not a time or is part of the key.
    """
    option = versions_of(statement.options)
    if option is None:
        return None
    named = {name.lower(): name for name in schema.names}
    name = named.get(option.value.lower())
    if name is None:
        listed = f"There are: {', '.join(schema.names)}."
        raise _invalid(
            f'effective column "{option.value}" does not exist',
            meant(option.value, schema.names, listed),
            option.span,
        )
    if not statement.primary_key:
        raise _invalid(
            "a versioned table has no PRIMARY KEY",
            "Declare PRIMARY KEY (...): a row is a version of its key, from its date on.",
            option.span,
        )
    if name.lower() in {key.lower() for key in statement.primary_key}:
        raise _invalid(
            f'effective column "{name}" is in the PRIMARY KEY',
            "Leave it out of PRIMARY KEY: each key may have one version from any date on.",
            option.span,
        )
    column = next(d for d in statement.columns if d.name == name)
    type_ = schema.columns[schema.names.index(name)].type
    if not isinstance(type_, (DateType, TimestampType, TimestampNTZType)):
        raise _invalid(
            f'effective column "{name}" is {type_.simpleString().upper()}',
            "Use DATE, TIMESTAMP or TIMESTAMP_NTZ: it is the time from which a row is valid.",
            column.type.span,
        )
    return name


def refuse_versions(options: tuple[Option, ...]) -> None:
    """Raise if a view has the option, since its rows are computed."""
    option = versions_of(options)
    if option is not None:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "effective_from of a query is not supported",
            hint="Declare the columns and a PRIMARY KEY, and INSERT the versions.",
            span=option.span,
        )


def versions_of(options: tuple[Option, ...]) -> Option | None:
    """Return the option, or None."""
    return next((option for option in options if option.key.lower() == EFFECTIVE_FROM), None)


def _invalid(primary: str, hint: str, span: Span) -> HeadraceError:
    return HeadraceError(Code.INVALID, primary, hint=hint, span=span)
