"""The new values of columns in UPDATE: literals, and expressions that Spark evaluates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headrace.errors import Span
from headrace.formats.fitted import not_fitting
from headrace.formats.fitting import fitted
from headrace.formats.literals import NoLiteral, is_default, literal, literal_converter
from headrace.formats.values import RejectedValueError
from headrace.sql.lexer import tokens
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.types import Column, Schema

Assigned: TypeAlias = "tuple[Column, Span]"
"""A column, and the place of its expression."""


def split_assignments(
    assigned: Sequence[Assigned], defaults: Mapping[str, str]
) -> tuple[dict[str, pa.Scalar], list[Assigned]]:
    """Return the values of literal assignments by column, and the other assignments.

    Raises:
        HeadraceError: ``invalid`` for a literal that its column cannot hold.
    """
    constants: dict[str, Any] = {}
    computed: list[Assigned] = []
    for column, span in assigned:
        found = list(tokens(span.text, span.start, span.end, span.file))
        if is_default(found):
            text = defaults.get(column.name, "NULL")
            found, span = list(tokens(text)), Span.whole(text)  # noqa: PLW2901
        try:
            value = literal(found)
        except NoLiteral:
            computed.append((column, span))
            continue
        if value is not None:
            try:
                value = literal_converter(column)(value)
            except RejectedValueError as reason:
                raise not_fitting(f'column "{column.name}"', reason, span) from reason
        constants[column.name] = pa.array([value], to_arrow(column.type))[0]
    return constants, computed


def updated(
    schema: Schema,
    old: pa.Table,
    constants: dict[str, pa.Scalar],
    computed: Sequence[Assigned],
    values: Sequence[pa.ChunkedArray],
) -> pa.Table:
    """Return rows with new values: the constants, and the values of the expressions.

    Raises:
        HeadraceError: ``invalid`` for a value that its column cannot hold.
    """
    new: dict[str, Any] = {}
    for (column, span), found in zip(computed, values, strict=True):
        made = fitted(found, column.type, first=True)
        if made.refused:
            raise not_fitting(f'column "{column.name}"', next(iter(made.refused.values())), span)
        new[column.name] = made.values
    new |= {name: pa.repeat(value, old.num_rows) for name, value in constants.items()}
    arrays = [new.get(field.name, old[field.name]) for field in schema.arrow]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)
