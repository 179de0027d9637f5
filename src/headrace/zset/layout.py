"""What a table of rows with weights looks like: its columns, by the part that each one plays."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.zset.order import OrderBy, orderable

HASH = "__hash"
"""The column of int64 hashes of the key; equal keys have equal hashes, not the other way round."""

WEIGHT = "__weight"
"""The column of int64 weights: how many times a row is inserted, less how often it is deleted."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a Z-set, in physical order: ``__hash``, the identity, the sums.

    ``key`` names the columns that the hash was computed from, in the order of the key.
    ``columns`` are the identity: two rows that agree in all of them are one row. There may be none.
    ``summed`` add up when rows are merged: ``__weight`` and any further int64 or decimal128
    accumulators. They are never NULL.
    ``order`` names the identity columns by which the rows of one hash are sorted once they are
    consolidated; without it their order is free.
    """

    key: tuple[str, ...]
    columns: pa.Schema
    summed: pa.Schema
    order: tuple[OrderBy, ...] = ()
    schema: pa.Schema = field(init=False, repr=False, compare=False)
    """The physical schema of a table of this layout."""

    def __post_init__(self) -> None:
        names = [HASH, *self.columns.names, *self.summed.names]
        if len(set(names)) != len(names):
            raise _malformed("two columns share a name", names)
        if not set(self.key) <= set(self.columns.names):
            raise _malformed("a key column is not an identity column", list(self.key))
        for by in self.order:
            if by.name not in self.columns.names:
                raise _malformed("it is ordered by something else than its columns", [by.name])
            if not orderable(self.columns.field(by.name).type):
                raise _malformed("it is ordered by a column without an order", [by.name])
        if WEIGHT not in self.summed.names or self.summed.field(WEIGHT).type != pa.int64():
            raise _malformed("there is no int64 weight among the sums", self.summed.names)
        for total in self.summed:
            if not (pa.types.is_int64(total.type) or pa.types.is_decimal128(total.type)):
                raise _malformed("a sum is neither int64 nor decimal128", [str(total)])
        columns = [
            pa.field(HASH, pa.int64(), nullable=False),
            *self.columns,
            *(total.with_nullable(nullable=False) for total in self.summed),
        ]
        # Computed once: every operation on a table of this layout asks for it.
        object.__setattr__(self, "schema", pa.schema(columns))

    def with_summed(self, *fields: pa.Field) -> Layout:
        """Return the layout with further columns that add up."""
        return Layout(self.key, self.columns, pa.schema([*self.summed, *fields]), self.order)

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        value = {
            "key": list(self.key),
            "columns": _encoded(self.columns),
            "summed": _encoded(self.summed),
        }
        return value | ({"order": [asdict(by) for by in self.order]} if self.order else {})

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Layout:
        """Return the layout that :meth:`to_json` wrote."""
        order = tuple(OrderBy(**by) for by in value.get("order", ()))
        return cls(
            tuple(value["key"]), _decoded(value["columns"]), _decoded(value["summed"]), order
        )


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode("ascii")


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _malformed(why: str, names: list[str]) -> HeadraceError:
    return HeadraceError(
        Code.INTERNAL, f"malformed layout: {why}", detail=f"The columns are {', '.join(names)}."
    )
