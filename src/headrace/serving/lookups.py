"""Single rows by key from a published state: bounded work, without a planner, a lock or a wait."""

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
"""How many bytes of run files are checked on the way, at most."""


def row_by_key(
    directory: Path, state: Published, relation: Relation, texts: Sequence[str]
) -> pa.Table | None:
    """Return the row of a key of a table or view in a state, all columns of it.

    ``texts`` are the values of the key, in the order of its columns. None if the lookup is not of
    the kind that takes microseconds: the relation has no unique key, or one of other types than
    integers, booleans and strings; a text is no plain value of its type; the view has stopped; or
    so much of its runs was never read by this process that checking them takes longer.
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
    """Return the value of a column that a text stands for; None if that is left to Spark."""
    type_ = schema.arrow.field(name).type
    if pa.types.is_string(type_):
        return None if is_collated(schema.spark[name].dataType) else text
    if pa.types.is_integer(type_) and _WHOLE.fullmatch(text):
        value, most = int(text), 1 << (type_.bit_width - 1)
        return value if -most <= value < most else None
    return _BOOLEANS.get(text) if pa.types.is_boolean(type_) else None
