"""Looks up single rows by key in a published state: bounded work, no planner, lock or wait."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.catalog import Table, View, key_of
from headrace.serving.contents import Contents
from headrace.types import is_collated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.catalog import Relation
    from headrace.runtime.published import Published
    from headrace.types import Schema

_WHOLE: Final = re.compile(r"-?\d{1,18}", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_MOST_UNREAD: Final = 4 << 20
"""The most bytes of run files that a lookup reads to verify them."""


def row_by_key(
    directory: Path, state: Published, relation: Relation, texts: Sequence[str]
) -> pa.Table | None:
    """Return the row with a key of a table or view in a state, with all its columns.

    ``texts`` are the values of the key, in the order of its columns. None if the lookup cannot be
    answered in microseconds: the relation has no unique key, or its types are not integers,
    booleans and strings; a text is not a plain value of its type; the view has stopped; or this
    process has never verified so much of its runs that doing so would take longer.
    """
    key = key_of(relation)
    if not isinstance(relation, Table | View) or not key or len(key) != len(texts):
        return None
    if relation.id in state.stopped or state.unread_bytes(relation, directory) > _MOST_UNREAD:
        return None
    values = {}
    for name, text in zip(key, texts, strict=True):
        values[name] = _value(relation.schema, name, text)
        if values[name] is None:
            return None
    contents = Contents.of(directory, state, relation)
    wanted = contents.layout.key
    if set(wanted) != set(key) or not contents.can_look_up():
        return None
    return contents.by_key([values[name] for name in wanted])


def _value(schema: Schema, name: str, text: str) -> object | None:
    """Return the value of a column for a text; None if only Spark can decide."""
    type_ = schema.arrow.field(name).type
    if pa.types.is_string(type_):
        return None if is_collated(schema.spark[name].dataType) else text
    if pa.types.is_integer(type_) and _WHOLE.fullmatch(text):
        value, most = int(text), 1 << (type_.bit_width - 1)
        return value if -most <= value < most else None
    return _BOOLEANS.get(text) if pa.types.is_boolean(type_) else None
